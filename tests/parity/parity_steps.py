"""The corpus: what is done to a graph, spelled for the library, for HTTP and for the command line.

Names in braces stand for commits of earlier steps. The graph of the library is an opened or a served one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import orjson

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    score: F64?
    born: Date?
    seen: DateTime?
    tags: [String]?
    photo: Blob?
}
edge Knows: Person -> Person {
    since: I32?
}
"""
WIDER = SCHEMA.replace("age: I32?", "age: I32?\n    city: String?")
REFUSED = SCHEMA.replace("age: I32?", "age: String?")
PEOPLE = """query people() {
  match { $p: Person }
  return { $p.name as name, $p.age as age, $p.score as score, $p.born as born, $p.seen as seen, $p.tags as tags }
  order { name asc }
}"""
FIND = "query find($name: String) { match { $p: Person { name: $name } } return { $p.age as age } }"
NEAR = """query near($name: String) {
  match { $p: Person { name: $name } $p knows{1,3} $q as $hops }
  return { $q.name as name, $hops as hops }
  order { hops asc, name asc }
}"""
ADD = "query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }"
AGE = "query grow($name: String, $age: I32?) { update Person set { age: $age } where name = $name }"
GONE = "query gone($name: String) { delete Person where name = $name }"
UNKNOWN = "query q() {\n  match { $p: Persn }\n  return { $p.age }\n}"
NOWHERE = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def person(name: str, **data: object) -> dict[str, object]:
    return {"type": "Person", "data": {"name": name, **data}}


def knows(a: str, b: str, **data: object) -> dict[str, object]:
    return {"edge": "Knows", "from": a, "to": b, "data": {"id": f"{a}-{b}", **data}}


def lines(*records: Mapping[str, object]) -> bytes:
    return b"".join(orjson.dumps(one) + b"\n" for one in records)


FIRST = lines(
    person("ann", age=41, score=1.5, born="1984-02-29", seen="2026-01-02T03:04:05.678Z", tags=["a", "b"]),
    person("bob", age=7, photo="base64:aGVsbG8="),
    person("cid"),
    knows("ann", "bob", since=2001),
    knows("bob", "cid"),
)
MORE = lines(person("dan", age=9), person("ann", age=42))
BAD = lines(person("eve"), {"type": "Person", "data": {"age": "old"}}, {"type": "Nobody", "data": {}})


@dataclass(frozen=True)
class Step:
    """One thing to do. `http` is method, path and body; `cli` the words of the command; `save` names its commit."""

    name: str
    call: Callable[[Any, Mapping[str, str]], object]
    http: tuple[str, str, object]
    cli: tuple[str, ...]
    writes: bool = False
    save: str | None = None
    stdin: bytes = b""


def rows(result: Any, **target: object) -> dict[str, object]:
    return {
        "query_name": result.query_name,
        "target": target or {"branch": "main"},
        "row_count": len(result),
        "columns": result.columns,
        "rows": result.to_json_rows(),
        "graph_commit_id": result.graph_commit_id,
    }


def read(name: str, source: str, params: Mapping[str, object] | None = None, branch: str = "main") -> Step:
    given = dict(params or {})
    return Step(
        name,
        lambda graph, ids: rows(graph.query(source, params=given, branch=branch), branch=branch),
        ("POST", "/query", {"query": source, "params": given, "branch": branch}),
        ("query", "-e", source, "--params", orjson.dumps(given).decode(), "--branch", branch),
    )


def change(name: str, source: str, params: Mapping[str, object], branch: str = "main", save: str | None = None) -> Step:
    return Step(
        name,
        lambda graph, ids: graph.mutate(source, params=params, branch=branch).to_json(),
        ("POST", "/mutate", {"query": source, "params": params, "branch": branch}),
        ("mutate", "-e", source, "--params", orjson.dumps(params).decode(), "--branch", branch),
        writes=True,
        save=save,
    )


