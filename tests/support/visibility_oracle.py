"""Two graphs with one history: a whole one, and one that never had some types; and everything that can be read of one.

What an actor sees of the whole graph, if those types are hidden from it, must equal what anybody sees of the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import orjson

import omnigraph as og
from omnigraph import pipeline
from omnigraph.engine import authorization
from omnigraph.engine import session as session_module
from omnigraph.engine.changes.commit_diff import States
from omnigraph.engine.history import public_commits
from omnigraph.engine.session import GraphSession
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph, session_of
from omnigraph.ids import new_ulid
from omnigraph.policy import load_bundle
from omnigraph.stored_queries import load_queries

HIDDEN: Final = ("Salary", "Audit", "Paid", "Follows", "Retired")
# What is hidden from the actor: `Paid` has an end that is hidden, and is never named.
RULES = """
version: 1
groups: {team: [ann], chiefs: [root]}
rules:
  - id: some
    allow: {actors: {group: team}, actions: [read, export, change], types: [Person, City, Knows, LivesIn, Paid]}
  - id: rest
    allow: {actors: {group: team}, actions: [branch_create, branch_delete, branch_merge, tag_create, tag_delete]}
  - id: all
    allow: {actors: {group: chiefs}, actions: [read, export, change, branch_merge, schema_apply, admin]}
