"""Look up the outcome of an operation: its commit, or whether a commit-less control operation was published.

Generated operation ids carry a hint at their branch, so that other branches need not be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ulid import ULID

from omnigraph.errors import StorageError, StorageKind
from omnigraph.ids import OperationId, hints_at, is_operation_id
from omnigraph.limits import CLOCK_SKEW_SECONDS, CONTROL_VERSIONS_MAX
from omnigraph.manifest import encoding, history
from omnigraph.manifest.idempotency import REQUEST_ID
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, Commit


def find_operation(kernel: Kernel, operation_id: str) -> Commit | None:
    """Return the commit with an operation id, or with a request id that its caller has chosen.

    Searches main, the branches that the id hints at, and the commit log, which has the commits of deleted branches.
    Only for an id that a caller has chosen, every branch is searched.
    """
    main = kernel.snapshot(MAIN)
    hinted = {branch.name for branch in main.state.branches.values() if hints_at(operation_id, branch.branch_id)}
    hinted_snapshots = [main, *kernel.snapshots_of(sorted(hinted))]
    # Commits go from catalogs to the log, so reading the log first would miss those that move meanwhile.
    match = _commit_with_id(
        (commit for snapshot in hinted_snapshots for commit in snapshot.state.commits), operation_id
    )
    match = match or _commit_with_id(history.read_operation(kernel.store, operation_id), operation_id)
    if match is not None or is_operation_id(operation_id):
        return match
    others = sorted(main.state.branches.keys() - hinted)
    read = kernel.store.in_parallel([partial(kernel.snapshots_of, [name]) for name in others])
    match = _commit_with_id(
        (commit for snapshots in read for snapshot in snapshots for commit in snapshot.state.commits), operation_id
    )
    return match or _commit_with_id(history.read_operation(kernel.store, operation_id), operation_id)


def _commit_with_id(commits: Iterable[Commit], operation_id: str) -> Commit | None:
    return next(
        (commit for commit in commits if operation_id in (commit.operation_id, commit.properties.get(REQUEST_ID))), None
    )


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
