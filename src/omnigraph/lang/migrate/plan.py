"""Plans the migration from an accepted schema to a new source, by comparing types, properties and constraints.

Pure. Compares by identity, so a rename is a rename and never a drop and an add, and a constraint is the same if it
constrains the same properties. Steps of a type: rename, unsupported changes, metadata, properties by name with drops
last, constraints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from omnigraph.lang.catalog import Cardinality, PropertyType, TypeKey
from omnigraph.lang.diagnostic import Diagnostic, Source, Span
from omnigraph.lang.migrate.step import DropMode, Step, StepEffect, StepKind
from omnigraph.lang.scalars import FLOATS
from omnigraph.lang.schema.ast import KINDS, Kind
from omnigraph.lang.schema.compile import CompiledSchema, compile_schema
from omnigraph.lang.schema.ir import SchemaIR
from omnigraph.lang.schema.lower import Origins, PropertyOrigin, TypeOrigin
from omnigraph.lang.schema.shape import (
    EdgeShape,
    InterfaceShape,
    NodeShape,
    PropertyShape,
    TypeIds,
    TypeShape,
)


@dataclass(frozen=True, slots=True)
class Pair:
    """An accepted type and its successor, each in its schema."""

    kind: Kind
    accepted: SchemaIR
    old: TypeShape
    old_ids: TypeIds
    ir: SchemaIR
    new: TypeShape
    new_ids: TypeIds
    origin: TypeOrigin

    @property
    def name(self) -> str:
        return self.new.name

    @property
    def table_key(self) -> TypeKey:
        """The key of the type, which is not an interface."""
        return TypeKey.of(self.kind, self.name)

    def step(self, kind: StepKind, property_name: str | None = None, *, span: Span | None = None, **more: Any) -> Step:
        """Return a step on the type or one of its properties, at the name of the type unless a span is given."""
        return Step(kind, self.kind, self.name, property_name, span=span or self.origin.span, **more)


class _ConstraintKey(NamedTuple):
    """Identifies a constraint by the ids of its columns, so that renaming a column does not change it."""

    kind: str
    columns: frozenset[int | str]
    bounds: tuple[int | float | str | None, ...] = (None, None, None)


@dataclass(frozen=True, slots=True)
class _ConstraintSource:
    """How a constraint was written: its text, whether it is in the body, and the property that carries it."""

    text: str
    is_in_body: bool
    carrier: str | None = None


def compare_constraints(pair: Pair) -> Iterator[Step]:
    """Yield dropped constraints, then added ones, each ordered by text."""
    before, after = _constraints(pair.old, pair.old_ids), _constraints(pair.new, pair.new_ids)
    dropped = frozenset(pair.old_ids.property_ids.values()) - frozenset(pair.new_ids.property_ids.values())
    for constraint, source in sorted(before.items(), key=lambda entry: entry[1].text):
        is_dropped_with_columns = constraint.kind != "key" and constraint.columns <= dropped
        if constraint not in after and not is_dropped_with_columns:
            yield pair.step("drop_constraint", constraint=source.text)
    for constraint, source in sorted(after.items(), key=lambda entry: entry[1].text):
        if constraint not in before:
            effect: StepEffect = "validates"
            if pair.kind == "interface" or constraint.kind == "index":
                effect = "instant"
            elif constraint.kind == "key":
                effect = "rewrites"
            touches = () if effect == "instant" else _touched(pair, constraint.kind)
            span = pair.origin.constraints.get(source.text, pair.origin.span)
            if source.carrier is not None:
                span = pair.origin.properties[source.carrier].span
            yield pair.step("add_constraint", constraint=source.text, effect=effect, touches=touches, span=span)


def compare_cardinality(pair: Pair, old: Cardinality, new: Cardinality) -> Iterator[Step]:
    """Yield a drop of the old bounds and an addition of the new ones; looser bounds need no check."""
    if old == new:
        return
    if old != Cardinality():
        yield pair.step("drop_constraint", constraint=str(old))
    if new != Cardinality():
        is_looser = new.minimum <= old.minimum and (
            new.maximum is None or (old.maximum is not None and old.maximum <= new.maximum)
        )
        effect, touches = ("instant", ()) if is_looser else ("validates", (pair.table_key,))
        yield pair.step("add_constraint", constraint=str(new), effect=effect, touches=touches)


def has_moved_constraint(pair: Pair) -> bool:
    """Return True if a constraint moved between the property form and the body form, which changes nothing else."""
    before, after = (
        {key: (source.is_in_body, source.carrier is None) for key, source in _constraints(*side).items()}
        for side in ((pair.old, pair.old_ids), (pair.new, pair.new_ids))
    )
    return any(before[key] != after[key] for key in before.keys() & after.keys())


def _touched(pair: Pair, kind: str) -> tuple[str, ...]:
    """Return the types that a constraint is checked on; a key changes ids, and so the ends of edges."""
    if kind != "key" or pair.kind != "node":
        return (pair.table_key,)
    edges = (edge.name for edge in pair.ir.shape.edges if pair.name in (edge.source, edge.target))
    return (pair.table_key, *(TypeKey.of("edge", name) for name in edges))


def _constraints(shape: TypeShape, ids: TypeIds) -> Mapping[_ConstraintKey, _ConstraintSource]:
    sources: dict[_ConstraintKey, _ConstraintSource] = {}
    for item in shape.constraints:
        # The endpoints of an edge have no identity; their names never change.
        columns = frozenset(ids.property_ids.get(column, column) for column in item.columns)
        constraint = _ConstraintKey(item.kind, columns, (item.minimum, item.maximum, item.pattern))
        sources[constraint] = _ConstraintSource(str(item), True)
    for owner in shape.properties:
        for mark in owner.marks:
            constraint = _ConstraintKey(mark, frozenset({ids.property_ids[owner.name]}))
            sources[constraint] = _ConstraintSource(f"@{mark}({owner.name})", constraint in sources, owner.name)
    return sources


def compare_types(pair: Pair, mode: DropMode) -> Iterator[Step]:
    """Yield every step from the accepted type to the new one."""
    old, new = pair.old, pair.new
    if old.name != new.name:
        yield pair.step("rename_type", old_name=old.name)
    if isinstance(old, NodeShape) and isinstance(new, NodeShape):
        yield from _compare_implements(pair, old, new)
    if isinstance(old, EdgeShape) and isinstance(new, EdgeShape):
        yield from _compare_edges(pair, old, new)
    if not isinstance(old, InterfaceShape) and not isinstance(new, InterfaceShape):
        is_reworded = (old.description, old.instruction, old.merge) != (new.description, new.instruction, new.merge)
        before, after = set(old.annotations), set(new.annotations)
        if is_reworded or after < before or has_moved_constraint(pair):
            yield pair.step("update_type_metadata")
        if not after <= before:
            reason = f"the unknown annotations of `{pair.name}` can be removed, but not changed"
            yield pair.step("unsupported_change", reason=reason)
    yield from _compare_properties(pair, mode)
    yield from compare_constraints(pair)
    if isinstance(old, EdgeShape) and isinstance(new, EdgeShape):
        yield from compare_cardinality(pair, old.cardinality, new.cardinality)


def _compare_implements(pair: Pair, old: NodeShape, new: NodeShape) -> Iterator[Step]:
    before = {pair.accepted.identities.interfaces[name].type_id for name in old.implements}
    after = {pair.ir.identities.interfaces[name].type_id for name in new.implements}
    if before != after:
        yield pair.step("change_interfaces")


def _compare_edges(pair: Pair, old: EdgeShape, new: EdgeShape) -> Iterator[Step]:
    before = [pair.accepted.identities.nodes[name].type_id for name in (old.source, old.target)]
    after = [pair.ir.identities.nodes[name].type_id for name in (new.source, new.target)]
    if before != after:
        reason = f"the endpoints of `{pair.name}` cannot change; add a new edge type instead"
        yield pair.step("unsupported_change", reason=reason)


def _compare_properties(pair: Pair, mode: DropMode) -> Iterator[Step]:
    if pair.old_ids.property_ids.get("id") != pair.new_ids.property_ids.get("id"):
        # The property is the stored id, which neither comes nor goes.
        verb = "cannot become" if "id" in pair.new_ids.property_ids else "cannot cease to be"
        reason = f"`id: String @key` of `{pair.name}` {verb} the id of nodes that exist; add a new node type instead"
        yield pair.step("unsupported_change", "id", reason=reason)
        return
    old_by_id = {pair.old_ids.property_ids[item.name]: item for item in pair.old.properties}
    new_ids: set[int] = set()
    for item in pair.new.properties:
        property_id = pair.new_ids.property_ids[item.name]
        new_ids.add(property_id)
        if property_id in old_by_id:
            yield from _compare_property(pair, old_by_id[property_id], item)
        else:
            yield _add_property(pair, item)
    for property_id, item in old_by_id.items():
        if property_id not in new_ids:
            yield pair.step("drop_property", item.name, mode=mode)


def _add_property(pair: Pair, item: PropertyShape) -> Step:
    span = pair.origin.properties[item.name].span
    if item.type.nullable or item.default is not None or pair.kind == "interface":
        is_filled = not item.type.nullable and pair.kind != "interface"
        return pair.step(
            "add_property",
            item.name,
            property_type=str(item.type),
            default=None if item.default is None else str(item.default),
            effect="rewrites" if is_filled else "instant",
            touches=(pair.table_key,) if is_filled else (),
            span=span,
        )
    reason = f"new property `{pair.name}.{item.name}` is required, but existing data has no value for it"
    return pair.step("unsupported_change", item.name, reason=reason, code="OG-MF-103", span=span)


def _compare_property(pair: Pair, old: PropertyShape, new: PropertyShape) -> Iterator[Step]:
    span = pair.origin.properties[new.name].span
    part = f"{pair.name}.{new.name}"
    if old.name != new.name:
        yield pair.step("rename_property", new.name, old_name=old.name, span=span)
    yield from _compare_value_types(pair, old, new)
    old_embed, new_embed = _embed(old, pair.old_ids.property_ids), _embed(new, pair.new_ids.property_ids)
    if old_embed != new_embed and old_embed is not None and new_embed is not None:
        reason = f"the source or model of `@embed` on `{part}` cannot change"
        yield pair.step("unsupported_change", new.name, reason=reason, span=span)
    before, after = set(old.annotations), set(new.annotations)
    if not after <= before:
        reason = f"the unknown annotations of `{part}` can be removed, but not changed"
        yield pair.step("unsupported_change", new.name, reason=reason, span=span)
    metadata = ("description", "merge", "default", "is_injected")
    is_reworded = any(getattr(old, name) != getattr(new, name) for name in metadata)
    is_embed_changed = (old_embed is None) != (new_embed is None)
    if is_reworded or is_embed_changed or after < before:
        yield pair.step("update_property_metadata", new.name, span=span)


def _compare_value_types(pair: Pair, old: PropertyShape, new: PropertyShape) -> Iterator[Step]:
    """Yield the steps from one value type to another: null or not, and the values themselves."""
    span = pair.origin.properties[new.name].type_span
    touches = () if pair.kind == "interface" else (pair.table_key,)
    if old.type.nullable and not new.type.nullable:
        effect: StepEffect = "validates" if touches else "instant"
        yield pair.step("make_required", new.name, effect=effect, touches=touches, span=span)
    elif new.type.nullable and not old.type.nullable:
        yield pair.step("make_optional", new.name, span=span)
    before, after = replace(old.type, nullable=False), replace(new.type, nullable=False)
    if before == after:
        return
    added = _added_values(before, after)
    if added:
        yield pair.step("extend_enum", new.name, added_values=added, span=span)
    elif is_wider(before, after) and not _is_respelled(pair, old, after):
        is_stored_alike = before.scalar is after.scalar or not touches
        yield pair.step(
            "widen_property",
            new.name,
            old_type=str(old.type),
            property_type=str(new.type),
            effect="instant" if is_stored_alike else "rewrites",
            touches=() if is_stored_alike else touches,
            span=span,
        )
    else:
        reason = f"type of `{pair.name}.{new.name}` changes from `{old.type}` to `{new.type}`"
        yield pair.step("unsupported_change", new.name, reason=reason, code="OG-MF-106", span=span)


def is_wider(old: PropertyType, new: PropertyType) -> bool:
    """Return True if the new type holds every value of the old one exactly; an enum is narrower than a String.

    >>> from omnigraph.lang.scalars import Scalar
    >>> small, large, real = map(PropertyType, (Scalar.I32, Scalar.I64, Scalar.F64))
    >>> is_wider(small, large), is_wider(large, real)
    (True, False)
    """
    if old.is_list != new.is_list:
        return False
    if old.enum_values is not None:
        return new.is_text and new.enum_values is None
    return new.scalar in old.scalar.facts.wider


def _is_respelled(pair: Pair, old: PropertyShape, new: PropertyType) -> bool:
    """Return True if ids format the wider value differently: the digits of a 32-bit float change with 64 bits."""
    if isinstance(pair.old, InterfaceShape) or not {old.type.scalar, new.scalar} <= FLOATS:
        return False
    keys = [item.columns for item in pair.old.constraints if item.kind == "key"]
    return "key" in old.marks or any(old.name in columns for columns in keys)


def _added_values(old: PropertyType, new: PropertyType) -> tuple[str, ...]:
    if old.enum_values is None or new.enum_values is None:
        return ()
    before, after = set(old.enum_values), set(new.enum_values)
    return tuple(sorted(after - before)) if before < after else ()


def _embed(item: PropertyShape, property_ids: Mapping[str, int]) -> tuple[object, str | None] | None:
    # An interface may embed a property that only its nodes have; there the name must do.
    if item.embed is None:
        return None
    return property_ids.get(item.embed.source, item.embed.source), item.embed.model


_HINTS: Final[Mapping[str | None, str]] = {
    "OG-MF-103": "make it nullable, or give it a default that existing data gets: `@default(…)`",
    "OG-MF-106": "add a property of the new type under another name, fill it, then drop the old one",
    None: "keep it as it was accepted, or declare a new type beside the old one and move the data",
}


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """All steps in the order in which they apply; no step at all means that nothing changes."""

    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        steps = "".join(f"\n  {step.render()}" for step in self.steps) or " no changes"
        return f"<{type(self).__name__}{'' if self.supported else ', unsupported'}:{steps}>"

    @property
    def unsupported(self) -> tuple[Step, ...]:
        """The steps that cannot be applied."""
        return tuple(step for step in self.steps if step.kind == "unsupported_change")

    @property
    def supported(self) -> bool:
        """Whether every step can be applied."""
        return not self.unsupported

    @property
    def drops(self) -> tuple[Step, ...]:
        """The steps that take something away: a type, a property, or a rule without a successor on the same columns."""
        added = {step.rule_subject for step in self.steps if step.kind == "add_constraint"}
        return tuple(
            step
            for step in self.steps
            if step.kind in ("drop_type", "drop_property")
            or (step.kind == "drop_constraint" and step.is_rule and step.rule_subject not in added)
        )

    def to_json(self) -> dict[str, object]:
        """Return the plan as a JSON object.

        Returns:
            Whether it is supported, and the steps.

        Example:
            >>> graph.schema.plan(graph.schema.source).to_json()
            {'supported': True, 'steps': []}
        """
        return {"supported": self.supported, "steps": [step.to_json() for step in self.steps]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SchemaPlan:
        """Return the plan of its JSON, whose steps have no positions.

        Args:
            data: The JSON object.

        Returns:
            The plan.

        Example:
            >>> og.SchemaPlan.from_json({"supported": True, "steps": []}).steps
            ()
        """
        return SchemaPlan(tuple(map(Step.from_json, data["steps"])))

    def render(self) -> str:
        """Format the plan: the verdict first, then a line per step.

        Returns:
            The text.

        Example:
            >>> graph.schema.plan(graph.schema.source).render()
            'No changes.'
        """
        if not self.steps:
            return "No changes."
        refused = len(self.unsupported)
        count = f"{len(self.steps)} step{'s' if len(self.steps) > 1 else ''}"
        instant = sum(step.effect == "instant" for step in self.steps)
        speed = "all instant" if instant == len(self.steps) else f"{instant} instant"
        head = f"Not supported: {refused} of {count} refused." if refused else f"Supported: {count}, {speed}."
        if self.drops:
            head += f" {len(self.drops)} of them drop{'s' if len(self.drops) == 1 else ''} what the schema leaves out."
        return "\n".join([head, *(f"  {step.render()}" for step in self.steps)])


@dataclass(frozen=True, slots=True, repr=False)
class MigrationPlan(SchemaPlan):
    """A plan with the compiled schema that it leads to, as an opened graph returns it."""

    compiled: CompiledSchema

    @property
    def refusals(self) -> tuple[Diagnostic, ...]:
        """Why the plan is not supported, with positions in the new source; steps without a code get `OG-MF-100`."""
        return tuple(
            Diagnostic(
                step.code or "OG-MF-100",
                step.reason or "",
                self.compiled.source,
                step.span,
                hint=_HINTS[step.code],
                # A dropped part has no position in the new source.
                is_placed=step.span != Span(0, 0),
            )
            for step in self.unsupported
        )

    @property
    def notes(self) -> tuple[Diagnostic, ...]:
        """Remarks on the new source that stop nothing, such as a rename hint that did its work."""
        return self.compiled.notes


def plan_migration(
    accepted: SchemaIR, source: Source, *, allow_data_loss: bool = False, identity_space: int = 0
) -> MigrationPlan:
    """Compile the source as the successor of the accepted schema and plan the change; raises `LanguageError`."""
    compiled = compile_schema(source, domain=accepted.domain, accepted=accepted, identity_space=identity_space)
    mode: DropMode = "hard" if allow_data_loss else "soft"
    steps = tuple(_steps(accepted, compiled.ir, compiled.origins, mode))
    # Every difference must show in a step: a plan that is empty by mistake would lose a change in silence.
    assert steps or accepted.shape == compiled.shape
    return MigrationPlan(steps, compiled)


def list_steps(before: SchemaIR, after: SchemaIR) -> tuple[Step, ...]:
    """Return the steps between two accepted schemas, without positions; drops count as soft."""
    nowhere = PropertyOrigin(Span(0, 0), Span(0, 0))
    origins = {
        (kind, name): TypeOrigin(Span(0, 0), {item.name: nowhere for item in shape.properties}, {})
        for kind in KINDS
        for name, shape in after.types(kind).items()
    }
    return tuple(_steps(before, after, origins, "soft"))


def _steps(accepted: SchemaIR, ir: SchemaIR, origins: Origins, mode: DropMode) -> Iterator[Step]:
    for kind in KINDS:
        old_names = {ids.type_id: name for name, ids in accepted.ids(kind).items()}
        for name, ids in ir.ids(kind).items():
            origin, old_name = origins[kind, name], old_names.get(ids.type_id)
            if old_name is not None:
                old, old_ids = accepted.types(kind)[old_name], accepted.ids(kind)[old_name]
                pair = Pair(kind, accepted, old, old_ids, ir, ir.types(kind)[name], ids, origin)
                yield from compare_types(pair, mode)
            else:
                yield Step("add_type", kind, name, span=origin.span)
    for kind in KINDS:
        new_ids = {ids.type_id for ids in ir.ids(kind).values()}
        for name, ids in accepted.ids(kind).items():
            if ids.type_id not in new_ids:
                # An interface has no data that could be lost.
                yield Step("drop_type", kind, name, mode=None if kind == "interface" else mode)
