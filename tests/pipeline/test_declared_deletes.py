"""Deletes of nodes and edges by a stream of changes and by snapshots, compared with a model of the table."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.errors import DataError, UsageError
from omnigraph.graph import Graph
from omnigraph.pipeline.declared.config import parse_pipelines
from omnigraph.pipeline.declared.run_report import RunReport
from tests.support.examples import IS_LONG

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { name: String @key  age: I64? }
node Place { country: String  number: I64  @key(country, number) }
edge Knows: Person -> Person
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
            place = rng.choice(["omnigraph.pipeline.declared.run.load", "omnigraph.engine.branches.Branches.merge"])
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
    write(tmp_path / "people", "all", [{"name": "ann", "age": 2}, {"name": "bob", "age": 1}])
    write(tmp_path / "places", "all", [{"country": "de", "number": 2}])
    write(tmp_path / "friends", "all", [])
    with patch("omnigraph.pipeline.declared.run.load", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        run(graph, spark, tmp_path, SNAPSHOT)
    assert len(content(graph)[0]) == 3, "a run that breaks off after its deletes has published none"
    report = run(graph, spark, tmp_path, SNAPSHOT)
    assert (report.status, content(graph), graph.branches.list()) == (
        "published",
        ({"ann": 2, "bob": 1}, set()),
        ["main"],
    )
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
    graph = og.init(tmp_path / "g.omni", "node Person { name: String @key  age: I64?  city: String?  tags: [String]? }")
    graph.load([{"type": "Person", "data": {"name": "ann", "age": 1, "city": "Ulm", "tags": ["a"]}}])
    # An integral double is an integer.
    write(tmp_path / "rows", "1", [{"who": "ann", "years": 2.0}, {"who": "bob", "years": None}])
    assert run(graph, spark, tmp_path, PATCH).nodes == {"Person": 2}
    people = [json.loads(line)["data"] for line in b"".join(graph.export()).splitlines()]
    assert [(item["name"], item["age"], item["city"], item["tags"]) for item in people] == [
        ("ann", 2, "Ulm", ["a"]),
        ("bob", None, None, None),
    ]
    with pytest.raises(UsageError, match="`mode: patch` relies on a merge"):
        parse_pipelines(PATCH.replace("    publish: { merge_into: main }\n", ""))


def test_mark_that_is_no_boolean_needs_values(spark: Any, tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    write(tmp_path / "changes", "1", [{"seq": 1, "op": "d", "name": "ann", "age": None, "friend": None}])
    with pytest.raises(UsageError, match="name the values that mark a deleted row"):
        run(graph, spark, tmp_path, CHANGES.replace("{ op: [d, D] }", "op"))
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
