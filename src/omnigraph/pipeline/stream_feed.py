"""One branch's feed as a stream plans it: positions, commits, and what tasks are to read of each.

Walks commits and their catalogs, and never looks at entities.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from omnigraph.engine.changes.commit import Step
from omnigraph.engine.changes.feed import feed_scope, start_commit, steps_after
from omnigraph.engine.changes.pair import Pair
from omnigraph.engine.changes.selection import Selection, select
from omnigraph.engine.changes.token import Scope, Token, decode, encode
from omnigraph.engine.core import View
from omnigraph.engine.write.loaded import Type
from omnigraph.errors import SchemaBoundary, UsageError
from omnigraph.graph import Graph
from omnigraph.ids import CommitId, new_ulid
from omnigraph.limits import STREAM_TASK_ROWS
from omnigraph.pipeline.job import Place, place_of
from omnigraph.pipeline.options import GivenOptions
from omnigraph.pipeline.scanning import Scan
from omnigraph.pipeline.stream_rows import Change, stream_schema
from omnigraph.pipeline.types import find_type


@dataclass(frozen=True)
class Feed:
    """A branch's feed up to the head that was found."""

    graph: Graph
    view: View
    given: GivenOptions
    schema: Any

    @property
    def head(self) -> CommitId:
        head = self.view.snapshot.head
        assert head is not None, "a graph is born with a commit"
        return head

    @cached_property
    def selection(self) -> Selection:
        given, type_ = self.given, feed_type(self.given, self.view)
        if type_ is None:
            return select(given.names("kinds"), given.names("types"), given.names("ops"), [self.view.catalog])
        kind, _, name = type_.table_key.partition(":")
        return select([kind], [name], given.names("ops"), [self.view.catalog])

    @cached_property
    def scope(self) -> Scope:
        return feed_scope(self.view.snapshot, self.selection)

    @cached_property
    def place(self) -> Place:
        # One for all tasks of a batch, because a worker keeps what it has opened by it.
        return place_of(self.graph.uri, new_ulid())

    def start(self, start: str) -> CommitId:
        """Return the commit after which a stream begins."""
        # A cursor has digits, so a word that is none of ours is not taken for one.
        if start.isalpha() or start.startswith("after:"):
            return start_commit(self.graph.core, self.view.snapshot, start)
        return self.commit({"cursor": start})

    def offset(self, commit: CommitId) -> dict[str, str]:
        """Return the position after a commit: the commit for people, the cursor for us."""
        return {"commit": commit, "cursor": encode(Token("feed-cursor", self.scope, commit))}

    def commit(self, offset: Mapping[str, str]) -> CommitId:
        return decode(offset["cursor"], "feed-cursor", self.scope).commit

    def steps(self, first: CommitId, last: CommitId, most: int) -> list[Step]:
        """Return the commits after one up to another, oldest first."""
        token = Token("feed-cursor", self.scope, first, cut=last)
        return steps_after(self.graph.core, self.view.snapshot, token, most)[0]

    def changes(self, step: Step) -> list[Change]:
        """Return what tasks are to read of a commit; refuse one that cannot be told."""
        kernel = self.graph.core.kernel
        # Types without entities on one side come or go without a change.
        pairs = [
            pair
            for pair in step.pairs()
            if pair.before
            and pair.after
            and not pair.is_same_data
            and self.selection.has_type(pair.after.pin.table_key)
        ]
        step.refuse_gone(pairs)
        for view in step.views() if pairs else ():
            # Tasks open versions by path alone, so all that is published must be in its place.
            kernel.finish_links(view.snapshot)
        return [change for pair in pairs for change in self._shares(step, pair)]

    def _shares(self, step: Step, pair: Pair) -> list[Change]:
        assert pair.before is not None
        assert pair.after is not None
        self._refuse_other_shape(step, pair.after.type_)
        snapshot, pin = pair.after.view.snapshot, pair.after.pin
        core, commit = self.graph.core, step.commit
        # What a large load brought in is told from how many entities there are, without looking at any.
        shares = max(1, -(-(pin.row_count - pair.before.pin.row_count) // STREAM_TASK_ROWS))
        change = Change(
            commit.commit_id,
            commit.created_at_us,
            commit.actor,
            core.kernel.name_of(commit.branch),
            Scan(self.place, snapshot.state.schema.ir, pin.table_key, pin.ref),
            pair.before.pin.ref,
            self.selection,
        )
        return [replace(change, share=share, shares=shares) for share in range(shares)]

    def _refuse_other_shape(self, step: Step, type_: Type) -> None:
        """Refuse to go on when the type, whose past is read as it is today, has got other columns since the start."""
        if "type" not in self.given.values:
            return
        if stream_schema(type_).simpleString() != self.schema.simpleString():
            raise SchemaBoundary(
                f"`{type_.name}` has other columns today than when the stream was started, so commit"
                f" {step.commit.commit_id} does not fit; begin before it, or leave `type` away to get JSON",
                reason="schema_boundary",
                graph_commit_id=step.commit.commit_id,
                type_name=type_.name,
            )


def feed_type(given: GivenOptions, view: View) -> Type | None:
    """Return the one type that a stream is about, or None."""
    if "type" not in given.values:
        return None
    for name in ("kinds", "types"):
        if name in given.values:
            raise UsageError(f"`type` and `{name}` both say what to read; use one of them", option=name)
    return find_type(view.catalog, given.type)
