"""Compares the constraints of a type before and after.

Pure. Only an index may be added, because nothing needs to be checked for it. Nothing may be removed, except along
with all the properties it speaks of, and never a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omnigraph.lang.migrate.step import Step
from omnigraph.lang.schema.encode import TypeIds
from omnigraph.lang.schema.origin import TypeOrigin
from omnigraph.lang.schema.shape import ConstraintShape, InterfaceShape, TypeShape
from omnigraph.lang.schema.syntax import Kind
from omnigraph.lang.source import Span


@dataclass(frozen=True, slots=True)
class _Meaning:
    """A constraint by the identities of its columns, so that a rename of a column leaves it the same."""

    kind: str
    columns: frozenset[int | str]
    bounds: tuple[int | float | str | None, ...]


@dataclass(frozen=True, slots=True)
class _Written:
    """How a constraint was written: its text, whether it stands in the body, and the property that carries it."""

    text: str
    is_in_body: bool
    carrier: str | None = None


def compare_constraints(
    kind: Kind, name: str, old: tuple[TypeShape, TypeIds], new: tuple[TypeShape, TypeIds], origin: TypeOrigin
) -> Iterator[Step]:
    """Yield an `add_constraint` for each new index and a refusal for every other difference, by text."""
    before, after = _constraints(*old), _constraints(*new)
    for meaning, written in sorted(after.items(), key=lambda entry: entry[1].text):
        span = _span(written, origin)
        earlier = before.get(meaning)
        if earlier is None:
            if meaning.kind == "index":
                yield Step("add_constraint", kind, name, constraint=written.text, span=span)
            else:
                reason = f"`{written.text}` cannot be added to `{name}`: existing data may break it"
                yield Step("unsupported_change", kind, name, reason=reason, span=span)
        elif (earlier.is_in_body, earlier.carrier is None) != (written.is_in_body, written.carrier is None):
            reason = f"`{written.text}` of `{name}` cannot move between the property form and the body form"
            yield Step("unsupported_change", kind, name, reason=reason, span=span)
    dropped = frozenset(old[1].property_ids.values()) - frozenset(new[1].property_ids.values())
    for meaning, written in sorted(before.items(), key=lambda entry: entry[1].text):
        goes_along = meaning.kind != "key" and meaning.columns <= dropped
        if meaning not in after and not goes_along:
            reason = f"`{written.text}` cannot be removed from `{name}`"
            yield Step("unsupported_change", kind, name, reason=reason, span=origin.span)


def _constraints(shape: TypeShape, ids: TypeIds) -> Mapping[_Meaning, _Written]:
    found: dict[_Meaning, _Written] = {}
    body: tuple[ConstraintShape, ...] = () if isinstance(shape, InterfaceShape) else shape.constraints
    for item in body:
        # The endpoints of an edge have no identity; their names never change.
        columns = frozenset(ids.property_ids.get(column, column) for column in item.columns)
        found[_Meaning(item.kind, columns, (item.minimum, item.maximum, item.pattern))] = _Written(str(item), True)
    for owner in shape.properties:
        for mark in owner.marks:
            meaning = _Meaning(mark, frozenset({ids.property_ids[owner.name]}), (None, None, None))
            found[meaning] = _Written(f"@{mark}({owner.name})", meaning in found, owner.name)
    return found


def _span(written: _Written, origin: TypeOrigin) -> Span:
    if written.carrier is not None:
        return origin.properties[written.carrier].span
    return origin.constraints.get(written.text, origin.span)
