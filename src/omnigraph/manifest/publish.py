"""Publish: the only way to change a graph.

Everything is staged and synced first; then one compare-and-swap on `__manifest`, the commit point, makes all of it
visible; then links follow. A crash before the commit point changes nothing; after it, any process finishes the links.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Final

from omnigraph import clock, failpoints, ids
from omnigraph.errors import ConflictError, DriftDetected, Effect, OmniGraphError, StorageError, StorageKind
from omnigraph.failpoints import Point
from omnigraph.ids import OperationId, new_operation_id, on_branch
from omnigraph.limits import (
    COMMIT_WINDOW_ROWS,
    CONDITIONAL_PUT_ATTEMPTS_MAX,
    PUBLISH_DEADLINE_SECONDS,
    RETRY_WAIT_SECONDS,
    STAGED_SECONDS_MAX,
    UNKNOWN_OUTCOME_RETRIES_MAX,
)
from omnigraph.manifest import encoding, history
from omnigraph.manifest import plan as plans
from omnigraph.manifest.heads import ObservedHead
from omnigraph.manifest.intents import held_here
from omnigraph.manifest.model import Commit, Link, Snapshot, State, correct_date
from omnigraph.manifest.updates import AddCommit, Draft, ForgetCommits, SetVersion
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.store import LostRace, Staged, StagedRows, StaleBase, Store, Strict


class Publication:
    """The permission of one write to be published.

    >>> early, late = Publication(), Publication()
    >>> early.begin(OperationId("01")); early.close(), late.close()
    ('01', None)
    >>> late.begin(OperationId("02"))
    Traceback (most recent call last):
    omnigraph.errors.ConflictError: the caller stopped waiting for this write; nothing was written
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self._operation_id: OperationId | None = None

    def begin(self, operation_id: OperationId) -> None:
        """Record, right before the commit point, that the write is being published; raise if it was closed."""
        with self._lock:
            if self._is_closed:
                raise ConflictError("the caller stopped waiting for this write; nothing was written")
            self._operation_id = operation_id

    def lose(self) -> None:
        """Record that nothing was published after all."""
        with self._lock:
            self._operation_id = None

    def close(self) -> OperationId | None:
        """Keep the write from being published from now on; return the operation that was, or is being, published."""
        with self._lock:
            self._is_closed = True
            return self._operation_id


_watched: Final[ContextVar[Publication | None]] = ContextVar("publication", default=None)


@contextmanager
def watched(publication: Publication) -> Iterator[None]:
    """Let a caller in another thread close the writes that are made here."""
    token = _watched.set(publication)
    try:
        yield
    finally:
        _watched.reset(token)


def current() -> Publication:
    """Return the publication of the current write; a new one, which is never closed, if there is none."""
    return _watched.get() or Publication()


def unknown_outcome(operation_id: OperationId, why: str, kind: StorageKind = StorageKind.TRANSIENT) -> StorageError:
    """Return the error for a write that may or may not have been published; `kind` says whether a retry helps."""
    return StorageError(
        f"storage did not confirm whether operation {operation_id} was published; look for it in the history of the"
        f" branch before you retry ({why})",
        effect=Effect.UNKNOWN,
        kind=kind,
        operation_id=operation_id,
    )


class Moved(Exception):
    """The branch is no longer where the plan was prepared; prepare again on the new head, or give up."""


def publish(
    store: Store, base: ObservedHead, plan: plans.Plan, carried: tuple[Link, ...], begun: float | None = None
) -> plans.Receipt:
    """Publish a plan on the state it was prepared on; `Moved` when that is no longer the head.

    `carried` are links of earlier commits that are not known to be finished; `begun` is when the first file of the plan
    was staged.
    """
    snapshot = base.snapshot
    plan = replace(plan, operation_id=plan.operation_id or new_operation_id(snapshot.state.branch_id))
    # Optimistic concurrency: requirements are checked on the observed head. The compare-and-swap below succeeds only if
    # that head is still the newest, so they also hold at the commit point.
    for requirement in plan.requirements:
        requirement.check(snapshot)
    failpoints.hit(Point.COMMIT_PREPARED, plan.operation_id)
    commit = _commit_of(snapshot, plan)
    state = _successor(store, snapshot, plan, commit)
    manifest = store.open(snapshot.ref)
    # Shadow paging: new files and manifests lie beside the old ones, under names that no reader follows yet.
    staged, staged_rows, state = _stage(store, manifest, plan, state)
    failpoints.hit(Point.COMMIT_STAGED, plan.operation_id)
    links = tuple(Link(version.ref, version.manifest) for version in staged)
    state = _with_checksums(state, staged)
    checksums = _checksums(store, manifest, staged, staged_rows)
    schema = encoding.schema_of(plan.operation_id, snapshot.operation_id, (*carried, *links), checksums)
    try:
        strict = store.prepare_strictly(manifest, staged_rows, schema)
    except LostRace as lost:
        raise Moved from lost
    # Write-ahead order: everything the new version names is verified and durable before the version exists.
    _prove(staged, strict)
    store.sync(staged, strict)
    failpoints.hit(Point.COMMIT_SYNCED, plan.operation_id)
    if base.is_stale and store.has_version(strict.ref):
        raise Moved
    _reject_held_up(plan, base.at if begun is None else begun)
    failpoints.hit(Point.PUBLISH_BEFORE, plan.operation_id)
    # From here until the response arrives, a failure has effect `unknown`, and the operation id is how to look it up.
    current().begin(plan.operation_id)
    try:
        published = _commit_or_resolve(store, strict, plan)
    except Moved:
        current().lose()
        raise
    try:
        store.sync_manifest(published)
        failpoints.hit(Point.PUBLISH_AFTER, plan.operation_id)
        if base.is_stale:
            # ABA: while the head was stale, cleanup may have removed later versions, so that their numbers look free.
            _check_live(store, published, plan)
    except OmniGraphError as error:
        raise _unknown(plan, error) from error
    store.remember(published)
    for version in staged:
        store.remember(version.dataset)
    after = Snapshot(snapshot.branch, published.version, plan.operation_id, state, (*carried, *links))
    return plans.Receipt(after, commit, plan.operation_id, tuple(staged))


