"""The ledger of a cluster: what is deployed, as a line of numbered revisions in storage, and the lock that guards it.

A revision is an object that is created if absent, so writing revision n + 1 is a compare-and-swap on revision n, on a
disk as in a bucket, and every earlier state stays readable as history. All bytes go through the one object adapter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import orjson

from omnigraph import clock
from omnigraph.cluster.desired import sha256
from omnigraph.errors import GraphError, OmniGraphError
from omnigraph.findings import ClusterError, Finding, cluster_error, error, warning
from omnigraph.manifest.locks import HeldLock, LockHeld, LockInfo, LockUnreadable, NumberedLocks
from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.objects.uri import Location

FOLDER: Final = "__cluster"
STATE_FOLDER: Final = f"{FOLDER}/state"
PAYLOAD_FOLDER: Final = f"{FOLDER}/resources"
LOCK_FOLDER: Final = f"{FOLDER}/locks"
VERSION: Final = 1
# Other objects of the folder, such as a copy by hand, are no revisions.
_REVISION: Final = re.compile(r"[0-9]{12}\.json")
Json: TypeAlias = dict[str, Any]
Status = Literal["pending", "planned", "applying", "applied", "drifted", "blocked", "error"]


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """The status of a resource, with coded conditions and a sentence for people."""

    status: Status
    conditions: tuple[str, ...] = ()
    message: str | None = None

    def to_json(self) -> Json:
        optional = {} if self.message is None else {"message": self.message}
        return {"status": self.status, "conditions": list(self.conditions), **optional}


@dataclass(frozen=True, slots=True)
class AppliedState:
    """What is applied, as a revision of the ledger has it.

    `resources` maps an address to digest and metadata; `operation` says what made the revision.
    """

    revision: int = 0
    config_digest: str | None = None
    resources: Mapping[str, Json] = field(default_factory=dict)
    statuses: Mapping[str, ResourceStatus] = field(default_factory=dict)
    approval_records: Mapping[str, Json] = field(default_factory=dict)
    recovery_records: Mapping[str, Json] = field(default_factory=dict)
    observations: Mapping[str, Json] = field(default_factory=dict)
    operation: Mapping[str, Any] = field(default_factory=dict)

    def digest(self, address: str) -> str | None:
        """Return the applied digest of a resource, or None if it is not applied or its content is lost."""
        resource = self.resources.get(address)
        return None if resource is None else str(resource["digest"]) or None

    def graphs(self) -> list[str]:
        """Return the ids of the applied graphs in order."""
        return sorted(address.removeprefix("graph.") for address in self.resources if address.startswith("graph."))

    def incarnation(self, graph_id: str) -> str | None:
        """Return the id of this incarnation of a graph; None if the graph was adopted."""
        return self.resources[f"graph.{graph_id}"].get("incarnation")

    def to_json(self) -> Json:
        return {
            "version": VERSION,
            "state_revision": self.revision,
            "applied_revision": {"config_digest": self.config_digest, "resources": dict(self.resources)},
            "resource_statuses": {address: status.to_json() for address, status in self.statuses.items()},
            "approval_records": dict(self.approval_records),
            "recovery_records": dict(self.recovery_records),
            "observations": dict(self.observations),
            "operation": dict(self.operation),
        }

    @classmethod
    def from_json(cls, data: Json) -> AppliedState:
        """Decode a revision; a missing, unknown or wrong member is a `KeyError`, `TypeError` or `ValueError`."""
        unknown = data.keys() - _MEMBERS
        if unknown or data["version"] != VERSION:
            raise ValueError(f"unknown member or version: {sorted(unknown) or data['version']}")
        applied = data["applied_revision"]
        for value in (*(data[name] for name in _MAPPINGS), applied["resources"]):
            if not isinstance(value, dict):
                raise TypeError(f"expected an object, not {type(value).__name__}")
        unknown = applied.keys() - {"config_digest", "resources"}
        unknown |= {name for item in applied["resources"].values() for name in item.keys() - _RESOURCE_MEMBERS}
        unknown |= {item["status"] for item in data["resource_statuses"].values()} - set(get_args(Status))
        if unknown or any("digest" not in item for item in applied["resources"].values()):
            raise ValueError(f"unknown member or status: {sorted(unknown) or 'no digest'}")
        statuses = {
            address: ResourceStatus(item["status"], tuple(item["conditions"]), item.get("message"))
            for address, item in data["resource_statuses"].items()
        }
        return cls(
            data["state_revision"],
            applied["config_digest"],
            applied["resources"],
            statuses,
            data["approval_records"],
            data["recovery_records"],
            data["observations"],
            data["operation"],
        )


_MEMBERS: Final = frozenset(AppliedState().to_json())
_MAPPINGS: Final = ("resource_statuses", "approval_records", "recovery_records", "observations", "operation")
# `incarnation` identifies a graph among deleted ones of the same id.
_RESOURCE_MEMBERS: Final = frozenset(
    {"digest", "applies_to", "embedding_provider", "embedding_profile", "external_blob_policy", "graph", "incarnation"}
)


@dataclass(frozen=True, slots=True)
class StoredRevision:
    """A revision as it was read or written; `cas` identifies exactly these bytes."""

    state: AppliedState
    cas: str


class Ledger:
    """The stored objects of a cluster below the root of its storage."""

    def __init__(self, storage: str) -> None:
        self.root = Location.parse(storage)
        self.objects = Objects(self.root)
        self.locks = NumberedLocks(self.objects, LOCK_FOLDER)
        self._newest = 0

    def graph_uri(self, graph_id: str) -> str:
        return f"{self.root.uri.rstrip('/')}/{graph_path(graph_id)}"

    def read(self) -> StoredRevision | None:
        """Return the newest revision, or None if there is none; raises `ClusterError` if it cannot be decoded."""
        revisions = self.revisions()
        return self.read_revision(revisions[-1]) if revisions else None

    def revisions(self) -> list[int]:
        """Return the numbers of all revisions, oldest first."""
        names = (info.path.rpartition("/")[2] for info in self.objects.list(STATE_FOLDER))
        return sorted(int(name.removesuffix(".json")) for name in names if _REVISION.fullmatch(name))

    def fingerprint(self) -> tuple[int, int]:
        """Return the number of the newest revision and when it was written, zeros without any.

        Revisions have no gaps, so after the first call it only asks for the last number and the next: a server asks
        often. The time tells a revision from a later one of the same number, after a ledger was restored.
        """
        info = self.objects.info(_state_path(self._newest)) if self._newest else None
        if info is None:
            self._newest = max(self.revisions(), default=0)
            info = self.objects.info(_state_path(self._newest))
        while info is not None and (following := self.objects.info(_state_path(self._newest + 1))) is not None:
            self._newest, info = self._newest + 1, following
        return (0, 0) if info is None else (self._newest, info.modified_us)

    def read_revision(self, revision: int) -> StoredRevision | None:
        data = self.objects.read_if_exists(_state_path(revision))
        if data is None:
            return None
        try:
            state = AppliedState.from_json(orjson.loads(data))
            if state.revision != revision:
                raise ValueError(f"it says that it is revision {state.revision}")
            return StoredRevision(state, f"sha256:{sha256(data)}")
        except (ValueError, KeyError, TypeError, AttributeError) as failure:
            message = f"this release cannot decode it ({failure}); upgrade OmniGraph, or restore the object"
            raise cluster_error("state_unreadable", _state_path(revision), message) from None

    def write(self, state: AppliedState, base: StoredRevision | None) -> StoredRevision:
        """Write the successor of a revision; raises if another operation has written it first.

        A lost answer of storage is no conflict: the revision is read back, and equal bytes are our own.
        """
        revision = (base.state.revision if base is not None else 0) + 1
        data = orjson.dumps(replace(state, revision=revision).to_json(), option=orjson.OPT_SORT_KEYS)
        path = _state_path(revision)
        # Optimistic concurrency: of two writers that read revision n, one creates n + 1, with or without the lock.
        if not self.objects.write_if_absent(path, data) and self.objects.read_if_exists(path) != data:
            message = f"another operation has written revision {revision}; run the command again. Nothing was recorded"
            raise cluster_error("state_cas_mismatch", STATE_FOLDER, message)
        return StoredRevision(replace(state, revision=revision), f"sha256:{sha256(data)}")

    def write_payload(self, address: str, digest: str, data: bytes) -> bool:
        """Store the content of a query, policy or pipeline by its digest; False if it is stored already."""
        path = payload_path(address, digest)
        # Content-addressed and written before the revision that names it, so a crash leaves an unused object, never a
        # revision without its content. Bytes that do not match their name are damaged, and replaced.
        stored = self.objects.read_if_exists(path)
        if stored is not None and sha256(stored) == digest:
            return False
        self.objects.write(path, data)
        return True

    def read_payload(self, address: str, digest: str) -> bytes | None:
        """Return stored content, or None if it is missing; raises `ClusterError` if it does not match its digest."""
        data = self.objects.read_if_exists(payload_path(address, digest))
        if data is not None and sha256(data) != digest:
            message = f"the stored content of `{address}` does not match its digest; `cluster apply` stores it again"
            raise cluster_error("catalog_payload_mismatch", payload_path(address, digest), message)
        return data

    def read_json(self, folder: str) -> dict[str, Json]:
        """Return the JSON objects of a folder below `__cluster` by their path."""
        paths = [info.path for info in self.objects.list(f"{FOLDER}/{folder}") if info.path.endswith(".json")]
        contents = {path: self.objects.read_if_exists(path) for path in paths}
        return {path: _decode(path, data) for path, data in contents.items() if data is not None}

    def write_json(self, path: str, value: Mapping[str, Any]) -> None:
        self.objects.write(path, orjson.dumps(dict(value), option=orjson.OPT_SORT_KEYS))


def _decode(path: str, data: bytes) -> Json:
    try:
        value = orjson.loads(data)
        if not isinstance(value, dict):
            raise TypeError
    except (ValueError, TypeError):
        raise unreadable_object(path, "it is not a JSON object") from None
    return value


def unreadable_object(path: str, reason: str) -> ClusterError:
    """Return the error of a stored object that another tool has written or damaged."""
    return cluster_error("cluster_object_unreadable", path, f"{reason}; restore it, or remove it by hand")


def _state_path(revision: int) -> str:
    return f"{STATE_FOLDER}/{revision:012d}.json"


def graph_path(graph_id: str) -> str:
    """Return the folder of a graph below the root."""
    return f"graphs/{graph_id}.omni"


def payload_path(address: str, digest: str) -> str:
    kind, _, name = address.partition(".")
    suffix = {"query": "gq", "schema": "pg"}.get(kind, "yaml")
    return f"{PAYLOAD_FOLDER}/{kind}/{name.replace('.', '/', 1)}/{digest}.{suffix}"


def operation_record(operation: str, actor: str | None, **details: object) -> Json:
    return {"operation": operation, "actor": actor, "at": clock.now_us(), **details}


def refuse_managed(uri: str, command: str) -> None:
    """Raise if an address belongs to a cluster, whose graphs and schemas only `cluster apply` changes."""
    root = cluster_root(Location.parse(uri))
    if root is not None and Ledger(root.uri).revisions():
        raise _managed(uri, root.uri, command)


def cluster_root(graph: Location) -> Location | None:
    """Return where a cluster would be that has a graph at this location; None if no cluster can have it."""
    folder = graph.parent
    root = None if folder is None else folder.parent
    if root is None or root.child(graph_path(graph.name.removesuffix(".omni"))) != graph:
        return None
    return root


def refuse_inside_cluster(uri: str, command: str) -> None:
    """Raise if a new graph would be inside the storage of a cluster; in a bucket, only where its graphs are."""
    refuse_managed(uri, command)
    location = Location.parse(uri)
    for folder in Path(location.path).parents if location.has_paths else ():
        if (folder / STATE_FOLDER).is_dir():
            raise _managed(uri, str(folder), command)


def _managed(uri: str, root: str, command: str) -> GraphError:
    return GraphError(
        f"`{uri}` belongs to the cluster at `{root}`; change its folder and run `omnigraph cluster apply` instead"
        f" of `{command}`",
        code="cluster.managed",
        cluster=root,
    )


_KINDS: Final = ("query", "policy", "pipeline", "schema")
_LOST: Final = ("catalog_payload_missing", "catalog_payload_mismatch")


def check_content(ledger: Ledger, state: AppliedState) -> list[Finding]:
    """Return a finding for each query, policy, pipeline or schema whose stored content is lost or was changed."""
    findings = []
    for address, resource in state.resources.items():
        kind = address.partition(".")[0]
        if kind not in _KINDS:
            continue
        try:
            # The graph itself has its schema, so that its text is only looked at.
            if ledger.read_payload(address, resource["digest"]) is None and kind != "schema":
                message = "its stored content is missing; `cluster apply` stores it again"
                findings.append(warning("catalog_payload_missing", address, message))
        except ClusterError as failure:
            findings.append(replace(failure.findings[0], severity="warning", path=address))
        except OmniGraphError as failure:
            findings.append(error("catalog_payload_read_error", address, failure.message))
    return findings


def forget_lost(state: AppliedState, findings: Iterable[Finding]) -> AppliedState:
    """Forget the digests of lost content, so that the next apply stores it again.

    The resources stay, because what a policy is bound to must not be forgotten: a server refuses a revision without the
    content of a policy, and would serve a graph without a policy to every actor.
    """
    resources, statuses = dict(state.resources), dict(state.statuses)
    for item in findings:
        if item.code in _LOST and not item.path.startswith("schema."):
            resources[item.path] = {**resources[item.path], "digest": ""}
            statuses[item.path] = ResourceStatus("drifted", ("catalog_payload_missing",))
        elif item.code == "catalog_payload_read_error":
            statuses[item.path] = ResourceStatus("error", (item.code,), item.message)
    return replace(state, resources=resources, statuses=statuses)


def read_lock(ledger: Ledger) -> LockInfo | None:
    """Return the newest lock, held or released, or None if there never was one."""
    try:
        return ledger.locks.read()
    except LockUnreadable as failure:
        raise _unreadable_error(failure) from None


@contextmanager
def hold_lock(ledger: Ledger, operation: str, actor: str | None) -> Iterator[ClusterLock]:
    """Hold the lock of a cluster; raises `ClusterError` with `state_lock_held` while another operation holds it."""
    try:
        lock = ledger.locks.acquire(operation, actor)
    except LockUnreadable as failure:
        raise _unreadable_error(failure) from None
    except LockHeld as failure:
        raise _held_error(failure.holder) from None
    lock.start()
    try:
        yield ClusterLock(lock)
    finally:
        lock.release()


def force_unlock(ledger: Ledger, lock_id: str, actor: str | None) -> None:
    """Release the lock of another process; `lock_id` must be that of the current holder."""
    current = read_lock(ledger)
    if current is None or not current.is_held:
        raise cluster_error("state_lock_missing", LOCK_FOLDER, "no operation holds the lock")
    if current.lock_id != lock_id:
        message = f"the lock is held as `{current.lock_id}`; check which operation you mean to stop"
        raise cluster_error("state_lock_id_mismatch", LOCK_FOLDER, message)
    # The next number is created as released, so the holder notices that it has lost before its next change.
    if not ledger.locks.release_by_force(current, actor):
        raise cluster_error("state_lock_missing", LOCK_FOLDER, "the lock has just changed hands; look again")


def _unreadable_error(failure: LockUnreadable) -> ClusterError:
    message = "it cannot be decoded; delete the object if no operation is running"
    return cluster_error("invalid_state_lock", failure.path, message)


def _held_error(lock: LockInfo | None) -> ClusterError:
    message = "other operations took the lock first each time; nothing was changed. Run the command again"
    if lock is not None:
        by_actor = f" by `{lock.body['actor']}`" if lock.body["actor"] else ""
        message = (
            f"`{lock.body['operation']}`{by_actor} holds the lock `{lock.lock_id}`; wait for it, or, if it is certainly"
            f" dead, run `omnigraph cluster force-unlock {lock.lock_id}`"
        )
    return cluster_error("state_lock_held", LOCK_FOLDER, message)


class ClusterLock:
    """A held lock of a cluster."""

    def __init__(self, lock: HeldLock) -> None:
        self._lock = lock
        self.lock_id = lock.lock_id

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is worth a warning: a dead holder had the lock."""
        dead = self._lock.taken_from
        if dead is None:
            return ()
        message = f"its holder `{dead.body['operation']}` has stopped without releasing it; taken over"
        return (warning("state_lock_taken_over", LOCK_FOLDER, message),)

    def require(self) -> None:
        """Raise if the lock was taken over; called before everything that changes storage."""
        if self._lock.is_lost:
            message = "another operation has taken over the lock; nothing more was changed. Run the command again"
            raise cluster_error("state_lock_lost", LOCK_FOLDER, message)
