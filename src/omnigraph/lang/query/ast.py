"""The syntax tree of `.gq`, with the position of every part, and the table of functions.

Pure values; nothing here knows the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.diagnostic import Span

AGGREGATES: Final = frozenset({"count", "sum", "avg", "min", "max"})
RANKS: Final = frozenset({"nearest", "bm25", "rrf"})
TEXT_PREDICATES: Final = frozenset({"search", "fuzzy", "match_text"})

# Function -> the fewest and the most arguments it takes.
FUNCTIONS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "now": (0, 0),
        "date": (1, 1),
        "datetime": (1, 1),
        "count": (1, 1),
        "sum": (1, 1),
        "avg": (1, 1),
        "min": (1, 1),
        "max": (1, 1),
        "nearest": (2, 2),
        "bm25": (2, 2),
        "rrf": (2, 3),
        "search": (2, 2),
        "match_text": (2, 2),
        "fuzzy": (2, 3),
    }
)


@dataclass(frozen=True, slots=True)
class Name:
    """A name and its position; variables without their `$`."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Literal:
    """A single value. Date and DateTime keep their text, which is read only when the query runs."""

    value: str | int | float | bool
    scalar: Scalar
    span: Span


@dataclass(frozen=True, slots=True)
class ListLiteral:
    items: tuple[Literal | ListLiteral, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class PropertyAccess:
    variable: Name
    property: Name
    span: Span


@dataclass(frozen=True, slots=True)
class Alias:
    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Call:
    """A function call; `count(*)` is a call of `count` without arguments."""

    function: str
    arguments: tuple[Expression, ...]
    span: Span


Expression: TypeAlias = Literal | ListLiteral | Variable | PropertyAccess | Alias | Call
Value: TypeAlias = Literal | ListLiteral | Variable | Call


@dataclass(frozen=True, slots=True)
class Comparison:
    left: Expression
    operator: Name
    right: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class NullTest:
    operand: Expression
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Membership:
    operand: Expression
    collection: ListLiteral | Variable
    span: Span


@dataclass(frozen=True, slots=True)
class TextPredicate:
    call: Call
    span: Span


@dataclass(frozen=True, slots=True)
class AnyOf:
    conditions: tuple[Condition, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class AllOf:
    conditions: tuple[Condition, ...]
    span: Span


Condition: TypeAlias = Comparison | NullTest | Membership | TextPredicate | AnyOf | AllOf


@dataclass(frozen=True, slots=True)
class Match:
    """One `name: value` of a binding, an insert or an update."""

    property: Name
    value: Value


@dataclass(frozen=True, slots=True)
class Binding:
    variable: Name
    type: Name
    matches: tuple[Match, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Hops:
    minimum: int
    maximum: int | None
    span: Span


@dataclass(frozen=True, slots=True)
class Traversal:
    left: Name
    edge: Name
    right: Name
    undirected: bool
    edge_variable: Name | None
    hops: Hops | None
    hops_variable: Name | None
    span: Span


@dataclass(frozen=True, slots=True)
class Negation:
    clauses: tuple[Clause, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Optional:
    clauses: tuple[Clause, ...]
    span: Span


Clause: TypeAlias = Binding | Traversal | Negation | Optional | Condition


@dataclass(frozen=True, slots=True)
class Projection:
    expression: Expression
    alias: Name | None


@dataclass(frozen=True, slots=True)
class Ordering:
    expression: Expression
    direction: Name | None


@dataclass(frozen=True, slots=True)
class Bound:
    """The operand of `skip` or `limit`: a number, or the parameter that will hold it."""

    value: int | Variable
    span: Span


@dataclass(frozen=True, slots=True)
class Read:
    clauses: tuple[Clause, ...]
    distinct: bool
    projections: tuple[Projection, ...]
    order: tuple[Ordering, ...]
    skip: Bound | None
    limit: Bound | None


@dataclass(frozen=True, slots=True)
class Predicate:
    property: Name
    operator: Name
    value: Value


@dataclass(frozen=True, slots=True)
class Insert:
    type: Name
    assignments: tuple[Match, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Update:
    type: Name
    assignments: tuple[Match, ...]
    predicate: Predicate
    span: Span


@dataclass(frozen=True, slots=True)
class Delete:
    type: Name
    predicate: Predicate
    span: Span


Statement: TypeAlias = Insert | Update | Delete


@dataclass(frozen=True, slots=True)
class Mutation:
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Param:
    name: Name
    type: PropertyType
    type_span: Span


@dataclass(frozen=True, slots=True)
class Query:
    name: Name
    params: tuple[Param, ...]
    description: str | None
    instruction: str | None
    body: Read | Mutation
