"""Deletes of nodes and edges by a stream of changes and by snapshots, compared with a model of the table."""

from __future__ import annotations

import json
import random
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import omnigraph as og
from omnigraph import clock, pipeline
from omnigraph.errors import DataError, PipelineError, UsageError
from omnigraph.graph import Graph
from omnigraph.pipelines.declaration.config import parse_pipelines
from omnigraph.pipelines.history import RunReport
from tests.support.examples import IS_LONG

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { name: String @key  age: I64? }
node Place { country: String  number: I64  @key(country, number) }
edge Knows: Person -> Person
edge Likes: Person -> Person
"""
CHANGES = """
pipelines:
  crm:
    publish: { merge_into: main }
    sources: { changes: { format: json, path: changes, incremental: seq, schema: "SCHEMA" } }
    transforms:
      people: "SELECT name, age, op, seq FROM changes WHERE friend IS NULL"
      friends: "SELECT name, friend, op, seq FROM changes WHERE friend IS NOT NULL"
    nodes: { Person: { from: people, columns: { name: name, age: age }, delete_when: { op: [d, D] }, order_by: seq } }
    edges: { Knows: { from: friends, src: name, dst: friend, delete_when: { op: [d, D] }, order_by: seq } }
""".replace("SCHEMA", "seq long, op string, name string, age long, friend string")
Change = dict[str, Any]
State = tuple[dict[str, int | None], set[tuple[str, str]]]


def run(graph: Graph, spark: Any, folder: Path, text: str = CHANGES) -> RunReport:
    return pipeline.run(graph, parse_pipelines(text, folder=folder), spark=spark)


def write(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def content(graph: Graph) -> State:
    lines = [json.loads(line) for line in b"".join(graph.export()).splitlines()]
    people = {line["data"]["name"]: line["data"]["age"] for line in lines if line.get("type") == "Person"}
    return people, {(line["from"], line["to"]) for line in lines if line.get("edge") == "Knows"}


def apply_batch(state: State, batch: list[Change]) -> State:
    """The definition: of the changes of an entity, the newest counts; a deleted node takes its edges along.

    Edges fall with a node before the batch merges new ones.
    """
    people, edges = dict(state[0]), set(state[1])
    newest: dict[tuple[str, str | None], Change] = {}
    for change in batch:
        key = (change["name"], change["friend"])
        if key not in newest or change["seq"] > newest[key]["seq"]:
            newest[key] = change
    deleted = [key for key, change in newest.items() if change["op"] in ("d", "D")]
    for name, friend in deleted:
        if friend is None:
            people.pop(name, None)
            edges = {edge for edge in edges if name not in edge}
        edges.discard((name, friend or ""))
    for (name, friend), change in newest.items():
        if change["op"] not in ("d", "D"):
            if friend is None:
                people[name] = change["age"]
            else:
                edges.add((name, friend))
    return people, edges


def random_batch(rng: random.Random, state: State, first: int) -> list[Change]:
    """Changes that a source could send: edges of people who are there at the end of the batch."""
    names = ["ann", "bob", "cid", "dan", "eve"]
    batch: list[Change] = []

    def add(op: str, name: str, friend: str | None = None) -> None:
        age = rng.randrange(90) if friend is None else None
        batch.append({"seq": first + len(batch), "op": op, "name": name, "age": age, "friend": friend})

    for _ in range(rng.randrange(1, 7)):
        add(rng.choice("iudD"), rng.choice(names))
    alive = sorted(apply_batch(state, batch)[0])
    for _ in range(rng.randrange(5) if alive else 0):
        add(rng.choice("iiD"), rng.choice(alive), rng.choice(alive))
    rng.shuffle(batch)
    return batch


@pytest.mark.slow
def test_changes_of_nodes_and_edges_equal_the_model(spark: Any, tmp_path: Path) -> None:
    rng, graph, seq = random.Random(19), og.init(tmp_path / "g.omni", SCHEMA), 1
    state: State = ({}, set())
    for day in range(6 if IS_LONG else 4):
        batch = random_batch(rng, state, seq)
        seq += len(batch)
        state = apply_batch(state, batch)
        # A file that is read twice by mistake brings the same rows again.
        write(tmp_path / "changes", f"{day}", batch + rng.sample(batch, len(batch) // 2))
        if day % 2:
            place = rng.choice(["omnigraph.pipelines.run.load", "omnigraph.engine.branches.Branches.merge"])
            with patch(place, side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
                run(graph, spark, tmp_path)
        run(graph, spark, tmp_path)
        assert content(graph) == state, f"day {day}"
        assert graph.branches.list() == ["main"]


def test_model_distinguishes_the_order_of_changes() -> None:
    delete: Change = {"seq": 2, "op": "d", "name": "ann", "age": None, "friend": None}
    insert: Change = {"seq": 1, "op": "i", "name": "ann", "age": 3, "friend": None}
    assert apply_batch(({}, set()), [delete, insert]) == ({}, set())
    assert apply_batch(({}, set()), [{**delete, "seq": 0}, insert]) == ({"ann": 3}, set())


SNAPSHOT = """
pipelines:
  crm:
    publish: { merge_into: main }
    sources:
      people: { format: json, path: people, schema: "name string, age long" }
      places: { format: json, path: places, schema: "country string, number long" }
      friends: { format: json, path: friends, schema: "name string, friend string" }
    nodes: { Person: { from: people, mode: snapshot }, Place: { from: places, mode: snapshot } }
    edges: { Knows: { from: friends, src: name, dst: friend, mode: snapshot } }
