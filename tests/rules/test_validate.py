"""Every rule: what it refuses and how it says so, what it must let pass, and that leaving it out would be noticed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from omnigraph.errors import DataError, KeyConflict
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.limits import VIOLATIONS_MAX
from omnigraph.rules import validate as validation
from omnigraph.rules.delta import Changes, Findings, Intent
from omnigraph.rules.row_rules import ERRORS, ROW_RULES, errors_of
from omnigraph.rules.validate import RULES, validate
from tests.support.rule_tables import Held, Row, catalog, change, table

SCHEMA = """
node Port { code: String @key  country: String }
node Vessel {
  imo: String @key  kind: enum(tanker, tug)  teu: I32?  draft: F64?  label: String?  built: Date?  tags: [String]?
  vec: Vector(2)?
  @range(teu, 0..100)  @range(draft, ..9.5)  @check(label, "^[a-z]+$")  @unique(label, built)  @unique(draft)
}
node Note { text: String  lists: [String]?  @unique(lists) }
node Broken { name: String @key  @check(name, "(") }
edge CallsAt: Vessel -> Port @card(1..2) { fee: F64? @unique }
edge Loose: Vessel -> Port
"""
TYPES = catalog(SCHEMA)
V, P, C, N, B = map(TypeKey, ("node:Vessel", "node:Port", "edge:CallsAt", "node:Note", "node:Broken"))
LOOSE = TypeKey("edge:Loose")
HELD: dict[TypeKey, list[Row]] = {
    V: [
        {"id": "V1", "imo": "V1", "kind": "tug", "label": "north", "built": 10, "draft": 1.5},
        {"id": "V2", "imo": "V2", "kind": "tug"},
    ],
    P: [{"id": "P1", "code": "P1", "country": "NL"}, {"id": "P2", "code": "P2", "country": "BE"}],
    C: [
        {"id": "c1", "src": "V1", "dst": "P1"},
        {"id": "c2", "src": "V1", "dst": "P2"},
        {"id": "c3", "src": "V2", "dst": "P1", "fee": 2.0},
    ],
    LOOSE: [{"id": "l1", "src": "V1", "dst": "P2"}],
    N: [{"id": "n1", "text": "a"}],
}


def vessel(imo: str, **values: object) -> Row:
    return {"id": imo, "imo": imo, "kind": "tug", **values}


def call(edge_id: str, source: str, target: str, **values: object) -> Row:
    return {"id": edge_id, "src": source, "dst": target, **values}


# What an overwrite of calls keeps, so that no vessel is left without one.
CALLS_AT_P1 = [call("d1", "V1", "P1"), call("d2", "V2", "P1")]


@dataclass(frozen=True)
class Scenario:
    """A write on `HELD` that breaks one rule."""

    name: str
    rule: str
    code: str
    words: tuple[str, ...]
    rows: dict[TypeKey, list[Row]] = field(default_factory=dict)
    intent: Intent = Intent.UPSERT
    deleted: dict[TypeKey, list[str]] = field(default_factory=dict)

    def changes(self) -> Changes:
        return change(TYPES, self.rows, self.intent, self.deleted)


def held() -> Held:
    return Held(TYPES, HELD)


NAN = float("nan")
REPLACE, INSERT = Intent.REPLACE, Intent.INSERT
SCENARIOS = (
    Scenario("required", "required", "E4", ("Port.country",), {P: [{"id": "P9", "code": "P9"}]}),
    Scenario("required_end", "required", "E4", ("Loose.src",), {LOOSE: [{"id": "l9", "dst": "P1"}]}),
    Scenario("vector_nan", "finite_vectors", "E4", ("Vessel.vec",), {V: [vessel("V9", vec=[1.0, NAN])]}),
    Scenario("vector_null", "finite_vectors", "E4", ("Vessel.vec",), {V: [vessel("V9", vec=[1.0, None])]}),
    Scenario("enum", "enum_values", "E7", ("ferry", "tanker, tug"), {V: [vessel("V9", kind="ferry")]}),
    Scenario("range_above", "ranges", "E8", ("@range(teu, 0..100)", "101"), {V: [vessel("V9", teu=101)]}),
    Scenario("range_below", "ranges", "E8", ("-1",), {V: [vessel("V9", teu=-1)]}),
    Scenario("range_open", "ranges", "E8", ("..9.5", "9.6"), {V: [vessel("V9", draft=9.6)]}),
    Scenario("check", "checks", "E8", ("^[a-z]+$", "North"), {V: [vessel("V9", label="North")]}),
    Scenario("check_malformed", "checks", "E8", ("not a valid regular expression",), {B: [{"id": "b", "name": "b"}]}),
    Scenario("key_twice", "distinct_ids", "E5", ("@key", "(imo)", "V9"), {V: [vessel("V9"), vessel("V9")]}),
    Scenario("id_twice", "distinct_ids", "E11", ("n9",), {N: [{"id": "n9", "text": "a"}, {"id": "n9", "text": "b"}]}),
    Scenario("id_taken", "new_ids", "E11", ("n1", "merge"), {N: [{"id": "n1", "text": "b"}]}, INSERT),
    Scenario("unique", "unique", "E5", ("Vessel.(draft)", "V1", "V9", "1.5"), {V: [vessel("V9", draft=1.5)]}),
    Scenario(
        "unique_pair",
        "unique",
        "E5",
        ("Vessel.(built, label)", "V1", "V9", '"north"'),
        {V: [vessel("V9", label="north", built=10)]},
    ),
    Scenario(
        "unique_within", "unique", "E5", ("V8", "V9", "3.5"), {V: [vessel("V8", draft=3.5), vessel("V9", draft=3.5)]}
    ),
    Scenario("unique_zero", "unique", "E5", ("V8", "V9"), {V: [vessel("V8", draft=0.0), vessel("V9", draft=-0.0)]}),
    Scenario("unique_edge", "unique", "E5", ("CallsAt.(fee)", "c3", "c9"), {C: [call("c9", "V2", "P1", fee=2.0)]}),
    Scenario("unique_list", "unique", "E5", ("lists", "n9"), {N: [{"id": "n9", "text": "a", "lists": ["x"]}]}),
    Scenario("unique_nan", "unique", "E6", ("fee", "c9"), {C: [call("c9", "V2", "P1", fee=NAN)]}),
    Scenario("end_from", "endpoints", "E9", ("source", "`from` is `V7`", "Vessel"), {LOOSE: [call("l9", "V7", "P1")]}),
    Scenario("end_to", "endpoints", "E9", ("target", "`to` is `P7`", "Port"), {LOOSE: [call("l9", "V1", "P7")]}),
    Scenario(
        "end_of_overwrite",
        "endpoints",
        "E9",
        ("`to` is `P2`",),
        {LOOSE: [call("l9", "V1", "P2")], C: CALLS_AT_P1, P: [{"id": "P1", "code": "P1", "country": "NL"}]},
        REPLACE,
    ),
    Scenario("orphan_delete", "orphans", "E9", ("l1", "P2", "Port"), {}, deleted={P: ["P2"], C: ["c2"]}),
    Scenario(
        "orphan_overwrite",
        "orphans",
        "E9",
        ("l1", "P2"),
        {P: [{"id": "P1", "code": "P1", "country": "NL"}], C: CALLS_AT_P1},
        REPLACE,
    ),
    Scenario("card_max", "cardinality", "E10", ("@card(1..2)", "`V1`", "3 edges"), {C: [call("c9", "V1", "P1")]}),
    Scenario("card_delete", "cardinality", "E10", ("`V2`", "0 edges"), deleted={C: ["c3"]}),
    Scenario("card_moved", "cardinality", "E10", ("`V2`", "0 edges"), {C: [call("c3", "V9", "P1")], V: [vessel("V9")]}),
    Scenario(
        "card_overwrite",
        "cardinality",
        "E10",
        ("`V1`", "3 edges"),
        {C: [*(call(f"d{i}", "V1", "P1") for i in range(3)), call("e1", "V2", "P1")]},
        REPLACE,
    ),
    Scenario("card_lost", "cardinality", "E10", ("`V2`", "0 edges"), {C: [call("d1", "V1", "P1")]}, REPLACE),
    Scenario(
        "card_lost_by_both",
        "cardinality",
        "E10",
        ("`V2`", "0 edges"),
        {C: [call("d1", "V1", "P1")], V: [vessel("V1"), vessel("V2")]},
        REPLACE,
    ),
)


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
