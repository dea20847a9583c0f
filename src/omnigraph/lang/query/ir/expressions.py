"""Expressions of the IR: references, constants, calls and conditions, each with its type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeAlias

from omnigraph.lang.catalog import TEXT, PropertyType, Scalar

BOOL: Final = PropertyType(Scalar.BOOL)
TRUTH: Final = replace(BOOL, nullable=True)
I64: Final = PropertyType(Scalar.I64)
F64: Final = PropertyType(Scalar.F64)
SCORE: Final = replace(F64, nullable=True)
ID: Final = TEXT
NOW: Final = PropertyType(Scalar.DATETIME)
LiteralValue: TypeAlias = str | int | float | bool | tuple["LiteralValue", ...] | None


class CompareOp(StrEnum):
    EQ = "="
    NE = "!="
    GT = ">"
    LT = "<"
    GE = ">="
    LE = "<="
    CONTAINS = "contains"
    STARTS_WITH = "starts_with"
    ENDS_WITH = "ends_with"
    MATCHES = "matches"
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
    """A constant. Date and DateTime hold their text, lists a tuple, null None."""

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
    """A property of a bound node or edge, or its id or an end of it; nullable also when the variable may be missing."""

    variable: str
    owner_kind: str
    owner: str
    property: str
    type: PropertyType
    # A node that declares `id: String @key` has it as a property and as a system field, which are the same.
    is_field: bool = field(default=False, compare=False)

    def written(self) -> str:
        """Return the name as a query has it."""
        return f"@{self.property}" if self.is_field else self.property


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
class CountRef(HopsRef):
    """How many solutions a block has beside a row, as a `CountJoin` has counted them; 0 or 1 if it asks whether."""


@dataclass(frozen=True, slots=True)
class TypeRef:
    """The name of the type of a bound node or edge."""

    variable: str
    owner_kind: str
    owner: str
    type: PropertyType = ID


@dataclass(frozen=True, slots=True)
class PathRef:
    """A function of a bound path: its `nodes` and `edges` as lists of ids, its `length` in hops, or its `cost`."""

    variable: str
    function: str
    space: str
    type: PropertyType


@dataclass(frozen=True, slots=True)
class ValueRef:
    """A value that the source of a read has bound: a column of a `with`, or of a union."""

    variable: str
    type: PropertyType


@dataclass(frozen=True, slots=True)
class VariableRef:
    """A bound node, edge or path as it is, which a `with` passes on; equal only to itself."""

    variable: str
    kind: str
    type_name: str
    type: PropertyType = ID


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
    """Reciprocal rank fusion of the best `window` of each of two rankings of one variable; largest is best."""

    first: Nearest | Bm25
    second: Nearest | Bm25
    k: Expr
    window: Expr
    type: PropertyType = SCORE


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate; `count` without an argument counts rows. `fraction` is that of a percentile."""

    function: str
    argument: Expr | None
    type: PropertyType
    is_distinct: bool = False
    fraction: float | None = None


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
    """Membership in a constant list: unknown if the value is not there and the list has a null."""

    operand: Expr
    collection: Literal | ParameterRef
    type: PropertyType = TRUTH


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition; of unknown, unknown."""

    condition: Expr
    type: PropertyType = TRUTH


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator of `lang.query.functions`, by name, or `cast` to the type of the result."""

    function: str
    arguments: tuple[Expr, ...]
    type: PropertyType


@dataclass(frozen=True, slots=True)
class Quantifier:
    """`any` or `all`: whether a condition holds for items of a list; it reads the item as the column `item`."""

    function: str
    item: str
    collection: Expr
    condition: Expr
    type: PropertyType = TRUTH


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch whose condition is true; values are evaluated only for rows that take them."""

    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr
    type: PropertyType


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
    Literal | ParameterRef | Now | PropertyRef | NodeRef | HopsRef | TypeRef | PathRef | ValueRef | VariableRef
    | ColumnRef | TextMatch | Nearest | Bm25 | Rrf | Aggregate | Compare | IsNull | In | Not | And | Or | Call
    | Quantifier | Case
)  # fmt: skip


def children_of(expression: Expr) -> tuple[Expr, ...]:
    """Return the expressions that an expression is directly made of."""
    match expression:
        case And(conditions=parts) | Or(conditions=parts) | Call(arguments=parts):
            return parts
        case Compare(left=left, right=right):
            return (left, right)
        case IsNull(operand=operand):
            return (operand,)
        case Not(condition=condition):
            return (condition,)
        case In(operand=operand, collection=collection):
            return (operand, collection)
        case Quantifier(collection=values, condition=condition):
            return (values, condition)
        case Case(branches=branches, otherwise=otherwise):
            return (*(part for branch in branches for part in branch), otherwise)
        case TextMatch(field=field, query=query, max_edits=edits):
            return (field, query) if edits is None else (field, query, edits)
        case Nearest(field=field, query=query) | Bm25(field=field, query=query):
            return (field, query)
        case Rrf(first=first, second=second, k=k, window=window):
            return (first, second, k, window)
        case Aggregate(argument=argument) if argument is not None:
            return (argument,)
    return ()


def variables_read(expression: Expr) -> frozenset[str]:
    """Return the variables that an expression reads."""
    variable: str | None = getattr(expression, "variable", None)
    read = frozenset(() if variable is None else (variable,))
    return read.union(*(variables_read(part) for part in children_of(expression)))


def has_aggregate(expression: Expr) -> bool:
    """Return True if an expression is or holds an aggregate."""
    return isinstance(expression, Aggregate) or any(has_aggregate(part) for part in children_of(expression))


def substitute(expression: Expr, columns: Mapping[Expr, Expr]) -> Expr:
    """Return an expression with parts replaced, such as by the columns that hold their values."""
    if expression in columns:
        return columns[expression]

    def inner(part: Expr) -> Expr:
        return substitute(part, columns)

    match expression:
        case And() | Or():
            return replace(expression, conditions=tuple(map(inner, expression.conditions)))
        case Call():
            return replace(expression, arguments=tuple(map(inner, expression.arguments)))
        case Compare():
            return replace(expression, left=inner(expression.left), right=inner(expression.right))
        case IsNull() | In():
            return replace(expression, operand=inner(expression.operand))
        case Not():
            return replace(expression, condition=inner(expression.condition))
        case Quantifier():
            return replace(expression, collection=inner(expression.collection), condition=inner(expression.condition))
        case Case(branches=branches, otherwise=otherwise):
            pairs = tuple((inner(condition), inner(value)) for condition, value in branches)
            return replace(expression, branches=pairs, otherwise=inner(otherwise))
    return expression


def negate(condition: Expr) -> Expr:
    """Return the opposite of a condition, with `not` on comparisons and values only.

    Three-valued logic has De Morgan's laws: the opposite is true exactly where the condition is false.
    """
    match condition:
        case Not(condition=inner):
            return inner
        case And(conditions=(Not(condition=TextMatch() as match), *_)) if condition == negate(match):
            # What is unknown is neither true nor false, so the guards must not become ways to be true.
            return match
        case And(conditions=parts):
            return Or(tuple(negate(part) for part in parts))
        case Or(conditions=parts):
            return And(tuple(negate(part) for part in parts))
        case IsNull(operand=operand, negated=negated):
            return IsNull(operand, not negated)
        case TextMatch(field=field, query=query):
            # A search says only what matches; where the text is null, not even the opposite is known.
            guards = tuple(IsNull(part, negated=True) for part in (field, query) if part.type and part.type.nullable)
            return And((Not(condition), *guards)) if guards else Not(condition)
    return Not(condition)
