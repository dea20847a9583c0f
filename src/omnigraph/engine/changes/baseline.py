"""Baselines: a whole snapshot to begin with, and the cursor from which the feed goes on right after it.

Reads one snapshot; the records are those of an export.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import orjson

from omnigraph.engine.changes.feed import feed_scope
from omnigraph.engine.changes.selection import select
from omnigraph.engine.changes.token import Token, encode
from omnigraph.engine.core import Core
from omnigraph.engine.export import records
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.manifest.model import MAIN


def baseline(
    core: Core,
    branch: str = MAIN,
    *,
    kinds: Sequence[str] | None = None,
    types: Sequence[str] | None = None,
    ops: Sequence[str] | None = None,
    actor: str | None = None,
) -> Iterator[bytes]:
    """Return the records of a branch's newest state as NDJSON, and a last record that names the cursor to go on with.

    `ops` select nothing here, but the cursor is made for them. A stream that broke off has no cursor.
    """
    branch = branch.strip()
    view = core.acting_as(actor).view(branch, action="export")
    selection = select(kinds, types, ops, [view.catalog])
    head = view.snapshot.head
    assert head is not None, "a graph is born with a commit"
    cursor = encode(Token("feed-cursor", feed_scope(view.snapshot, selection), head))
    known: list[NodeType | EdgeType] = [*view.catalog.edges.values(), *view.catalog.nodes.values()]
    wanted = [one for one in known if selection.has_type(one.table_key)]

    def stream() -> Iterator[bytes]:
        yield from records(view, sorted(wanted, key=lambda one: one.table_key))
        yield orjson.dumps({"baseline": {"snapshot_commit_id": head, "resume_cursor": cursor}}) + b"\n"

    return stream()
