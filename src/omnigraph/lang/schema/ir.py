"""The schema IR: a shape with an identity for every type and property, and how a new schema keeps or assigns them.

Pure values. Names may change, identities never do, and none is handed out twice. An exact name keeps its identity, then
a rename hint; everything else is new (I1 to I6).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Final

from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Severity, Source, Span, did_you_mean
from omnigraph.lang.schema.ast import KINDS, Kind, Word
from omnigraph.lang.schema.lower import Origins, PropertyOrigin
from omnigraph.lang.schema.shape import (
    EdgeShape,
    Identities,
    NodeShape,
    SchemaShape,
    TypeIds,
    TypeShape,
    canonical_hash,
    decode_types,
    encode_shape,
)

DOMAIN: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
IDENTITY_MAX: Final = 2**64 - 1
# Main and every branch that changes its schema number new identities in a space of their own: the upper bits of the
# number. So no two branches ever give the same number to different things. Main's space is 0.
_SPACE_BITS: Final = 32
_SOURCE: Final = Source("schema IR", "")


def malformed(message: str) -> LanguageError:
    """Return the I7 error for a stored schema."""
    hint = "the stored schema was changed by hand or by another program; restore it from an earlier commit"
    return LanguageError(diagnostics=(Diagnostic("I7", f"malformed schema IR: {message}", _SOURCE, Span(0, 0), hint),))


def first_identity(accepted_next: int, space: int) -> int:
    """Return the next identity to give in a space; `accepted_next` is that of the accepted schema, of any space.

    >>> first_identity(7, 0), first_identity(7, 3) == 3 * 2**32 + 1, first_identity(3 * 2**32 + 5, 3) == 3 * 2**32 + 5
    (7, True, True)
    """
    is_own = space == 0 or accepted_next >> _SPACE_BITS == space
    return accepted_next if is_own else (space << _SPACE_BITS) + 1


def later_identity(ours: int, theirs: int) -> int:
    """Return our next identity, or theirs if it is later in the same space.

    A branch that has added nothing yet still has the counter of the branch that it came from.
    """
    return max(ours, theirs) if ours >> _SPACE_BITS == theirs >> _SPACE_BITS else ours


def unused_identity(next_identity_id: int, identities: Identities) -> int:
    """Return the next identity, or a later one in its space that is above every identity in use.

    A merge brings in what another branch has numbered, perhaps in the space of the branch that both came from.
    """
    used = [item for kind in KINDS for ids in identities.of(kind).values() for item in _ids_of(ids)]
    space = next_identity_id >> _SPACE_BITS
    return max([next_identity_id, *(item + 1 for item in used if item >> _SPACE_BITS == space)])


def _ids_of(ids: TypeIds) -> list[int]:
    incarnation = [] if ids.incarnation_id is None else [ids.incarnation_id]
    return [ids.type_id, *ids.property_ids.values(), *incarnation]


def is_exhausted(next_identity_id: int, space: int) -> bool:
    """Return True if the next identity does not fit its space any more."""
    return next_identity_id > IDENTITY_MAX or (space > 0 and next_identity_id >> _SPACE_BITS != space)


def is_same_json(left: object, right: object) -> bool:
    """Compare JSON values, number types included: Python holds True == 1 == 1.0, a stored schema does not."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(is_same_json(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(is_same_json(a, b) for a, b in zip(left, right, strict=True))
    return type(left) is type(right) and left == right


def check_integrity(domain: object, next_identity_id: object, shape: SchemaShape, identities: Identities) -> None:
    """Raise I7 unless the identities are sound and every reference leads somewhere."""
    if not isinstance(domain, str) or not DOMAIN.fullmatch(domain):
        raise malformed("`identity_domain` is not an upper-case ULID")
    ids: list[object] = [next_identity_id]
    for kind in KINDS:
        _check_order("types", [type_.name for type_ in shape.of(kind)])
        for type_ in shape.of(kind):
            ids += _own_ids(type_, identities.of(kind)[type_.name], has_table=kind != "interface")
    if not all(type(item) is int and 1 <= item <= IDENTITY_MAX for item in ids):
        raise malformed("an identity is not a positive 64-bit integer")
    if len(set(ids)) != len(ids):
        raise malformed("one identity is used twice")
    assert isinstance(next_identity_id, int)
    space = next_identity_id >> _SPACE_BITS
    if next_identity_id != max(item for item in ids if isinstance(item, int) and item >> _SPACE_BITS == space):
        raise malformed("`next_identity_id` is not above every identity in use")
    _check_references(shape)


def _check_order(subject: str, names: list[str]) -> None:
    if names != sorted(set(names)):
        raise malformed(f"its {subject} are not sorted by name, or one is there twice")


def _own_ids(shape: TypeShape, ids: TypeIds, *, has_table: bool) -> list[object]:
    _check_order(f"properties of `{shape.name}`", [item.name for item in shape.properties])
    if (ids.incarnation_id is not None) != has_table:
        raise malformed(f"`{shape.name}` must have a table incarnation exactly if it is a node or an edge")
    return [ids.type_id, *ids.property_ids.values(), *([ids.incarnation_id] if has_table else [])]


