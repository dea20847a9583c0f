"""Queries on Spark: every case of the corpus that runs a query, with Spark in the place of the process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from omnigraph.pipeline.query import collect
from tests.caseengine import Engine, Ran
from tests.caseexpect import CaseFailure
from tests.casefile import CASES, Case, Step, read_cases
from tests.caserunner import needs_graph, run_case

_QUICK = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}


@pytest.fixture
def quick(spark: Any) -> Iterator[Any]:
    """Give tiny data few tasks."""
    before = {name: spark.conf.get(name) for name in _QUICK}
    for name, value in _QUICK.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


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
        result = collect(graph, step.body, step.option("name"), self._params(), spark=spark, embedder=self.embedder)
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
def test_cases_on_spark_give_what_they_give_in_process(quick: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = query_cases()
    assert len(cases) > 60
    differing = [failure for case in cases if (failure := run_on_spark(case, quick, monkeypatch)) is not None]
    assert differing == []