"""
SCHEMA: Final = {
    "": "// Salary and Audit are not for everybody.\n",
    "Person": "node Person { name: String @key\n  age: I32? @index\n  about: String? @index\n  photo: Blob? }\n",
    "Salary": 'node Salary @description("what is paid") { slip: String @key\n  amount: I32\n  scan: Blob? }\n',
    "City": "node City { name: String @key // not where Audit sits\n  size: I32? }\n",
    "Audit": "node Audit { note: String }\n",
    "Retired": "node Retired { id_: String @key }\n",
    "Knows": "edge Knows: Person -> Person { since: I32? }\n",
    "LivesIn": "edge LivesIn: Person -> City @card(0..1)\n",
    "Paid": "edge Paid: Salary -> Person\n",
    "Follows": "edge Follows: Person -> Person { secret: String? }\n",
}


def schema(without: tuple[str, ...], *, is_late: bool = True) -> str:
    text = "".join(part for name, part in SCHEMA.items() if name not in without and (not without or name))
    if without:
        text = text.replace(" // not where Audit sits", "")
    if is_late:
        return text.replace(SCHEMA["Retired"], "").replace("size: I32? }", "size: I32?\n  river: String? }")
    return text


def node(type_: str, **data: Any) -> dict[str, Any]:
    return {"type": type_, "data": data}


def edge(type_: str, id_: str, source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": type_, "from": source, "to": target, "data": {"id": id_, **data}}


FIRST: Final = [
    node("Person", name="ann", age=30, about="likes boats and salary talks"),
    node("Person", name="bob", age=40, about="likes trains"),
    node("Person", name="cat", age=50, photo="base64:aGVsbG8="),
    node("City", name="oslo", size=7),
    node("City", name="rome", size=9),
    node("Salary", slip="s1", amount=100, scan="base64:c2VjcmV0"),
    node("Salary", slip="s2", amount=200),
    node("Audit", id="a1", note="boats"),
    node("Retired", id_="r1"),
    edge("Knows", "k1", "ann", "bob", since=2001),
    edge("Knows", "k2", "bob", "cat"),
    edge("LivesIn", "l1", "ann", "oslo"),
    edge("Paid", "p1", "s1", "ann"),
    edge("Paid", "p2", "s2", "bob"),
    edge("Follows", "f1", "cat", "ann", secret="x"),
]
SECOND: Final = [
    node("Person", name="dan", age=20),
    node("Salary", slip="s3", amount=300),
    edge("Paid", "p3", "s3", "dan"),
    edge("Follows", "f2", "dan", "ann"),
    edge("Knows", "k3", "dan", "ann"),
]
THIRD: Final = [
    node("City", name="oslo", size=8),
    node("Audit", id="a2", note="later"),
    node("Salary", slip="s1", amount=1),
]
REVIEW: Final = [node("Person", name="ann", age=31), node("Salary", slip="s2", amount=7), node("City", name="bern")]
MAIN: Final = [node("Person", name="ann", age=32), node("Salary", slip="s2", amount=8), node("City", name="kiel")]


def build(root: Path, without: tuple[str, ...] = ()) -> Graph:
    """Make the history; each commit touches a type that everybody sees."""
    graph = og.init(root, schema(without, is_late=False), actor="maker")

    def write(records: list[dict[str, Any]], branch: str = "main") -> None:
        kept = [one for one in records if (one.get("type") or one.get("edge")) not in without]
        graph.ingest(kept, branch=branch)

    write(FIRST)
    graph.schema.apply(schema(without), allow_data_loss=True)
    write(SECOND)
    graph.tags.create("v1")
    write(THIRD)
    graph.mutate('query q() { delete Person where name = "dan" }')
    graph.branches.create("review")
    write(REVIEW, "review")
    write(MAIN)
    return graph


QUERIES: Final = [
    "query q() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }",
    "query q() { match { $p: Person $p knows $q } return { $p.name, $q.name } order { $p.name, $q.name } }",
    "query q() { match { $p: Person $p livesIn $c } return { $c.name, count($p) as n } }",
    "query q() { match { $p: Person not { $p knows $q } } return { $p.name } order { $p.name } }",
    'query q() { match { $p: Person search($p.about, "likes") } return { $p.name } order { $p.name } }',
    "query q() { match { $c: City } return { count($c) as n } }",
    "query q() { match { $p: Person $p livesIn $c } with { $c, count(*) as $n } return { $c.name, $n } order { $n } }",
    "query q() { match { $p: Person } with { $p } match { $s paid $p } return { $p.name } order { $p.name } }",
    "query q() { match { $p: Person } return { $p as x } union match { $s: Salary } return { $s as x } order { x } }",
    "query q() { match { $s: Salary } return { $s.amount } }",
    "query q() { match { $s: Salar } return { $s.amount } }",
    "query q() { match { $s: Nothing } return { $s.amount } }",
    "query q() { match { $p: Person $p paid $s } return { $p.name } }",
    "query q() { match { $p: Person $p follows $q } return { $p.name } }",
]
WRITES: Final = [
    'query q() { insert Salary { slip: "s9" amount: 1 } }',
    'query q() { update Salary set { amount: 1 } where slip = "s1" }',
    'query q() { delete Audit where note = "later" }',
    'query q() { insert Follows { from: "ann" to: "bob" } }',
    'query q() { insert Paid { from: "s1" to: "bob" } }',
    "query q() { insert Nothing { a: 1 } }",
]


def _whole_export(
    self: GraphSession, branch: str = "main", at: Any = None, action: str = "read", *more: Any, **named: Any
) -> Any:
    return self.full_view(branch, at) if action == "export" else _VIEW(self, branch, at, action, *more, **named)


_VIEW: Final = GraphSession.view
# Ways in which the engine could show what is hidden, each of which a comparison has to notice.
LEAKS: Final[tuple[tuple[Any, str, Any], ...]] = (
    (session_module, "with_their_edges", lambda catalog, hidden: frozenset(hidden)),
    (session_module, "redact_commit", lambda commit, **_: commit),
    (authorization, "restrict_source", lambda text, hidden: text),
    (session_module, "restrict_snapshot", lambda snapshot, hidden, schema: snapshot),
    (States, "view", lambda self, commit, _: self.session.full_view_of(self.session.kernel.snapshot_of(commit))),
    (GraphSession, "view", _whole_export),
    (GraphSession, "visible_view", lambda self, snapshot, *actions: self.full_view_of(snapshot)),
)


@dataclass(frozen=True)
class Reader:
    """One actor's way to read everything."""

    graph: Graph
    commits: list[str]

    def everything(self, out: Path) -> dict[str, object]:
        """Return what each way to read answers, errors included, without what differs from graph to graph."""
        return {name: outcome(call) for name, call in self._calls(out).items()}

    def _calls(self, out: Path) -> dict[str, Callable[[], object]]:
        graph, commits = self.graph, self.commits
        calls: dict[str, Callable[[], object]] = {
            "snapshot": lambda: [graph.snapshot(one).to_json() for one in ("main", "review")],
            "state": lambda: sorted(graph.snapshot().state.pins),
            "past": lambda: graph.at(commits[1]).snapshot().to_json(),
            "schema": lambda: [
                graph.schema.source,
                json.loads(session_of(graph).view().snapshot.state.schema.ir)["nodes"],
            ],
            "commits": lambda: [commit.to_json() for commit in graph.commits()],
            "commit": lambda: graph.commit(commits[2]).to_json(),
            "window": lambda: [
                commit.to_json() for commit in public_commits(session_of(graph), graph.snapshot().state.commits)
            ],
            "dropped": lambda: [one.table_key for one in graph.snapshot().state.tombstones],
            "export": lambda: text(graph.export()),
            "export past": lambda: text(graph.export(at="v1")),
            "export hidden": lambda: text(graph.export(types=["Salary"])),
            "baseline": lambda: text(graph.baseline()),
            "baseline hidden": lambda: text(graph.baseline(types=["Follows"])),
            "diff": lambda: graph.diff("v1", "review").to_json(),
            "diff past": lambda: graph.diff(commits[1], commits[2]).to_json(),
            "diff hidden": lambda: graph.diff("v1", "main", types=["Paid"]).to_json(),
            "feed": lambda: graph.changes(start="beginning").to_json(),
            "feed on": lambda: graph.changes(start=f"after:{commits[2]}").to_json(),
            "feed hidden": lambda: graph.changes(types=["Audit"]).to_json(),
            "blob": lambda: graph.blob("Person", "cat", "photo").read().decode(),
            "blob hidden": lambda: graph.blob("Salary", "s1", "scan").read().decode(),
            "blob past": lambda: graph.blob("Salary", "s1", "scan", at=commits[1]).read().decode(),
            "lint": lambda: sorted(graph.schema.catalog.edges),
            "preview": lambda: graph.branches.merge("review", dry_run=True).to_json(),
            "merge": lambda: graph.branches.merge("review").to_json(),
            "stored": lambda: [one.to_json() for one in stored(out).list(graph.schema.catalog)],
            "spark export": lambda: exported(graph, out),
            "degree": lambda: pipeline.algo.degree(graph, engine="local").to_arrow().to_pylist(),
            "degree hidden": lambda: (
                pipeline.algo.degree(graph, edges=["Follows"], engine="local").to_arrow().to_pylist()
            ),
        }
        for number, one in enumerate(commits[:-1]):
            calls[f"commit changes {number}"] = lambda one=one: graph.commit_changes(one).to_json()  # type: ignore[misc]
        for source in QUERIES:
            calls[f"query {source}"] = lambda source=source: graph.query(source).rows()  # type: ignore[misc]
            calls[f"past {source}"] = lambda source=source: graph.query(source, at="v1").rows()  # type: ignore[misc]
            calls[f"explain {source}"] = lambda source=source: graph.explain(source).to_json()  # type: ignore[misc]
        for source in WRITES:
            calls[f"mutate {source}"] = lambda source=source: graph.mutate(source).to_json()  # type: ignore[misc]
        records = [node("Salary", slip="s9"), edge("Follows", "f9", "ann", "bob"), edge("Paid", "p9", "s1", "bob")]
        for record in (*records, node("Nothing", a=1)):
            calls[f"ingest {record}"] = lambda record=record: graph.ingest([record]).to_json()  # type: ignore[misc]
            calls[f"load {record}"] = lambda record=record: loaded(graph, out, record)  # type: ignore[misc]
        return calls

    def upkeep(self) -> dict[str, object]:
        """Return what work on all types tells of them; it changes the graph."""
        graph = self.graph
        return {
            "delete": outcome(lambda: graph.mutate('query q() { delete Person where name = "cat" }').to_json()),
        }