def guarded(name: str, at: str) -> Step:
    params = {"name": "guard", "age": 1}
    return Step(
        name,
        lambda graph, ids: graph.mutate(ADD, params=params, if_commit=at.format(**ids)).to_json(),
        ("POST", f"/mutate/if-graph-commit?{at}", {"query": ADD, "params": params}),
        ("mutate", "-e", ADD, "--params", orjson.dumps(params).decode(), "--if-commit", at),
        writes=True,
    )


def load(
    name: str, data: bytes, mode: str, branch: str = "main", source: str | None = None, save: str | None = None
) -> Step:
    start = "" if source is None else f"&from={source}"
    return Step(
        name,
        lambda graph, ids: graph.load(data, mode=mode, branch=branch, from_branch=source).to_json(),
        ("POST", f"/load/ndjson?branch={branch}&mode={mode}{start}", data),
        ("load", "--data", "-", "--mode", mode, "--branch", branch, *(() if source is None else ("--from", source))),
        writes=True,
        save=save,
        stdin=data,
    )


def make_branch(name: str, from_: str = "main") -> Step:
    return Step(
        f"branch {name}",
        lambda graph, ids: _made(graph.branches.create(name, from_), from_),
        ("POST", "/branches", {"name": name, "from": from_}),
        ("branch", "create", name, "--from", from_),
        writes=True,
    )


def _made(branch: Any, from_: str) -> dict[str, object]:
    return {"from": from_, "name": branch.name, "actor_id": branch.actor}


def drop_branch(name: str) -> Step:
    return Step(
        f"drop {name}",
        lambda graph, ids: graph.branches.delete(name) or {"name": name},
        ("DELETE", f"/branches/{quote(name, safe='')}", None),
        ("branch", "delete", name, "--yes"),
        writes=True,
    )


def merge(source: str, *, dry_run: bool = False, delete: bool = False) -> Step:
    words = [*(["--dry-run"] if dry_run else []), *(["--delete-branch"] if delete else [])]
    return Step(
        f"merge {source} {words}",
        lambda graph, ids: graph.branches.merge(source, "main", delete_branch=delete, dry_run=dry_run).to_json(),
        ("POST", "/branches/merge", {"source": source, "delete_branch": delete, "dry_run": dry_run}),
        ("branch", "merge", source, *words),
        writes=True,
    )


def replay(word: str, method: str, commit: str, branch: str) -> Step:
    return Step(
        f"{word} {commit} on {branch}",
        lambda graph, ids: getattr(graph, method)(commit.format(**ids), branch).to_json(),
        ("POST", f"/{word}", {"commit": commit, "branch": branch}),
        (word, commit, "--branch", branch),
        writes=True,
    )


def compare(a: str, b: str) -> Step:
    return Step(
        f"diff {a} {b}",
        lambda graph, ids: graph.diff(a.format(**ids), b.format(**ids)).to_json(),
        ("POST", "/diff", {"from": a, "to": b}),
        ("diff", a, b),
    )


def _tag(tag: Any) -> dict[str, object]:
    return {"name": tag.name, "graph_commit_id": tag.commit_id, "actor_id": tag.actor}


def _records(chunks: Any) -> list[Any]:
    return [orjson.loads(line) for line in b"".join(chunks).splitlines()]


def _stat(blob: Any) -> dict[str, object]:
    return {"snapshot_commit_id": blob.snapshot_commit_id, "length": blob.length, "bytes": len(blob.read())}


