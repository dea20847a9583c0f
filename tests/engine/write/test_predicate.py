"""Predicates of updates and deletes against plain Python: exact numbers, every type, committed and pending rows."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import chain
from math import isnan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.engine.write.committed_rows import ColumnTest, CommittedRows, comparison
from omnigraph.graph import Graph, session_of
from omnigraph.lang.query.ir import CompareOp
from tests.support.write_fixtures import create

pytestmark = pytest.mark.slow

OPS: dict[CompareOp, Callable[[Any, Any], bool]] = {
    CompareOp.EQ: operator.eq,
    CompareOp.NE: operator.ne,
    CompareOp.GT: operator.gt,
    CompareOp.LT: operator.lt,
    CompareOp.GE: operator.ge,
    CompareOp.LE: operator.le,
}
COLUMNS: dict[str, list[Any]] = {
    "s": ["", "a", "b'c", "é", None],
    "b": [True, False, None, True, False],
    "i32": [-(2**31), 2**31 - 1, 0, 5, None],
    "i64": [-(2**63), 2**63 - 1, 2**53 + 1, 5, None],
    "u32": [0, 2**32 - 1, 5, None, 7],
    "u64": [0, 2**64 - 1, 2**63, 5, None],
    "f32": [0.0, -0.0, 1.5, -2.5, None],
    "f64": [0.0, -0.0, 9007199254740992.0, -2.5, None],
    "d": [-1, 0, 18262, None, 3],
    "t": [-1, 0, 1704067200001, None, 86400000],
}
NUMBERS = [0, -0.0, 5, 5.0, 5.5, -2.5, 1.5, 2**31, -(2**31) - 1, 2**53 + 1, 2**53, 2**63, 2**64, 10**40, 1e300, -1e300]
INSTANTS = [-1, 0, 18262, 1704067200001, 86400000]
VALUES: dict[str, list[Any]] = {
    "s": ["", "a", "b'c", "zz", None],
    "b": [True, False, None],
    **{name: [*NUMBERS, None, float("nan")] for name in ("i32", "i64", "u32", "u64", "f64")},
    "f32": [0, -0.0, 1.5, 5, 16777217, -2.5, None],
    "d": [-1, 0, 18262, 3],
    "t": INSTANTS,
}
SCHEMA = """node N {
  k: I32 @key  s: String?  b: Bool?  i32: I32?  i64: I64?  u32: U32?  u64: U64?  f32: F32?  f64: F64?  d: Date?
  t: DateTime?
}"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    root: Path = tmp_path_factory.mktemp("predicate") / "g"
    made = create(root, SCHEMA)
    records = [{"k": row, **{name: values[row] for name, values in COLUMNS.items()}} for row in range(5)]
    made.ingest([{"type": "N", "data": record} for record in records], mode="append")
    return made


@pytest.mark.parametrize("column", COLUMNS)
def test_comparison_finds_the_rows_that_python_finds(graph: Graph, column: str) -> None:
    committed = CommittedRows(session_of(graph).view())
    node = committed.view.catalog.nodes["N"]
    whole = pa.concat_tables(committed.rows(node, ColumnTest("id", pa.string(), None, True)))
    for op, compare in OPS.items():
        for value in VALUES[column]:
            test = comparison(column, node.properties[column].type, op, value)
            expected = [
                row
                for row, held in enumerate(COLUMNS[column])
                if held is not None
                and value is not None
                and not (isinstance(value, float) and isnan(value))
                and compare(held, value)
            ]
            found: list[Any] = (
                [] if test.is_never else [part.column("k").to_pylist() for part in committed.rows(node, test)]
            )
            assert sorted(chain.from_iterable(found)) == expected, (op, value, "as a filter")
            kept: list[Any] = whole.filter(pa.array(test.mask(whole))).column("k").to_pylist()
            assert sorted(kept) == expected, (op, value, "as a mask")
