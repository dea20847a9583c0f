"""Compares an accepted type with its successor and yields the migration steps.

Pure. Order: rename, what cannot change, metadata, properties by name with drops last, constraints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NotRequired, TypedDict

from omnigraph.lang.catalog import PropertyType
from omnigraph.lang.diagnostic import Span
from omnigraph.lang.schema.ast import Kind
from omnigraph.lang.schema.codec import TypeIds
from omnigraph.lang.schema.ir import SchemaIR
from omnigraph.lang.schema.lower import TypeOrigin
from omnigraph.lang.schema.shape import (
    ConstraintShape,
    EdgeShape,
    InterfaceShape,
    NodeShape,
    OpaqueAnnotation,
    PropertyShape,
    TypeShape,
)

StepKind = Literal[
    "add_type",
    "rename_type",
    "update_type_metadata",
    "drop_type",
    "add_property",
    "rename_property",
    "extend_enum",
    "update_property_metadata",
    "drop_property",
    "add_constraint",
    "unsupported_change",
]
DropMode = Literal["soft", "hard"]

# Which members a step has in JSON, after `kind` and `type_kind`, and the field each comes from.
_MEMBERS: Final[Mapping[str, Mapping[str, str]]] = {
    "add_type": {"name": "type_name"},
    "rename_type": {"from": "old_name", "to": "type_name"},
    "update_type_metadata": {"name": "type_name"},
    "drop_type": {"name": "type_name", "mode": "mode"},
    "add_property": {"type_name": "type_name", "property_name": "property_name", "property_type": "property_type"},
    "rename_property": {"type_name": "type_name", "from": "old_name", "to": "property_name"},
    "extend_enum": {"type_name": "type_name", "property_name": "property_name", "added_values": "added_values"},
    "update_property_metadata": {"type_name": "type_name", "property_name": "property_name"},
    "drop_property": {"type_name": "type_name", "property_name": "property_name", "mode": "mode"},
    "add_constraint": {"type_name": "type_name", "constraint": "constraint"},
    "unsupported_change": {"entity": "entity", "reason": "reason", "code": "code"},
}


class SchemaStep(TypedDict):
    """One step of a migration; which members it has follows from its kind."""

    kind: StepKind
    type_kind: NotRequired[Kind]
    name: NotRequired[str]
    type_name: NotRequired[str]
    property_name: NotRequired[str]
    from_: NotRequired[str]
    to: NotRequired[str]
    property_type: NotRequired[str]
    constraint: NotRequired[str]
    added_values: NotRequired[list[str]]
    mode: NotRequired[DropMode]
    entity: NotRequired[str]
    reason: NotRequired[str]
    code: NotRequired[str]


@dataclass(frozen=True, slots=True)
class Step:
    """A change. `span` is its position in the new source, if any; `code` is set for unsupported changes with a code."""

    json_type: ClassVar = SchemaStep
    kind: StepKind
    type_kind: Kind
    type_name: str
    property_name: str | None = None
    old_name: str | None = None
    property_type: str | None = None
    constraint: str | None = None
    added_values: tuple[str, ...] = ()
    mode: DropMode | None = None
    reason: str | None = None
    code: str | None = None
    span: Span = Span(0, 0)  # noqa: RUF009 - spans are immutable

    @property
    def entity(self) -> str:
        """Name what changes, such as `node:Port.berths`."""
        owner = f"{self.type_kind}:{self.type_name}"
        return f"{owner}.{self.property_name}" if self.property_name is not None else owner

    @property
    def message(self) -> str | None:
        """Why the step is not supported, with its code in front if it has one."""
        return f"[{self.code}] {self.reason}" if self.code is not None else self.reason

    def to_json(self) -> dict[str, object]:
        """Return the step as data; a refusal without a code has no member `code`."""
        encoded: dict[str, object] = {"kind": self.kind}
        if self.kind != "unsupported_change":
            encoded["type_kind"] = self.type_kind
        for member, field in _MEMBERS[self.kind].items():
            value = getattr(self, field)
            if value is not None:
                encoded[member] = list(value) if isinstance(value, tuple) else value
        return encoded

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Step:
        """Return the step of its JSON, which has no position."""
        values = {field: data[member] for member, field in _MEMBERS[data["kind"]].items() if member in data}
        if "entity" in values:
            owner, _, property_name = values.pop("entity").partition(".")
            type_kind, _, values["type_name"] = owner.partition(":")
            return cls(data["kind"], type_kind, property_name=property_name or None, **values)
        if "added_values" in values:
            values["added_values"] = tuple(values["added_values"])
        return cls(data["kind"], data["type_kind"], **values)

    def render(self) -> str:
        """Format the step as a line.

        >>> Step("rename_type", "node", "Ship", old_name="Vessel").render()
        '~ rename node Vessel to Ship'
        """
        owner = f"{self.type_kind} {self.type_name}"
        part = f"{self.type_name}.{self.property_name}"
        lines: dict[StepKind, str] = {
            "add_type": f"+ add {owner}",
            "rename_type": f"~ rename {self.type_kind} {self.old_name} to {self.type_name}",
            "update_type_metadata": f"~ update the annotations of {owner}",
            "drop_type": f"- drop {owner} ({self.mode})",
            "add_property": f"+ add {part}: {self.property_type}",
            "rename_property": f"~ rename {self.type_name}.{self.old_name} to {self.property_name}",
            "extend_enum": f"~ extend {part} by {', '.join(self.added_values)}",
            "update_property_metadata": f"~ update the annotations of {part}",
            "drop_property": f"- drop {part} ({self.mode})",
            "add_constraint": f"+ add {self.constraint} to {owner}",
            "unsupported_change": f"! {self.entity}: {self.message}",
        }
        return lines[self.kind]


@dataclass(frozen=True, slots=True)
class _Meaning:
    """A constraint by the identities of its columns, so that a rename of a column leaves it the same."""

    kind: str
    columns: frozenset[int | str]
    bounds: tuple[int | float | str | None, ...]


@dataclass(frozen=True, slots=True)
class _Written:
    """How a constraint was written: its text, whether it is in the body, and the property that carries it."""

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
    written: dict[_Meaning, _Written] = {}
    body: tuple[ConstraintShape, ...] = () if isinstance(shape, InterfaceShape) else shape.constraints
    for item in body:
        # The endpoints of an edge have no identity; their names never change.
        columns = frozenset(ids.property_ids.get(column, column) for column in item.columns)
        written[_Meaning(item.kind, columns, (item.minimum, item.maximum, item.pattern))] = _Written(str(item), True)
    for owner in shape.properties:
        for mark in owner.marks:
            meaning = _Meaning(mark, frozenset({ids.property_ids[owner.name]}), (None, None, None))
            written[meaning] = _Written(f"@{mark}({owner.name})", meaning in written, owner.name)
    return written


def _span(written: _Written, origin: TypeOrigin) -> Span:
    if written.carrier is not None:
        return origin.properties[written.carrier].span
    return origin.constraints.get(written.text, origin.span)


@dataclass(frozen=True, slots=True)
class Pair:
    """An accepted type and its successor, each in its schema."""

    kind: Kind
    accepted: SchemaIR
    old_name: str
    ir: SchemaIR
    name: str
    origin: TypeOrigin

    @property
    def old(self) -> TypeShape:
        return self.accepted.types(self.kind)[self.old_name]

    @property
    def new(self) -> TypeShape:
        return self.ir.types(self.kind)[self.name]

    @property
    def old_ids(self) -> TypeIds:
        return self.accepted.ids(self.kind)[self.old_name]

    @property
    def new_ids(self) -> TypeIds:
        return self.ir.ids(self.kind)[self.name]

    def unsupported(self, reason: str, span: Span | None = None) -> Step:
        return Step("unsupported_change", self.kind, self.name, reason=reason, span=span or self.origin.span)


def compare_types(pair: Pair, mode: DropMode) -> Iterator[Step]:
    """Yield every step from the accepted type to the new one."""
    old, new = pair.old, pair.new
    if pair.old_name != pair.name:
        yield Step("rename_type", pair.kind, pair.name, old_name=pair.old_name, span=pair.origin.span)
    if isinstance(old, NodeShape) and isinstance(new, NodeShape):
        yield from _compare_implements(pair, old, new)
    if isinstance(old, EdgeShape) and isinstance(new, EdgeShape):
        yield from _compare_edges(pair, old, new)
    if not isinstance(old, InterfaceShape) and not isinstance(new, InterfaceShape):
        is_reworded = (old.description, old.instruction, old.merge) != (new.description, new.instruction, new.merge)
        if is_reworded or _is_removal(old.annotations, new.annotations):
            yield Step("update_type_metadata", pair.kind, pair.name, span=pair.origin.span)
        if not set(new.annotations) <= set(old.annotations):
            yield pair.unsupported(f"the unknown annotations of `{pair.name}` can be removed, but not changed")
    yield from _compare_properties(pair, mode)
    yield from compare_constraints(pair.kind, pair.name, (old, pair.old_ids), (new, pair.new_ids), pair.origin)


def _compare_implements(pair: Pair, old: NodeShape, new: NodeShape) -> Iterator[Step]:
    before = {pair.accepted.identities.interfaces[name].type_id for name in old.implements}
    after = {pair.ir.identities.interfaces[name].type_id for name in new.implements}
    if before != after:
        yield pair.unsupported(f"the interfaces that `{pair.name}` implements cannot change")


def _compare_edges(pair: Pair, old: EdgeShape, new: EdgeShape) -> Iterator[Step]:
    before = [pair.accepted.identities.nodes[name].type_id for name in (old.source, old.target)]
    after = [pair.ir.identities.nodes[name].type_id for name in (new.source, new.target)]
    if before != after:
        yield pair.unsupported(f"the endpoints of `{pair.name}` cannot change; add a new edge type instead")
    if old.cardinality != new.cardinality:
        yield pair.unsupported(f"the cardinality of `{pair.name}` cannot change")


def _compare_properties(pair: Pair, mode: DropMode) -> Iterator[Step]:
    old_by_id = {pair.old_ids.property_ids[item.name]: item for item in pair.old.properties}
    kept: set[int] = set()
    for item in pair.new.properties:
        property_id = pair.new_ids.property_ids[item.name]
        kept.add(property_id)
        if property_id in old_by_id:
            yield from _compare_property(pair, old_by_id[property_id], item)
        else:
            yield _add_property(pair, item)
    for property_id, item in old_by_id.items():
        if property_id not in kept:
            yield Step("drop_property", pair.kind, pair.name, item.name, mode=mode, span=pair.origin.span)


def _add_property(pair: Pair, item: PropertyShape) -> Step:
    span = pair.origin.properties[item.name].span
    if item.type.nullable:
        return Step("add_property", pair.kind, pair.name, item.name, property_type=str(item.type), span=span)
    reason = f"new property `{pair.name}.{item.name}` is required, but existing data has no value for it"
    return Step("unsupported_change", pair.kind, pair.name, item.name, reason=reason, code="OG-MF-103", span=span)


def _compare_property(pair: Pair, old: PropertyShape, new: PropertyShape) -> Iterator[Step]:
    origin = pair.origin.properties[new.name]
    part = f"{pair.name}.{new.name}"

    def unsupported(reason: str, span: Span = origin.span, code: str | None = None) -> Step:
        return Step("unsupported_change", pair.kind, pair.name, new.name, reason=reason, code=code, span=span)

    if old.name != new.name:
        yield Step("rename_property", pair.kind, pair.name, new.name, old_name=old.name, span=origin.span)
    if old.type != new.type:
        added = _added_values(old.type, new.type)
        if added:
            yield Step("extend_enum", pair.kind, pair.name, new.name, added_values=added, span=origin.type_span)
        else:
            reason = f"type of `{part}` changes from `{old.type}` to `{new.type}`"
            yield unsupported(reason, origin.type_span, "OG-MF-106")
    if old.is_injected != new.is_injected:
        was, now = (
            ("by an interface", "in the type itself") if old.is_injected else ("in the type itself", "by an interface")
        )
        yield unsupported(f"`{part}` was declared {was} and cannot become declared {now}")
    if _embed(old, pair.old_ids.property_ids) != _embed(new, pair.new_ids.property_ids):
        yield unsupported(f"the source or model of `@embed` on `{part}` cannot change")
    if not set(new.annotations) <= set(old.annotations):
        yield unsupported(f"the unknown annotations of `{part}` can be removed, but not changed")
    is_reworded = (old.description, old.merge) != (new.description, new.merge)
    if is_reworded or _is_removal(old.annotations, new.annotations):
        yield Step("update_property_metadata", pair.kind, pair.name, new.name, span=origin.span)


def _is_removal(old: Sequence[OpaqueAnnotation], new: Sequence[OpaqueAnnotation]) -> bool:
    """Yield changes of unknown annotations, which affect nothing else."""
    return set(new) < set(old)


def _added_values(old: PropertyType, new: PropertyType) -> tuple[str, ...]:
    if old.enum_values is None or new.enum_values is None or old.nullable != new.nullable:
        return ()
    before, after = set(old.enum_values), set(new.enum_values)
    return tuple(sorted(after - before)) if before < after else ()


def _embed(item: PropertyShape, property_ids: Mapping[str, int]) -> tuple[object, str | None] | None:
    # An interface may embed a property that only its nodes have; there the name must do.
    if item.embed is None:
        return None
    return property_ids.get(item.embed.source, item.embed.source), item.embed.model
