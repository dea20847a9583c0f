"""The changes of one commit against its first parent, in pages, with images before and after.

Images use today's names, as every read of a past state; a commit that changed the schema of a type has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.engine import history
from omnigraph.engine.changes.change_json import change_texts
from omnigraph.engine.changes.cursor import ALL, ChangeFilter, Place, Scope, Token, decode, encode, place_of, rejected
from omnigraph.engine.changes.state_diff import Pair, Side, identity_domain, of_ops, pairs
from omnigraph.engine.past_names import NOW, Naming, check_names
from omnigraph.engine.session import GraphSession, View
from omnigraph.errors import (
    ChangeFeedGap,
    CursorRejected,
    GraphError,
    LimitExceeded,
    OmniGraphError,
    SchemaBoundary,
    UsageError,
)
from omnigraph.ids import BranchId, CommitId
from omnigraph.limits import (
    CHANGE_CACHE_MAX,
    CHANGE_ID_BYTES_MAX,
    CHANGE_PAGE_BYTES,
    CHANGE_PAGE_BYTES_MAX,
    CHANGE_PAGE_CHANGES,
    CHANGE_PAGE_CHANGES_MAX,
    CHANGE_WINDOW_BLOB_ROWS,
    CHANGE_WINDOW_ROWS,
)
from omnigraph.lru import LruCache
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, Commit, Snapshot
from omnigraph.rules.arrow_typing import pc

# The stubs know fewer argument types than the kernels take.

# Which entities of a large commit changed is found out once for all of its pages.
_found: WeakKeyDictionary[Kernel, LruCache[object, pa.Table]] = WeakKeyDictionary()


@dataclass(slots=True)
class Room:
    """The remaining capacity of a page. Bytes are a target: a change larger than a page gets its own page."""

    changes: int
    bytes: int
    is_untouched: bool = True

    def take(self, texts: Any) -> int:
        """Return how many of the texts still fit, and count them as held."""
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
    last: Place | None = None
    is_complete: bool = True


def fill(kernel: Kernel, pairs: list[Pair], selection: ChangeFilter, after: Place | None, room: Room) -> Part:
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
    kernel: Kernel, pairs: list[Pair], selection: ChangeFilter, after: Place | None
) -> Iterator[tuple[str, Any, Any]]:
    """Yield type key, ids and texts of changes in the order of the feed; no window is empty."""
    keys = [f"{pair.kind}:{pair.type_id}" for pair in pairs]
    if after is not None and after.type_key not in keys:
        raise _misplaced()
    start = keys.index(after.type_key) if after is not None else 0
    for key, pair in zip(keys[start:], pairs[start:], strict=True):
        if pair.is_same_data or not selection.has_type(pair.known.pin.table_key):
            continue
        candidates = of_ops(_candidates(kernel, pair), selection)
        if after is not None and after.type_key == key:
            candidates = candidates.slice(_start(candidates.column("id").combine_chunks(), after))
        rows = CHANGE_WINDOW_BLOB_ROWS if pair.known.type_.has_blobs else CHANGE_WINDOW_ROWS
        for offset in range(0, candidates.num_rows, rows):
            ids, texts = change_texts(pair, pair.compare(candidates.slice(offset, rows)))
            if len(ids):
                yield key, ids, texts


def _misplaced() -> CursorRejected:
    return rejected("its place is not in the commit; poll again from the last cursor, or from the commit's first page")


def _candidates(kernel: Kernel, pair: Pair) -> pa.Table:
    key = tuple(side.pin.ref if side else None for side in (pair.before, pair.after))
    return _found.setdefault(kernel, LruCache(CHANGE_CACHE_MAX)).get_or_create(key, pair.candidates)


def _start(ids: Any, after: Place) -> int:
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
    """A commit and some of its changes: `texts` are arrays of JSON text, one for each change."""

    cause: dict[str, object]
    texts: tuple[Any, ...]

    @property
    def count(self) -> int:
        return sum(len(batch) for batch in self.texts)

    def to_json(self) -> dict[str, object]:
        """Return the block as every surface shows it."""
        changes = [orjson.loads(text) for batch in self.texts for text in batch.to_pylist()]
        return {"cause": self.cause, "changes": changes}


@dataclass(frozen=True, slots=True)
class CommitPage:
    """One page of a commit's changes; the last page has no token."""

    block: Block
    next_page_token: str | None

    def to_json(self) -> dict[str, object]:
        """Return the page as every surface shows it."""
        token = {} if self.next_page_token is None else {"next_page_token": self.next_page_token}
        return {**self.block.to_json(), **token}


def commit_changes(
    session: GraphSession,
    commit_id: str,
    *,
    only: ChangeFilter = ALL,
    limit: int = CHANGE_PAGE_CHANGES,
    bytes_max: int = CHANGE_PAGE_BYTES,
    page_token: str | None = None,
    names: Naming = NOW,
) -> CommitPage:
    """Return a page of what a commit changed: nodes before edges, then by type and id.

    Naming are those of main today, or with `names="then"` those of the commit.
    """
    room = page_room(limit, bytes_max)
    commit = history.find_commit(session, commit_id)
    if commit.parent is None:
        raise parentless(commit)
    states = States(session, session.kernel.snapshot(MAIN), check_names(names))
    step = Step(states, commit, session.kernel.find_commit(commit.parent))
    before, after = step.views()
    selection = only.check_types(before.catalog, after.catalog)
    scope = Scope(graph_digest(after.snapshot), "", "", selection.digest)
    place: Place | None = None
    if page_token is not None:
        token = decode(page_token, "commit-page", scope)
        if token.commit != commit.commit_id:
            raise rejected("it belongs to another commit")
        place = token.place
    part = step.part(selection, place, room)
    block = Block(cause_of(session, commit), tuple(part.texts))
    rest = None if part.is_complete else encode(Token("commit-page", scope, commit.commit_id, None, part.last))
    return CommitPage(block, rest)