STEPS: tuple[Step, ...] = (
    Step(
        "schema",
        lambda graph, ids: {"schema_source": graph.schema.source},
        ("GET", "/schema", None),
        ("schema", "show"),
    ),
    read("empty", PEOPLE),
    load("first", FIRST, "append", save="first"),
    load("first again is refused", FIRST, "append"),
    load("bad records", BAD, "merge"),
    read("all columns", PEOPLE),
    read("parameter", FIND, {"name": "ann"}),
    read("no match", FIND, {"name": "nobody"}),
    read("parameter of a wrong type", FIND, {"name": 7}),
    read("parameter that is missing", FIND),
    read("walk", NEAR, {"name": "ann"}),
    read("type that is unknown", UNKNOWN),
    read("mutation as a read", ADD, {"name": "x"}),
    read("branch that is unknown", PEOPLE, branch="nowhere"),
    change("add", ADD, {"name": "dot", "age": 3}, save="add"),
    change("add a wrong value", ADD, {"name": "dot", "age": "old"}),
    change("update", AGE, {"name": "bob", "age": 8}, save="update"),
    change("update nothing", AGE, {"name": "nobody", "age": 8}),
    change("read as a mutation", FIND, {"name": "ann"}),
    guarded("guard that fails", NOWHERE),
    guarded("guard that holds", "{update}"),
    Step(
        "commits",
        lambda graph, ids: len(graph.commits()),
        ("GET", "/commits?branch=main", None),
        ("commit", "list", "--branch", "main"),
    ),
    Step(
        "commit",
        lambda graph, ids: {"graph_commit_id": graph.commit(ids["add"]).commit_id},
        ("GET", "/commits/{add}", None),
        ("commit", "show", "{add}"),
    ),
    Step(
        "commit that is unknown",
        lambda graph, ids: graph.commit(NOWHERE),
        ("GET", f"/commits/{NOWHERE}", None),
        ("commit", "show", NOWHERE),
    ),
    Step(
        "changes of a commit",
        lambda graph, ids: graph.commit_changes(ids["update"]).to_json(),
        ("GET", "/commits/{update}/changes", None),
        ("commit", "changes", "{update}"),
    ),
    Step(
        "feed",
        lambda graph, ids: graph.changes(start="beginning", types=["Person"], limit=2).to_json(),
        ("GET", "/changes?start=beginning&type=Person&limit=2", None),
        ("changes", "poll", "--start", "beginning", "--type", "Person", "--limit", "2"),
    ),
    Step(
        "feed from a damaged cursor",
        lambda graph, ids: graph.changes(cursor="rubbish"),
        ("GET", "/changes?cursor=rubbish", None),
        ("changes", "poll", "--cursor", "rubbish"),
    ),
    Step(
        "read at a commit",
        lambda graph, ids: rows(graph.query(PEOPLE, at=ids["first"]), branch="main", at=ids["first"]),
        ("POST", "/query", {"query": PEOPLE, "at": "{first}"}),
        ("query", "-e", PEOPLE, "--at", "{first}"),
    ),
    *(
        Step(
            f"read at {at}",
            lambda graph, ids, at=at: rows(graph.query(PEOPLE, at=at), branch="main", at=at),  # type: ignore[misc]
            ("POST", "/query", {"query": PEOPLE, "at": at}),
            ("query", "-e", PEOPLE, "--snapshot", at),
        )
        for at in ("HEAD~1", "2999-01-01", "2", "HEAD~99", "1999-01-01", "0000000000", "nowhere", "nowhere~1")
    ),
    *(
        Step(
            f"{word} of {key}",
            lambda graph, ids, word=word, key=key: getattr(graph, word)("Person", key).to_json(),  # type: ignore[misc]
            ("POST", f"/{word}", {"type": "Person", "key": key}),
            (word, "Person", key),
        )
        for word in ("log", "blame")
        for key in ("bob", "nobody")
    ),
    Step(
        "log of an unknown type",
        lambda graph, ids: graph.log("Nobody", "bob"),
        ("POST", "/log", {"type": "Nobody", "key": "bob"}),
        ("log", "Nobody", "bob"),
    ),
    Step(
        "commit before the newest",
        lambda graph, ids: graph.commit("HEAD~1").to_json(),
        ("GET", "/commits/HEAD~1", None),
        ("commit", "show", "HEAD~1"),
    ),
    Step(
        "change with a message",
        lambda graph, ids: graph.mutate(AGE, {"name": "bob", "age": 10}, message="Grow\nbob").to_json(),
        ("POST", "/mutate", {"query": AGE, "params": {"name": "bob", "age": 10}, "message": "Grow\nbob"}),
        ("mutate", "-e", AGE, "--params", '{"name": "bob", "age": 10}', "-m", "Grow\nbob"),
        writes=True,
    ),
    Step(
        "explain",
        lambda graph, ids: graph.explain(FIND, params={"name": "ann"}).to_json(),
        ("POST", "/explain", {"query": FIND, "params": {"name": "ann"}}),
        ("explain", "-e", FIND, "--params", '{"name": "ann"}'),
    ),
    Step(
        "export",
        lambda graph, ids: _records(graph.export(types=["Person"])),
        ("POST", "/export", {"type_names": ["Person"]}),
        ("export", "--type", "Person"),
    ),
    Step(
        "export of an unknown type",
        lambda graph, ids: _records(graph.export(types=["Nobody"])),
        ("POST", "/export", {"type_names": ["Nobody"]}),
        ("export", "--type", "Nobody"),
    ),
    make_branch("review/ann"),
    make_branch("review/ann"),
    make_branch("no good name"),
    change("change on a branch", ADD, {"name": "fay", "age": 5}, "review/ann", save="fay"),
    load("merge on a branch", MORE, "merge", "review/ann"),
    compare("main", "review/ann"),
    compare("{first}", "main"),
    replay("cherry-pick", "cherry_pick", "{fay}", "main"),
    replay("revert", "revert", "{add}", "main"),
    change("clash", AGE, {"name": "ann", "age": 99}),
    merge("review/ann", dry_run=True),
    merge("review/ann"),
    change("settle", AGE, {"name": "ann", "age": 99}, "review/ann"),
    load("branch made on the way", MORE, "append", "late", "main"),
    drop_branch("late"),
    drop_branch("late"),
    merge("review/ann", delete=True),
    Step(
        "branches",
        lambda graph, ids: {"branches": graph.branches.list()},
        ("GET", "/branches", None),
        ("branch", "list"),
    ),
    Step(
        "tag",
        lambda graph, ids: _tag(graph.tags.create("v1", ids["first"])),
        ("POST", "/tags", {"name": "v1", "at": "{first}"}),
        ("tag", "create", "v1", "--at", "{first}"),
        writes=True,
    ),
    Step(
        "tags",
        lambda graph, ids: {"tags": [_tag(one) for one in graph.tags.list()]},
        ("GET", "/tags", None),
        ("tag", "list"),
    ),
    Step(
        "read at a tag",
        lambda graph, ids: rows(graph.query(PEOPLE, at="v1"), branch="main", at="v1"),
        ("POST", "/query", {"query": PEOPLE, "at": "v1"}),
        ("query", "-e", PEOPLE, "--snapshot", "v1"),
    ),
    Step(
        "tag that is gone",
        lambda graph, ids: graph.tags.delete("v2"),
        ("DELETE", "/tags/v2", None),
        ("tag", "delete", "v2"),
        writes=True,
    ),
    Step(
        "blob that is not there",
        lambda graph, ids: _stat(graph.blob("Person", "cid", "photo")),
        ("GET", "/blob?entity=node&type=Person&id=cid&property=photo", None),
        ("blob", "stat", "node", "Person", "cid", "photo"),
    ),
    change("delete", GONE, {"name": "bob"}),
    Step(
        "schema that is refused",
        lambda graph, ids: graph.schema.apply(REFUSED),
        ("POST", "/schema/apply", {"schema_source": REFUSED}),
        ("schema", "apply", "--schema", "{refused}"),
        writes=True,
    ),
    Step(
        "schema that grows",
        lambda graph, ids: graph.schema.apply(WIDER).to_json(),
        ("POST", "/schema/apply", {"schema_source": WIDER}),
        ("schema", "apply", "--schema", "{wider}"),
        writes=True,
    ),
    Step(
        "snapshot",
        lambda graph, ids: {"graph_branch": graph.snapshot().branch},
        ("GET", "/snapshot", None),
        ("snapshot",),
    ),
)
