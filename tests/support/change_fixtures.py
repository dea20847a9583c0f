"""What the tests of changes share: a small schema, short ways to write, and a reader that replays a feed."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.engine.changes import FeedPage
from tests.support.graph_template import copy_built

SCHEMA = """
node P { k: String @key  v: F64?  tags: [String]?  image: Blob? }
node Q { k: String @key }
edge E: P -> P { w: I32? }
edge F: P -> Q
"""

# {(kind, type, id): image}
World = dict[tuple[str, str, str], Any]


def new_graph(root: Path | str, schema: str = SCHEMA) -> og.Graph:
    return og.init(f"{root}/graph.omni", schema, actor="ada")


def copied_graph(root: Path) -> og.Graph:
    """Return a copy of an empty graph; its identifiers are those of every other copy."""
    return copy_built(_build, root / "graph.omni", actor="ada")


def _build(path: Path) -> og.Graph:
    return og.init(path, SCHEMA, actor="ada")


def node(key: str, type_: str = "P", **data: Any) -> dict[str, Any]:
    return {"type": type_, "data": {"k": key, **data}}


def edge(key: str, source: str, target: str, type_: str = "E", **data: Any) -> dict[str, Any]:
    return {"edge": type_, "from": source, "to": target, "data": {"id": key, **data}}


def image(raw: bytes) -> str:
    return f"base64:{b64encode(raw).decode()}"


def write(graph: og.Graph, *records: dict[str, Any], mode: Any = "merge", branch: str = "main") -> str:
    """Ingest records, and return the id of the commit."""
    graph.ingest(list(records), mode=mode, branch=branch)
    return head(graph, branch)


def delete(graph: og.Graph, *keys: str, branch: str = "main") -> str:
    for key in keys:
        graph.mutate("query q($k: String) { delete P where k = $k }", params={"k": key}, branch=branch)
    return head(graph, branch)


def head(graph: og.Graph, branch: str = "main") -> str:
    found = graph.snapshot(branch).head
    assert found is not None
    return found


def world(lines: bytes) -> World:
    """Return what an export or a baseline says, entity by entity."""
    found: World = {}
    for record in map(json.loads, lines.splitlines()):
        if "baseline" in record:
            continue
        kind, name = ("edge", record["edge"]) if "edge" in record else ("node", record["type"])
        data = record["data"]
        shown: dict[str, Any] = {"properties": {name: data[name] for name in data if name != "id"}}
        if kind == "edge":
            shown["endpoints"] = {"from": record["from"], "to": record["to"]}
        found[kind, name, data["id"]] = shown
    return found


def exported(graph: og.Graph, branch: str = "main", at: str | None = None) -> World:
    return world(b"".join(graph.export(branch, at=at)))


def apply(state: World, change: dict[str, Any]) -> None:
    """Take one change in, and hold its images to what was known before."""
    key = (change["kind"], change["type"]["name"], change["id"])
    assert change.get("before") == state.get(key), change
    assert ("before" in change, "after" in change) == {
        "insert": (False, True),
        "update": (True, True),
        "delete": (True, False),
    }[change["op"]]
    assert change.get("before") != change.get("after")
    if "after" in change:
        state[key] = change["after"]
    else:
        del state[key]


def order(change: dict[str, Any]) -> tuple[object, ...]:
    return change["kind"] != "node", change["type"]["name"], change["id"]


def pages(graph: og.Graph, branch: str = "main", **options: Any) -> list[FeedPage]:
    """Poll until the feed is caught up; `start`, `cursor` or `page_token` say where the first poll begins."""
    position = {key: options.pop(key) for key in ("start", "cursor", "page_token") if key in options}
    found = [graph.changes(branch, **position, **options)]
    while not found[-1].caught_up:
        last = found[-1]
        assert (last.next_page_token is None) != (last.cursor is None)
        if last.next_page_token is not None:
            found.append(graph.changes(branch, page_token=last.next_page_token, **options))
        else:
            found.append(graph.changes(branch, cursor=last.cursor, **options))
    return found


def replay(state: World, found: list[FeedPage]) -> list[str]:
    """Take all pages in; return the commits in the order in which their blocks came, each once."""
    commits: list[str] = []
    last: tuple[object, ...] | None = None
    for page in found:
        for block in page.to_json()["blocks"]:  # type: ignore[attr-defined]  # it is a list
            commit = block["cause"]["graph_commit_id"]
            if commits[-1:] != [commit]:
                commits.append(commit)
                last = None
            for change in block["changes"]:
                assert last is None or last < order(change), "changes come in order, each once"
                last = order(change)
                apply(state, change)
    return commits
