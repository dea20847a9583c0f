"""Virtual bases of one type against a model, with ancestors of ancestors, and broken engines that it must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.merge import ancestry, row_merge
from omnigraph.engine.merge.ancestry import Image, Joined, MergeBase, build_image, images, merge_from_virtual
from omnigraph.lang.catalog import EdgeType
from omnigraph.lang.schema.arrow_schema import arrow_schema
from tests.engine.test_merge_rows import CATALOGS, RULES, conflicts_of
from tests.support.merge_base_model import Unknown, join_states
from tests.support.merge_model import Row, Type, applied, changes, merge_states

Rows = dict[str, Row]
VALUES: dict[str, list[Any]] = {
    "plain": [None, 0, 1],
    "hi": [None, 0, 1, 2],
    "lo": [None, "", "x"],
    "tags": [None, [], [0], [0, 1], [2, None]],
    "mine": [None, True, False],
    "yours": [None, 0.5, 1.5],
    "v": [None, [0.0, 1.0], [1.0, 1.0]],
    "w": [None, 0, 1],
    "src": ["a", "b"],
    "dst": ["a", "b"],
}
IDS = ("a", "b", "c", "d")


@dataclass
class World:
    """States of one type that came from each other, and how some of them are joined to a base."""

    random: Random
    type: Type

    def __post_init__(self) -> None:
        self.states: list[Rows] = [{one: self.row() for one in IDS if self.random.random() < 0.7}]

    def row(self) -> Row:
        ends = ("src", "dst") if isinstance(self.type, EdgeType) else ()
        return {name: self.random.choice(VALUES[name]) for name in (*ends, *sorted(self.type.properties))}

    def child(self) -> int:
        """Add a state that keeps, changes in part, replaces, drops or adds entities of another one."""
        state = dict(self.random.choice(self.states))
        for one in IDS:
            fate = self.random.choice(["keep", "keep", "edit", "edit", "replace", "drop"])
            if fate == "drop":
                state.pop(one, None)
            elif fate == "replace" or (fate == "edit" and one in state):
                fresh = self.row()
                names = self.random.sample(sorted(fresh), min(2, len(fresh)))
                state[one] = fresh if fate == "replace" else state[one] | {name: fresh[name] for name in names}
        self.states.append(state)
        return len(self.states) - 1

    def base(self, depth: int) -> MergeBase[int]:
        joined = [
            Joined(self.child(), self.base(depth - 1) if depth and self.random.random() < 0.8 else None)
            for _ in range(self.random.choice([0, 1, 1, 2]) if depth < 2 else self.random.choice([1, 1, 2]))
        ]
        return MergeBase(self.child(), tuple(joined))

    def modelled(self, base: MergeBase[int]) -> Rows:
        state = self.states[base.first]
        for one in base.joined:
            below = None if one.base is None else self.modelled(one.base)
            state = join_states(self.type, state, self.states[one.state], below)
        return state

    def check(self) -> int:
        """Join a base and merge two sides from it; return how much of the base is unknown."""
        base = self.base(2)
        ours, theirs = self.child(), self.child()
        deltas = {one: changes(self.type, self.states[base.first], self.states[one]) for one in range(len(self.states))}
        _, rows = images(deltas)
        image = build_image(self.type, base, rows.__getitem__)
        expected = self.modelled(base)
        self._compare(image, expected, rows)
        merge = merge_from_virtual(self.type, image, rows[ours], rows[theirs])
        merged, conflicts = merge_states(self.type, expected, self.states[ours], self.states[theirs])
        assert conflicts_of(merge) == conflicts
        assert applied(self.states[ours], merge) == merged
        return sum(isinstance(value, Unknown) for row in expected.values() for value in row.values())

    def _compare(self, image: Image, expected: Rows, rows: dict[int, pa.Table]) -> None:
        # An entity that is the same in all states is in no image.
        told = {one for table in rows.values() for one in table.column("id").to_pylist()}
        found: Rows = {row.pop("id"): row for row in image.rows.to_pylist()}
        for columns, ids in image.unknown.by_unit.items():
            for entity in ids.to_pylist():
                found[entity] |= dict.fromkeys(columns, "?")
        shown = {
            one: {name: "?" if isinstance(value, Unknown) else value for name, value in row.items()}
            for one, row in expected.items()
            if one in told
        }
        assert found == shown


def check_worlds(count: int) -> int:
    unknown = 0
    for seed in range(count):
        random = Random(seed)
        catalog = CATALOGS[random.choice(RULES)]
        kinds: list[Type] = [catalog.nodes["N"], catalog.edges["E"]]
        type_ = random.choice(kinds)
        try:
            unknown += World(random, type_).check()
        except AssertionError as error:
            raise AssertionError(f"world {seed}") from error
    return unknown


@pytest.mark.slow
def test_virtual_bases_equal_the_model() -> None:
    assert check_worlds(60) > 60


@pytest.mark.long
def test_many_virtual_bases_equal_the_model() -> None:
    check_worlds(20_000)


def test_images_of_no_difference_are_empty() -> None:
    type_ = CATALOGS["fail"].nodes["N"]
    state = {"a": dict.fromkeys(type_.properties)}
    old, rows = images({"x": changes(type_, state, state)})
    assert (old.num_rows, rows["x"].num_rows, rows["x"].schema) == (0, 0, arrow_schema(type_))


# -- mutants -----------------------------------------------------------------------------------------------------------


def unknown_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What ancestors disagree about is what one of them says."""
    patch.setattr(row_merge.Unknown, "joined", lambda self, others: self)


def direction_is_kept(patch: pytest.MonkeyPatch) -> None:
    """Of two ancestors, the one is merged into the other."""
    patch.setattr(ancestry, "_undirected", lambda type_: type_)


def unknown_is_no_change(patch: pytest.MonkeyPatch) -> None:
    """A side that has by chance what stands for an unknown value counts as unchanged."""
    real = ancestry.difference

    def broken(type_: Any, before: Image, after: Image) -> Any:
        return real(type_, Image(before.rows), Image(after.rows))

    patch.setattr(ancestry, "difference", broken)


def below_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """What ancestors have in common does not count."""
    real = ancestry._join
    patch.setattr(ancestry, "_join", lambda type_, left, right, base: real(type_, left, right, None))


def union_brings_back(patch: pytest.MonkeyPatch) -> None:
    """An unknown list removes items as a known one does."""
    patch.setattr(row_merge, "_where", lambda known, older: older)


def known_counts_as_unknown(patch: pytest.MonkeyPatch) -> None:
    """If one entity is unknown, all are."""
    real = row_merge.Unknown.among

    def broken(self: row_merge.Unknown, unit: Any, ids: Any) -> Any:
        found = real(self, unit, ids)
        return np.full(len(found), found.any())

    patch.setattr(row_merge.Unknown, "among", broken)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant",
    [
        unknown_is_forgotten,
        direction_is_kept,
        unknown_is_no_change,
        below_is_ignored,
        union_brings_back,
        known_counts_as_unknown,
    ],
    ids=lambda one: one.__name__,
)
@pytest.mark.sampled(2)
def test_model_of_virtual_bases_catches_a_broken_engine(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        check_worlds(400)
