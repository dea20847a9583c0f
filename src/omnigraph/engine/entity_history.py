"""The history of one entity: `log`, the commits that changed it, and `blame`, the commit that last set each property.

Both walk the commits newest first, as `git log` does for a path: a merge that took the entity from one side is passed
over, and the walk continues along that side. Row versions show since which version of a dataset a row is unchanged, so
the walk skips the commits after it by bisection instead of reading them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import orjson
import pyarrow as pa

from omnigraph.engine.arguments import check_type
from omnigraph.engine.authorization import ALLOW_ALL, on_branch
from omnigraph.engine.changes.commit_diff import States, image_texts
from omnigraph.engine.changes.row_diff import changed_columns, row_image
from omnigraph.engine.entity_lookup import ENDS, entity_id, find_type
from omnigraph.engine.history import public_commits
from omnigraph.engine.past_schemas import NOW
from omnigraph.engine.revisions import AsOf
from omnigraph.engine.session import GraphSession
from omnigraph.errors import GraphError, UsageError
from omnigraph.ids import BranchId, CommitId
from omnigraph.lang.catalog import EdgeType, Type
from omnigraph.lang.scalars import readable
from omnigraph.limits import ENTITY_LOG_RUN_COMMITS, ENTITY_LOG_STATES_MAX
from omnigraph.manifest.history import CommitSource
from omnigraph.manifest.model import Commit, Pin
from omnigraph.public_values import EntityChange, EntityLog, PropertyBlame, PropertyOrigin
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.lookup import ROW_ID, find_rows
from omnigraph.store.read.version_diff import row_version


def log(session: GraphSession, type_name: str, key: object, branch: str, at: AsOf | None, limit: int) -> EntityLog:
    """Return the commits that changed an entity, newest first, with the entity before and after each."""
    check_type("limit", limit, int)
    if limit < 1:
        raise UsageError(f"`limit` must be >= 1, got {limit}", limit=limit)
    walk = _Walk(session, type_name, key, branch, at)
    changes: list[_Change] = []
    for change in walk.changes():
        if len(changes) == limit:
            walk.is_complete = False
            break
        changes.append(change)
    shown = session.without_hidden_parents(change.commit for change in changes)
    commits = public_commits(session, session.redact_commits(shown))
    entries = [
        EntityChange(commit, change.op, change.names, walk.image(change.before), walk.image(change.after))
        for commit, change in zip(commits, changes, strict=True)
    ]
    return EntityLog(walk.type_.name, walk.entity_id, tuple(entries), walk.is_complete)


def blame(session: GraphSession, type_name: str, key: object, branch: str, at: AsOf | None) -> PropertyBlame:
    """Return, for each property of an entity, the commit that set its value; nothing if there is no such entity."""
    walk = _Walk(session, type_name, key, branch, at)
    image, origins = walk.origins()
    known = [commit for commit in origins.values() if commit is not None]
    public = public_commits(session, session.redact_commits(session.without_hidden_parents(known)))
    by_id = dict(zip((commit.commit_id for commit in known), public, strict=True))
    properties = [
        PropertyOrigin(name, image.get(name), None if commit is None else by_id[commit.commit_id])
        for name, commit in sorted(origins.items())
    ]
    return PropertyBlame(walk.type_.name, walk.entity_id, tuple(properties))


@dataclass(frozen=True)
class _Row:
    """The entity in one state: where its type is pinned, and its row there, which is looked up when it is asked for."""

    pin: Pin
    dataset: Dataset
    entity_id: str

    @cached_property
    def row_id(self) -> int | None:
        """None if there is no such entity."""
        ids: Any = pa.array([self.entity_id], pa.string())
        rows = find_rows(self.dataset, ["id"], {"id": ids}).column(ROW_ID).to_pylist()
        return rows[0] if rows else None


@dataclass(frozen=True, slots=True)
class _Change:
    """What a commit did to the entity, compared with its first parent."""

    commit: Commit
    before: _Row
    after: _Row
    names: tuple[str, ...]

    @property
    def op(self) -> Literal["insert", "update", "delete"]:
        if self.before.row_id is None:
            return "insert"
        return "delete" if self.after.row_id is None else "update"


class _Unreadable(Exception):
    """A state that cleanup removed, or that the actor may not read."""


@dataclass
class _Walk:
    """A walk over the commits that lead to one state, for one entity."""

    session: GraphSession
    type_name: str
    key: object
    branch: str
    at: AsOf | None
    is_complete: bool = True
    _rows: dict[tuple[CommitId, BranchId | None], _Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_type("type_name", self.type_name, str)
        view = self.session.view(self.branch, self.at)
        self.type_: Type = find_type(view.catalog, self.type_name)
        self.entity_id = entity_id(self.type_, self.key)
        self._names = {
            **(ENDS if isinstance(self.type_, EdgeType) else {}),
            **{name: name for name in self.type_.properties},
        }
        kernel, snapshot = self.session.kernel, view.snapshot
        self._start_branch = snapshot.state.branch_id
        self._commits = CommitSource(kernel, snapshot)
        assert snapshot.head is not None, "every state has a commit that made it"
        self._head = self._commits[snapshot.head]
        self._states = States(self.session, kernel.snapshot(self.branch.strip()), NOW)

    def changes(self) -> Iterator[_Change]:
        """Yield what commits did to the entity, newest first."""
        waiting = {self._head.commit_id: self._head}
        visited: set[CommitId] = set()
        while waiting:
            newest = max(waiting.values(), key=_age)
            del waiting[newest.commit_id]
            if newest.commit_id in visited:
                continue
            try:
                commit = self._run_start(newest)
                if commit is not newest and any(_age(other) > _age(commit) for other in waiting.values()):
                    waiting[commit.commit_id] = commit
                    continue
                visited.add(commit.commit_id)
                change, parents = self._compare(commit)
            except _Unreadable:
                self.is_complete = False
                continue
            waiting |= {parent.commit_id: parent for parent in parents}
            if change is not None:
                yield change

    def _compare(self, commit: Commit) -> tuple[_Change | None, list[Commit]]:
        """Return what a commit changed, if anything, and the parents along which the walk continues."""
        parents = self._parents(commit)
        if not parents:
            return None, []
        after = self._row(commit, commit.branch)
        compared = []
        for parent in parents:
            before = self._row_before(commit, parent)
            names = self._changed(before, after)
            if not names:
                return None, [parent]
            compared.append((before, names))
        before, names = compared[0]
        return _Change(commit, before, after, names), parents

    def origins(self) -> tuple[dict[str, Any], dict[str, Commit | None]]:
        """Return the values of the entity, and the commit that set each of its properties; None where it is unknown."""
        try:
            row = self._row(self._head, self._start_branch)
        except _Unreadable:
            return {}, {}
        if row.row_id is None:
            return {}, {}
        every = frozenset(self._names.values())
        origins: dict[str, Commit | None] = dict.fromkeys(every)
        waiting: dict[CommitId, tuple[Commit, frozenset[str]]] = {self._head.commit_id: (self._head, every)}
        while waiting:
            newest, names = max(waiting.values(), key=lambda item: _age(item[0]))
            del waiting[newest.commit_id]
            try:
                commit = self._run_start(newest)
                kept = [] if commit is newest else [(commit, names)]
                if not kept:
                    kept, changed_here = self._origins_at(commit, names)
                    origins |= dict.fromkeys(changed_here, commit)
            except _Unreadable:
                self.is_complete = False
                continue
            for parent, inherited in kept:
                _, known = waiting.get(parent.commit_id, (parent, frozenset[str]()))
                waiting[parent.commit_id] = (parent, known | inherited)
        image = self.image(row) or {}
        return {**image.get("endpoints", {}), **image["properties"]}, origins

    def _origins_at(
        self, commit: Commit, names: frozenset[str]
    ) -> tuple[list[tuple[Commit, frozenset[str]]], frozenset[str]]:
        """Return which properties a commit has from which parent, and those that it set itself."""
        after = self._row(commit, commit.branch)
        inherited: list[tuple[Commit, frozenset[str]]] = []
        for parent in self._parents(commit):
            before = self._row_before(commit, parent)
            same = names - set(self._changed(before, after))
            if same and before.row_id is not None:
                inherited.append((parent, same))
                names -= same
        return inherited, names

    def _run_start(self, commit: Commit) -> Commit:
        """Return the oldest commit of a run without merges since which the row is known to be as it is here.

        A run is on one branch, one fork of the dataset and one schema, where versions only grow, so it is found by
        bisection.
        """
        row = self._row(commit, commit.branch)
        since = row.pin.version if row.row_id is None else row_version(row.dataset, self.entity_id)
        run = [commit]
        good, step = 0, 1
        while True:
            self._extend(run, good + step)
            probe = min(good + step, len(run) - 1)
            if probe == good:
                return run[good]
            if not self._is_within(run[probe], row.pin, since):
                break
            good, step = probe, 2 * step
        between = range(good + 1, probe)
        return run[good + bisect_left(between, True, key=lambda i: not self._is_within(run[i], row.pin, since))]

    def _extend(self, run: list[Commit], index: int) -> None:
        """Add first parents to a run until it has an index, unless it ends before."""
        while len(run) <= min(index, ENTITY_LOG_RUN_COMMITS):
            last = run[-1]
            if last.parent is None or last.merged_parent is not None or last.kind in _SCHEMA_KINDS:
                return
            parent = self._commits[last.parent]
            if parent.branch != last.branch:
                return
            run.append(parent)

    def _is_within(self, commit: Commit, pin: Pin, since: int) -> bool:
        try:
            other = self._row(commit, commit.branch).pin
        except _Unreadable:
            # The run ends where states are gone; what is before is found to be unreadable step by step.
            return False
        return (other.path, other.fork) == (pin.path, pin.fork) and other.version >= since

    def _parents(self, commit: Commit) -> list[Commit]:
        """Return the parents of a commit whose states the actor may compare it with."""
        ids = [parent for parent in (commit.parent, commit.merged_parent) if parent is not None]
        parents = [self._commits[parent] for parent in ids]
        return [parent for parent in parents if parent.commit_id == commit.parent or self._may_follow(parent)]

    def _may_follow(self, commit: Commit) -> bool:
        """Return True if a merged commit may be read; otherwise the merge is shown as the change."""
        if self.session.policy is ALLOW_ALL:
            return True
        if not self.session.would_allow("read", on_branch(self.session.names_of(commit))):
            return False
        return self.type_.table_key in self._states.view(commit, commit.branch).snapshot.state.pins

    def _row_before(self, commit: Commit, parent: Commit) -> _Row:
        """Return the entity at a parent of a commit; the first one is authorized by the branch of the commit."""
        return self._row(parent, (commit if parent.commit_id == commit.parent else parent).branch)

    def _row(self, commit: Commit, authority: BranchId | None) -> _Row:
        """Return the entity at a commit, authorized by a branch."""
        key = commit.commit_id, authority
        if key not in self._rows:
            if len(self._rows) >= ENTITY_LOG_STATES_MAX:
                raise _Unreadable
            self._rows[key] = self._read_row(commit, authority)
        return self._rows[key]

    def _read_row(self, commit: Commit, authority: BranchId | None) -> _Row:
        session = self.session
        if authority != self._start_branch and session.policy is not ALLOW_ALL:
            names = session.kernel.all_names_of([authority])[authority]
            if not session.would_allow("read", on_branch(names)):
                raise _Unreadable
        try:
            view = self._states.view(commit, authority)
            pin = view.snapshot.state.pins.get(self.type_.table_key)
            if pin is None:
                raise _Unreadable
            dataset = view.dataset(self.type_.table_key)
        except GraphError as error:
            if error.code != "graph.version_reclaimed":
                raise
            raise _Unreadable from error
        return _Row(pin, dataset, self.entity_id)

    def _changed(self, before: _Row, after: _Row) -> tuple[str, ...]:
        """Return the names of properties that differ between two states, sorted; all if only one has the entity."""
        if before.pin.ref == after.pin.ref or before.row_id is after.row_id is None:
            return ()
        if before.row_id is None or after.row_id is None:
            return tuple(sorted(self._names.values()))
        columns = changed_columns(before.dataset, before.row_id, after.dataset, after.row_id)
        return tuple(sorted(self._names[column] for column in columns if column in self._names))

    def image(self, row: _Row) -> dict[str, Any] | None:
        """Return the entity as a query shows it, without blobs, or None if it does not exist."""
        if row.row_id is None:
            return None
        [text] = image_texts(self.type_, row_image(row.dataset, row.row_id)).to_pylist()
        image: dict[str, Any] = orjson.loads(text)
        types = {name: item.type for name, item in self.type_.properties.items()}
        properties = {
            name: readable(value, types[name].scalar)
            for name, value in image["properties"].items()
            if not types[name].is_blob
        }
        return image | {"properties": properties}


# Commits that may change the schema, as merges do: the type may be absent before or after them, and then reads as an
# empty version of today, whose number says nothing about rows.
_SCHEMA_KINDS: Final = frozenset({"schema_apply", "revert", "cherry_pick"})


def _age(commit: Commit) -> tuple[int, str]:
    return commit.order_us, commit.commit_id