def _commit_of(snapshot: Snapshot, plan: plans.Plan) -> Commit | None:
    if plan.kind is None:
        return None
    created_at_us, merged = clock.now_us(), plan.merged_parent
    parents = [snapshot.head_commit, *([merged] if merged else ())]
    return Commit(
        on_branch(plan.commit_id, snapshot.state.branch_id),
        snapshot.state.branch_id,
        snapshot.version + 1,
        snapshot.head,
        merged.commit_id if merged else None,
        plan.actor,
        created_at_us,
        plan.kind,
        plan.operation_id,
        plan.properties,
        corrected_us=correct_date(created_at_us, parents),
    )


def _successor(store: Store, snapshot: Snapshot, plan: plans.Plan, commit: Commit | None) -> State:
    draft = Draft(snapshot.state)
    for effect in plan.effects:
        pin = draft.pins[effect.table_key]
        assert (pin.path, pin.version) == (effect.base.ref.path, effect.base.version), "an effect starts at its pin"
        SetVersion(effect.table_key, effect.version, effect.base.ref.branch, effect.row_count).apply(draft)
    for update in plan.updates:
        update.apply(draft)
    if commit is not None:
        AddCommit(commit).apply(draft)
    # The log is written first and repeats are harmless (commits are keyed by id), so a crash in between loses none.
    if len(draft.commits) > 2 * COMMIT_WINDOW_ROWS:
        history.spill(store, draft.commits[:COMMIT_WINDOW_ROWS])
        ForgetCommits(COMMIT_WINDOW_ROWS).apply(draft)
    return draft.finish(snapshot.state.branch_id)


def _checksums(
    store: Store, manifest: Dataset, staged: list[Staged], staged_rows: StagedRows
) -> encoding.FileChecksums:
    versions = {version.ref.manifest_path: version.dataset.checksum for version in staged}
    # Nothing else could vouch for the file that holds a version of the catalog; that of the newest has a seal.
    versions[manifest.ref.manifest_path] = store.checksum_of(manifest)
    recorded = {path: checksum for path, checksum in versions.items() if checksum is not None}
    return encoding.FileChecksums(store.pack_checksums(staged_rows.proofs), recorded)


def _with_checksums(state: State, staged: list[Staged]) -> State:
    """Return the state that others read from the rows and the metadata together."""
    checksums = {version.ref: version.dataset.checksum for version in staged}
    pins = {key: replace(pin, checksum=checksums[pin.ref]) for key, pin in state.pins.items() if pin.ref in checksums}
    return replace(state, pins={**state.pins, **pins})


def _with_files(store: Store, plan: plans.Plan, state: State) -> State:
    """Return the state whose newest commit records the checksums of the files that it adds."""
    if plan.kind is None or not plan.effects:
        return state
    pending = [batch for effect in plan.effects for batch in effect.proofs]
    proofs = [proof for batch in pending for proof in batch.result() if "/_versions/" not in proof.path]
    *earlier, commit = state.commits
    return replace(state, commits=(*earlier, replace(commit, checksums=store.pack_checksums(proofs))))


def _stage(store: Store, manifest: Dataset, plan: plans.Plan, state: State) -> tuple[list[Staged], StagedRows, State]:
    properties: dict[str, str] = {"omnigraph.operation_id": plan.operation_id}
    staged: list[Staged] = []
    staged_rows: list[tuple[StagedRows, State]] = []

    def commit(effect: plans.Effect) -> Callable[[], None]:
        return lambda: staged.append(store.commit(effect.base, effect.changes, properties, effect.begun))

    def stage_rows() -> None:
        complete = _with_files(store, plan, state)
        staged_rows.append((store.stage_strict(manifest, encoding.encode(complete)), complete))

    try:
        # The catalog's rows do not depend on where the staged manifests end up, so both are written side by side.
        # The first write of a process also proves that the compare-and-swap of its commit point will hold.
        proof = [] if store.objects.is_proven else [store.objects.require_conditional_puts]
        store.in_parallel([*map(commit, plan.effects), stage_rows, *proof])
    except StaleBase as stale:
        # By path the dataset is further than its pin: either another commit of the graph, or a foreign tool.
        if is_overtaken(store, manifest.ref):
            raise Moved from stale
        raise drift(stale.ref.directory) from stale
    return sorted(staged, key=lambda version: version.ref), *staged_rows[0]


