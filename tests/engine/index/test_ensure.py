"""Indexes: which the schema wants, that they get built once, and that they change no answer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.maintain.optimize import declared_indexes
from omnigraph.errors import DriftDetected
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan
from omnigraph.store.index.index_build import coverage
from omnigraph.store.write.transaction import append
from tests.support.fleet_operations import stranger
from tests.support.kernel_fixtures import check_invariants
from tests.support.policy_recorder import Recorder

pytestmark = pytest.mark.slow

SCHEMA = """
node Paper {
  code: String @key
  title: String? @index
  kind: enum(a, b)? @index
  year: I32? @index
  score: F64? @index
  seen: DateTime? @index
  day: Date? @index
  open: Bool? @index
  vec: Vector(2)? @index
  tags: [String]?
  body: Blob?
  plain: String?
  @index(year, day)
  @index(tags)
}
node Bare { x: I32? }
edge Cites: Paper -> Paper { note: String?  @index(note) }
"""
PAPER, CITES = TypeKey("node:Paper"), TypeKey("edge:Cites")


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "graph.omni", SCHEMA)


def fill(graph: og.Graph, ids: Sequence[str], branch: str = MAIN, **values: Sequence[object]) -> None:
    """Append papers that are null but for what is given, and one citation each."""

    def rows(schema: pa.Schema) -> pa.Table:
        given = {"id": ids, "code": ids, "src": ids, "dst": ids, **values}
        arrays: list[Any] = [pa.array(list(given.get(one.name, [None] * len(ids))), one.type) for one in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    def prepare(snapshot: Snapshot) -> Plan:
        kernel = session_of(graph).kernel
        effects = []
        for key in (PAPER, CITES):
            dataset = kernel.writable(snapshot, key)
            effects.append(Effect(key, dataset, (append(dataset, rows(dataset.schema)),)))
        return Plan("insert", tuple(effects))

    session_of(graph).kernel.commit(branch, prepare, CommitPolicy.INSERT)


def test_wanted_indexes_follow_the_declarations(graph: og.Graph) -> None:
    catalog = graph.schema.catalog
    found = {(one.column, one.kind.name) for one in declared_indexes(catalog.nodes["Paper"])}
    assert found == {
        ("id", "BTREE"),
        ("code", "FULLTEXT"),
        ("code", "BTREE"),
        ("title", "FULLTEXT"),
        ("title", "BTREE"),
        ("kind", "BTREE"),
        ("year", "BTREE"),
        ("score", "BTREE"),
        ("seen", "BTREE"),
        ("day", "BTREE"),
        ("open", "BTREE"),
        ("vec", "VECTOR"),
    }
    assert [one.column for one in declared_indexes(catalog.nodes["Bare"])] == ["id"]
    assert [one.column for one in declared_indexes(catalog.edges["Cites"])] == ["id", "src", "dst"]


def test_wanted_indexes_have_distinct_names(graph: og.Graph) -> None:
    names = [one.name for one in declared_indexes(graph.schema.catalog.nodes["Paper"])]
    assert len(set(names)) == len(names)


def test_ensure_indices_empty_graph_builds_nothing(graph: og.Graph) -> None:
    before = graph.snapshot().version
    report = graph.maintenance.ensure_indices()
    assert (report.built, report.pending, report.commit) == ((), (), None)
    assert graph.snapshot().version == before


def test_ensure_indices_builds_all_in_one_commit_and_then_rests(graph: og.Graph) -> None:
    fill(graph, ["p1", "p2"], vec=[[0.0, 1.0], None], title=["graph theory", None])
    before = graph.snapshot()
    report = graph.maintenance.ensure_indices()
    after = graph.snapshot()
    assert after.version == before.version + 1
    assert report.commit is not None
    assert report.commit.kind == "ensure_indices"
    moved = [key for key, pin in after.state.pins.items() if pin.version != before.state.pins[key].version]
    assert sorted(moved) == [CITES, PAPER]
    assert all(after.state.pins[key].version == before.state.pins[key].version + 1 for key in moved)
    assert len(report.built) == 12 + 3
    assert {"type_key": CITES, "property": "src", "kind": "btree"} in report.to_json()["built"]  # type: ignore[operator]
    again = graph.maintenance.ensure_indices()
    assert (again.built, again.commit, graph.snapshot().version) == ((), None, after.version)
    check_invariants(session_of(graph).kernel)


def test_ensure_indices_vector_without_values_is_pending_with_a_reason(graph: og.Graph) -> None:
    fill(graph, ["p1"])
    report = graph.maintenance.ensure_indices()
    assert report.to_json()["pending"] == [
        {"type_key": PAPER, "property": "vec", "reason": "the column holds no vector yet"}
    ]
    assert graph.maintenance.ensure_indices().to_json()["pending"] == report.to_json()["pending"]
    fill(graph, ["p2"], vec=[[1.0, 0.0]])
    assert [(key, spec.column) for key, spec in graph.maintenance.ensure_indices().built] == [(PAPER, "vec")]


def test_ensure_indices_change_no_answer_and_serve_equality(graph: og.Graph) -> None:
    fill(graph, [f"p{n}" for n in range(30)], title=[f"t {n % 5}" for n in range(30)], year=list(range(30)))
    filters = ["title = 't 3'", "year > 25", "code = 'p7'", "id = 'p9'", "kind = 'a'"]

    def answers() -> list[list[str]]:
        dataset = session_of(graph).view().dataset(PAPER)
        return [sorted(map(str, dataset.read(["id"], one)["id"].to_pylist())) for one in filters]

    before = answers()
    graph.maintenance.ensure_indices()
    plans = [session_of(graph).view().dataset(PAPER).lance.scanner(filter=one).explain_plan() for one in filters]
    assert all("ScalarIndexQuery" in plan for plan in plans)
    assert answers() == before
    # Rows that no index covers are found all the same.
    fill(graph, ["q1"], title=["t 3"], year=[99], kind=["a"])
    assert [len(found) for found in answers()] == [len(before[0]) + 1, len(before[1]) + 1, 1, 1, 1]


def test_ensure_indices_on_a_branch_forks_only_what_it_indexes(graph: og.Graph) -> None:
    fill(graph, ["p1"], vec=[[1.0, 0.0]])
    graph.maintenance.ensure_indices()
    graph.branches.create("review")
    assert graph.maintenance.ensure_indices("review").commit is None
    for pin in graph.snapshot("review").state.pins.values():
        assert pin.fork is None
        assert session_of(graph).kernel.store.objects.list(f"{pin.path}/tree") == []
    graph.branches.delete("review")
    graph.schema.apply(SCHEMA.replace("x: I32?", "x: I32? @index").replace("plain: String?", "plain: String? @index"))
    graph.branches.create("review")
    report = graph.maintenance.ensure_indices("review")
    assert {(key, spec.column) for key, spec in report.built} == {(PAPER, "plain")}
    forks = {key for key, pin in graph.snapshot("review").state.pins.items() if pin.fork is not None}
    assert forks == {PAPER}
    assert len(coverage(session_of(graph).view().dataset(PAPER))) == 12
    check_invariants(session_of(graph).kernel)


def test_ensure_indices_renamed_property_keeps_its_index(graph: og.Graph) -> None:
    fill(graph, ["p1"], vec=[[1.0, 0.0]])
    graph.maintenance.ensure_indices()
    graph.schema.apply(
        SCHEMA.replace("year: I32?", 'published: I32? @rename_from("year")').replace("(year,", "(published,")
    )
    assert graph.maintenance.ensure_indices().built == ()


def test_ensure_indices_someone_else_got_there_first_is_done(graph: og.Graph) -> None:
    fill(graph, ["p1"], vec=[[1.0, 0.0]])
    other = og.open(graph.uri)
    session_of(other).kernel = stranger(graph.uri)
    session_of(graph).actor, session_of(graph).policy = "ann", (policy := Recorder())
    prepare = session_of(graph).kernel.commit
    calls: list[int] = []

    def commit(branch: str, work: Any, kind: CommitPolicy) -> Any:
        def slow(snapshot: Snapshot) -> Any:
            plan = work(snapshot)
            if not calls:
                calls.append(1)
                other.maintenance.ensure_indices()
            return plan

        return prepare(branch, slow, kind)

    session_of(graph).kernel.commit = commit  # type: ignore[method-assign,assignment]
    report = graph.maintenance.ensure_indices()
    assert (report.commit, report.built, [action for action, *_ in policy.asked]) == (None, (), ["admin"])


def test_ensure_indices_over_drift_is_refused(graph: og.Graph) -> None:
    fill(graph, ["p1"])
    lance.dataset(session_of(graph).view().dataset(PAPER).lance.uri).delete("id = 'p1'")
    with pytest.raises(DriftDetected):
        graph.maintenance.ensure_indices()


QUIET = """
import sys
from omnigraph import limits
limits.VECTOR_UNPARTITIONED_ROWS_MAX = 100
import omnigraph as og
graph = og.init(sys.argv[1], "node Place { name: String @key  vec: Vector(2)? @index }")
for first in (0, 300):
    places = [{"name": f"p{n}", "vec": [n / 7, n / 9]} for n in range(first, first + 300)]
    graph.ingest([{"type": "Place", "data": place} for place in places])
    graph.maintenance.optimize()
"""


def test_upkeep_of_a_vector_index_prints_nothing(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LANCE_")}
    command = [sys.executable, "-c", QUIET, str(tmp_path / "g.omni")]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert (ended.stdout, ended.stderr) == ("", "")