class States:
    """A cache of the views that a walk over commits needs: the end of one step is the start of the next.

    They use the names of `today`, or their own.
    """

    def __init__(self, session: GraphSession, today: Snapshot, names: Naming = NOW) -> None:
        self.session = session
        self._today = today
        self._names = names
        self._snapshots: dict[CommitId, Snapshot] = {}
        self._views: dict[tuple[CommitId, BranchId | None], View] = {}

    def view(self, commit: Commit, branch: BranchId | None) -> View:
        """Return the visible part of a commit's state, authorized by its branch or one that started from it."""
        key = commit.commit_id, branch
        if key not in self._views:
            self._views[key] = self.session.past_view(self._snapshot(commit, branch), self._today, self._names)
        return self._views[key]

    def as_stored(self, commit: Commit, branch: BranchId | None) -> View:
        """Return a state with the schema that it was stored with, hard drops included, to compare schemas by."""
        snapshot = self._snapshot(commit, branch)
        return self.session.view_without(snapshot, self.session.hidden_then(snapshot, self._today))

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
        """Return the state before and after; `ChangeFeedGap` when either is gone."""
        try:
            return self._judged(self.states.view)
        except GraphError as error:
            raise self._gap(error) from error

    def _judged(self, look: Callable[[Commit, BranchId | None], View]) -> tuple[View, View]:
        branch = self.commit.branch
        return look(self.parent, branch), look(self.commit, branch)

    def part(self, selection: ChangeFilter, after: Place | None, room: Room) -> Part:
        """Return changes after a position, as far as they fit."""
        type_pairs = self.pairs()
        try:
            return fill(self.states.session.kernel, type_pairs, selection, after, room)
        except OmniGraphError as error:
            raise self._gap(error, type_pairs) from error

    def pairs(self) -> list[Pair]:
        """Return every type before and after; `SchemaBoundary` if the entities of one are not comparable."""
        type_pairs = pairs(*self.views())
        # Today's names hide the boundary, but readers may have received images from before it.
        for pair in pairs(*self._judged(self.states.as_stored)):
            if pair.is_boundary:
                name = pair.known.type_.name
                raise SchemaBoundary(
                    f"commit {self.commit.commit_id} changed the schema of `{name}`, so its entities before and after"
                    " do not compare; take a new baseline and go on from there",
                    reason="schema_boundary",
                    graph_commit_id=self.commit.commit_id,
                    type_name=name,
                )
        return type_pairs

    def _gap(self, error: OmniGraphError, type_pairs: Sequence[Pair] = ()) -> OmniGraphError:
        """Return the error as a gap if a version that cleanup removed is its reason."""
        # An open handle outlives its version, so a removed version may only show as a missing file.
        is_gap = error.code == "graph.version_reclaimed" or (
            error.code == "storage.failed"
            and any(self._is_gone(side) for pair in type_pairs for side in pair.changed_sides)
        )
        return self._reclaimed() if is_gap else error

    def check_versions_exist(self, type_pairs: Sequence[Pair]) -> None:
        """Raise `ChangeFeedGap` if a version of a type was removed, which another process could not read."""
        if any(self._is_gone(side) for pair in type_pairs for side in pair.changed_sides):
            raise self._reclaimed()

    def _reclaimed(self) -> ChangeFeedGap:
        return ChangeFeedGap(
            f"a version needed for the changes of commit {self.commit.commit_id} was removed by cleanup; take"
            " a new baseline and go on from there",
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
        f"commit {commit.commit_id} has no parent, so there is nothing to compare it with; it began the graph",
        code="commit.parentless",
        reason="parentless_commit",
        graph_commit_id=commit.commit_id,
    )


def page_room(limit: int, bytes_max: int) -> Room:
    """Return the capacity of a page after checking its bounds."""
    for name, asked, most, resource in (
        ("limit", limit, CHANGE_PAGE_CHANGES_MAX, "commit_changes_page_changes"),
        ("bytes_max", bytes_max, CHANGE_PAGE_BYTES_MAX, "commit_changes_page_bytes"),
    ):
        check_bound(name, asked, most, resource)
    return Room(limit, bytes_max)


def check_bound(name: str, asked: int, most: int, resource: str) -> None:
    """Raise unless a bound is between 1 and the maximum of a page or poll."""
    if type(asked) is not int or asked < 1:
        raise UsageError(f"`{name}` must be an integer >= 1", value=str(asked))
    if asked > most:
        raise LimitExceeded(
            f"`{name}` must be <= {most}, got {asked}; request less and continue with the next page",
            resource=resource,
            limit=most,
            actual=asked,
        )


def cause_of(session: GraphSession, commit: Commit) -> dict[str, object]:
    """Return what a block says about its commit; what the commit does not have is left out."""
    cause: dict[str, object | None] = {
        "graph_commit_id": commit.commit_id,
        "parent_commit_id": commit.parent,
        "merged_parent_commit_id": commit.merged_parent,
        "authored_branch": session.kernel.name_of(commit.branch),
        "actor_id": commit.actor,
        "authored_at": commit.created_at_us,
    }
    return {name: value for name, value in cause.items() if value is not None}


def graph_digest(snapshot: Snapshot) -> str:
    """Return a name for the graph that no other graph has: its identities were first given out under it."""
    return sha256(f"omnigraph/changes/{identity_domain(snapshot)}".encode()).hexdigest()[:32]
