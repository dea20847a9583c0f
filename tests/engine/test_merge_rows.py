"""The pure core of merges against a model, its laws, and proof that the model catches broken cores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.merge import row_merge
from omnigraph.engine.merge.row_merge import RowMerge, merge_rows
from omnigraph.lang.catalog import Catalog, EdgeType, MergeRule, NodeType
from tests.support.examples import examples
from tests.support.merge_model import Conflicts, Row, State, applied, changes, merge_states
from tests.support.schema_compiling import compiled

PROPERTIES = """
  plain: I32?
  hi: I32? @merge(max)
  lo: String? @merge(min)
  tags: [I32]? @merge(union)
  mine: Bool? @merge(ours)
  yours: F64? @merge(theirs)
  v: Vector(2)?
"""
RULES = ("fail", "ours", "theirs")


def catalog(rule: str) -> Catalog:
    return compiled(
        f"node N @merge({rule}) {{ {PROPERTIES} }}\nedge E: N -> N @merge({rule}) {{ w: I32? @merge(min) }}"
    ).catalog


CATALOGS = {rule: catalog(rule) for rule in RULES}
IDS = st.sampled_from(["a", "b", "c"])
SMALL = st.one_of(st.none(), st.integers(0, 2))
NODE = st.fixed_dictionaries(
    {
        "plain": SMALL,
        "hi": SMALL,
        "lo": st.one_of(st.none(), st.sampled_from(["", "x", "é"])),
        "tags": st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 2)), max_size=3)),
        "mine": st.one_of(st.none(), st.booleans()),
        "yours": st.one_of(st.none(), st.sampled_from([0.5, 1.5])),
        "v": st.one_of(st.none(), st.sampled_from([[0.0, 1.0], [1.0, 1.0]])),
    }
)
EDGE = st.fixed_dictionaries({"src": IDS, "dst": IDS, "w": SMALL})


@st.composite
def three_states(draw: st.DrawFn, row: st.SearchStrategy[Row]) -> tuple[State, State, State]:
    """A base, and two sides that keep, change in part, replace, drop or add entities of it."""
    base = draw(st.dictionaries(IDS, row))

    def side() -> dict[str, Row]:
        state: dict[str, Row] = {}
        for entity in ("a", "b", "c"):
            fate = draw(st.sampled_from(["keep", "edit", "replace", "drop"]))
            if fate == "keep" and entity in base:
                state[entity] = base[entity]
            elif fate == "edit" and entity in base:
                fresh = draw(row)
                edited = draw(st.sets(st.sampled_from(sorted(fresh)), max_size=3))
                state[entity] = base[entity] | {name: fresh[name] for name in edited}
            elif fate == "replace":
                state[entity] = draw(row)
        return state

    return base, side(), side()


def types(rule: str) -> tuple[NodeType, EdgeType]:
    return CATALOGS[rule].nodes["N"], CATALOGS[rule].edges["E"]


def conflicts_of(merge: RowMerge) -> Conflicts:
    return {(one.entity_id, one.kind.value, one.columns) for one in merge.clashes}


def check(type_: NodeType | EdgeType, states: tuple[State, State, State]) -> None:
    base, ours, theirs = states
    expected, conflicts = merge_states(type_, base, ours, theirs)
    merge = merge_rows(type_, changes(type_, base, ours), changes(type_, base, theirs))
    assert conflicts_of(merge) == conflicts
    assert applied(ours, merge) == expected


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_merge_rows_equal_the_model(rule: str, data: st.DataObject) -> None:
    node, edge = types(rule)
    check(node, data.draw(three_states(NODE)))
    check(edge, data.draw(three_states(EDGE)))


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(states=three_states(NODE), rule=st.sampled_from(RULES))
def test_merge_rows_laws_hold(states: tuple[State, State, State], rule: str) -> None:
    node = CATALOGS[rule].nodes["N"]
    base, ours, theirs = states
    nothing = changes(node, base, base)
    ours_changed, theirs_changed = changes(node, base, ours), changes(node, base, theirs)
    # One-sided changes win, and a merge of nothing is nothing.
    assert applied(base, merge_rows(node, nothing, theirs_changed)) == theirs
    assert merge_rows(node, ours_changed, nothing).changes_nothing
    # The same change on both sides is no conflict and no change.
    same = merge_rows(node, ours_changed, ours_changed)
    assert same.changes_nothing
    assert not same.clashes
    # The two sides may change places, if the rules that name a side do as well; union keeps the order of ours.
    there = merge_rows(node, ours_changed, theirs_changed)
    back = merge_rows(swapped(node), theirs_changed, ours_changed)
    assert {(one.entity_id, one.kind, one.columns) for one in there.clashes} == {
        (one.entity_id, one.kind, one.columns) for one in back.clashes
    }
    if not there.clashes:
        merged = applied(ours, there)
        assert unordered(merged) == unordered(applied(theirs, back))
        # Merging the result back brings the other side to the same state, and merging again changes nothing.
        assert merge_rows(node, changes(node, ours, merged), changes(node, ours, merged)).changes_nothing


def swapped(node: NodeType) -> NodeType:
    other = {MergeRule.OURS: MergeRule.THEIRS, MergeRule.THEIRS: MergeRule.OURS}
    properties = {
        name: replace(one, merge=other.get(one.merge, one.merge)) if one.merge else one
        for name, one in node.properties.items()
    }
    return replace(node, merge=other.get(node.merge, node.merge), properties=properties)


def unordered(state: State) -> dict[str, Row]:
    return {one: row | {"tags": row["tags"] and sorted(map(str, row["tags"]))} for one, row in state.items()}


# -- mutants ----------------------------------------------------------------------------------------------------


def ours_always_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_merge, "_wins", lambda rule, ours, theirs: np.zeros(len(ours), bool))


def union_brings_back(monkeypatch: pytest.MonkeyPatch) -> None:
    real = row_merge.union_lists
    monkeypatch.setattr(row_merge, "union_lists", lambda base, a, b: real(pa.nulls(len(base), base.type), a, b))


def ends_are_two_values(monkeypatch: pytest.MonkeyPatch) -> None:
    real = row_merge.units_of

    def broken(type_: Any) -> Any:
        return tuple(replace(unit, columns=(name,)) for unit in real(type_) for name in unit.columns)

    monkeypatch.setattr(row_merge, "units_of", broken)


def deletes_win(monkeypatch: pytest.MonkeyPatch) -> None:
    real = row_merge._deletes_against_updates
    monkeypatch.setattr(row_merge, "_deletes_against_updates", lambda *args: (*real(*args)[:2], []))


def whole_rows_clash(monkeypatch: pytest.MonkeyPatch) -> None:
    real = row_merge.merge_columns
    monkeypatch.setattr(row_merge, "merge_columns", lambda units, base, *sides: real(units, None, *sides[:2]))


def misaligned_base(monkeypatch: pytest.MonkeyPatch) -> None:
    real = row_merge._Pair.of

    def broken(ours: pa.Table, theirs: pa.Table) -> Any:
        pair = real(ours, theirs)
        return replace(pair, right=pair.left)

    monkeypatch.setattr(row_merge._Pair, "of", broken)


MUTANTS = (ours_always_wins, union_brings_back, ends_are_two_values, deletes_win, whole_rows_clash, misaligned_base)
WITNESSES: tuple[tuple[str, tuple[State, State, State]], ...]


def row(**values_: Any) -> Row:
    return dict.fromkeys(("plain", "hi", "lo", "tags", "mine", "yours", "v")) | values_


def edge(src: str, dst: str) -> Row:
    return {"src": src, "dst": dst, "w": None}


WITNESSES = (
    ("N", ({"a": row(hi=1)}, {"a": row(hi=2)}, {"a": row(hi=3)})),
    ("N", ({"a": row(tags=[1, 2])}, {"a": row(tags=[2])}, {"a": row(tags=[1, 2, 3])})),
    ("E", ({"a": edge("a", "a")}, {"a": edge("b", "a")}, {"a": edge("a", "b")})),
    ("N", ({"a": row()}, {}, {"a": row(plain=1)})),
    ("N", ({"a": row()}, {"a": row(plain=1)}, {"a": row(yours=0.5)})),
    (
        "N",
        (
            {"a": row(), "b": row(plain=1), "c": row(plain=2)},
            {"a": row(), "b": row(plain=1, hi=1), "c": row(plain=2, hi=1)},
            {"a": row(hi=1), "b": row(plain=8), "c": row(plain=9)},
        ),
    ),
)


@pytest.mark.parametrize(("kind", "states"), WITNESSES)
def test_merge_rows_witness_equals_the_model(kind: str, states: tuple[State, State, State]) -> None:
    node, edge_ = types("fail")
    check(node if kind == "N" else edge_, states)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.__name__)
@pytest.mark.sampled(2)
def test_merge_model_catches_a_broken_core(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    node, edge_ = types("fail")
    caught = 0
    for kind, states in WITNESSES:
        try:
            check(node if kind == "N" else edge_, states)
        except AssertionError:
            caught += 1
    assert caught
