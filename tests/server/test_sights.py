"""Types that are hidden from an actor are not there for it over HTTP either, whatever it asks; leaks are caught."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import orjson
import pytest

from omnigraph.graph import Graph
from omnigraph.server.handlers import stored_queries
from omnigraph.stored_queries import StoredQueries
from tests.support.live_server import Live, Reply, serving_graph
from tests.support.visibility_oracle import HIDDEN, LEAKS, QUERIES, RULES, SCHEMA, WRITES, build, edge, node, plain

pytestmark = pytest.mark.slow

G: Final = "/graphs/g"
TOKENS: Final = {"ann": "token-of-ann", "root": "token-of-root"}
CALLS: Final = "  - id: calls\n    allow: {actors: {group: team}, actions: [invoke_query]}\n"
# Who may do the same, in a graph where there is nothing to hide.
PLAIN_RULES: Final = RULES.replace(", types: [Person, City, Knows, LivesIn, Paid]", "") + CALLS
STORED: Final = {
    "people": ("Person", 'query people() @description("All.") { match { $p: Person } return { $p.name } }\n'),
    "pay": ("Salary", "query pay() { match { $s: Salary } return { $s.amount } }\n"),
    "raise": ("Salary", 'query raise() { update Salary set { amount: 9 } where slip = "s1" }\n'),
}
HEADERS: Final = ("content-type", "omnigraph-row-count", "omnigraph-branch", "content-range", "allow")
Request = tuple[str, str, Any]


@contextmanager
def serving(graph: Graph, folder: Path, without: tuple[str, ...] = ()) -> Iterator[Live]:
    """Serve the whole graph with its policy, or the one that never had some types."""
    queries = folder / ("small" if without else "whole")
    queries.mkdir(exist_ok=True)
    texts = [text for type_, text in STORED.values() if type_ not in without]
    (queries / "all.gq").write_text("".join(texts), encoding="utf-8")
    policy = queries / "policy.yaml"
    policy.write_text(PLAIN_RULES if without else RULES + CALLS, encoding="utf-8")
    with serving_graph(graph.uri, tokens=TOKENS, policy=policy, queries=queries) as live:
        yield live


def reads(commits: list[str]) -> dict[str, Request]:
    """Return a request for every way to read; `commits` are those of main, newest first."""
    asked: dict[str, Request] = {
        "graphs": ("GET", "/graphs", None),
        "snapshot": ("GET", f"{G}/snapshot", None),
        "snapshot of a branch": ("GET", f"{G}/snapshot?branch=review", None),
        "schema": ("GET", f"{G}/schema", None),
        "queries": ("GET", f"{G}/queries", None),
        "branches": ("GET", f"{G}/branches", None),
        "tags": ("GET", f"{G}/tags", None),
        "commits": ("GET", f"{G}/commits", None),
        "commit": ("GET", f"{G}/commits/{commits[2]}", None),
        "export": ("POST", f"{G}/export", {}),
        "export past": ("POST", f"{G}/export", {"snapshot": "v1"}),
        "export hidden": ("POST", f"{G}/export", {"type_names": ["Salary"]}),
        "baseline": ("POST", f"{G}/changes/baseline", {}),
        "baseline hidden": ("POST", f"{G}/changes/baseline", {"type": ["Follows"]}),
        "feed": ("GET", f"{G}/changes?start=beginning", None),
        "feed on": ("GET", f"{G}/changes?start=after:{commits[2]}&max_commits=1", None),
        "feed hidden": ("GET", f"{G}/changes?start=beginning&type=Audit", None),
        "diff": ("POST", f"{G}/diff", {"from": "v1", "to": "review"}),
        "diff past": ("POST", f"{G}/diff", {"from": commits[1], "to": commits[2]}),
        "diff hidden": ("POST", f"{G}/diff", {"from": "v1", "to": "main", "type": ["Paid"]}),
        "preview": ("POST", f"{G}/branches/merge", {"source": "review", "dry_run": True}),
    }
    for number, commit in enumerate(commits[:-1]):
        asked[f"changes {number}"] = ("GET", f"{G}/commits/{commit}/changes", None)
        asked[f"operation {number}"] = ("GET", f"{G}/operations/{commit}", None)
    for name in (*STORED, "nothing"):
        asked[f"call {name}"] = ("POST", f"{G}/queries/{name}", {})
        asked[f"call {name} badly"] = ("POST", f"{G}/queries/{name}", {"params": {"x": 1}})
    for method in ("GET", "HEAD"):
        for type_, id_, name in (("Person", "cat", "photo"), ("Salary", "s1", "scan"), ("Nothing", "x", "y")):
            place = {"entity": "node", "type": type_, "id": id_, "property": name}
            asked[f"{method} {type_}"] = (method, f"{G}/blob?{urlencode(place)}", None)
            asked[f"{method} {type_} past"] = (method, f"{G}/blob?{urlencode({**place, 'snapshot': 'v1'})}", None)
    for source in QUERIES:
        asked[f"query {source}"] = ("POST", f"{G}/query", {"query": source})
        asked[f"past {source}"] = ("POST", f"{G}/query", {"query": source, "snapshot": "v1"})
        asked[f"explain {source}"] = ("POST", f"{G}/explain", {"query": source})
        asked[f"profile {source}"] = ("POST", f"{G}/explain", {"query": source, "profile": True})
    return asked


def refused_writes() -> dict[str, Request]:
    """Return writes of types that are hidden, which have to fail like those of types that nobody has."""
    asked: dict[str, Request] = {source: ("POST", f"{G}/mutate", {"query": source}) for source in WRITES}
    records = [node("Salary", slip="s9"), edge("Follows", "f9", "ann", "bob"), edge("Paid", "p9", "s1", "bob")]
    for record in (*records, node("Nothing", a=1)):
        line = orjson.dumps(record) + b"\n"
        asked[f"load {record}"] = ("POST", f"{G}/load", {"data": line.decode()})
        asked[f"lines {record}"] = ("POST", f"{G}/load/ndjson", line)
    asked["schema plan"] = ("POST", f"{G}/schema/plan", {"schema_source": SCHEMA["Person"]})
    return asked


def told(live: Live, actor: str, request: Request) -> object:
    """Return what a request is answered."""
    method, path, body = request
    media = {"Content-Type": "application/x-ndjson"} if isinstance(body, bytes) else {}
    reply = live.ask(method, path, body, actor=actor, headers=media)
    headers = {name: reply.headers[name] for name in HEADERS if name in reply.headers}
    return plain({"status": reply.status, "headers": headers, "body": _body(reply, method)})


def _body(reply: Reply, method: str) -> object:
    media = reply.headers.get("content-type", "")
    if method == "HEAD":
        return reply.headers.get("content-length")
    if media.startswith("application/x-ndjson"):
        return [line for line in map(orjson.loads, reply.body.splitlines()) if "baseline" not in line]
    if media.startswith("application/json"):
        return orjson.loads(re.sub(rb"milliseconds:? [\d.]+", b"milliseconds", reply.body))
    return reply.body.decode()


def differences(live: Live, expected: dict[str, object], asked: dict[str, Request], actor: str) -> Iterator[str]:
    """Yield in which ways an actor is told another thing than expected."""
    for name, request in asked.items():
        if told(live, actor, request) != expected[name]:
            yield name


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Graph, Graph, Path]]:
    root = tmp_path_factory.mktemp("sights")
    with build(root / "graph.omni") as whole, build(root / "other.omni", HIDDEN) as small:
        yield whole, small, root


def everything(graph: Graph) -> dict[str, Request]:
    """Return every request of which the answers are compared."""
    asked, refused = reads(commits(graph)), refused_writes()
    assert not asked.keys() & refused.keys(), "one would take the place of the other"
    return asked | refused


def commits(graph: Graph) -> list[str]:
    return [one.commit_id for one in graph.commits()]


@pytest.fixture(scope="module")
def expected(pair: tuple[Graph, Graph, Path]) -> dict[str, object]:
    _, small, root = pair
    with serving(small, root, HIDDEN) as live:
        return {name: told(live, "ann", request) for name, request in everything(small).items()}


def test_hidden_types_are_not_there_whatever_one_asks(
    pair: tuple[Graph, Graph, Path], expected: dict[str, object]
) -> None:
    whole, _, root = pair
    head = whole.snapshot().head
    with serving(whole, root) as live:
        assert list(differences(live, expected, everything(whole), "ann")) == []
    assert whole.snapshot().head == head


def test_hidden_types_show_to_whoever_may_see_them(
    pair: tuple[Graph, Graph, Path], expected: dict[str, object]
) -> None:
    whole, _, root = pair
    with serving(whole, root) as live:
        found = set(differences(live, expected, reads(commits(whole)), "root"))
    assert {"snapshot", "schema", "export", "baseline", "feed", "diff", "commits", "GET Salary", "queries"} <= found


@pytest.mark.parametrize(
    ("place", "name", "mutant"),
    [
        *LEAKS,
        (StoredQueries, "list", lambda self, catalog: self.queries),
        (stored_queries, "_visible_query", stored_queries.find_query),
    ],
)
@pytest.mark.sampled(2)
def test_hidden_types_leak_is_caught(
    pair: tuple[Graph, Graph, Path],
    expected: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
    mutant: Any,
) -> None:
    whole, _, root = pair
    monkeypatch.setattr(place, name, mutant)
    with serving(whole, root) as live:
        assert next(differences(live, expected, reads(commits(whole)), "ann"), None) is not None
