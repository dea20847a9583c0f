"""The changes of one commit against its first parent, in pages, with images before and after, and as JSON lines.

Images use today's names, as every read of a past state; a commit that changed the schema says how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.engine import history
from omnigraph.engine.changes.cursor import (
    ALL,
    ChangeFilter,
    Position,
    Scope,
    Token,
    decode,
    encode,
    place_of,
    rejected,
)
from omnigraph.engine.changes.row_diff import RowChanges
from omnigraph.engine.changes.state_diff import (
    ChangeSet,
    Pair,
    Side,
    compared,
    diff_views,
    identity_domain,
    of_ops,
    pairs,
    selected,
)
from omnigraph.engine.json_text import json_text, value_texts
from omnigraph.engine.past_schemas import NOW, Naming, check_names
from omnigraph.engine.revisions import AsOf
from omnigraph.engine.session import GraphSession, View
from omnigraph.errors import (
    ChangeFeedGap,
    CursorRejected,
    GraphError,
    LimitExceeded,
    OmniGraphError,
    UsageError,
)
from omnigraph.ids import BranchId, CommitId
from omnigraph.lang.catalog import EdgeType, Type, TypeKey
from omnigraph.lang.migrate import Step as SchemaStep
from omnigraph.lang.migrate import list_steps
from omnigraph.limits import (
    CHANGE_CACHE_MAX,
    CHANGE_ID_BYTES_MAX,
    CHANGE_PAGE_BYTES,
    CHANGE_PAGE_BYTES_MAX,
    CHANGE_PAGE_CHANGES,
    CHANGE_PAGE_CHANGES_MAX,
    CHANGE_WINDOW_BLOB_ROWS,
    CHANGE_WINDOW_ROWS,
    DIFF_VALUES_SHOWN,
)
from omnigraph.lru import LruCache
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, MESSAGE, Commit, Snapshot
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.delta import one_array


def change_texts(pair: Pair, changes: RowChanges) -> tuple[Any, Any]:
    """Return the ids of all changes in ascending order, and the text of each."""
    groups = [
        (changes.inserted, "insert", None, changes.inserted),
        (changes.after, "update", changes.before, changes.after),
        (changes.deleted, "delete", changes.deleted, None),
    ]
    ids = [one_array(rows.column("id")) for rows, *_ in groups]
    texts = [_texts(pair, op, rows, before, after) for rows, op, before, after in groups]
    all_ids = pa.concat_arrays(ids)
    order = pc.sort_indices(all_ids)
    return all_ids.take(order), pa.concat_arrays(texts).take(order)


def _texts(pair: Pair, op: str, rows: pa.Table, before: pa.Table | None, after: pa.Table | None) -> Any:
    if rows.num_rows == 0:
        return pa.array([], pa.string())
    type_ = orjson.dumps({"id": pair.type_id, "name": pair.known.type_.name}).decode()
    parts: list[Any] = [f'{{"kind":"{pair.kind}","type":{type_},"id":', json_text(one_array(rows.column("id")))]
    parts.append(f',"op":"{op}"')
    for name, images, side in (("before", before, pair.before), ("after", after, pair.after)):
        if images is not None:
            assert isinstance(side, Side), "an image has a state that it is from"
            parts += [f',"{name}":', image_texts(side.type_, images)]
    return pc.binary_join_element_wise(*parts, "}", "")


def image_texts(type_: Type, rows: pa.Table) -> Any:
    """Return each row as `{properties, endpoints?}`, with every property of its type."""
    parts: list[Any] = ['{"properties":{']
    for index, name in enumerate(sorted(type_.properties)):
        comma = "," if index else ""
        parts += [f"{comma}{orjson.dumps(name).decode()}:", value_texts(one_array(rows.column(name)))]
    parts.append("}")
    if isinstance(type_, EdgeType):
        ends = [json_text(one_array(rows.column(name))) for name in ("src", "dst")]
        parts += [',"endpoints":{"from":', ends[0], ',"to":', ends[1], "}"]
    # A type without properties has only literal parts, which would join to a single text.
    empty = pc.replace_with_mask(one_array(rows.column("id")), pa.repeat(True, rows.num_rows), "")
    return pc.binary_join_element_wise(empty, *parts, "}", "")


# Which entities of a large commit changed is found out once for all of its pages.
_cached_diffs: WeakKeyDictionary[Kernel, LruCache[object, pa.Table]] = WeakKeyDictionary()


@dataclass(slots=True)
class Room:
    """The remaining capacity of a page. Bytes are a target: a change larger than a page gets its own page."""

    changes: int
    bytes: int
    is_untouched: bool = True

    def take(self, texts: Any) -> int:
        """Return how many of the texts still fit, and reserve room for them."""
        sizes = np.cumsum(pc.binary_length(texts).to_numpy(zero_copy_only=False))
        fitting = min(self.changes, int(np.searchsorted(sizes, self.bytes, side="right")))
        if fitting == 0 and self.is_untouched:
            fitting = 1
        if fitting:
            self.changes -= fitting
            self.bytes -= int(sizes[fitting - 1])
            self.is_untouched = False
        # Keep the order: nothing may overtake a change that did not fit.
        if fitting < len(texts):
            self.changes = 0
        return fitting


@dataclass(slots=True)
class Part:
    """Consecutive changes of a commit. Unless it is complete, `last` is the position of the last one, if any."""

    texts: list[Any] = field(default_factory=list)
    last: Position | None = None
    is_complete: bool = True


def fill(kernel: Kernel, pairs: list[Pair], selection: ChangeFilter, after: Position | None, room: Room) -> Part:
    """Return the selected changes after a position, as far as they fit."""
    part = Part(last=after)
    for type_key, ids, texts in _windows(kernel, pairs, selection, after):
        fitting = room.take(texts) if room.changes else 0
        if fitting:
            part.texts.append(texts.slice(0, fitting))
            part.last = place_of(type_key, ids[fitting - 1].as_py())
        if fitting < len(texts):
            part.is_complete = False
            return part
    return part


def _windows(
    kernel: Kernel, pairs: list[Pair], selection: ChangeFilter, after: Position | None
) -> Iterator[tuple[str, Any, Any]]:
    """Yield type key, ids and texts of changes in the order of the feed; no window is empty."""
    # By id, because a cursor outlives the name of a type.
    keys: list[str] = [TypeKey.of(pair.kind, pair.type_id) for pair in pairs]
    if after is not None and after.type_key not in keys:
        raise _misplaced()
    start = keys.index(after.type_key) if after is not None else 0
    for key, pair in zip(keys[start:], pairs[start:], strict=True):
        if pair.is_same_data or not selection.has_type(pair.known.pin.table_key):
            continue
        candidates = of_ops(_candidates(kernel, pair), selection)
        if after is not None and after.type_key == key:
            candidates = candidates.slice(_start(candidates.column("id").combine_chunks(), after))
        yield from ((key, ids, texts) for ids, texts in _compare_windows(pair, candidates) if len(ids))


def _compare_windows(pair: Pair, candidates: pa.Table) -> Iterator[tuple[Any, Any]]:
    """Yield ids and texts of the candidates that changed, some rows at a time."""
    rows = CHANGE_WINDOW_BLOB_ROWS if pair.known.type_.has_blobs else CHANGE_WINDOW_ROWS
    for offset in range(0, candidates.num_rows, rows):
        yield change_texts(pair, pair.compare(candidates.slice(offset, rows)))


def diff_with_images(
    session: GraphSession,
    a: AsOf,
    b: AsOf,
    *,
    only: ChangeFilter = ALL,
    branch: str = MAIN,
    names: Naming = NOW,
) -> ChangeSet:
    """Return the changes from one state to another, the first of them also with the entities before and after."""
    before, after, selection = compared(session, a, b, only, branch, names)
    texts = (
        text
        for pair in selected(before, after, selection)
        for _, window in _compare_windows(pair, of_ops(pair.candidates(), selection))
        for text in window
    )
    images = tuple(orjson.loads(text.as_py()) for text in islice(texts, DIFF_VALUES_SHOWN))
    return replace(diff_views(before, after, selection), images=images)


def _misplaced() -> CursorRejected:
    return rejected("its place is not in the commit; poll again from the last cursor, or from the commit's first page")


def _candidates(kernel: Kernel, pair: Pair) -> pa.Table:
    key = tuple(side.pin.ref if side else None for side in (pair.before, pair.after))
    return _cached_diffs.setdefault(kernel, LruCache(CHANGE_CACHE_MAX)).get_or_create(key, pair.candidates)


def _start(ids: Any, after: Position) -> int:
    """Return the index of the first id after a position."""
    if after.digest is None:
        return len(ids) - (pc.sum(pc.greater(ids, after.entity_id)).as_py() or 0)
    is_long = pc.greater(pc.binary_length(ids), CHANGE_ID_BYTES_MAX)
    alike = np.flatnonzero(pc.and_(is_long, pc.starts_with(ids, after.entity_id)).to_numpy(zero_copy_only=False))
    for position in alike.tolist():
        if sha256(ids[position].as_py().encode()).hexdigest() == after.digest:
            return int(position) + 1
    raise _misplaced()


@dataclass(frozen=True, slots=True)
class Block:
    """A commit and some of its changes: `texts` are arrays of JSON text, one for each change.

    `schema_steps` say how the commit changed the schema, with the names of then; they come with its first changes.
    """

    cause: dict[str, object]
    texts: tuple[Any, ...]
    schema_steps: tuple[SchemaStep, ...] = ()

    @property
    def count(self) -> int:
        return sum(len(batch) for batch in self.texts)

    def to_json(self) -> dict[str, object]:
        """Return the block as every surface shows it."""
        changes = [orjson.loads(text) for batch in self.texts for text in batch.to_pylist()]
        schema = {"schema": {"steps": [step.to_json() for step in self.schema_steps]}} if self.schema_steps else {}
        return {"cause": self.cause, **schema, "changes": changes}


@dataclass(frozen=True, slots=True)
class CommitPage:
    """One page of a commit's changes; the last page has no token."""

    block: Block
    next_page_token: str | None

    def to_json(self) -> dict[str, object]:
        """Return the page as every surface shows it.

        Returns:
            A JSON object with `changes`, and `next_page_token` unless this is the last page.

        Example:
            >>> page = graph.commit_changes(graph.commits()[0].commit_id)
            >>> len(page.to_json()["changes"])
            3
        """
        token = {} if self.next_page_token is None else {"next_page_token": self.next_page_token}
        return {**self.block.to_json(), **token}


