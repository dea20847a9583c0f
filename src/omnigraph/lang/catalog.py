"""The catalog: an accepted schema with all types, properties and constraints resolved.

Pure values. Made from the identity-bearing schema IR by `lang.schema`; read by the query compiler and every engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar, Final, Literal, Self, TypeAlias

from omnigraph.lang.scalars import FLOATS as FLOATS
from omnigraph.lang.scalars import INTEGERS as INTEGERS
from omnigraph.lang.scalars import NUMBERS as NUMBERS
from omnigraph.lang.scalars import Scalar as Scalar

Kind = Literal["node", "edge"]
KINDS: Final[tuple[Kind, ...]] = ("node", "edge")


class TypeKey(str):
    """A type by its kind and name, as states, receipts and errors write it: `node:Person`.

    The text is the value, so keys sort, hash, pickle and are stored like any text. Only `orjson` needs `str(key)`, and
    only for the members of an object.

    >>> key = TypeKey("edge:Knows")
    >>> key.kind, key.name, key == TypeKey.of("edge", "Knows")
    ('edge', 'Knows', True)
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        kind, _, name = text.partition(":")
        if kind not in KINDS or not name:
            raise ValueError(f"`{text}` is not a type key; expected `node:TYPE` or `edge:TYPE`")
        return super().__new__(cls, text)

    @classmethod
    def of(cls, kind: str, name: str) -> Self:
        return cls(f"{kind}:{name}")

    @property
    def kind(self) -> Kind:
        return "node" if self.startswith("node:") else "edge"

    @property
    def name(self) -> str:
        return self.partition(":")[2]


@lru_cache(maxsize=4_096)
def _table_key(kind: Kind, name: str) -> TypeKey:
    return TypeKey.of(kind, name)


@dataclass(frozen=True, slots=True)
class PropertyType:
    """The type of a property or parameter.

    >>> str(PropertyType(Scalar.STRING, is_list=True, nullable=True)), str(PropertyType(Scalar.VECTOR, dimension=3))
    ('[String]?', 'Vector(3)')
    """

    scalar: Scalar
    is_list: bool = False
    nullable: bool = False
    enum_values: tuple[str, ...] | None = None
    dimension: int | None = None

    @property
    def is_number(self) -> bool:
        return self.scalar in NUMBERS and not self.is_list

    @property
    def is_text(self) -> bool:
        """True if values are single strings, including enum values."""
        return self.scalar is Scalar.STRING and not self.is_list

    @property
    def is_blob(self) -> bool:
        return self.scalar is Scalar.BLOB

    @property
    def is_vector(self) -> bool:
        return self.scalar is Scalar.VECTOR

    @property
    def is_array(self) -> bool:
        """True if a value holds several: lists and vectors."""
        return self.is_list or self.is_vector

    @property
    def item_type(self) -> PropertyType:
        """The type of what a list or a vector holds."""
        return PropertyType(Scalar.F32 if self.is_vector else self.scalar)

    def __str__(self) -> str:
        if self.enum_values is not None:
            base = f"enum({', '.join(self.enum_values)})"
        elif self.is_vector:
            base = f"Vector({self.dimension})"
        else:
            base = self.scalar.value
        return (f"[{base}]" if self.is_list else base) + ("?" if self.nullable else "")


TEXT: Final = PropertyType(Scalar.STRING)


class MergeRule(StrEnum):
    """How a merge resolves a property that both sides changed, by its word in the schema."""

    OURS = "ours"
    THEIRS = "theirs"
    MAX = "max"
    MIN = "min"
    UNION = "union"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Embed:
    """Where the vectors of a Vector property come from."""

    source: str
    model: str | None = None

    def __str__(self) -> str:
        return f"@embed({self.source}{'' if self.model is None else f', model={_quote(self.model)}'})"


# A value as a schema writes it; Dates and DateTimes are text.
Constant: TypeAlias = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Default:
    """The value of a property that a new entity does not mention: a constant, or what a function returns then."""

    kind: Literal["value", "now", "uuid"]
    value: Constant | tuple[Constant, ...] | None = None

    def __str__(self) -> str:
        if self.kind != "value":
            return f"@default({self.kind}())"
        return f"@default({_literal(self.value)})"


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    type: PropertyType
    property_id: int
    description: str | None = None
    embed: Embed | None = None
    merge: MergeRule | None = None
    default: Default | None = None

    def __str__(self) -> str:
        default = "" if self.default is None else f" {self.default}"
        description = "" if self.description is None else f" @description({_quote(self.description)})"
        merge = "" if self.merge is None else f" @merge({self.merge})"
        return f"{self.name}: {self.type}{'' if self.embed is None else f' {self.embed}'}{default}{merge}{description}"


@dataclass(frozen=True, slots=True)
class RangeRule:
    """An inclusive numeric bound; None leaves a side open."""

    property: str
    minimum: float | int | None
    maximum: float | int | None

    def __str__(self) -> str:
        low, high = ("" if bound is None else str(bound) for bound in (self.minimum, self.maximum))
        return f"@range({self.property}, {low}..{high})"


@dataclass(frozen=True, slots=True)
class CheckRule:
    """An unanchored regular expression that a String must match somewhere."""

    property: str
    pattern: str

    def __str__(self) -> str:
        return f"@check({self.property}, {_quote(self.pattern)})"


