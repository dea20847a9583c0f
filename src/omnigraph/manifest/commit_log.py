"""The commit log: where commits go when they leave the window of `__manifest`.

Append-only; a commit found in both places is one commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import orjson
import pyarrow as pa

from omnigraph.ids import BranchId, CommitId, is_ulid
from omnigraph.manifest import rows
from omnigraph.manifest.model import BranchNames, Commit, Snapshot
from omnigraph.store import log as logs
from omnigraph.store.dataset import Dataset
from omnigraph.store.store import Store

LOG_PATH = "__commit_log"


def spill(store: Store, commits: Sequence[Commit]) -> None:
    """Write commits to the log, durably, before the publish that drops them from the window."""
    logs.append(store, LOG_PATH, rows.as_table(map(rows.commit_row, commits)))


def spill_branch(store: Store, snapshot: Snapshot, after: Collection[CommitId], names: tuple[str, ...]) -> None:
    """Write the commits that led to a branch, or those after the last of some; `names` are recorded as the branch's.

    Main cannot be deleted, and is looked at by everybody, so its own commits are left out.
    """
    own = [commit for commit in snapshot.state.commits if commit.branch is not None]
    known = max((number for number, commit in enumerate(own, 1) if commit.commit_id in after), default=0)
    branch_id = snapshot.state.branch_id
    kept = [replace(one, branch_names=names) if one.branch == branch_id else one for one in own[known:]]
    if kept:
        spill(store, kept)


def read(store: Store) -> dict[CommitId, Commit]:
    """Return every commit that has left a window, by id."""
    log = open_log(store)
    return {} if log is None else {one.commit_id: one for one in read_all(log)}


def open_log(store: Store) -> Dataset | None:
    """Return the log as it is now, or None while nobody has written to it."""
    return logs.open_log(store, LOG_PATH)


def read_all(log: Dataset) -> list[Commit]:
    """Return every commit of the log."""
    return _decode(log.read())


def read_ids(log: Dataset, commit_ids: Iterable[CommitId]) -> list[Commit]:
    """Return those of some commits that the log has."""
    # Only ids of ours may stand in a filter.
    wanted = ", ".join(f"'{one}'" for one in commit_ids if is_ulid(one))
    return _decode(log.read(filter=f"object_id in ({wanted})")) if wanted else []


def read_operation(store: Store, operation_id: str) -> list[Commit]:
    """Return the commits in whose row an id stands, as their operation or anywhere else."""
    log = open_log(store)
    if log is None:
        return []
    # Only ids of ours may stand in a filter.
    return _decode(log.read(filter=f"contains(metadata, '{operation_id}')" if is_ulid(operation_id) else None))


def read_versions(log: Dataset, branch_id: BranchId | None, after: int, until: int) -> list[Commit]:
    """Return the commits that were made on a branch after one manifest version and up to another."""
    # A text, because typed filters have no unsigned numbers.
    own = "table_branch is null" if branch_id is None else f"table_branch = '{branch_id}'"
    return _decode(log.read(filter=f"{own} and table_version > {max(after, 0)} and table_version <= {max(until, 0)}"))


def read_branch_names(log: Dataset, branch_ids: Collection[BranchId]) -> dict[BranchId, BranchNames]:
    """Return the names of deleted branches, as far as they were recorded at their deletion."""
    # Only ids of ours may stand in a filter.
    listed = ", ".join(f"'{one}'" for one in sorted(branch_ids) if is_ulid(one))
    found: dict[BranchId, BranchNames] = {}
    for commit in _decode(log.read(filter=f"table_branch in ({listed})")) if listed else ():
        if commit.branch is not None and commit.branch_names:
            # A deletion that lost to a rename has left a shorter list before.
            known = found.get(commit.branch, BranchNames(()))
            longest = max(known.names, commit.branch_names, key=len)
            missing = tuple(one for one in (*known.names, *commit.branch_names) if one not in longest)
            found[commit.branch] = BranchNames((*dict.fromkeys(missing), *longest))
    return found


def _decode(table: pa.Table) -> list[Commit]:
    with rows.report_damage(f"`{LOG_PATH}`", "restore it from a backup"):
        found = table.to_pylist()
        for row in found:
            row["json"] = orjson.loads(row["metadata"])
        return [rows.decode_commit(row) for row in found]
