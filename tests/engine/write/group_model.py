"""Random mutations for group commit, and what a graph says of itself: the oracle is the same graph written one by one.

Keys are few, so that members of one group meet on them; a mutation does one to three things.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, TypeAlias

import omnigraph as og
from omnigraph.engine.changes.commit_diff import Block
from omnigraph.graph import session_of
from omnigraph.ids import CommitId

SCHEMA = """
node Person { name: String @key  mail: String? @unique  age: I32? }
node Team { title: String @key  size: I32 @default(0) }
edge Knows: Person -> Person { since: I32? }
edge Member: Person -> Team @card(0..2) { role: String  @key(role) }
"""
Request: TypeAlias = tuple[str, dict[str, Any]]
State: TypeAlias = tuple[Any, ...]


def request(chance: random.Random, keys: int = 6) -> Request:
    """Return a mutation of one to three statements, with its parameters."""
    statements, params = [], {}
    kinds = _DELETES if chance.random() < 0.25 else _WRITES
    for number in range(chance.choice((1, 1, 1, 2, 3))):
        text = chance.choice(kinds)
        for name in ("a", "b", "mail", "n", "to"):
            text = text.replace(f"${name}", f"${name}{number}")
        params |= {
            f"a{number}": f"p{chance.randrange(keys)}",
            f"b{number}": f"p{chance.randrange(keys)}",
            f"mail{number}": f"m{chance.randrange(keys)}",
            f"n{number}": chance.randrange(4),
            f"to{number}": chance.randrange(4),
        }
        statements.append(text)
    used = {name: value for name, value in params.items() if f"${name}" in " ".join(statements)}
    types = {"n": "I32", "t": "I32"}
    declared = ", ".join(f"${name}: {types.get(name[0], 'String')}" for name in sorted(used))
    return f"query q({declared}) {{ {' '.join(statements)} }}", used


_WRITES = (
    "insert Person { name: $a, age: $n }",
    "insert Person { name: $a, mail: $mail }",
    "create Person { name: $a }",
    "upsert Person { name: $a, mail: $mail }",
    "update Person set { age: $to } where age = $n",
    "update Person set { mail: $mail } where name = $a",
    "rename Person set { name: $b } where name = $a",
    "insert Team { title: $a }",
    "update Team set { size: $n } where title = $a",
    "insert Knows { from: $a, to: $b, since: $n }",
    "insert Member { from: $a, to: $b, role: $mail }",
)
_DELETES = (
    "delete Person where name = $a",
    "delete Person where age = $n",
    "delete Team where title = $a",
    "delete Knows where since = $n",
    "delete Member where role = $mail",
)


def state_of(graph: og.Graph, commit_id: CommitId) -> State:
    """Return all entities after a commit, with their values; ids only where they follow from keys."""
    kernel = session_of(graph).kernel
    snapshot = kernel.at_commit(commit_id)
    state = []
    for key in sorted(snapshot.state.pins):
        dataset = kernel.dataset(snapshot, key)
        rows = dataset.read()
        assert rows.num_rows == dataset.count() == snapshot.state.pins[key].row_count
        assert len(set(rows.column("id").to_pylist())) == rows.num_rows
        names = [name for name in rows.column_names if name != "id" or key.name != "Knows"]
        state.append((key, sorted(str(row) for row in rows.select(names).to_pylist())))
    return tuple(state)


def replayed_feed(graph: og.Graph) -> Iterator[tuple[CommitId, dict[str, dict[str, Any]]]]:
    """Yield each commit of the feed with the images of all entities after it, as the changes before add up to them."""
    images: dict[str, dict[str, Any]] = {}
    for block in _blocks(graph):
        for change in block.to_json()["changes"]:  # type: ignore[attr-defined]
            name = f"{change['type']['name']} {change['id']}"
            assert images.get(name) == change.get("before"), f"{name} was {images.get(name)}: {change}"
            if change["op"] == "delete":
                del images[name]
            else:
                images[name] = change["after"]
        yield CommitId(str(block.cause["graph_commit_id"])), images


def _blocks(graph: og.Graph) -> Iterator[Block]:
    page = graph.changes(start="beginning")
    while True:
        yield from page.blocks
        if page.caught_up:
            return
        page = graph.changes(cursor=page.cursor, page_token=page.next_page_token)
