"""Every rule: what it refuses and how it says so, what it must let pass, and that leaving it out would be noticed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph.errors import DataError, KeyConflict
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.limits import VIOLATIONS_MAX
from omnigraph.rules import validate as validation
from omnigraph.rules.delta import Findings, Intent
from omnigraph.rules.row_rules import ERRORS, ROW_RULES, errors_of
from omnigraph.rules.validate import RULES, validate
from tests.support.rule_scenarios import (
    LOOSE,
    SCENARIOS,
    TYPES,
    C,
    N,
    P,
    Scenario,
    V,
    call,
    held,
    vessel,
)
from tests.support.rule_tables import Row, change, table

NAMES = [rule.__name__ for rule in RULES]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_validate_broken_rule_is_found_alone_and_named(scenario: Scenario) -> None:
    found = validate(scenario.changes(), held()).violations
    assert [one.rule for one in found] == [scenario.code]
    for words in scenario.words:
        assert words in found[0].message
    assert ";" in found[0].message or "(entity" in found[0].message, "the message says no remedy"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_validate_without_the_rule_finds_nothing(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tuple(rule for rule in RULES if rule.__name__ != scenario.rule)
    assert len(others) == len(RULES) - 1
    monkeypatch.setattr(validation, "RULES", others)
    assert validate(scenario.changes(), held()).violations == []


def test_scenarios_cover_every_rule() -> None:
    assert {scenario.rule for scenario in SCENARIOS} == set(NAMES)


@pytest.mark.parametrize(
    ("rows", "intent", "deleted"),
    [
        pytest.param({V: [vessel("V1", label="north", built=10)]}, Intent.UPSERT, {}, id="same id keeps its value"),
        pytest.param({V: [vessel("V9", label="north")]}, Intent.UPSERT, {}, id="null in a tuple is exempt"),
        pytest.param({V: [vessel("V9", label="n", built=10)]}, Intent.UPSERT, {}, id="tuples are not joined texts"),
        pytest.param(
            {V: [vessel("V1", draft=2.5), vessel("V9", draft=1.5)]}, Intent.UPSERT, {}, id="replaced rows do not count"
        ),
        pytest.param({V: [vessel("V9")]}, Intent.INSERT, {}, id="node without edges"),
        pytest.param({C: [call("c3", "V2", "P2")]}, Intent.UPSERT, {}, id="moved target"),
        pytest.param({}, Intent.UPSERT, {V: ["V2"], C: ["c3"]}, id="source goes with its edges"),
        pytest.param(
            {C: [call("c9", "V9", "P9")], V: [vessel("V9")], P: [{"id": "P9", "code": "P9", "country": "X"}]},
            Intent.INSERT,
            {},
            id="ends in the same write",
        ),
        pytest.param({C: [], LOOSE: [], P: [], V: []}, Intent.REPLACE, {}, id="everything replaced by nothing"),
        pytest.param({N: [{"id": "n9", "text": "a", "lists": None}]}, Intent.INSERT, {}, id="null list in a unique"),
        pytest.param({V: [vessel("V9", teu=0), vessel("V8", teu=100)]}, Intent.INSERT, {}, id="bounds are inclusive"),
        pytest.param({V: [vessel("V9", label="a", tags=["B"])]}, Intent.INSERT, {}, id="check passes"),
        pytest.param({C: [call("c2", "V1", "P1")]}, Intent.UPSERT, {}, id="an edge that stays is counted once"),
    ],
)
def test_validate_sound_write_passes(
    rows: dict[TypeKey, list[Row]], intent: Intent, deleted: dict[TypeKey, list[str]]
) -> None:
    assert validate(change(TYPES, rows, intent, deleted), held()).violations == []


def test_validate_edge_id_twice_counts_its_last_source_only() -> None:
    rows = {C: [call("c9", "V1", "P1"), call("c9", "V2", "P1")]}
    found = validate(change(TYPES, rows), held()).violations
    assert [one.rule for one in found] == ["E11"]


def test_validate_several_broken_rules_are_told_in_order() -> None:
    rows = {
        C: [call("c9", "V1", "P7")],
        V: [vessel("V9", draft=1.5), vessel("V8", kind="ferry")],
    }
    found = validate(change(TYPES, rows, numbered=True), held()).violations
    assert [(one.rule, one.line) for one in found] == [("E7", 2), ("E5", 1), ("E9", 1), ("E10", 1)]
    with pytest.raises(DataError) as caught:
        validate(change(TYPES, rows, numbered=True), held()).raise_if_any()
    assert caught.value.context["rule"] == "E7"
    assert "line 2" in caught.value.message
    assert "3 more" in caught.value.message
    violations = caught.value.context["violations"]
    assert isinstance(violations, list)
    assert [one["rule"] for one in violations] == ["E7", "E5", "E9", "E10"]


def test_validate_many_violations_stop_at_the_bound() -> None:
    rows = {V: [vessel(f"W{number}", kind="ferry", teu=-1) for number in range(VIOLATIONS_MAX + 50)]}
    findings = validate(change(TYPES, rows), held())
    assert len(findings.violations) == VIOLATIONS_MAX
    with pytest.raises(DataError, match="at least"):
        findings.raise_if_any()


def test_findings_taken_id_is_a_key_conflict() -> None:
    with pytest.raises(KeyConflict) as caught:
        validate(change(TYPES, {N: [{"id": "n1", "text": "b"}]}, Intent.INSERT), held()).raise_if_any()
    assert (caught.value.context["type_key"], caught.value.context["entity_id"]) == (N, "n1")


def test_findings_nothing_found_raises_nothing() -> None:
    Findings().raise_if_any()


def check_rows(type_: Type, batch: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows that break no rule, and an error for each rule that a row breaks."""
    errors = [errors_of(breach, batch) for rule in ROW_RULES for breach in rule(type_, batch)]
    if not errors:
        return batch, ERRORS.empty_table()
    table = pa.concat_tables(errors)
    bad = set(table.column("row").to_pylist())
    return batch.filter(pa.array([row not in bad for row in range(batch.num_rows)])), table


def test_check_rows_splits_clean_rows_from_errors() -> None:
    type_ = TYPES.nodes["Vessel"]
    rows = [vessel("a", teu=1), vessel("b", teu=-1, kind="x"), vessel("c", label="É"), vessel("d")]
    clean, errors = check_rows(type_, table(type_, rows))
    assert clean.column("id").to_pylist() == ["a", "d"]
    assert errors.schema.equals(ERRORS)
    assert [(one["rule"], one["row"], one["property"], one["value"]) for one in errors.to_pylist()] == [
        ("E7", 1, "kind", '"x"'),
        ("E8", 1, "teu", "-1"),
        ("E8", 2, "label", '"É"'),
    ]


def test_check_rows_range_refuses_nan_and_passes_null() -> None:
    type_ = TYPES.nodes["Vessel"]
    _, errors = check_rows(type_, table(type_, [vessel("a", draft=float("nan")), vessel("b")]))
    assert errors.column("row").to_pylist() == [0]


def test_check_rows_clean_batch_is_returned_as_it_is() -> None:
    type_ = TYPES.nodes["Port"]
    batch = table(type_, [{"id": "P", "code": "P", "country": "NL"}])
    clean, errors = check_rows(type_, batch)
    assert clean is batch
    assert errors.num_rows == 0
    assert isinstance(errors, pa.Table)
