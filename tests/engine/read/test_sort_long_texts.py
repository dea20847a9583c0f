"""Sorting many rows by long texts: more text than one Arrow array can hold is either not needed, or too much."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.query.budget import Budget, BudgetUsage, report_arrow_overflow
from omnigraph.errors import BudgetExceeded

PEOPLE, LENGTH = 1_500, 1_000
SORT = "query q() { match { $a: P $b: P } return { $a.k as a, $b.k as b } order { $b.t asc, $a.t desc } limit 2 }"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    path: Path = tmp_path_factory.mktemp("sort")
    with og.init(path / "g.omni", "node P { k: String @key\n t: String? }") as graph:
        rows = ({"k": f"p{n}", "t": None if n == 7 else f"{n:05d}".ljust(LENGTH, "x")} for n in range(PEOPLE))
        graph.ingest(b"\n".join(orjson.dumps({"type": "P", "data": row}) for row in rows))
        yield graph


@pytest.mark.slow
def test_sort_of_more_text_than_an_array_holds_needs_no_text(graph: og.Graph) -> None:
    # All rows together have 2.25 GB of text; nulls come first ascending and last descending.
    assert PEOPLE * PEOPLE * LENGTH > 2**31
    assert graph.query(SORT).rows() == [{"a": f"p{PEOPLE - 1}", "b": "p7"}, {"a": f"p{PEOPLE - 2}", "b": "p7"}]


@pytest.mark.slow
def test_texts_beyond_the_budget_are_a_budget_error(graph: og.Graph) -> None:
    with pytest.raises(BudgetExceeded) as caught:
        graph.query(SORT.replace("$a.k as a", "$a.t as t").replace(" limit 2", ""), budget=Budget(bytes_max=50_000_000))
    assert caught.value.context["limit"] == "bytes"


def test_arrays_that_arrow_cannot_hold_are_a_budget_error() -> None:
    with pytest.raises(BudgetExceeded), report_arrow_overflow(BudgetUsage(Budget())):
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")
    with pytest.raises(pa.ArrowInvalid), report_arrow_overflow(BudgetUsage(Budget())):
        pa.array(["x"]).cast(pa.int64())
