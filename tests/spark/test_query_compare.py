"""Comparisons as columns of Spark answer as those of the process do, for every pair of types and awkward values."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.query.compare import compare
from omnigraph.engine.query.vectors import Constant, vector_from_arrow
from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.query import ir
from omnigraph.lang.schema.arrow_schema import arrow_type
from omnigraph.spark.datasource.options import to_spark_column
from omnigraph.spark.query.expressions import Expressions
from omnigraph.spark.query.scan import ConstantsRun, Names, carrier_type
from tests.support.examples import IS_LONG

_OPS = (ir.CompareOp.EQ, ir.CompareOp.NE, ir.CompareOp.LT, ir.CompareOp.LE, ir.CompareOp.GT, ir.CompareOp.GE)
_VALUES: dict[Scalar, list[Any]] = {
    Scalar.I32: [None, 0, -1, 2**31 - 1, -(2**31), 16_777_217],
    Scalar.I64: [None, 0, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63 - 1024],
    Scalar.U32: [None, 0, 7, 2**32 - 1],
    Scalar.U64: [None, 0, 2**53 + 1, 2**63, 2**64 - 1, 2**64 - 2048],
    Scalar.F32: [None, 0.0, -0.5, 0.1, 16_777_216.0, math.inf, math.nan],
    Scalar.F64: [None, 0.0, -0.0, 0.1, 2.0**53, 2.0**63, -(2.0**63), 2.0**64, 1e300, -1e300, math.inf, math.nan, 7.5],
}
_CONSTANTS: list[tuple[Scalar, Any]] = [
    (Scalar.F64, 0.1), (Scalar.F64, 2.0**53), (Scalar.F64, 1e300), (Scalar.F64, -7.5), (Scalar.F64, math.nan),
    (Scalar.F64, math.inf), (Scalar.I64, 2**53 + 1), (Scalar.I64, 16_777_217), (Scalar.I64, -1), (Scalar.F64, None),
]  # fmt: skip


def nullable(scalar: Scalar) -> PropertyType:
    return PropertyType(scalar, nullable=True)


def column_of(values: list[Any], scalar: Scalar) -> Any:
    return pa.array(values, arrow_type(nullable(scalar)))


def differing(spark: Any, first: Scalar, second: Scalar) -> list[tuple[Any, ...]]:
    """Compare all values of two types, and those of one type with constants, both ways; return what differs."""
    pairs = list(itertools.product(_VALUES[first], _VALUES[second]))
    left, right = column_of([one for one, _ in pairs], first), column_of([two for _, two in pairs], second)
    names = Names()
    columns = {
        names("a", "x"): to_spark_column(left, carrier_type(nullable(first))),
        names("b", "y"): to_spark_column(right, carrier_type(nullable(second))),
    }
    expressions = Expressions(ConstantsRun({}, 0), names)
    own = ir.PropertyRef("a", "node", "A", "x", nullable(first))
    other = ir.PropertyRef("b", "node", "B", "y", nullable(second))
    constants = _CONSTANTS if first is second else []
    asked: list[tuple[ir.CompareOp, Any, Any]] = [
        (op, ir.ParameterRef("p", nullable(scalar)), value) for op in _OPS for scalar, value in constants
    ]
    # Outside the long campaign two of the operators for each constant.
    asked = asked if IS_LONG else asked[::3]
    made, wanted = [], []
    for op in _OPS:
        made.append(expressions.condition(ir.Compare(op, own, other)))
        wanted.append(compare(op, vector_from_arrow(left), vector_from_arrow(right), len(pairs)))
    for op, parameter, value in asked:
        told = Expressions(ConstantsRun({"p": value}, 0), names)
        made.append(told.condition(ir.Compare(op, own, parameter)))
        wanted.append(compare(op, vector_from_arrow(left), Constant(value, parameter.type), len(pairs)))
    frame = spark.createDataFrame(pa.table(columns)).select(*(one.alias(f"t{place}") for place, one in enumerate(made)))
    found = frame.toArrow()
    questions = [(op, first, second) for op in _OPS] + [(op, first, value) for op, _, value in asked]
    return [
        (*question, pairs[row])
        for place, question in enumerate(questions)
        for row in np.flatnonzero(found.column(place).fill_null(False).to_numpy() != wanted[place]).tolist()
    ]


@pytest.mark.spark
@pytest.mark.slow
def test_compare_numbers_of_all_types_equals_the_process(spark: Any) -> None:
    # What holds of one number and another holds of the other and the one; the long campaign asks both ways.
    pairs = itertools.product(_VALUES, _VALUES) if IS_LONG else itertools.combinations_with_replacement(_VALUES, 2)
    for first, second in pairs:
        assert differing(spark, first, second) == []


@pytest.mark.spark
@pytest.mark.slow
def test_compare_as_spark_does_by_itself_is_caught(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparisons of Spark round large integers and hold not-a-number for the largest number."""
    from omnigraph.spark.query import expressions

    def plainly(self: Any, op: ir.CompareOp, left: Any, right: Any) -> Any:
        return expressions._OPERATORS[op](left.column, right.column)

    monkeypatch.setattr(Expressions, "_compare", plainly)
    assert differing(spark, Scalar.I64, Scalar.F64)
    assert differing(spark, Scalar.F64, Scalar.F64)
    assert differing(spark, Scalar.F32, Scalar.F32)