def commit_changes(
    session: GraphSession,
    at: AsOf,
    *,
    only: ChangeFilter = ALL,
    limit: int = CHANGE_PAGE_CHANGES,
    bytes_max: int = CHANGE_PAGE_BYTES,
    page_token: str | None = None,
    names: Naming = NOW,
) -> CommitPage:
    """Return a page of what a commit changed: nodes before edges, then by type and id.

    Names are those of main today, or with `names="then"` those of the commit.
    """
    room = page_room(limit, bytes_max)
    commit = history.find_commit(session, at)
    if commit.parent is None:
        raise parentless(commit)
    states = States(session, session.kernel.snapshot(MAIN), check_names(names))
    step = Step(states, commit, session.kernel.find_commit(commit.parent))
    before, after = step.views()
    selection = only.check_types(before.catalog, after.catalog)
    scope = Scope(graph_digest(after.snapshot), "", "", selection.digest)
    position: Position | None = None
    if page_token is not None:
        token = decode(page_token, "commit-page", scope)
        if token.commit != commit.commit_id:
            raise rejected("it belongs to another commit")
        position = token.position
    part = step.part(selection, position, room)
    block = Block(cause_of(session, commit), tuple(part.texts), step.schema_steps() if position is None else ())
    next_page_token = (
        None if part.is_complete else encode(Token("commit-page", scope, commit.commit_id, None, part.last))
    )
    return CommitPage(block, next_page_token)


