"""Sums of integers: exact on every plan, typed, and refused where they do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.engine.query.aggregate import Groups, aggregate_groups, join_limbs, limb_bits, split_limbs
from omnigraph.engine.query.vectors import Numbers
from omnigraph.errors import ArithmeticOverflow
from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.query import ir
from tests.support.examples import examples

SCHEMA = """
node Account { key: String @key  group: I32  amount: I64?  size: U64? }
edge Knows: Account -> Account
"""
AMOUNTS = {"a": -(2**63), "b": 2**63 - 1, "c": -1, "d": None}
MODES = ("auto", "csr", "indexed")
SUM, AVG = (ir.Aggregate(name, None, ir.I64) for name in ("sum", "avg"))
UNSIGNED_SUM = ir.Aggregate("sum", None, PropertyType(Scalar.U64))


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    """Four accounts, each of which knows all four."""
    graph = og.init(str(tmp_path_factory.mktemp("sums") / "g.omni"), schema=SCHEMA)
    rows: list[dict[str, Any]] = [
        {"type": "Account", "data": {"key": key, "group": place % 2, "amount": amount, "size": 2**63 + place}}
        for place, (key, amount) in enumerate(AMOUNTS.items())
    ]
    rows += [{"edge": "Knows", "from": one, "to": other, "data": {}} for one in AMOUNTS for other in AMOUNTS]
    graph.ingest(rows)
    return graph


def values(
    graph: og.Graph, pattern: str, columns: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[Any, ...]]:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", mode)
    result = graph.query(f"query q() {{ match {{ {pattern} }} return {{ {columns} }} }}").to_arrow()
    return [tuple(row.values()) for row in result.to_pylist()]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("pattern", "times"),
    [
        ("$a: Account", 1),
        ("$a: Account $a knows $b", 4),
        ("$b: Account $b knows $a", 4),
        ("$a: Account $a knows $b $b knows $c", 16),
        ("$a: Account $c: Account", 4),
        ("$a: Account $a knows $b $b knows $a", 4),
    ],
)
def test_sum_of_integers_is_exact_on_every_plan(
    graph: og.Graph, pattern: str, times: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = "sum($a.amount) as s, avg($a.amount) as m, count($a.amount) as n"
    assert values(graph, pattern, columns, mode, monkeypatch) == [(-2 * times, -2 / 3, 3 * times)]
    by_key = (
        dict(values(graph, pattern, "$a.key as k, sum($a.amount) as s", mode, monkeypatch)) if times == 1 else AMOUNTS
    )
    assert by_key == AMOUNTS


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("pattern", "times"), [("$a: Account", 1), ("$b: Account $b knows $a", 4), ("$a knows $b $b knows $c", 16)]
)
def test_sum_of_a_case_is_that_of_the_rows_on_every_plan(
    graph: og.Graph, pattern: str, times: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = "case when $a.amount > 0 then 1 when $a.amount is null then 5 end"
    columns = f"sum({case}) as s, avg({case}) as m, count({case}) as n"
    assert values(graph, pattern, columns, mode, monkeypatch) == [(6 * times, 3.0, 2 * times)]
    shown = graph.explain(f"query q() {{ match {{ {pattern} }} return {{ {columns} }} }}").render()
    assert ("by weights" in shown) == (mode != "indexed")


def test_sum_of_a_case_that_may_fail_looks_at_rows_alone(graph: og.Graph) -> None:
    # Of all accounts, `b` alone would overflow, and nobody whom `a` knows under this condition is `b`.
    pattern = '$a: Account $a knows $b $b.key != "b"'
    total = graph.query(
        f"query q() {{ match {{ {pattern} }} return {{ sum(case when $b.amount > 0 then $b.amount + 1 end) as s }} }}"
    )
    assert total.rows() == [{"s": None}]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pattern", ["$a: Account", "$a: Account $a knows $b"])
@pytest.mark.parametrize("columns", ["$a.group as g, sum($a.amount) as s", "sum($a.size) as s"])
def test_sum_that_does_not_fit_is_refused(
    graph: og.Graph, pattern: str, columns: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArithmeticOverflow, match="does not fit"):
        values(graph, pattern, columns, mode, monkeypatch)


def test_sum_has_the_64_bit_type_of_its_integers(graph: og.Graph) -> None:
    columns = "sum($a.group) as i, sum($a.amount) as l, sum($a.size) as u, avg($a.size) as m"
    source = f'query q() {{ match {{ $a: Account $a.key = "a" }} return {{ {columns} }} }}'
    table = graph.query(source).to_arrow()
    assert [str(kind) for kind in table.schema.types] == ["int64", "int64", "uint64", "double"]
    assert table.to_pylist() == [{"i": 0, "l": -(2**63), "u": 2**63, "m": 2.0**63}]


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=40),
    st.sampled_from([np.int64, np.uint64, np.int32, np.uint32]),
)
@example([(0, -1)], np.uint64)
def test_grouped_sums_equal_those_of_python(rows: list[tuple[int, int]], dtype: type[np.int64]) -> None:
    limits = np.iinfo(dtype)
    pairs = [(group, int(limits.min) + value % (int(limits.max) - int(limits.min) + 1)) for group, value in rows]
    of = np.array([group for group, _ in pairs], np.int64)
    vector = Numbers(np.array([value for _, value in pairs], dtype), None)
    groups = Groups([(of, 4)], len(of))
    expected = [sum(value for group, value in pairs if group == wanted) for wanted in sorted({*of.tolist()})]
    is_unsigned = np.dtype(dtype).kind == "u"
    lowest, highest = (0, 2**64 - 1) if is_unsigned else (-(2**63), 2**63 - 1)
    sum_ = UNSIGNED_SUM if is_unsigned else SUM
    if all(lowest <= total <= highest for total in expected):
        assert aggregate_groups(sum_, vector, groups).to_pylist() == expected
    else:
        with pytest.raises(ArithmeticOverflow):
            aggregate_groups(sum_, vector, groups)
    counts = [of.tolist().count(wanted) for wanted in sorted({*of.tolist()})]
    means = [total / count for total, count in zip(expected, counts, strict=True)]
    assert aggregate_groups(AVG, vector, groups).to_pylist() == pytest.approx(means, rel=1e-15, abs=1e-300)


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8), st.integers(1, 2**50))
def test_limbs_of_any_width_join_to_the_exact_sum(numbers: list[int], times: int) -> None:
    bits = limb_bits(float(times * len(numbers)))
    limbs = split_limbs(np.array(numbers, np.int64), bits)
    sums = [np.array([int(limb.sum()) * times], np.int64) for limb in limbs]
    joined = join_limbs(sums, bits, is_unsigned=False)
    assert int(joined.top[0]) * 2**joined.shift + int(joined.low[0]) == sum(numbers) * times
