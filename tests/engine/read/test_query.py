"""Queries through the facade: time travel, branches, threads, caches, explain and results."""

from __future__ import annotations

import datetime as dt
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.query.context import Caches
from omnigraph.engine.query.result import Result
from omnigraph.errors import GraphError, UsageError
from omnigraph.lang.diagnostic import LanguageError
from omnigraph.store.objects.backend import Meter
from tests.support.read_fixtures import city, create, firsts, knows, lives_in, person, write

ALL = "query q() { match { $p: Person } return { $p } }"
FRIENDS = "query q($n: String) { match { $p: Person {name: $n} $p knows $q } return { $q, $q.age } }"


def names(graph: og.Graph, **where: Any) -> list[str]:
    return sorted(row["p"] for row in graph.query(ALL, **where).rows())


@pytest.mark.slow
def test_query_at_a_commit_a_tag_or_a_version_reads_that_state(tmp_path: Path) -> None:
    graph = create(tmp_path, [person("a"), person("b"), knows("a", "b")])
    first = graph.snapshot()
    graph.mutate('query d() { delete Person where name = "b" }')
    write(graph, [person("c"), knows("a", "c")])
    assert names(graph) == ["a", "c"]
    assert names(graph, at=first.head) == names(graph, at=first.version) == ["a", "b"]
    assert [row["q"] for row in graph.query(FRIENDS, params={"n": "a"}).rows()] == ["c"]
    assert [row["q"] for row in graph.query(FRIENDS, params={"n": "a"}, at=first.head).rows()] == ["b"]
    with pytest.raises(GraphError):
        graph.query(ALL, at="no such commit")


def test_query_on_a_branch_reads_its_own_and_what_it_inherits(tmp_path: Path) -> None:
    graph = create(tmp_path, [person("a"), city("x"), lives_in("a", "x")])
    graph.branches.create("review")
    write(graph, [person("b"), knows("a", "b")], "review")
    assert (names(graph), names(graph, branch="review")) == (["a"], ["a", "b"])
    result = graph.query(FRIENDS, params={"n": "a"}, branch="review")
    assert (result.branch, result.graph_commit_id) == ("review", graph.snapshot("review").head)
    assert [row["q"] for row in result.rows()] == ["b"]


def test_query_repeated_asks_storage_only_whether_anything_changed(tmp_path: Path) -> None:
    create(tmp_path, [person("a", age=1), person("b", age=2), knows("a", "b")]).close()
    meter = Meter()
    graph = og.open(tmp_path / "graph.omni", meter=meter)
    graph.query(FRIENDS, params={"n": "a"})
    before = meter.snapshot()
    assert len(graph.query(FRIENDS, params={"n": "a"})) == 1
    assert {key.split()[0] for key in meter.since(before)} <= {"probe", "head", "exists"}


def test_query_of_a_mutation_is_refused(tmp_path: Path) -> None:
    graph = create(tmp_path)
    with pytest.raises(LanguageError, match="is a mutation") as error:
        graph.query('query q() { insert Person { name: "a" } }')
    assert [one.code for one in error.value.diagnostics] == ["T29"]


@pytest.mark.slow
def test_queries_in_threads_agree_while_writes_go_on(tmp_path: Path) -> None:
    graph = create(
        tmp_path, [person(f"p{n}", age=n) for n in range(50)] + [knows(f"p{n}", f"p{n + 1}") for n in range(49)]
    )
    source = (
        "query q() { match { $p: Person $p knows{1,3} $q $q.age >= 0 } return { count(*) as n, sum($q.age) as s } }"
    )
    at = graph.snapshot().head
    expected = graph.query(source, at=at).rows()
    graph._caches.clear()
    seen: list[Any] = []

    def read() -> None:
        seen.extend(graph.query(source, at=at).rows() == expected for _ in range(20))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(3):
        write(graph, [person(f"x{number}"), knows("p0", f"x{number}")])
    for thread in threads:
        thread.join()
    assert seen == [True] * 80


def test_caches_forget_the_oldest_and_read_it_again(tmp_path: Path) -> None:
    graph = create(tmp_path, [person("a", age=1), city("x", country="NL"), knows("a", "a"), lives_in("a", "x")])
    graph._caches = Caches(bytes_max=1)
    for _ in range(2):
        assert firsts(graph, "$p: Person $p livesIn $c $p knows $p", "$c.country") == ["NL"]
        assert graph._caches.nbytes == 0


