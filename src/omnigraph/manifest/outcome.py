"""Look up the outcome of an operation: its commit, or whether a commit-less control operation was published.

Generated operation ids carry a hint at their branch, so that other branches need not be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ulid import ULID

from omnigraph.errors import StorageError, StorageKind
from omnigraph.ids import OperationId, hints_at, is_operation_id
from omnigraph.limits import CLOCK_SKEW_SECONDS, CONTROL_VERSIONS_MAX
from omnigraph.manifest import encoding, history
from omnigraph.manifest.idempotency import REQUEST_ID, RequestKey
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, Commit


def find_operation(kernel: Kernel, operation_id: str, actor: str | None = None) -> Commit | None:
    """Return the commit with an operation id, or with a request id that its caller has chosen.

    Searches main, the branches that the id hints at, and the commit log, which has the commits of deleted branches.
    Only for an id that a caller has chosen, every branch is searched. Actors may have chosen the same id: the commit of
    `actor` comes first, then any other.
    """
    others: Commit | None = None
    for commit in _candidates(kernel, operation_id):
        if operation_id == commit.operation_id or RequestKey(operation_id, actor).is_of(commit):
            return commit
        if others is None and commit.properties.get(REQUEST_ID) == operation_id:
            others = commit
    return others


def _candidates(kernel: Kernel, operation_id: str) -> Iterator[Commit]:
    """Yield the commits of the places where an operation may be recorded, the likely ones first."""
    main = kernel.snapshot(MAIN)
    hinted = {branch.name for branch in main.state.branches.values() if hints_at(operation_id, branch.branch_id)}
    # Commits go from catalogs to the log, so reading the log first would miss those that move meanwhile.
    for snapshot in [main, *kernel.snapshots_of(sorted(hinted))]:
        yield from snapshot.state.commits
    yield from history.read_operation(kernel.store, operation_id)
    if is_operation_id(operation_id):
        return
    others = sorted(main.state.branches.keys() - hinted)
    for snapshots in kernel.store.in_parallel([partial(kernel.snapshots_of, [name]) for name in others]):
        for snapshot in snapshots:
            yield from snapshot.state.commits
    yield from history.read_operation(kernel.store, operation_id)


def has_published(kernel: Kernel, branch: str, operation_id: OperationId) -> bool:
    """Return True if a recent version of a branch was made by an operation, which may have left no commit."""
    snapshot = kernel.snapshot(branch)
    if is_operation_id(operation_id) and not hints_at(operation_id, snapshot.state.branch_id):
        return False
    begun_us = ULID.from_str(operation_id).milliseconds * 1_000 - CLOCK_SKEW_SECONDS * 1_000_000
    older = [commit.manifest_version for commit in snapshot.state.commits if commit.created_at_us < begun_us]
    first = max([0, snapshot.version - CONTROL_VERSIONS_MAX, *older])
    for version in range(snapshot.version, first, -1):
        try:
            manifest = kernel.store.open(snapshot.ref.at(version))
        except StorageError as error:
            if error.storage_kind is not StorageKind.NOT_FOUND:
                raise
            return False
        if encoding.operation_of(manifest.schema) == operation_id:
            return True
    return False