def reader(graph: Graph) -> Reader:
    """Return a graph to whoever sees all of it, with its commits, newest first."""
    return Reader(graph, [one.commit_id for one in graph.commits()])


def restricted(graph: Graph, actor: str = "ann", *, read_only: bool = False) -> Reader:
    """Return a graph as one actor of the policy sees it."""
    seen = og.open(graph.uri, actor=actor, policy=load_bundle(RULES), read_only=read_only)
    return Reader(seen, [one.commit_id for one in graph.commits()])


def text(chunks: Any) -> object:
    lines = [orjson.loads(line) for line in b"".join(chunks).splitlines()]
    return [line for line in lines if "baseline" not in line]


def stored(out: Path) -> Any:
    """Return stored queries over types of all sorts, as the server has them."""
    out.mkdir(parents=True, exist_ok=True)
    source = "query people() { match { $p: Person } return { $p.name } }\n"
    both = source + "query pay() { match { $s: Salary } return { $s.amount } }\n"
    path = out / "all.gq"
    path.write_text(both)
    whole = og.init(out / "stored.omni", schema(()), force=True) if not (out / "stored.omni").exists() else None
    catalog = session_of(whole or og.open(out / "stored.omni")).view().catalog
    return load_queries(path, catalog)


def exported(graph: Graph, out: Path) -> object:
    folder = out / new_ulid()
    pipeline.export(graph, folder, "ndjson", engine="local")
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("_"))
    return [(path.parent.name, path.read_text()) for path in files]


def loaded(graph: Graph, out: Path, record: dict[str, Any]) -> object:
    out.mkdir(parents=True, exist_ok=True)
    path = out / "in.ndjson"
    path.write_text(json.dumps(record) + "\n")
    return pipeline.load(graph, path, engine="local").to_json()


def outcome(call: Callable[[], object]) -> object:
    """Return what a call answers or refuses, without what differs from graph to graph."""
    try:
        return plain(call())
    except OmniGraphError as error:
        return plain({"refused": error.code, "message": error.message, "json": error.to_json()})


_OWN: Final = re.compile(
    r"version|path|native|created_at|authored_at|operation_id|cursor|token|_id$|seconds|actor|bytes|^file$"
)


def plain(value: Any) -> Any:
    """Return a value without ids of commits, versions, times and places."""
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if not _OWN.search(str(key)) or key in ("entity_id", "type_id")}
        return {key: plain(one) for key, one in kept.items() if key != "type_id"}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, timedelta):
        return None
    if isinstance(value, str):
        without_ids = re.sub(r"[0-9A-HJKMNP-TV-Z]{26}|\b[0-9a-f]{32}\b", "ID", value)
        return re.sub(r"/[^\s`]*", "/PATH", without_ids)
    return value
