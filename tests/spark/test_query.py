"""Queries on Spark: every case of the corpus that runs a query, with Spark in the place of the process."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.cli import main
from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.query import ir
from omnigraph.lang.query.parser import parse_queries
from omnigraph.spark.query import collect, lower, projection
from omnigraph.spark.query.aggregates import EXPRESSIONS
from omnigraph.spark.query.expressions import Expressions
from omnigraph.spark.query.lower import Lowering, expand_hops
from omnigraph.spark.query.paths import PathFrames
from omnigraph.spark.query.projection import Projection
from omnigraph.spark.query.scan import ConstantsRun, Names, Search, pushdown_filter
from tests.oracle.compare import difference, rows_of
from tests.oracle.evaluate import evaluate
from tests.oracle.queries import Maker
from tests.oracle.worlds import World, create
from tests.support.case_engine import Engine, Ran
from tests.support.case_expectations import CaseFailure
from tests.support.case_file import CASES, Case, Step, read_cases
from tests.support.case_runner import needs_graph, run_case
from tests.support.examples import spread
from tests.support.pipeline_fixtures import world

SAMPLE = 14


def query_cases() -> list[Case]:
    found = [case for path in sorted(CASES.glob("*.case")) for case in read_cases(path)]
    return [
        case
        for case in found
        if not case.pending and needs_graph(case) and any(step.verb == "query" for step in case.steps)
    ]


def run_on_spark(case: Case, spark: Any, patch: pytest.MonkeyPatch) -> str | None:
    """Run a case whose queries go to Spark, and return what differs."""
    in_process = Engine.run

    def run(self: Engine, step: Step) -> Ran:
        if step.verb != "query":
            return in_process(self, step)
        graph = self._opened()
        result = collect(
            graph, step.body, self._params(), name=step.option("name"), spark=spark, embedder=self.embedder
        )
        return Ran(table=result.to_arrow(), rows=[list(row.values()) for row in result.to_json_rows()])

    with patch.context() as context:
        context.setattr(Engine, "run", run)
        try:
            run_case(case)
        except CaseFailure as failure:
            return str(failure)
    return None


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("is_sample", [True, pytest.param(False, marks=pytest.mark.long)])
def test_cases_on_spark_give_what_they_give_in_process(
    quick: Any, monkeypatch: pytest.MonkeyPatch, is_sample: bool
) -> None:
    cases = query_cases()
    assert len(cases) > 60
    if is_sample:
        # One of each number, and one of each family of those without a number; of these so many.
        families = [*{case.number or case.id.rpartition("-")[0]: case for case in reversed(cases)}.values()]
        cases = [families[number - 1] for number in spread(len(families), SAMPLE)]
    differing = [failure for case in cases if (failure := run_on_spark(case, quick, monkeypatch)) is not None]
    assert differing == []


@pytest.mark.spark
@pytest.mark.slow
def test_patterns_in_expressions_lists_and_groups_on_spark(quick: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [case for case in query_cases() if case.file.endswith("subqueries.case") and not _is_refused(case)]
    assert len(cases) > 10
    assert [told for case in cases if (told := run_on_spark(case, quick, monkeypatch)) is not None] == []


@pytest.mark.spark
@pytest.mark.slow
def test_aggregates_on_spark_give_what_they_give_in_process(quick: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [case for case in query_cases() if case.id.startswith("x-agg") and not _is_refused(case)]
    assert len(cases) > 5
    assert [told for case in cases if (told := run_on_spark(case, quick, monkeypatch)) is not None] == []


@pytest.mark.spark
@pytest.mark.slow
def test_mode_on_spark_takes_both_zeros_for_one_value(quick: Any) -> None:
    from pyspark.sql import functions

    call = ir.Aggregate("mode", None, PropertyType(Scalar.F64))
    for values, expected in (([-0.0, 1.0, 0.0, 1.0], 0.0), ([2.0, None, None, 1.0], 1.0), ([None], None)):
        frame = quick.createDataFrame([(value,) for value in values], "x double")
        [(found,)] = frame.agg(EXPRESSIONS["mode"](functions, call, functions.col("x"))).collect()
        assert found == expected


def _is_refused(case: Case) -> bool:
    return any(step.verb in ("error", "plan", "reads", "descriptor") for step in case.steps)


# -- random queries --------------------------------------------------------------------------------------------


def disagreements(worlds: list[World], spark: Any, seeds: Iterable[int]) -> list[str]:
    """Run random queries on Spark and return where the reference evaluator says otherwise."""
    found: list[str] = []
    for seed in seeds:
        world = worlds[seed % len(worlds)]
        made = Maker(Random(seed).randrange, world.catalog).make()
        [parsed] = parse_queries(Source("query.gq", made.source))
        answer = evaluate(world.data, world.catalog, parsed, made.params, dt.datetime.now(dt.UTC))
        table = collect(world.graph, made.source, params=made.given, spark=spark).to_arrow()
        if (told := difference(answer, rows_of(table))) is not None:
            found.append(f"{made.source}\nwith {made.given}\n{told}")
    return found


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> list[World]:
    path = tmp_path_factory.mktemp("worlds")
    return [create(path, seed) for seed in (3, 4, 6, 7)]


@pytest.mark.spark
@pytest.mark.slow
def test_random_queries_on_spark_equal_the_reference(worlds: list[World], quick: Any) -> None:
    # The last one has stages.
    assert disagreements(worlds, quick, (3, 5_011)) == []


@pytest.mark.spark
@pytest.mark.long
def test_many_random_queries_on_spark_equal_the_reference(worlds: list[World], quick: Any) -> None:
    assert disagreements(worlds, quick, (2, 5_010, *range(1_000, 1_300))) == []


# -- mutants ---------------------------------------------------------------------------------------------------


def always_out(functions: Any, edges: Any, direction: Any) -> Any:
    return edges


def no_loops(functions: Any, starts: Any, edges: Any, walk: Any, hops: str) -> Any:
    return expand_hops(functions, starts, edges.where("near <> far"), walk, hops)


def required(self: Lowering, operator: Any, rows: Any) -> Any:
    return self.pipeline(operator.inner, rows)


def untagged(self: Any, frame: Any, column: str, type_name: str) -> Any:
    return frame


def nearest_only(self: Any, frontier: Any) -> Any:
    yield self._first(self._step(frontier))


def missing_is_dropped(self: Lowering, rows: Any, variable: str, table_key: Any) -> Any:
    return passed_on(self, rows, variable, table_key).dropna()


def largest_value(functions: Any, call: ir.Aggregate, value: Any) -> Any:
    return functions.max(value)


passed_on = Lowering.passed_on
MUTANTS: dict[str, tuple[Any, str, Any, str]] = {
    "types of ids are forgotten": (Lowering, "_tagged", untagged, "x-union"),
    "paths have one hop": (PathFrames, "_nearest", nearest_only, "x-path"),
    "every edge is walked forwards": (lower, "orient_edges", always_out, "78a"),
    "loops are not walked": (lower, "expand_hops", no_loops, "x-loop-last"),
    "a negation drops nothing": (Lowering, "_anti", lambda self, operator, rows: rows, "83"),
    "every order falls": (Projection, "_directed", lambda self, column, descending: column.desc(), "90a"),
    "a mode is the largest value": (projection, "EXPRESSIONS", {**EXPRESSIONS, "mode": largest_value}, "x-agg-mode"),
    "a median is the largest value": (
        projection,
        "EXPRESSIONS",
        {**EXPRESSIONS, "median": largest_value},
        "x-agg-median",
    ),
    "a with drops what is missing": (Lowering, "passed_on", missing_is_dropped, "x-with-missing"),
    "no text is found": (Search, "matches", lambda self, match: np.empty(0, np.uint64), "99a"),
}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.sampled(2)
def test_cases_on_spark_catch_a_mutant(name: str, quick: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, defect, case_id = MUTANTS[name]
    [case] = [one for one in query_cases() if one.id == case_id]
    monkeypatch.setattr(owner, attribute, defect)
    assert run_on_spark(case, quick, monkeypatch) is not None


@pytest.mark.spark
@pytest.mark.slow
def test_optional_blocks_on_spark_keep_rows_without_a_match(
    quick: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = world(tmp_path / "g.omni")
    source = """query q() {
      match { $a: Person optional { $a knows $b optional { $b wrote $n } } }
      return { $a.name, $b.name, $n.text } order { $a.name }
    }"""
    wanted = graph.query(source).rows()
    assert wanted == [
        {"a.name": "ann", "b.name": "bob", "n.text": "first"},
        {"a.name": "bob", "b.name": None, "n.text": None},
    ]
    assert collect(graph, source, spark=quick).rows() == wanted
    monkeypatch.setattr(Lowering, "_optional", required)
    assert collect(graph, source, spark=quick).rows() != wanted


@pytest.mark.spark
@pytest.mark.slow
def test_query_gives_a_dataframe_of_a_branch_or_a_moment_of_the_past(quick: Any, tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", "node Person { name: String @key  level: U64? }")
    graph.ingest([{"type": "Person", "data": {"name": "ann", "level": 2**64 - 1}}], mode="append")
    first = graph.snapshot().head
    graph.branches.create("review")
    graph.mutate('query m() { insert Person { name: "bob" } }', branch="review")
    source = "query q() { match { $p: Person } return { $p.name as nAme, $p.level as name } order { $p.name } }"
    frame = pipeline.query(graph, source, branch="review", spark=quick)
    assert frame.columns == ["nAme", "name"]
    assert [tuple(row) for row in frame.collect()] == [("ann", 2**64 - 1), ("bob", None)]
    assert pipeline.query(graph, source, branch="review", at=first, spark=quick).count() == 1
    assert pipeline.query(graph, source, spark=quick).count() == 1


@pytest.mark.spark
@pytest.mark.slow
def test_query_command_on_spark_prints_what_it_prints_in_process(
    quick: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = world(tmp_path / "g.omni").uri
    source = "query q() { match { $a: Person $a knows $b } return { $a.name, $b.level } order { $a.name } }"
    said = []
    for engine in ("local", "spark"):
        assert main(["query", "--store", uri, "-e", source, "--engine", engine, "--format", "json"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "ann" in said[0]


def test_smallest_integer_is_not_pushed_down_to_storage() -> None:
    """Storage cannot read its digits, so the task alone compares with it."""
    big = ir.PropertyRef("v", "node", "Vessel", "big", PropertyType(Scalar.I64))
    smallest, next_one = (
        ir.Compare(ir.CompareOp.LT, big, ir.Literal(value, ir.I64)) for value in (-(2**63), 1 - 2**63)
    )
    constant = Expressions(ConstantsRun({}, 0), Names()).constant
    assert pushdown_filter([smallest], constant) is None
    assert pushdown_filter([next_one], constant) == f"`big` < {1 - 2**63}"
