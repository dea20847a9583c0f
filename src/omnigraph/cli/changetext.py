"""Changes as people read them, one line each.

Pure text; it takes blocks as the engine spells them in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from omnigraph.cli.formats import cut, when


def block_lines(block: Mapping[str, Any], *, is_continued: bool = False) -> Iterator[str]:
    """Yield a line about a commit, unless an earlier page had it, and one for each of its changes."""
    if not is_continued:
        cause = block["cause"]
        actor = f" by {cause['actor_id']}" if "actor_id" in cause else ""
        place = f"on {cause['authored_branch']} at {when(cause['authored_at'])}"
        yield f"commit {cause['graph_commit_id']}{actor} {place}"
    yield from (f"  {change_line(one)}" for one in block["changes"])


def change_line(change: Mapping[str, Any]) -> str:
    """Return one change as a line: what an insert brings, and what an update changes.

    >>> before, after = {"properties": {"age": 40, "name": "ann"}}, {"properties": {"age": 41, "name": "ann"}}
    >>> one = {"kind": "node", "type": {"id": "t1", "name": "Person"}, "id": "ann", "op": "update"}
    >>> change_line({**one, "before": before, "after": after})
    'update node Person ann: age 40 → 41'
    """
    before, after = change.get("before"), change.get("after")
    image = after or before
    assert image is not None, "a change has a state before it or after it"
    ends = image.get("endpoints")
    line = f"{change['op']} {change['kind']} {change['type']['name']} {change['id']}"
    if ends is not None:
        line += f" ({ends['from']} → {ends['to']})"
    told = _updated(before, after) if before and after else _inserted(after)
    return f"{line}: {', '.join(told)}" if told else line


def _inserted(after: Mapping[str, Any] | None) -> list[str]:
    members = after["properties"].items() if after else ()
    return [f"{name} {_value(value)}" for name, value in members if value is not None]


def _updated(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    old, new = _members(before), _members(after)
    # A commit that changed the shape of a type has no images, so both have the same members.
    return [f"{name} {_value(old[name])} → {_value(new[name])}" for name in new if old[name] != new[name]]


def _members(image: Mapping[str, Any]) -> dict[str, Any]:
    return {**image.get("endpoints", {}), **image["properties"]}


def _value(value: object) -> str:
    return cut(json.dumps(value, ensure_ascii=False))