@dataclass
class States:
    """A cache of the views that a walk over commits needs: the end of one step is the start of the next.

    They use the names of `today`, or their own.
    """

    session: GraphSession
    today: Snapshot
    names: Naming = NOW
    _snapshots: dict[CommitId, Snapshot] = field(default_factory=dict)
    _views: dict[tuple[CommitId, BranchId | None], View] = field(default_factory=dict)

    def view(self, commit: Commit, branch: BranchId | None) -> View:
        """Return the visible part of a commit's state, authorized by its branch or one that started from it."""
        key = commit.commit_id, branch
        if key not in self._views:
            self._views[key] = self.session.past_view(self._snapshot(commit, branch), self.today, self.names)
        return self._views[key]

    def as_stored(self, commit: Commit, branch: BranchId | None) -> View:
        """Return a state with the schema that it was stored with, hard drops included, to compare schemas by."""
        snapshot = self._snapshot(commit, branch)
        return self.session.view_without(snapshot, self.session.hidden_then(snapshot, self.today))

    def _snapshot(self, commit: Commit, branch: BranchId | None) -> Snapshot:
        if commit.commit_id not in self._snapshots:
            self._snapshots[commit.commit_id] = self.session.kernel.snapshot_of(commit)
        snapshot = self._snapshots[commit.commit_id]
        return replace(snapshot, state=replace(snapshot.state, branch_id=branch))