"""


def test_snapshot_deletes_what_it_no_longer_has(spark: Any, tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    write(tmp_path / "people", "all", [{"name": name, "age": 1} for name in ("ann", "bob", "cid")])
    write(tmp_path / "places", "all", [{"country": "b/e", "number": 1}, {"country": "de", "number": 2}])
    write(tmp_path / "friends", "all", [{"name": "ann", "friend": "bob"}, {"name": "bob", "friend": "cid"}])
    first = run(graph, spark, tmp_path, SNAPSHOT)
    assert (first.deleted, content(graph)[1]) == (
        {"Knows": 0, "Person": 0, "Place": 0},
        {("ann", "bob"), ("bob", "cid")},
    )
    graph.load([{"edge": "Likes", "from": "ann", "to": "bob"}], mode="append")
    write(tmp_path / "people", "all", [{"name": "ann", "age": 2}])
    write(tmp_path / "places", "all", [{"country": "de", "number": 2}])
    write(tmp_path / "friends", "all", [])
    with patch("omnigraph.pipelines.run.load", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        run(graph, spark, tmp_path, SNAPSHOT)
    assert len(content(graph)[0]) == 3, "a run that breaks off after its deletes has published none"
    # The source was incomplete, and what that run has deleted must not count.
    write(tmp_path / "people", "all", [{"name": "ann", "age": 2}, {"name": "bob", "age": 1}])
    report = run(graph, spark, tmp_path, SNAPSHOT)
    assert (report.status, report.deleted, content(graph), graph.branches.list()) == (
        "published",
        {"Knows": 2, "Person": 1, "Place": 1},
        ({"ann": 2, "bob": 1}, set()),
        ["main"],
    )
    assert sum(b'"Likes"' in line for line in b"".join(graph.export()).splitlines()) == 1
    assert [item.message for item in report.expectations] == [
        "`friends` has no rows, so no `Knows` is left; `min_rows` would stop this"
    ]
    places = graph.query("query q() { match { $p: Place } return { $p.country } }").rows()
    assert [row["p.country"] for row in places] == ["de"]


PATCH = """
pipelines:
  ages:
    publish: { merge_into: main }
    sources: { rows: { format: json, path: rows, schema: "who string, years double" } }
    nodes: { Person: { from: rows, columns: { name: who, age: years }, mode: patch } }
"""


def test_patch_keeps_properties_that_its_rows_do_not_have(spark: Any, tmp_path: Path) -> None:
    schema = """
node Person {
  name: String @key  age: I64?  city: String?  tags: [String]?
  state: enum(open, done) @default(done)  days: [Date]? @default(["2026-01-01"])
  made: DateTime @default(now())  token: String @default(uuid())
}
"""
    graph = og.init(tmp_path / "g.omni", schema)
    before = clock.now_us() // 1_000
    graph.load([{"type": "Person", "data": {"name": "ann", "age": 1, "city": "Ulm", "tags": ["a"]}}])
    # An integral double is an integer.
    write(tmp_path / "rows", "1", [{"who": "ann", "years": 2.0}, {"who": "bob", "years": None}])
    assert run(graph, spark, tmp_path, PATCH).nodes == {"Person": 2}
    people = [json.loads(line)["data"] for line in b"".join(graph.export()).splitlines()]
    assert [(item["name"], item["age"], item["city"], item["tags"]) for item in people] == [
        ("ann", 2, "Ulm", ["a"]),
        ("bob", None, None, None),
    ]
    # A new entity has the defaults of what it does not mention, and another one keeps what it has.
    assert [(item["state"], item["days"]) for item in people] == [("done", ["2026-01-01"])] * 2
    made = [datetime.fromisoformat(item["made"]).timestamp() * 1_000 for item in people]
    assert before <= made[0] < made[1] <= clock.now_us() // 1_000
    assert len({item["token"] for item in people}) == 2
    assert run(graph, spark, tmp_path, PATCH).nodes == {"Person": 2}
    assert [json.loads(line)["data"] for line in b"".join(graph.export()).splitlines()] == people
    with pytest.raises(UsageError, match="`mode: patch` relies on a merge"):
        parse_pipelines(PATCH.replace("    publish: { merge_into: main }\n", ""))


TIMED_PATCH = """
pipelines:
  log:
    publish: { merge_into: main }
    sources: { rows: { format: json, path: rows, schema: "at timestamp, day date, n long" } }
    nodes:
      Event: { from: rows, columns: { at: at, PROPERTY: n }, mode: patch }
      Day: { from: rows, columns: { on: day, PROPERTY: n }, mode: patch }
    edges:
      Of: { from: rows, src: at, dst: day, columns: { PROPERTY: n }, mode: patch }
      By: { from: rows, src: at, dst: day, columns: { PROPERTY: n }, mode: patch }
    spark: { conf: { spark.sql.session.timeZone: ZONE } }
