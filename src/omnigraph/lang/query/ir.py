"""The typed intermediate representation (IR) of a query: expressions and operators with their types.

Pure values. Engines run it without asking the catalog; `lower` makes it and `plan` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from omnigraph.lang.catalog import PropertyType, Scalar

BOOL: Final = PropertyType(Scalar.BOOL)
TRUTH: Final = PropertyType(Scalar.BOOL, nullable=True)
I64: Final = PropertyType(Scalar.I64)
SCORE: Final = PropertyType(Scalar.F64, nullable=True)
ID: Final = PropertyType(Scalar.STRING)
NOW: Final = PropertyType(Scalar.DATETIME)
LiteralValue: TypeAlias = str | int | float | bool | tuple["LiteralValue", ...]


class Direction(StrEnum):
    OUT = "out"
    IN = "in"
    BOTH = "both"


class CompareOp(StrEnum):
    EQ = "="
    NE = "!="
    GT = ">"
    LT = "<"
    GE = ">="
    LE = "<="
    CONTAINS = "contains"
    STARTS_WITH = "starts_with"
    STRING_CONTAINS = "string_contains"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A declared parameter; `kind` is its word in tool schemas, `item_kind` that of the members of a list.

    `words` are those of the enum properties that it is compared with; None when it is used in other ways, too.
    """

    name: str
    type: PropertyType
    kind: str
    item_kind: str | None = None
    words: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. Date and DateTime hold their text, lists a tuple."""

    value: LiteralValue
    type: PropertyType


@dataclass(frozen=True, slots=True)
class ParameterRef:
    name: str
    type: PropertyType


@dataclass(frozen=True, slots=True)
class Now:
    """The timestamp of the query, the same everywhere in it."""

    type: PropertyType = NOW


@dataclass(frozen=True, slots=True)
class PropertyRef:
    """A property of a bound node or edge; nullable also when the variable may be missing."""

    variable: str
    owner_kind: str
    owner: str
    property: str
    type: PropertyType


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A bound node, as its id."""

    variable: str
    node_type: str
    type: PropertyType = ID


@dataclass(frozen=True, slots=True)
class HopsRef:
    """The number of hops of a traversal."""

    variable: str
    type: PropertyType = I64


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A returned column by its alias; without a type when no column has that name, which only running reports."""

    name: str
    type: PropertyType | None


@dataclass(frozen=True, slots=True)
class TextMatch:
    """A text predicate: `search`, `match_text` or `fuzzy`."""

    function: str
    field: PropertyRef
    query: Expr
    max_edits: Expr | None = None
    type: PropertyType = TRUTH


@dataclass(frozen=True, slots=True)
class Nearest:
    """Euclidean distance to a vector, or to the embedding of a text; smallest is best."""

    field: PropertyRef
    query: Expr
    model: str | None
    type: PropertyType = SCORE


@dataclass(frozen=True, slots=True)
class Bm25:
    """Text relevance; largest is best."""

    field: PropertyRef
    query: Expr
    type: PropertyType = SCORE


@dataclass(frozen=True, slots=True)
class Rrf:
    """Reciprocal rank fusion of two rankings of one variable; largest is best."""

    first: Nearest | Bm25
    second: Nearest | Bm25
    k: Expr
    type: PropertyType = SCORE


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate; `count` without an argument counts rows."""

    function: str
    argument: Expr | None
    type: PropertyType


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison: unknown when a side is null. Numbers compare by exact value, independent of their widths."""

    op: CompareOp
    left: Expr
    right: Expr
    type: PropertyType = TRUTH


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Expr
    negated: bool
    type: PropertyType = BOOL


@dataclass(frozen=True, slots=True)
class In:
    """Membership of a value in a list literal or list parameter."""

    operand: Expr
    collection: Literal | ParameterRef
    type: PropertyType = TRUTH


@dataclass(frozen=True, slots=True)
class And:
    conditions: tuple[Expr, ...]
    type: PropertyType = TRUTH


@dataclass(frozen=True, slots=True)
class Or:
    conditions: tuple[Expr, ...]
    type: PropertyType = TRUTH


Rank: TypeAlias = Nearest | Bm25 | Rrf
Expr: TypeAlias = (
    Literal | ParameterRef | Now | PropertyRef | NodeRef | HopsRef | ColumnRef | TextMatch | Nearest | Bm25 | Rrf
    | Aggregate | Compare | IsNull | In | And | Or
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeScan:
    """All nodes of a type that pass the filters, crossed with the rows so far."""

    variable: str
    node_type: str
    filters: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Expand:
    """Walk an edge from a bound variable. With `edge_variable`, one row per stored edge, else per distinct node.

    A walk that `is_backwards` goes from the right end as written to the left one, and finds the same pairs.
    """

    source: str
    source_type: str
    target: str
    target_type: str
    edge: str
    direction: Direction
    minimum: int
    maximum: int
    filters: tuple[Expr, ...] = ()
    edge_variable: str | None = None
    hops_variable: str | None = None
    is_backwards: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep the rows for which the condition is true; unknown is not true."""

    condition: Expr


@dataclass(frozen=True, slots=True)
class AntiJoin:
    """Keep the rows for which the inner pipeline, started from that row, has no result."""

    inner: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """A variable that a pipeline binds: a node or edge of a type, or a number of hops."""

    variable: str
    kind: str
    type_name: str | None


@dataclass(frozen=True, slots=True)
class OptionalJoin:
    """Replace a row by its inner solutions, or keep it with `bindings` null when there are none."""

    inner: tuple[Operator, ...]
    bindings: tuple[Bound, ...]


Operator: TypeAlias = NodeScan | Expand | Filter | AntiJoin | OptionalJoin


@dataclass(frozen=True, slots=True)
class Column:
    """A returned column under the name results carry."""

    name: str
    expression: Expr
    type: PropertyType


@dataclass(frozen=True, slots=True)
class OrderKey:
    expression: Expr
    descending: bool


@dataclass(frozen=True, slots=True)
class ReadIR:
    """A read. A `rank` replaces the order keys; `is_grouped` is True if any column is an aggregate."""

    name: str
    params: tuple[Parameter, ...]
    pipeline: tuple[Operator, ...]
    columns: tuple[Column, ...]
    is_grouped: bool
    is_distinct: bool
    rank: Rank | None
    order: tuple[OrderKey, ...]
    skip: int | ParameterRef | None
    limit: int | ParameterRef | None


@dataclass(frozen=True, slots=True)
class Assignment:
    """A value for a column; edge ends are the columns `src` and `dst`."""

    column: str
    value: Expr
    type: PropertyType


@dataclass(frozen=True, slots=True)
class Predicate:
    column: str
    op: CompareOp
    value: Expr
    type: PropertyType


@dataclass(frozen=True, slots=True)
class Insert:
    kind: str
    type_name: str
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class Update:
    type_name: str
    assignments: tuple[Assignment, ...]
    predicate: Predicate


@dataclass(frozen=True, slots=True)
class Delete:
    """A delete; deleting a node also deletes its edges of the types in `cascades`."""

    kind: str
    type_name: str
    predicate: Predicate
    cascades: tuple[str, ...]


Statement: TypeAlias = Insert | Update | Delete


@dataclass(frozen=True, slots=True)
class MutationIR:
    name: str
    params: tuple[Parameter, ...]
    statements: tuple[Statement, ...]


QueryIR: TypeAlias = ReadIR | MutationIR