def test_explain_shows_the_plan_without_running_it(tmp_path: Path) -> None:
    graph = create(tmp_path, [person("a", age=1), person("b"), knows("a", "b")])
    explained = graph.explain(FRIENDS, params={"n": "a"})
    text = explained.render()
    assert "look up $p: Person" in text
    assert "expand $p out Knows $q: Person" in text
    assert "edges are few enough to read whole" in text
    plan = explained.to_json()["plan"]
    assert isinstance(plan, list)
    assert [item["estimated_rows"] for item in plan] == [1, 0, 0]
    assert "rows" not in plan[0]
    assert json.loads(json.dumps(explained.to_json())) == explained.to_json()


def test_explain_looks_a_node_up_by_its_id_wherever_it_is_bound(tmp_path: Path) -> None:
    graph = create(tmp_path, [person("a", age=1), person("b"), city("x", country="NL"), lives_in("a", "x")])
    start, walk = graph.explain('match { $p: Person $p livesIn $c $c.@id = "x" } return { $p.name }').operators[:2]
    assert start.title.startswith("look up $c: City")
    assert walk.title.startswith("expand $c in LivesIn $p: Person")
    # With more conditions than the id, they hold, too.
    assert firsts(graph, '$p: Person $p.@id = "a" $p.age = 2', "$p.name") == []
    assert firsts(graph, '$p: Person $p.@id = "a" $p.@id = "b"', "$p.name") == []
    assert firsts(graph, '$p: Person $p.@id = "b" $q: Person $q.@id = $p.@id', "$q.name") == ["b"]
    source = "query q($id: String?) { match { $p: Person $p.@id = $id } return { $p.name } }"
    assert [graph.query(source, params={"id": one}).rows() for one in ("a", "z", None)] == [[{"p.name": "a"}], [], []]


def test_profile_adds_rows_time_and_requests(tmp_path: Path) -> None:
    graph = create(tmp_path, [person("a", age=1), person("b"), knows("a", "b")])
    source = (
        'query q() { match { $p: Person not { $p knows $q $q.name = "b" } optional { $p knows $r } } return { $p } }'
    )
    explained = graph.explain(source, profile=True)
    scan, optional, anti, end = explained.operators
    assert [item.actual["rows"] for item in (scan, optional, anti, end)] == [2, 2, 1, 1]
    assert scan.actual["storage"] == {}
    assert anti.inner[0].actual["rows"] == 1
    assert anti.inner[0].actual["traversal"] == "csr"
    assert "scan edges" in str(optional.actual["storage"])
    assert set(explained.totals) == {"rows", "milliseconds", "rows_peak", "bytes_peak", "storage"}
    counted = graph.explain("query q() { match { $p knows $q } return { count(*) as n } }", profile=True)
    assert counted.operators[0].title.startswith("count by weights")


def sample() -> Result:
    instants = pa.array([1, None], pa.int64()).view(pa.date64())
    table = pa.table(
        {
            "day": pa.array([1, None], pa.int32()).view(pa.date32()),
            "at": instants,
            "number": pa.array([float("nan"), float("-inf")]),
            "big": pa.array([2**53, -5]),
            "list": pa.array([[float("inf")], None]),
            "text": ["<b>", None],
        }
    )
    return Result(table, "q", "main", "c")


def test_result_json_spells_what_json_lacks() -> None:
    first, second = sample().to_json_rows(integers_as_text=True)
    assert first == {
        "day": "1970-01-02", "at": "1970-01-01T00:00:00.001Z", "number": "NaN", "big": str(2**53), "list": ["Infinity"],
        "text": "<b>",
    }  # fmt: skip
    assert second == {"day": None, "at": None, "number": "-Infinity", "big": -5, "list": None, "text": None}
    assert sample().to_json_rows()[0]["big"] == 2**53


def test_result_rows_are_python_values() -> None:
    first = sample().rows()[0]
    assert first["day"] == dt.date(1970, 1, 2)
    assert first["at"] == dt.datetime(1970, 1, 1, microsecond=1_000, tzinfo=dt.UTC)


def test_result_has_batches_a_repr_and_html() -> None:
    result = sample()
    assert [batch.num_rows for batch in result.batches(rows=1)] == [1, 1]
    assert (len(result), result.columns[:2]) == (2, ["day", "at"])
    assert repr(result).endswith("\n2 rows of `q` on main")
    assert "<td>&lt;b&gt;</td>" in result._repr_html_()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_result_conversion_says_what_to_install(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UsageError, match=f"pip install {library}"):
        getattr(sample(), f"to_{library}")()