@dataclass(frozen=True, slots=True)
class Step:
    """A commit and its first parent.

    Both are authorized by the branch of the commit. If the parent is on another branch, this branch started from it,
    and its readers have always seen that state; otherwise types would seem to appear or vanish with the branch.
    """

    states: States
    commit: Commit
    parent: Commit

    def views(self) -> tuple[View, View]:
        """Return the state before and after; raises `ChangeFeedGap` if cleanup removed one of them."""
        try:
            return self._judged(self.states.view)
        except GraphError as error:
            raise self._gap(error) from error

    def _judged(self, look: Callable[[Commit, BranchId | None], View]) -> tuple[View, View]:
        branch = self.commit.branch
        return look(self.parent, branch), look(self.commit, branch)

    def part(self, selection: ChangeFilter, after: Position | None, room: Room) -> Part:
        """Return changes after a position, as far as they fit."""
        type_pairs = self.pairs()
        try:
            return fill(self.states.session.kernel, type_pairs, selection, after, room)
        except OmniGraphError as error:
            raise self._gap(error, type_pairs) from error

    def pairs(self) -> list[Pair]:
        """Return every type before and after."""
        return pairs(*self.views())

    def schema_steps(self) -> tuple[SchemaStep, ...]:
        """Return how the commit changed the schema, as far as the actor may see it."""
        before, after = (view.snapshot.state.schema for view in self._judged(self.states.as_stored))
        if before.ir_hash == after.ir_hash:
            return ()
        return list_steps(before.parse(), after.parse())

    def _gap(self, error: OmniGraphError, type_pairs: Sequence[Pair] = ()) -> OmniGraphError:
        """Return the error as a gap if a version that cleanup removed is its reason."""
        # An open handle outlives its version, so a removed version may only show as a missing file.
        is_gap = error.code == "graph.version_reclaimed" or (
            error.code == "storage.failed" and self._lacks_version(type_pairs)
        )
        return self._reclaimed() if is_gap else error

    def check_versions_exist(self, type_pairs: Sequence[Pair]) -> None:
        """Raise `ChangeFeedGap` if a version of a type was removed, which another process could not read."""
        if self._lacks_version(type_pairs):
            raise self._reclaimed()

    def _lacks_version(self, type_pairs: Sequence[Pair]) -> bool:
        return any(self._is_gone(side) for pair in type_pairs for side in pair.changed_sides)

    def _reclaimed(self) -> ChangeFeedGap:
        return ChangeFeedGap(
            f"a version needed for the changes of commit {self.commit.commit_id} was removed by cleanup; take"
            " a new baseline and continue from its cursor",
            first_unreadable_commit_id=self.commit.commit_id,
        )

    def _is_gone(self, side: Side) -> bool:
        store = self.states.session.kernel.store
        # A version that was just published may still have its staged name only.
        staged = [link.manifest for link in side.view.snapshot.links if link.ref == side.pin.ref.stored]
        return not store.has_version(side.pin.ref) and not any(store.objects.exists(name) for name in staged)


def parentless(commit: Commit) -> GraphError:
    """Return the error of a commit without a parent."""
    return GraphError(
        f"commit {commit.commit_id} created the graph, so it has no parent to compare it with",
        code="commit.parentless",
        reason="parentless_commit",
        graph_commit_id=commit.commit_id,
    )


def page_room(limit: int, bytes_max: int) -> Room:
    """Return the capacity of a page after checking its bounds."""
    check_bound("limit", limit, CHANGE_PAGE_CHANGES_MAX, "commit_changes_page_changes")
    check_bound("bytes_max", bytes_max, CHANGE_PAGE_BYTES_MAX, "commit_changes_page_bytes")
    return Room(limit, bytes_max)


def check_bound(name: str, requested: int, maximum: int, resource: str) -> None:
    """Raise unless a bound is between 1 and the maximum of a page or poll."""
    if type(requested) is not int or requested < 1:
        raise UsageError(f"`{name}` must be an integer >= 1", value=str(requested))
    if requested > maximum:
        raise LimitExceeded(
            f"`{name}` must be <= {maximum}, got {requested}; request less and continue with the next page",
            resource=resource,
            limit=maximum,
            actual=requested,
        )


def cause_of(session: GraphSession, commit: Commit) -> dict[str, object]:
    """Return the commit metadata of a block, without members that the commit does not have or the actor may not see."""
    [commit] = session.redact_commits(session.without_hidden_parents([commit]))
    cause: dict[str, object | None] = {
        "graph_commit_id": commit.commit_id,
        "parent_commit_id": commit.parent,
        "merged_parent_commit_id": commit.merged_parent,
        "authored_branch": session.kernel.name_of(commit.branch),
        "actor_id": commit.actor,
        "authored_at": commit.created_at_us,
        "message": commit.properties.get(MESSAGE),
    }
    return {name: value for name, value in cause.items() if value is not None}


def graph_digest(snapshot: Snapshot) -> str:
    """Return a digest of the identity domain of the graph, which no other graph shares."""
    return sha256(f"omnigraph/changes/{identity_domain(snapshot)}".encode()).hexdigest()[:32]