def _check_references(shape: SchemaShape) -> None:
    interfaces, nodes = {item.name for item in shape.interfaces}, {item.name for item in shape.nodes}
    for node in shape.nodes:
        if not set(node.implements) <= interfaces:
            raise malformed(f"`{node.name}` implements an interface that is not there")
    for edge in shape.edges:
        if not {edge.source, edge.target} <= nodes:
            raise malformed(f"`{edge.name}` ends at a node type that is not there")
    owners: tuple[NodeShape | EdgeShape, ...] = (*shape.nodes, *shape.edges)
    for owner in owners:
        columns = {item.name for item in owner.properties} | ({"src", "dst"} if isinstance(owner, EdgeShape) else set())
        named = {column for item in owner.constraints for column in item.columns}
        named |= {item.embed.source for item in owner.properties if item.embed is not None}
        if not named <= columns:
            raise malformed(f"a constraint or embedding of `{owner.name}` names a property that is not there")


# Schemas without keyed edges and defaults keep the version, and with it the hash, that they always had. Releases that
# do not know these refuse the later version: they would write edges whose ids do not follow from the key.
IR_VERSION: Final = 2
IR_VERSION_WITH_EDGE_KEYS: Final = 3


def _version_of(shape: SchemaShape) -> int:
    types = (type_ for kind in KINDS for type_ in shape.of(kind))
    has_defaults = any(item.default is not None for type_ in types for item in type_.properties)
    has_edge_keys = any(
        any(item.kind == "key" for item in edge.constraints) or any("key" in item.marks for item in edge.properties)
        for edge in shape.edges
    )
    return IR_VERSION_WITH_EDGE_KEYS if has_defaults or has_edge_keys else IR_VERSION


@dataclass(frozen=True)
class SchemaIR:
    """An accepted schema; `domain` is unique to its graph, so that identities of different graphs never mix."""

    domain: str
    next_identity_id: int
    shape: SchemaShape
    identities: Identities

    def types(self, kind: Kind) -> Mapping[str, TypeShape]:
        return self._types[kind]

    def ids(self, kind: Kind) -> Mapping[str, TypeIds]:
        return self.identities.of(kind)

    @cached_property
    def _types(self) -> Mapping[Kind, Mapping[str, TypeShape]]:
        return {kind: {shape.name: shape for shape in self.shape.of(kind)} for kind in KINDS}

    @cached_property
    def hash(self) -> str:
        """Name this exact schema, identities included."""
        return canonical_hash(self.to_json())

    def to_json(self) -> dict[str, object]:
        """Return the stored form; `from_json` reverses it exactly."""
        return {
            "ir_version": _version_of(self.shape),
            "identity_domain": self.domain,
            "next_identity_id": self.next_identity_id,
            **encode_shape(self.shape, self.identities),
        }

    @staticmethod
    def from_json(value: object) -> SchemaIR:
        """Read the stored form; raises `LanguageError` with I7 for anything that `to_json` would not write."""
        if not isinstance(value, dict):
            raise malformed("it is not an object")
        if value.get("ir_version") not in (IR_VERSION, IR_VERSION_WITH_EDGE_KEYS):
            raise malformed(f"`ir_version` is neither {IR_VERSION} nor {IR_VERSION_WITH_EDGE_KEYS}")
        try:
            shape, identities = decode_types(value)
            ir = SchemaIR(value["identity_domain"], value["next_identity_id"], shape, identities)
            written = ir.to_json()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise malformed(f"{type(error).__name__} {error}") from None
        # Round trip: encoding the result again must give the same JSON, so unknown or misplaced fields are detected.
        if not is_same_json(written, value):
            raise malformed("it is not in canonical form: an unknown member, a wrong reference or another order")
        check_integrity(ir.domain, ir.next_identity_id, shape, identities)
        return ir


@dataclass(slots=True)
class Resolution:
    """A resolution in progress: its errors and notes, and the accepted name behind each new name."""

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
    for kind in KINDS:
        _resolve_types(resolution, kind, [type_.name for type_ in shape.of(kind)])
    for kind in KINDS:
        for type_ in shape.of(kind):
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
    types: dict[Key, TypeShape] = {(kind, item.name): item for kind in KINDS for item in shape.of(kind)}
    accepted_ids = {key: _accepted_ids(resolution, key) for key in types}
    type_ids = {key: old.type_id if old is not None else next(counter) for key, old in accepted_ids.items()}
    by_id = sorted(types, key=type_ids.__getitem__)
    property_ids: dict[Key, dict[str, int]] = {}
    for key in by_id:
        old_ids = _accepted_property_ids(resolution, key, accepted_ids[key])
        names = [item.name for item in types[key].properties]
        property_ids[key] = {name: old_ids[name] if name in old_ids else next(counter) for name in names}
    allocated: dict[Kind, dict[str, TypeIds]] = {kind: {} for kind in KINDS}
    for key in by_id:
        kind, name = key
        old = accepted_ids[key]
        incarnation_id = old.incarnation_id if old is not None else next(counter) if kind != "interface" else None
        allocated[kind][name] = TypeIds(type_ids[key], incarnation_id, property_ids[key])
    next_identity_id = next(counter)
    if is_exhausted(next_identity_id, space):
        raise _exhausted(resolution)
    return SchemaIR(domain, next_identity_id, shape, Identities(*(allocated[kind] for kind in KINDS)))


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