"""


def test_patch_finds_entities_whose_key_is_stored_in_another_form(spark: Any, tmp_path: Path) -> None:
    """Instants are stored in milliseconds of UTC, and the ends of an edge as ids."""
    graph = og.init(
        tmp_path / "g.omni",
        """
node Event { at: DateTime @key  a: I64?  b: I64? }
node Day { on: Date @key  a: I64?  b: I64? }
edge Of: Event -> Day { a: I64?  b: I64?  @key(src, dst) }
edge By: Event -> Day { a: I64?  b: I64? }
""",
    )
    for number, name, zone in ((1, "a", "UTC"), (2, "b", "Asia/Tokyo")):
        write(tmp_path / "rows", "1", [{"at": "2026-01-01T12:00:00.123456Z", "day": "2026-01-01", "n": number}])
        run(graph, spark, tmp_path, TIMED_PATCH.replace("PROPERTY", name).replace("ZONE", zone))
    lines = [json.loads(line)["data"] for line in b"".join(graph.export()).splitlines()]
    assert [(line["a"], line["b"]) for line in lines] == [(1, 2)] * 4


def test_mark_that_is_no_boolean_needs_values(spark: Any, tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    write(tmp_path / "changes", "1", [{"seq": 1, "op": "d", "name": "ann", "age": None, "friend": None}])
    with pytest.raises(UsageError, match="name the values that mark a deleted row"):
        run(graph, spark, tmp_path, CHANGES.replace("{ op: [d, D] }", "op"))
    for kind in ("long", "boolean", "array<string>"):
        with pytest.raises(UsageError, match="`d` of `delete_when` is no value of the column `op`"):
            run(graph, spark, tmp_path, CHANGES.replace("op string", f"op {kind}"))
    graph.load([{"type": "Person", "data": {"name": "bob"}}])
    write(tmp_path / "changes", "1", [{"seq": 1, "op": 1, "name": "bob"}])
    run(graph, spark, tmp_path, CHANGES.replace("op string", "op decimal(5,2)").replace("[d, D]", "[1]"))
    assert content(graph)[0] == {}
    wrong = """
pipelines:
  crm:
    publish: { merge_into: main }
    sources: { rows: { format: json, path: changes, schema: "name string, seq string, gone boolean" } }
    transforms: { places: "SELECT 'be' AS country, CAST('1e400' AS DOUBLE) AS number, true AS gone FROM rows" }
    nodes: { Place: { from: places, delete_when: gone } }
"""
    with pytest.raises((DataError, UsageError)):
        run(graph, spark, tmp_path, wrong)
    write(tmp_path / "changes", "1", [{"seq": 2, "op": "d", "name": None}])
    with pytest.raises(DataError, match=r"a row deletes a `Person` by .*, which is not its key"):
        run(graph, spark, tmp_path)


LIKES = """
pipelines:
  likes:
    publish: { merge_into: main }
    sources: { rows: { format: json, path: rows, schema: "a string, b string, id string, n long, at string" } }
    edges: { Rated: { from: rows, src: a, dst: b, columns: { n: n } } }
"""


def test_different_rows_of_an_edge_need_an_order(spark: Any, tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", "node Person { name: String @key }\nedge Rated: Person -> Person { n: I64? }")
    graph.load([{"type": "Person", "data": {"name": name}} for name in ("ann", "bob")])
    first, second = {"a": "ann", "b": "bob", "n": 1, "at": "9"}, {"a": "ann", "b": "bob", "n": 2, "at": "10"}
    other = {"a": "bob", "b": "ann", "n": 3, "at": "9"}
    write(tmp_path / "rows", "1", [first, second])
    with pytest.raises(PipelineError, match="different rows of `rows` are the same `Rated` from `ann` to `bob`"):
        run(graph, spark, tmp_path, LIKES)
    ordered = LIKES.replace("columns: { n: n }", "columns: { n: n }, order_by: at")
    with pytest.raises(PipelineError, match="as text 10 is below 9"):
        run(graph, spark, tmp_path, ordered)
    with pytest.raises(UsageError, match="names the column `at`, a boolean"):
        run(graph, spark, tmp_path, ordered.replace("at string", "at boolean"))
    # Equal rows are one, and an edge whose id is null is known by its ends.
    write(tmp_path / "rows", "1", [first, first, {**second, "id": "r2"}, other])
    with_ids = LIKES.replace("columns: { n: n }", "columns: { n: n, id: id }")
    for text in (with_ids, with_ids.replace("id: id }", "id: id }, order_by: a")):
        assert run(graph, spark, tmp_path, text).edges == {"Rated": 3}
    lines = [json.loads(line) for line in b"".join(graph.export()).splitlines()]
    assert sorted(line["data"]["n"] for line in lines if line.get("edge") == "Rated") == [1, 2, 3]
