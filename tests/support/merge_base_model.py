"""What several common ancestors make together, in plain Python: one entity and one property at a time.

Written from "Histories that cross" in docs/branching.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph.lang.catalog import EdgeType, MergeRule
from tests.support.merge_model import Row, Type


class Unknown:
    """A value that equals no other, not even another unknown one; as a list it has no items."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "?"


def join_states(
    type_: Type, left: Mapping[str, Row], right: Mapping[str, Row], base: Mapping[str, Row] | None
) -> dict[str, Row]:
    """Return two ancestors as one; without a base, nothing says which of two differing values is the older one."""
    found = {}
    for entity in sorted({*left, *right}):
        sides = (left.get(entity), right.get(entity))
        row = _without_base(type_, *sides) if base is None else _join(type_, *sides, base.get(entity))
        if row is not None:
            found[entity] = row
    return found


def _join(type_: Type, left: Row | None, right: Row | None, base: Row | None) -> Row | None:
    if _same(left, base):
        return right
    if _same(right, base) or _same(left, right):
        return left
    if left is None or right is None:
        # One took away what the other changed.
        return _all_unknown(left or right or {})
    row = dict(left)
    for names, rule in _parts(type_):
        values = [None if one is None else [one[name] for name in names] for one in (left, right, base)]
        row.update(zip(names, _value(rule, *values), strict=True))
    return row


def _without_base(type_: Type, left: Row | None, right: Row | None) -> Row | None:
    if left is None or right is None:
        return _all_unknown(left or right or {})
    row = dict(left)
    for names, rule in _parts(type_):
        mine, yours = ([one[name] for name in names] for one in (left, right))
        row.update(zip(names, _value(rule, mine, yours, None), strict=True))
    return row


def _value(rule: MergeRule, left: Any, right: Any, base: Any) -> list[Any]:
    if any(isinstance(one, Unknown) for one in (*left, *right)):
        return [Unknown() for _ in left]
    if left == right or (base is not None and right == base):
        return list(left)
    if base is not None and left == base:
        return list(right)
    if rule in (MergeRule.MAX, MergeRule.MIN):
        present = [one for one in (*left, *right) if one is not None]
        return [max(present) if rule is MergeRule.MAX else min(present)]
    if rule is MergeRule.UNION:
        [mine], [yours], [older] = left, right, base or [None]
        lists = (mine or [], yours or [])
        gone = [item for item in older or [] if any(item not in one for one in lists)]
        kept: list[Any] = []
        for item in (item for one in lists for item in one):
            if item not in kept and item not in gone:
                kept.append(item)
        return [kept]
    return [Unknown() for _ in left]


def _parts(type_: Type) -> list[tuple[tuple[str, ...], MergeRule]]:
    ends = [(("src", "dst"), type_.merge)] if isinstance(type_, EdgeType) else []
    return [*ends, *(((name,), one.merge or type_.merge) for name, one in sorted(type_.properties.items()))]


def _same(one: Row | None, two: Row | None) -> bool:
    if one is None or two is None:
        return one is two
    # Rows may share an unknown value, which Python would take for equal to itself.
    return not any(isinstance(value, Unknown) for value in (*one.values(), *two.values())) and one == two


def _all_unknown(row: Row) -> Row:
    return {name: Unknown() for name in row}
