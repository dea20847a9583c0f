"""Judges the rows of views before a load, and the answers of queries on the loaded branch before it is merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from omnigraph.display import count_of
from omnigraph.errors import UsageError
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.pipeline.declared.config import Expectation, PipelineDeclaration
from omnigraph.pipeline.declared.sources import column_of
from omnigraph.pipeline.spark.session import first_line, run_job
from omnigraph.public_values import PublicValue


@dataclass(frozen=True, slots=True)
class Verdict(PublicValue):
    """The outcome of an expectation: how many of the rows failed, and what follows from it."""

    expectation: str
    passed: bool
    rows: int
    failed: int
    outcome: str
    message: str


def judge_view(
    frame: Any, view: str, expectations: Iterable[Expectation], quarantine: Path | None
) -> tuple[list[Verdict], Any]:
    """Judge the rows of a view; returns the verdicts, and the view without its quarantined rows."""
    verdicts: list[Verdict] = []
    for expectation in expectations:
        if expectation.view != view:
            continue
        verdict = _judge(frame, expectation)
        verdicts.append(verdict)
        if is_stopped(verdicts):
            break
        if expectation.outcome == "quarantine" and verdict.failed:
            holds = row_condition(frame, expectation)
            if quarantine is not None:
                _write_quarantined(frame.filter(~holds), view, quarantine)
            frame = frame.filter(holds)
    return verdicts, frame


def _write_quarantined(frame: Any, view: str, folder: Path) -> None:
    path = (folder / view).absolute().as_uri()
    stage = f"writing quarantined rows of {view}"
    run_job(frame.sparkSession, stage, lambda: frame.write.mode("append").json(path))


def row_condition(frame: Any, expectation: Expectation) -> Any:
    """Return what must hold of every row, as a Spark column; None if nothing is expected of single rows.

    Raises:
        UsageError: The view has no such column, or the condition is not valid SQL.
    """
    from pyspark.sql import functions

    for name in (*expectation.not_null, *expectation.unique):
        if name not in frame.columns:
            hint = did_you_mean(name, frame.columns) or f"it has {', '.join(frame.columns)}"
            message = f"an expectation names `{name}`; `{expectation.view}` has no such column; {hint}"
            raise UsageError(message, part=expectation.part)
    conditions = [column_of(name).isNotNull() for name in expectation.not_null]
    if expectation.condition is not None:
        # Unknown fails, so that a null does not pass unnoticed.
        try:
            condition = functions.coalesce(functions.expr(expectation.condition), functions.lit(False))
            # Rows are counted and then left out by it, so it must have the same value twice.
            _ = frame.filter(condition).agg(functions.count_if(condition)).schema
        except Exception as error:
            message = f"the condition `{expectation.condition}` is not valid: {first_line(error)}"
            raise UsageError(message, part=expectation.part) from error
        conditions.append(condition)
    return reduce(lambda first, second: first & second, conditions) if conditions else None


def _judge(frame: Any, expectation: Expectation) -> Verdict:
    from pyspark.sql import functions

    holds = row_condition(frame, expectation)
    counts = [functions.count(functions.lit(1)).alias("rows")]
    counts += [functions.count_if(~holds).alias("failed")] if holds is not None else []
    if expectation.unique:
        # As in SQL, a row without one of the values equals no other.
        counts.append(functions.count_distinct(*(column_of(name) for name in expectation.unique)).alias("distinct"))
        complete = reduce(
            lambda first, second: first & second,
            (column_of(name).isNotNull() for name in expectation.unique),
        )
        counts.append(functions.count_if(complete).alias("complete"))
    stage = f"judging {expectation.label}"
    [row] = run_job(frame.sparkSession, stage, frame.agg(*counts).collect)
    rows = row["rows"]
    failed = (row["failed"] if holds is not None else 0) + (
        row["complete"] - row["distinct"] if expectation.unique else 0
    )
    is_short = expectation.rows_min is not None and rows < expectation.rows_min
    # In fractions, because 0.57 % of 10,000 rows are 57, and fewer as floats.
    passed = not is_short and failed <= expectation.at_most * rows
    message = f"{failed:,} of {rows:,} rows fail" if failed else count_of(rows, "row")
    if is_short:
        message = f"{count_of(rows, 'row')}, expected at least {expectation.rows_min}"
    return Verdict(expectation.label, passed, rows, failed, expectation.outcome, message)


def judge_answers(pipeline: PipelineDeclaration, ask: Callable[[str], int]) -> list[Verdict]:
    """Judge the queries; `ask` runs one on the loaded branch and returns the number of its rows."""
    verdicts = []
    for expectation in (item for item in pipeline.expectations if item.query is not None):
        rows = ask(str(expectation.query))
        passed = rows == expectation.rows
        message = f"{count_of(rows, 'row')}, expected {expectation.rows}"
        verdicts.append(Verdict(expectation.label, passed, rows, 0, expectation.outcome, message))
    return verdicts


def is_stopped(verdicts: Iterable[Verdict]) -> bool:
    """Return True if a failed expectation forbids going on."""
    return any(not verdict.passed and verdict.outcome != "warn" for verdict in verdicts)