@dataclass(frozen=True, slots=True)
class Cardinality:
    """How many edges of a type may leave one source; no maximum means any number."""

    minimum: int = 0
    maximum: int | None = None

    def __str__(self) -> str:
        return f"@card({self.minimum}..{'' if self.maximum is None else self.maximum})"


class _StoredType:
    """What node and edge types have in common."""

    __slots__ = ()
    kind: ClassVar[Kind]
    name: str
    properties: Mapping[str, Property]

    @property
    def table_key(self) -> TypeKey:
        return _table_key(self.kind, self.name)

    @property
    def has_blobs(self) -> bool:
        return any(item.type.is_blob for item in self.properties.values())


@dataclass(frozen=True, slots=True)
class NodeType(_StoredType):
    """A node type. `properties` is in name order; `key` is in stable property-id order, empty when keyless."""

    name: str
    type_id: int
    incarnation_id: int
    properties: Mapping[str, Property]
    key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    index: tuple[tuple[str, ...], ...] = ()
    ranges: tuple[RangeRule, ...] = ()
    checks: tuple[CheckRule, ...] = ()
    implements: tuple[str, ...] = ()
    description: str | None = None
    instruction: str | None = None
    merge: MergeRule = MergeRule.FAIL
    kind: ClassVar[Kind] = "node"

    def __str__(self) -> str:
        """Return the declaration of the type as it is written in a schema."""
        interfaces = f" implements {', '.join(self.implements)}" if self.implements else ""
        lines = [*map(str, self.properties.values()), *_constraints(self)]
        return f"node {self.name}{_type_annotations(self)}{interfaces} {render_block(lines)}"

    @property
    def ends(self) -> dict[str, str]:
        """The columns of endpoints with the node types there: none."""
        return {}


@dataclass(frozen=True, slots=True)
class EdgeType(_StoredType):
    """An edge type from one node type to another. `key`, `unique` and `index` may name `src` and `dst`.

    `key` has `src` and `dst` first, then properties in stable property-id order; it is empty when keyless.
    """

    name: str
    type_id: int
    incarnation_id: int
    source: str
    target: str
    properties: Mapping[str, Property]
    cardinality: Cardinality = Cardinality()
    unique: tuple[tuple[str, ...], ...] = ()
    index: tuple[tuple[str, ...], ...] = ()
    description: str | None = None
    instruction: str | None = None
    merge: MergeRule = MergeRule.FAIL
    key: tuple[str, ...] = ()
    kind: ClassVar[Kind] = "edge"

    def __str__(self) -> str:
        """Return the declaration of the type as it is written in a schema."""
        lines = [*map(str, self.properties.values()), *_constraints(self)]
        count = "" if self.cardinality == Cardinality() else f" {self.cardinality}"
        ends = f"{self.source} -> {self.target}{count}{_type_annotations(self)}"
        return f"edge {self.name}: {ends}" + (f" {render_block(lines)}" if lines else "")

    @property
    def word(self) -> str:
        """The name as traversals write it, with a lower-case first letter."""
        return self.name[0].lower() + self.name[1:]

    @property
    def ends(self) -> dict[str, str]:
        """The columns of the endpoints with the node types there."""
        return {"src": self.source, "dst": self.target}


Type: TypeAlias = NodeType | EdgeType


def render_block(lines: Iterable[str]) -> str:
    return "{\n" + "".join(f"  {line}\n" for line in lines) + "}"


def _type_annotations(type_: Type) -> str:
    texts = {"description": type_.description, "instruction": type_.instruction}
    merge = "" if type_.merge is MergeRule.FAIL else f" @merge({type_.merge})"
    return merge + "".join(f" @{word}({_quote(text)})" for word, text in texts.items() if text is not None)


def _constraints(type_: Type) -> Iterator[str]:
    if type_.key:
        yield f"@key({', '.join(type_.key)})"
    yield from (f"@unique({', '.join(names)})" for names in type_.unique)
    yield from (f"@index({', '.join(names)})" for names in type_.index)
    if isinstance(type_, NodeType):
        yield from map(str, (*type_.ranges, *type_.checks))


def _literal(value: Constant | tuple[Constant, ...] | None) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    # Schemas write numbers without exponents.
    return _quote(value) if isinstance(value, str) else format(Decimal(repr(value)), "f")


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@dataclass(frozen=True)
class Catalog:
    """All types of a graph. `ir_hash` names the exact schema, identities included."""

    nodes: Mapping[str, NodeType]
    edges: Mapping[str, EdgeType]
    interfaces: tuple[str, ...]
    ir_hash: str
    _edge_words: dict[str, EdgeType] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._edge_words.update({name.lower(): edge for name, edge in self.edges.items()})

    @property
    def types(self) -> tuple[Type, ...]:
        """All types, nodes first."""
        return (*self.nodes.values(), *self.edges.values())

    def type_of(self, table_key: str) -> Type:
        """Return a type by the key of its table."""
        kind, _, name = table_key.partition(":")
        return self.nodes[name] if kind == "node" else self.edges[name]

    def edges_at(self, node_type: str) -> tuple[str, ...]:
        """Return the edge types that start or end at a node type, in name order."""
        edges = self.edges.values()
        return tuple(sorted(edge.name for edge in edges if node_type in (edge.source, edge.target)))

    def edge_by_word(self, word: str) -> EdgeType | None:
        """Find an edge by the name in a traversal, which may be in any case."""
        return self._edge_words.get(word.lower())
