"""Resolves the names of a new schema to accepted types and properties, following `@rename_from`, and assigns ids.

Pure. An exact name wins, then a rename hint; everything else is new (I1 to I6).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Severity, Source, Span, did_you_mean
from omnigraph.lang.schema.ast import Kind, Word
from omnigraph.lang.schema.codec import Identities, TypeIds
from omnigraph.lang.schema.ir import KINDS, SchemaIR, first_identity, is_exhausted
from omnigraph.lang.schema.lower import Origins, PropertyOrigin
from omnigraph.lang.schema.shape import SchemaShape, TypeShape


@dataclass(slots=True)
class Resolution:
    """The outcome of a resolution in the making: findings, notes, and the accepted name behind each new one."""

    source: Source
    origins: Origins
    accepted: SchemaIR | None
    errors: list[Diagnostic] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)
    types: dict[tuple[Kind, str], str] = field(default_factory=dict)
    properties: dict[tuple[Kind, str, str], str] = field(default_factory=dict)

    def report(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        self.errors.append(Diagnostic(code, message, self.source, span, hint))

    def ignore(self, word: Word, reason: str) -> None:
        message = f'`@rename_from("{word.text}")` is ignored: {reason}'
        hint = "remove the hint"
        self.notes.append(Diagnostic("I8", message, self.source, word.span, hint, Severity.INFO))


def resolve_names(shape: SchemaShape, origins: Origins, source: Source, accepted: SchemaIR | None) -> Resolution:
    """Find the accepted name, and with it the identity, behind every name of the new schema."""
    resolution = Resolution(source, origins, accepted)
    types: dict[Kind, tuple[TypeShape, ...]] = {"interface": shape.interfaces, "node": shape.nodes, "edge": shape.edges}
    for kind in KINDS:
        _resolve_types(resolution, kind, [type_.name for type_ in types[kind]])
    for kind in KINDS:
        for type_ in types[kind]:
            _resolve_properties(resolution, kind, type_)
    resolution.errors.sort(key=lambda item: item.span.start)
    resolution.notes.sort(key=lambda item: item.span.start)
    return resolution


def _resolve_types(resolution: Resolution, kind: Kind, names: list[str]) -> None:
    accepted_ids = resolution.accepted.ids(kind) if resolution.accepted is not None else {}
    claimed = {name: name for name in names if name in accepted_ids}
    resolution.types.update({(kind, name): name for name in claimed})
    # Hints are taken in source order, so that of two claims the later one is at fault.
    for name in sorted(names, key=lambda name: resolution.origins[kind, name].span.start):
        hint = resolution.origins[kind, name].hint
        if hint is None:
            continue
        if resolution.accepted is None:
            resolution.ignore(hint, "the graph is new")
        elif name in accepted_ids:
            resolution.ignore(hint, f"`{name}` exists already")
        elif hint.text not in accepted_ids:
            _reject_type_hint(resolution, resolution.accepted, kind, hint)
        elif hint.text in claimed:
            message = f"accepted type `{hint.text}` is claimed by both `{claimed[hint.text]}` and `{name}`"
            resolution.report("I3", message, hint.span, "an accepted type has one successor: remove one of the claims")
        else:
            claimed[hint.text] = name
            resolution.types[kind, name] = hint.text


def _reject_type_hint(resolution: Resolution, accepted: SchemaIR, kind: Kind, hint: Word) -> None:
    other = next((other for other in KINDS if hint.text in accepted.ids(other)), None)
    if other is not None:
        message = f"`@rename_from` names `{hint.text}`, which is accepted as {_a(other)}, not as {_a(kind)}"
        resolution.report("I2", message, hint.span, "a type keeps its kind for life: drop the old one, add a new one")
    else:
        message = f"`@rename_from` names `{hint.text}`, which the accepted schema does not have"
        suggestion = did_you_mean(hint.text, accepted.ids(kind))
        resolution.report("I1", message, hint.span, suggestion or "remove the hint to add a new type")


def _a(kind: Kind) -> str:
    return f"a {kind}" if kind == "node" else f"an {kind}"


def _resolve_properties(resolution: Resolution, kind: Kind, type_: TypeShape) -> None:
    accepted = resolution.accepted
    old_owner = resolution.types.get((kind, type_.name))
    origins = resolution.origins[kind, type_.name].properties
    accepted_ids = accepted.ids(kind)[old_owner].property_ids if accepted is not None and old_owner is not None else {}
    claimed = {item.name: item.name for item in type_.properties if item.name in accepted_ids}
    resolution.properties.update({(kind, type_.name, name): name for name in claimed})
    for name, origin in sorted(origins.items(), key=lambda entry: entry[1].span.start):
        hint = origin.hint
        if hint is None:
            continue
        if accepted is None or name in accepted_ids:
            if not origin.is_injected:
                resolution.ignore(hint, "the graph is new" if accepted is None else f"`{name}` exists already")
        elif old_owner is None:
            _reject_hint_in_new_type(resolution, type_.name, origin, hint)
        elif hint.text not in accepted_ids:
            message = f"`@rename_from` names `{hint.text}`, which is not an accepted property of `{old_owner}`"
            suggestion = did_you_mean(hint.text, accepted_ids) or "a property cannot move from one type to another"
            resolution.report("I4", message, hint.span, suggestion)
        elif hint.text in claimed:
            message = (
                f"accepted property `{old_owner}.{hint.text}` is claimed by both `{claimed[hint.text]}` and `{name}`"
            )
            resolution.report("I6", message, hint.span, "an accepted property has one successor: remove a claim")
        else:
            claimed[hint.text] = name
            resolution.properties[kind, type_.name, name] = hint.text


def _reject_hint_in_new_type(resolution: Resolution, owner: str, origin: PropertyOrigin, hint: Word) -> None:
    # An interface's hint applies to the nodes that had the property; a new node simply starts with the new name.
    if not origin.is_injected:
        message = f"`@rename_from` inside `{owner}`, which is a new type and has no earlier properties"
        resolution.report("I5", message, hint.span, "remove the hint, or give the type its own `@rename_from`")


Key = tuple[Kind, str]


def allocate_identities(shape: SchemaShape, resolution: Resolution, domain: str, space: int = 0) -> SchemaIR:
    """Return the IR of a resolved schema; new identities are numbered in `space`. Raises I7 when it has run out."""
    counter = count(first_identity(1 if resolution.accepted is None else resolution.accepted.next_identity_id, space))
    types: dict[Key, TypeShape] = {("interface", item.name): item for item in shape.interfaces}
    types |= {("node", item.name): item for item in shape.nodes}
    types |= {("edge", item.name): item for item in shape.edges}
    accepted_ids = {key: _accepted_ids(resolution, key) for key in types}
    type_ids = {key: old.type_id if old is not None else next(counter) for key, old in accepted_ids.items()}
    by_id = sorted(types, key=type_ids.__getitem__)
    property_ids: dict[Key, dict[str, int]] = {}
    for key in by_id:
        old_ids = _accepted_property_ids(resolution, key, accepted_ids[key])
        names = [item.name for item in types[key].properties]
        property_ids[key] = {name: old_ids[name] if name in old_ids else next(counter) for name in names}
    allocated: dict[Kind, dict[str, TypeIds]] = {"interface": {}, "node": {}, "edge": {}}
    for key in by_id:
        kind, name = key
        old = accepted_ids[key]
        incarnation_id = old.incarnation_id if old is not None else next(counter) if kind != "interface" else None
        allocated[kind][name] = TypeIds(type_ids[key], incarnation_id, property_ids[key])
    next_identity_id = next(counter)
    if is_exhausted(next_identity_id, space):
        raise _exhausted(resolution)
    return SchemaIR(
        domain, next_identity_id, shape, Identities(allocated["interface"], allocated["node"], allocated["edge"])
    )


def _accepted_ids(resolution: Resolution, key: Key) -> TypeIds | None:
    old_name = resolution.types.get(key)
    if resolution.accepted is None or old_name is None:
        return None
    return resolution.accepted.ids(key[0])[old_name]


def _accepted_property_ids(resolution: Resolution, key: Key, old: TypeIds | None) -> dict[str, int]:
    if old is None:
        return {}
    names = ((name, resolution.properties.get((*key, name))) for name in resolution.origins[key].properties)
    return {name: old.property_ids[old_name] for name, old_name in names if old_name is not None}


def _exhausted(resolution: Resolution) -> LanguageError:
    new_spans = [origin.span for key, origin in resolution.origins.items() if key not in resolution.types]
    spans = new_spans or [origin.span for origin in resolution.origins.values()]
    span = max(spans, key=lambda item: item.start)
    hint = "export the graph and load it into a new one"
    message = "the graph has no identities left to give"
    return LanguageError(diagnostics=(Diagnostic("I7", message, resolution.source, span, hint),))
