"""Schemas drawn by chance: what they hold, how they are written, and the ways in which one becomes another.

Pure. Knows which changes are refused, and by which code.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

NAMES = ("a", "b", "c", "d", "e", "f")
NODE_NAMES = ("A", "B", "C")
EDGE_NAMES = ("R", "S")
WORDS = ("blue", "green", "red")
BOUNDS = (0, 2)
PATTERN = "^[xy]"
KINDS = ("String", "I32", "Date", "Bool", "F64", "enum")
KEY_KINDS = ("String", "I32", "I64", "Date", "enum")
# What becomes what without a loss.
WIDER = {("I32", "I64"), ("I32", "F64"), ("enum", "String")}
DEFAULTS: dict[str, str | int] = {"String": "x", "I32": 2}


@dataclass(frozen=True, slots=True)
class Property:
    """One property; `former` is the name that it is renamed from."""

    name: str
    kind: str
    is_nullable: bool = True
    words: tuple[str, ...] = ()
    is_bounded: bool = False
    is_checked: bool = False
    former: str | None = None
    default: str | int | None = None

    def render(self) -> str:
        kind = f"enum({', '.join(self.words)})" if self.kind == "enum" else self.kind
        parts = [f"{self.name}: {kind}{'?' if self.is_nullable else ''}"]
        parts += [f'@rename_from("{self.former}")'] if self.former else []
        parts += [f"@default({json.dumps(self.default)})"] if self.default is not None else []
        parts += [f"@range({self.name}, {BOUNDS[0]}..{BOUNDS[1]})"] if self.is_bounded else []
        parts += [f'@check({self.name}, "{PATTERN}")'] if self.is_checked else []
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Type:
    """A node type, or with `ends` an edge type. `key` is in the order in which ids spell it: ends, then properties."""

    name: str
    properties: tuple[Property, ...]
    key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    ends: tuple[str, str] | None = None
    least: int = 0
    most: int | None = None
    former: str | None = None

    @property
    def table_key(self) -> str:
        return f"{'edge' if self.ends else 'node'}:{self.name}"

    def free(self) -> list[Property]:
        """Return the properties that may change: all that are in no key."""
        return [one for one in self.properties if one.name not in self.key]

    def render(self) -> str:
        head = f"edge {self.name}: {self.ends[0]} -> {self.ends[1]}" if self.ends else f"node {self.name}"
        if self.least or self.most is not None:
            head += f" @card({self.least}..{'' if self.most is None else self.most})"
        head += f' @rename_from("{self.former}")' if self.former else ""
        body = [one.render() for one in self.properties]
        body += [f"@key({', '.join(self.key)})"] if self.key else []
        body += [f"@unique({', '.join(columns)})" for columns in self.unique]
        return f"{head} {{ {'  '.join(body)} }}"


@dataclass(frozen=True, slots=True)
class Schema:
    """All types, nodes first."""

    types: tuple[Type, ...]

    @property
    def nodes(self) -> list[Type]:
        return [one for one in self.types if not one.ends]

    @property
    def edges(self) -> list[Type]:
        return [one for one in self.types if one.ends]

    def render(self) -> str:
        return "\n".join(one.render() for one in self.types)

    def settled(self) -> Schema:
        """Return the schema as it is once it was applied: nothing is renamed any more."""
        kept = [replace(one, properties=tuple(replace(p, former=None) for p in one.properties)) for one in self.types]
        return Schema(tuple(replace(one, former=None) for one in kept))


@st.composite
def properties(draw: DrawFn, name: str, is_nullable: bool | None = None, is_ruled: bool = True) -> Property:
    kind = draw(st.sampled_from(KINDS))
    words = tuple(draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=2, unique=True))) if kind == "enum" else ()
    nullable = draw(st.booleans()) if is_nullable is None else is_nullable
    is_ruled = is_ruled and draw(st.booleans())
    return Property(
        name, kind, nullable, tuple(sorted(words)), is_ruled and kind == "I32", is_ruled and kind == "String"
    )


@st.composite
def node_types(draw: DrawFn, name: str) -> Type:
    """Draw a node type with no key, a single or a composite one."""
    key = NAMES[: draw(st.integers(0, 2))]
    members = [Property(one, draw(st.sampled_from(["String", "I32", "Date"])), is_nullable=False) for one in key]
    members += [draw(properties(one)) for one in NAMES[2 : draw(st.integers(3, 4))]]
    unique = draw(st.sampled_from([(), ((NAMES[2],),), (tuple(sorted({members[0].name, NAMES[2]})),)]))
    return Type(name, tuple(members), key, unique)


@st.composite
def edge_types(draw: DrawFn, name: str, nodes: list[str]) -> Type:
    ends = draw(st.sampled_from(nodes)), draw(st.sampled_from(nodes))
    least, most = draw(st.sampled_from([(0, None), (0, 1), (0, 2), (1, 2), (1, None), (2, 2)]))
    members = [draw(properties(one)) for one in NAMES[: draw(st.integers(0, 1))]]
    choices: list[tuple[tuple[str, ...], ...]] = [(), (("dst", "src"),)]
    choices += [((members[0].name,),), ((members[0].name, "src"),)] if members else []
    # Edges take no ranges and no checks.
    plain = tuple(replace(one, is_bounded=False, is_checked=False) for one in members)
    key = draw(st.sampled_from(_possible_keys(plain, is_edge=True)))
    return Type(name, plain, key, draw(st.sampled_from(choices)), ends, least, most)


def _possible_keys(members: tuple[Property, ...], is_edge: bool) -> list[tuple[str, ...]]:
    """Return no key, and keys of ends and required properties."""
    fit = [one.name for one in members if not one.is_nullable and one.kind in KEY_KINDS]
    keys: list[tuple[str, ...]] = [(), *((name,) for name in fit)]
    keys += [tuple(fit[:2])] if len(fit) > 1 else []
    return [*keys, ("src", "dst"), *(("src", "dst", name) for name in fit)] if is_edge else keys


@st.composite
def schemas(draw: DrawFn) -> Schema:
    nodes = [draw(node_types(name)) for name in NODE_NAMES[: draw(st.integers(1, 2))]]
    edges = [draw(edge_types(EDGE_NAMES[0], [one.name for one in nodes]))]
    return Schema((*nodes, *edges))


@dataclass(frozen=True, slots=True)
class Change:
    """A next schema, and the code by which it is refused whatever the data is, if it is."""

    schema: Schema
    code: str | None = None


def _put(schema: Schema, old: Type, new: Type) -> Schema:
    return Schema(tuple(new if one is old else one for one in schema.types))


def _with_property(type_: Type, old: Property, new: Property) -> Type:
    return replace(type_, properties=tuple(new if one is old else one for one in type_.properties))


def _unused(names: tuple[str, ...], used: list[str]) -> list[str]:
    return [one for one in names if one not in used]


def _add_property(draw: DrawFn, schema: Schema) -> Change | None:
    type_ = draw(st.sampled_from(schema.types))
    names = _unused(NAMES, [one.name for one in type_.properties])
    if not names:
        return None
    added = draw(properties(draw(st.sampled_from(names)), is_ruled=False))
    if added.kind in DEFAULTS and draw(st.booleans()):
        added = replace(added, default=DEFAULTS[added.kind])
    code = None if added.is_nullable or added.default is not None else "OG-MF-103"
    return Change(_put(schema, type_, replace(type_, properties=(*type_.properties, added))), code)


def _drop_property(draw: DrawFn, schema: Schema) -> Change | None:
    type_ = draw(st.sampled_from(schema.types))
    if not type_.free():
        return None
    gone = draw(st.sampled_from(type_.free()))
    unique = tuple(one for one in type_.unique if gone.name not in one)
    kept = tuple(one for one in type_.properties if one is not gone)
    return Change(_put(schema, type_, replace(type_, properties=kept, unique=unique)))


def _rename_property(draw: DrawFn, schema: Schema) -> Change | None:
    type_ = draw(st.sampled_from(schema.types))
    names = _unused(NAMES, [one.name for one in type_.properties])
    if not names or not type_.properties:
        return None
    old = draw(st.sampled_from(type_.properties))
    name = draw(st.sampled_from(names))

    def renamed(columns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name if one == old.name else one for one in columns)

    new = _with_property(type_, old, replace(old, name=name, former=old.name))
    unique = tuple(renamed(one) for one in type_.unique)
    return Change(_put(schema, type_, replace(new, key=renamed(type_.key), unique=unique)))


def _rename_type(draw: DrawFn, schema: Schema) -> Change | None:
    old = draw(st.sampled_from(schema.types))
    names = _unused(EDGE_NAMES if old.ends else NODE_NAMES, [one.name for one in schema.types])
    if not names:
        return None
    name = draw(st.sampled_from(names))
    types = [replace(one, name=name, former=old.name) if one is old else one for one in schema.types]
    if old.ends:
        return Change(Schema(tuple(types)))
    moved = [
        replace(one, ends=(name if one.ends[0] == old.name else one.ends[0],
                           name if one.ends[1] == old.name else one.ends[1])) if one.ends else one
        for one in types
    ]  # fmt: skip
    return Change(Schema(tuple(moved)))


def _change_words(draw: DrawFn, schema: Schema) -> Change | None:
    """Widen an enum, which is fine, or narrow it, which is not."""
    places = [(type_, one) for type_ in schema.types for one in type_.properties if one.kind == "enum"]
    if not places:
        return None
    type_, old = draw(st.sampled_from(places))
    words = tuple(sorted(draw(st.sets(st.sampled_from(WORDS), min_size=1))))
    code = None if set(old.words) <= set(words) else "OG-MF-106"
    return Change(_put(schema, type_, _with_property(type_, old, replace(old, words=words))), code)


def _change_type(draw: DrawFn, schema: Schema) -> Change | None:
    plain = [
        (type_, one) for type_ in schema.types for one in type_.properties if not (one.is_bounded or one.is_checked)
    ]
    if not plain:
        return None
    type_, old = draw(st.sampled_from(plain))
    kind = draw(st.sampled_from([one for one in ("I64", "F64", "String") if one != old.kind]))
    code = None if (old.kind, kind) in WIDER else "OG-MF-106"
    # A default of another type is refused before anything is compared.
    new = replace(old, kind=kind, words=(), default=None)
    return Change(_put(schema, type_, _with_property(type_, old, new)), code)


def _change_null(draw: DrawFn, schema: Schema) -> Change | None:
    """Make a property optional, or required if no entity is without it."""
    places = [(type_, one) for type_ in schema.types for one in type_.free()]
    if not places:
        return None
    type_, old = draw(st.sampled_from(places))
    return Change(_put(schema, type_, _with_property(type_, old, replace(old, is_nullable=not old.is_nullable))))


def _change_key(draw: DrawFn, schema: Schema) -> Change | None:
    """Take another key, or none."""
    type_ = draw(st.sampled_from(schema.types))
    keys = [one for one in _possible_keys(type_.properties, bool(type_.ends)) if one != type_.key]
    return Change(_put(schema, type_, replace(type_, key=draw(st.sampled_from(keys))))) if keys else None


def _change_ranges(draw: DrawFn, schema: Schema) -> Change | None:
    """Add or drop the range or the check of a property."""
    places = [
        (type_, one) for type_ in schema.nodes for one in type_.properties if one.kind in ("I32", "I64", "String")
    ]
    if not places:
        return None
    type_, old = draw(st.sampled_from(places))
    is_text = old.kind == "String"
    new = replace(old, is_bounded=not is_text and not old.is_bounded, is_checked=is_text and not old.is_checked)
    return Change(_put(schema, type_, _with_property(type_, old, new)))


def _add_rule(draw: DrawFn, schema: Schema) -> Change | None:
    """Add or drop a rule that existing data might break."""
    type_ = draw(st.sampled_from(schema.types))
    if type_.ends:
        bounds: tuple[int, int | None] = (type_.least, 3) if type_.most != 3 else (type_.least, None)
        if draw(st.booleans()):
            bounds = draw(st.sampled_from([(0, None), (0, 1), (1, 1), (1, 2), (2, None)]))
        return Change(_put(schema, type_, replace(type_, least=bounds[0], most=bounds[1])))
    is_dropping: bool = draw(st.booleans())
    if type_.unique and is_dropping:
        return Change(_put(schema, type_, replace(type_, unique=())))
    names = tuple(sorted(one.name for one in type_.properties))
    if names in type_.unique:
        return None
    return Change(_put(schema, type_, replace(type_, unique=(*type_.unique, names))))


def _add_type(draw: DrawFn, schema: Schema) -> Change | None:
    names = _unused((*NODE_NAMES, *EDGE_NAMES), [one.name for one in schema.types])
    if not names:
        return None
    name = draw(st.sampled_from(names))
    if name in EDGE_NAMES:
        return Change(Schema((*schema.types, draw(edge_types(name, [one.name for one in schema.nodes])))))
    return Change(Schema((draw(node_types(name)), *schema.types)))


def _drop_type(draw: DrawFn, schema: Schema) -> Change | None:
    gone = draw(st.sampled_from(schema.types))
    kept = [one for one in schema.types if one is not gone and gone.name not in (one.ends or ())]
    return Change(Schema(tuple(kept))) if any(not one.ends for one in kept) else None


_CHANGES: tuple[Callable[[DrawFn, Schema], Change | None], ...] = (
    _add_property,
    _drop_property,
    _rename_property,
    _rename_type,
    _change_words,
    _change_type,
    _change_null,
    _change_key,
    _change_ranges,
    _add_rule,
    _add_type,
    _drop_type,
)


def changes(schema: Schema) -> SearchStrategy[Change]:
    """Return the ways on from a schema; where one does not fit, the schema stays the same."""

    @st.composite
    def change(draw: DrawFn) -> Change:
        return draw(st.sampled_from(_CHANGES))(draw, schema) or Change(schema)

    return change()
