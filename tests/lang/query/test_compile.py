"""Compiled values: their keys, parameters, immutability and speed; every code has its case."""

from __future__ import annotations

import pickle
import statistics
import time
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from omnigraph.lang.diagnostic import LanguageError, Source
from omnigraph.lang.query import compile_query, ir, lint_queries, require_kind
from tests.support.language_codes import LANGUAGE_CODES, QUERY_CODES
from tests.support.query_fixtures import catalog_f, catalog_from, compiled, read_text
from tests.support.typical_queries import TYPICAL_QUERY, TYPICAL_SCHEMA

CASES = Path(__file__).parents[2] / "cases"


@pytest.mark.parametrize("code", sorted(one for one in QUERY_CODES if not one.startswith("L")))
def test_codes_each_has_a_case_with_a_position(code: str) -> None:
    text = "\n".join(path.read_text("utf-8") for path in CASES.glob("*.case"))
    assert f"\n-- error {code} " in text


@pytest.mark.parametrize("code", ["L201", "L202", "L205"])
def test_codes_each_warning_has_a_case(code: str) -> None:
    assert f"\n{code} warning " in (CASES / "lint.case").read_text("utf-8")


def test_codes_merge_all_languages() -> None:
    assert set(QUERY_CODES) < set(LANGUAGE_CODES)
    assert {"S1", "I1", "OG-MF-103"} < set(LANGUAGE_CODES)


def test_compile_key_names_source_query_and_schema() -> None:
    text = read_text("$v: Vessel")
    first, again, other = compiled(text), compiled(text), compiled(text + " ")
    assert first.key == again.key
    assert first == again
    assert first.key.source_hash != other.key.source_hash
    assert first.key.name == "q"
    assert first.key.schema_hash == catalog_f().ir_hash


def test_compile_result_is_immutable() -> None:
    query = compiled(read_text("$v: Vessel"))
    with pytest.raises(FrozenInstanceError):
        query.name = "other"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        query.ir.name = "other"  # type: ignore[misc]


def test_compile_ir_pickles() -> None:
    plan = compiled(read_text("$v: Vessel optional { $v callsAt $p } $p is null", "$v.imo, count(*) as n")).ir
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_compile_error_pickles_with_its_diagnostics() -> None:
    with pytest.raises(LanguageError) as caught:
        compiled(read_text("$v: Vesel"))
    assert pickle.loads(pickle.dumps(caught.value)).diagnostics[0].code == "T1"


def test_compile_params_have_kinds() -> None:
    params = (
        "$a: String, $b: Bool, $c: I32, $d: U64, $e: F32, $f: Date, $g: DateTime, $h: Blob, $i: Vector(3), $j: [I32]?"
    )
    kinds = [param.kind for param in compiled(read_text("$v: Vessel", params=params)).params]
    assert kinds == ["string", "bool", "int", "bigint", "float", "date", "datetime", "blob", "vector", "list"]


def test_compile_metadata_is_kept() -> None:
    text = 'query q() @instruction("use it") @description("all") { match { $v: Vessel } return { $v } }'
    query = compiled(text)
    assert (query.description, query.instruction) == ("all", "use it")


def test_compile_unknown_order_alias_passes_the_checker() -> None:
    plan = compiled(read_text("$v: Vessel", tail="order { missing }")).ir
    assert isinstance(plan, ir.ReadIR)
    assert plan.order == (ir.OrderKey(ir.ColumnRef("missing", None), False),)


def test_compile_rank_replaces_order_keys() -> None:
    plan = compiled(read_text("$v: Vessel", tail='order { bm25($v.label, "x") asc, $v.imo }')).ir
    assert isinstance(plan, ir.ReadIR)
    assert isinstance(plan.rank, ir.Bm25)
    assert plan.order == ()


def test_compile_column_names_follow_results() -> None:
    plan = compiled(read_text("$v: Vessel", "$v.imo, $v, 1, $p, now()", params="$p: String")).ir
    assert isinstance(plan, ir.ReadIR)
    assert [column.name for column in plan.columns] == ["v.imo", "v", "literal", "p", "now"]
    grouped = compiled(read_text("$v: Vessel", "sum($v.teu), count(*)")).ir
    assert isinstance(grouped, ir.ReadIR)
    assert [column.name for column in grouped.columns] == ["v.teu", "count"]


def test_compile_parameter_hides_a_variable_of_its_name() -> None:
    plan = compiled(read_text("$v: Vessel", "$v, $v.imo", params="$v: String")).ir
    assert isinstance(plan, ir.ReadIR)
    assert isinstance(plan.columns[0].expression, ir.ParameterRef)
    assert isinstance(plan.columns[1].expression, ir.PropertyRef)


def test_compile_embedded_vector_may_be_left_out_of_an_insert() -> None:
    catalog = catalog_from('node A { k: String @key  t: String  v: Vector(2) @embed(t, model="m") }')
    text = 'query q() { insert A { k: "x" t: "y" } }'
    assert compile_query(Source("q.gq", text), catalog).kind == "mutation"
    ranked = 'query q() { match { $a: A } return { $a.k } order { nearest($a.v, "text") } limit 1 }'
    plan = compile_query(Source("q.gq", ranked), catalog).ir
    assert isinstance(plan, ir.ReadIR)
    assert isinstance(plan.rank, ir.Nearest)
    assert plan.rank.model == "m"


def test_require_kind_of_the_other_kind_raises_t29() -> None:
    query = compiled(read_text("$v: Vessel"))
    assert require_kind(query, "read") is query
    with pytest.raises(LanguageError) as caught:
        require_kind(query, "mutation")
    assert caught.value.diagnostics[0].code == "T29"


def test_lint_report_has_its_json_form() -> None:
    good = Source("a.gq", "query a($i: String) { update Port set { berths: 1 } where code = $i }")
    bad = Source("b.gq", "query b() { match { $v: Nope } return { $v } }")
    broken = Source("c.gq", "query")
    report = lint_queries([good, bad, broken], catalog_f())
    shown = report.to_json()
    assert (report.status, shown["status"]) == ("error", "error")
    assert [finding.code for finding in report.findings] == ["T1", "Q000"]
    assert [query.name for query in report.queries] == ["a", "b"]
    first = shown["queries"][0]  # type: ignore[index]
    assert first["params"] == [{"name": "i", "type": "String", "kind": "string", "nullable": False}]
    assert first["writes"] == [{"kind": "node", "type_name": "Port"}]


def test_compile_typical_query_stays_fast() -> None:
    catalog = catalog_from(TYPICAL_SCHEMA)
    source = Source("typical.gq", TYPICAL_QUERY)
    times = []
    for _ in range(60):
        start = time.perf_counter()
        compile_query(source, catalog)
        times.append(time.perf_counter() - start)
    # The goal is 3 ms; the bound leaves room for a loaded machine and still catches a change of order.
    assert statistics.median(times[10:]) < 0.03
