"""Writes that break exactly one rule each: the rule, the code, and words that the message must hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from omnigraph.lang.catalog import TypeKey
from omnigraph.rules.delta import Changes, Intent
from tests.support.rule_tables import Held, Row, catalog, change

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
