"""Create a graph: claimed by one process, completed by one commit, and undone if it fails before that.

The first version of `__manifest` is the commit point; readers see nothing that was written before it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import orjson
import pyarrow as pa

from omnigraph import clock, failpoints
from omnigraph.errors import Effect, GraphError, OmniGraphError, StorageError
from omnigraph.failpoints import Point
from omnigraph.ids import CommitId, OperationId, new_ulid
from omnigraph.lang.catalog import EdgeType, NodeType, TypeKey
from omnigraph.lang.schema import CompiledSchema
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.manifest import encoding
from omnigraph.manifest.intents import Owner, this_process
from omnigraph.manifest.model import MANIFEST_PATH, AcceptedSchema, Commit, Pin, State, TypeIdentity
from omnigraph.store.lance_schema import physical_schema
from omnigraph.store.objects.backend import ObjectInfo
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.store import LostRace, Store
from omnigraph.store.write.file_proof import Proof

SCHEMA_COPY = "_schema.pg"
CLAIM_PREFIX = "__init_claim"


def init(store: Store, schema: CompiledSchema, *, actor: str | None = None, force: bool = False) -> None:
    """Create a graph; `force` may replace a stray schema copy, never a graph."""
    _preflight(store, force)
    operation_id = OperationId(new_ulid())
    claims = _claim(store, operation_id)
    failpoints.hit(Point.INIT_CLAIMED, operation_id)
    try:
        _preflight(store, force=True)
    except GraphError:
        _release(store, claims)
        raise
    try:
        store.objects.write(SCHEMA_COPY, schema.source.text.encode())
        pins = _create_datasets(store, schema)
    except OmniGraphError:
        _undo(store, claims)
        raise
    failpoints.hit(Point.INIT_DATASETS_CREATED, operation_id)
    commit = Commit(CommitId(new_ulid()), None, 1, None, None, actor, clock.now_us(), "init", operation_id)
    accepted = AcceptedSchema.of(schema.source.text, schema.ir)
    state = State(None, commit.commit_id, accepted, pins, commits=(commit,))
    _create_manifest(store, state, operation_id, claims)
    failpoints.hit(Point.INIT_MANIFEST_CREATED, operation_id)
    try:
        encoding.check_stamp(store.open_latest(MANIFEST_PATH, None).schema, f"the graph at `{store.root.uri}`")
    except OmniGraphError as error:
        # A failed storage request is no evidence that the graph is damaged.
        if not (isinstance(error, StorageError) and error.retryable):
            raise GraphError(
                f"the graph was created, but reading it back failed: {error.message}. Open it, or look at its storage",
                code="graph.initialization_committed",
                effect=Effect.APPLIED,
                operation_id=operation_id,
            ) from error
    store.objects.keep_reserve()
    _release(store, claims)


def _preflight(store: Store, force: bool) -> None:
    parts_present = [MANIFEST_PATH] if store.has_versions(MANIFEST_PATH, None) else []
    # With a claim, all other files belong to an unfinished init; the claim decides whether we may take over.
    if not claims_of(store):
        parts_present.extend(folder for folder in ("nodes", "edges") if store.objects.list(folder))
        if not force and store.objects.exists(SCHEMA_COPY):
            parts_present.append(SCHEMA_COPY)
    if parts_present:
        parts = " and ".join(f"`{name}`" for name in parts_present)
        state = "is already a graph" if MANIFEST_PATH in parts_present else f"already holds {parts}, a part of a graph"
        raise GraphError(
            f"`{store.root.uri}` {state}; open it, or choose another address",
            code="graph.already_initialized",
            uri=store.root.uri,
        )


def _claim(store: Store, operation_id: OperationId) -> list[str]:
    """Take the next claim number; the claim of an owner that is certainly dead may be taken over, a live one not.

    Taking over means writing the next number, so only one of several processes that find a dead owner succeeds.
    """
    owner = this_process()
    body = orjson.dumps({"operation_id": operation_id, "owner": owner.to_json(), "started_at": clock.now_us()})
    claim_paths = [info.path for info in claims_of(store)]
    claimed = False
    if not claim_paths or _is_abandoned(store, claim_paths[-1]):
        # Older claims may have been removed, so the last number counts, not the number of claims.
        number = int(claim_paths[-1].split(".")[1]) + 1 if claim_paths else 1
        claim_paths.append(f"{CLAIM_PREFIX}.{number:06d}.json")
        claimed = store.objects.write_if_absent(claim_paths[-1], body)
    if not claimed:
        raise GraphError(
            f"another process is creating a graph at `{store.root.uri}`; wait for it, then open the graph",
            code="graph.initialization_claimed",
            uri=store.root.uri,
        )
    if len(claim_paths) > 1:
        # Remove the incomplete datasets of the dead owner.
        for folder in ("nodes", "edges"):
            store.objects.delete_prefix(folder)
    return claim_paths


def claims_of(store: Store) -> list[ObjectInfo]:
    """Return the stored claims, oldest first; they are irrelevant once there is a manifest."""
    return [info for info in store.objects.list("") if info.path.startswith(CLAIM_PREFIX)]


def _is_abandoned(store: Store, claim: str) -> bool:
    body, info = store.objects.read_if_exists(claim), store.objects.info(claim)
    if body is None or info is None:
        return False
    try:
        owner = Owner.from_json(orjson.loads(body)["owner"])
        return owner.is_dead(0 if owner.is_here else store.objects.read_time() - info.modified_us)
    except (ValueError, KeyError, TypeError) as error:
        raise GraphError(
            f"the claim `{claim}` cannot be read; if no process is creating a graph here, delete it",
            code="graph.initialization_claimed",
            object=claim,
        ) from error


def _create_datasets(store: Store, schema: CompiledSchema) -> dict[TypeKey, Pin]:
    def create(entity: NodeType | EdgeType) -> Pin:
        identity = TypeIdentity.of(entity)
        path = identity.path(entity.table_key)
        try:
            created = store.create(path, physical_schema(arrow_schema(entity)))
        except LostRace as error:
            raise GraphError(
                f"`{path}` is taken by something that is not part of a graph; choose another address",
                code="graph.already_initialized",
                object=path,
            ) from error
        return Pin(identity, entity.table_key, path, 1, None, 0, checksum=created.checksum)

    pins = store.in_parallel([partial(create, type_) for type_ in schema.catalog.types])
    return {pin.table_key: pin for pin in pins}


def _create_manifest(store: Store, state: State, operation_id: OperationId, claims: list[str]) -> None:
    schema = encoding.schema_of(operation_id, None, ())

    def sealed(proofs: list[Proof]) -> pa.Schema:
        return encoding.schema_of(operation_id, None, (), encoding.FileChecksums(store.pack_checksums(proofs)))

    try:
        store.create(MANIFEST_PATH, schema, encoding.encode(state).replace_schema_metadata(schema.metadata), sealed)
    except (OmniGraphError, LostRace) as error:
        if _is_ours(store, operation_id, error):
            return
        if isinstance(error, OmniGraphError):
            _undo(store, claims)
            raise
        # The existing files belong to the process that won.
        _release(store, claims)
        raise GraphError(
            f"another process created a graph at `{store.root.uri}` at the same time; nothing was written. Open that"
            " graph",
            code="graph.already_initialized",
        ) from error


def _is_ours(store: Store, operation_id: OperationId, error: Exception) -> bool:
    """Settle a lost acknowledgement: does the first version carry our own operation?"""
    try:
        if not store.has_version(DatasetRef(MANIFEST_PATH, None, 1)):
            return False
        metadata = store.open(DatasetRef(MANIFEST_PATH, None, 1)).schema.metadata or {}
    except OmniGraphError as probe:
        raise GraphError(
            f"storage did not answer whether the graph at `{store.root.uri}` was created ({probe.message}); open it to"
            " find out. Its claim is kept",
            code="graph.initialization_indeterminate",
            effect=Effect.UNKNOWN,
            operation_id=operation_id,
        ) from error
    return bool(metadata.get(encoding.OPERATION_KEY, b"").decode() == operation_id)


def _undo(store: Store, claims: list[str]) -> None:
    """Remove what an unfinished init has written; the claim goes last, so that no other init builds on the rest.

    Never raises, so that the caller gets the original error. A claim that stays is taken over by the next init here.
    """
    with suppress(StorageError):
        for folder in ("nodes", "edges"):
            store.objects.delete_prefix(folder)
        store.objects.delete(SCHEMA_COPY)
        _release(store, claims)


def _release(store: Store, claims: list[str]) -> None:
    # Newest last: while an older number is missing, the newest still represents all of them.
    for claim in claims:
        store.objects.discard(claim)