def _prove(staged: list[Staged], strict: Strict) -> None:
    """Wait until every staged file is verified: nothing is published on top of a lost write."""
    for version in (*staged, *([strict.staged] if strict.staged else ())):
        for proofs in version.proofs:
            proofs.result()


def is_overtaken(store: Store, catalog: DatasetRef) -> bool:
    """Return True if another writer of the graph has published since: it may have moved any dataset."""
    return store.has_version(catalog.at(catalog.version + 1))


def drift(directory: str) -> DriftDetected:
    """Return the error for a dataset that another tool has written to."""
    return DriftDetected(
        f"`{directory}` was written directly by another tool; nothing was changed. Review it with"
        " `omnigraph repair`, then adopt or discard it with `--confirm`",
        object=directory,
    )


def _commit_or_resolve(store: Store, strict: Strict, plan: plans.Plan) -> Dataset:
    """Compare-and-swap the manifest; a lost acknowledgement is resolved by reading who owns the next version.

    Published at most once: retries use the same version number, and the operation id in that version says who won.
    """
    failure: Exception | None = None
    begun, silent = clock.elapsed(), 0
    for attempt in range(CONDITIONAL_PUT_ATTEMPTS_MAX):
        # While storage does not answer, every writer behind us waits.
        is_late = attempt and clock.elapsed() - begun > PUBLISH_DEADLINE_SECONDS / 2
        if is_late or silent == UNKNOWN_OUTCOME_RETRIES_MAX:
            break
        # The other request in flight needs a moment to finish.
        clock.pause(ids.fraction() * attempt * RETRY_WAIT_SECONDS)
        try:
            return store.commit_strictly(strict)
        except LostRace as lost:
            try:
                winner = _winner(store, strict, plan)
            except StorageError as error:
                if error.storage_kind is not StorageKind.NOT_FOUND:
                    raise _unknown(plan, error) from error
                # A 409 for another request in flight, not because the version is taken. That may be an earlier request
                # of this process whose response was lost, so even the last attempt does not prove effect `none`.
                failure = error
                continue
            except OmniGraphError as error:
                raise _unknown(plan, error) from error
            if winner is not None:
                return winner
            raise Moved from lost
        except OmniGraphError as error:
            if failure is None and _is_impossible(store, strict, error):
                current().lose()
                raise
            # A retry is safe: the same strict commit either lands once, or finds its version taken.
            failure, silent = error, silent + 1
    raise _unknown(plan, failure) from failure


def _is_impossible(store: Store, strict: Strict, error: OmniGraphError) -> bool:
    """Return True if an object store lacks the operation that publishes, and nothing was published."""
    is_refused = isinstance(error, StorageError) and error.storage_kind is StorageKind.PERMANENT
    if not is_refused or not store.root.kind.publishes_by_put:
        return False
    try:
        return not store.has_version(strict.ref)
    except StorageError:
        return False


def _reject_held_up(plan: plans.Plan, begun: float) -> None:
    """Raise if a sweep may have removed staged files while this process was suspended.

    Long work is protected by its intent; everything else must be younger than what sweeps remove by age.
    """
    declared_intent = held_here(plan.operation_id)
    if declared_intent is not None:
        declared_intent.reject_lost()
    elif clock.elapsed() - begun > STAGED_SECONDS_MAX:
        raise ConflictError(
            "the write was held up for so long that a sweep may have removed what it staged; nothing was written, run"
            " it again",
            operation_id=plan.operation_id,
        )


def _unknown(plan: plans.Plan, failure: Exception | None) -> StorageError:
    is_full = isinstance(failure, StorageError) and failure.storage_kind is StorageKind.FULL
    return unknown_outcome(plan.operation_id, str(failure), StorageKind.FULL if is_full else StorageKind.TRANSIENT)


def _winner(store: Store, strict: Strict, plan: plans.Plan) -> Dataset | None:
    successor = store.open(strict.ref)
    return successor if encoding.operation_of(successor.schema) == plan.operation_id else None


def _check_live(store: Store, published: Dataset, plan: plans.Plan) -> None:
    """Raise `Moved` for a version that cleanup has cut off from the chain of versions.

    A strict commit only notices versions that still exist; if its successors came and went while it was on its way,
    it lands beside the live chain, where no reader finds it.
    """
    newest = store.open_latest(published.ref.path, published.ref.branch)
    if newest.version > published.version:
        try:
            successor = store.open(published.ref.at(published.version + 1))
        except StorageError as error:
            if error.storage_kind is not StorageKind.NOT_FOUND:
                raise
            # Cleanup removes the oldest first, so a version that outlives its successor never was on the chain.
            raise Moved from error
        if (successor.schema.metadata or {}).get(encoding.PREVIOUS_KEY, b"").decode() != plan.operation_id:
            raise Moved
