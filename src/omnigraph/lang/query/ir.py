"""The typed intermediate representation (IR) of a query: expressions and operators with their types.

Pure values. Engines run it without asking the catalog; `lower` makes it and `plan` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

from omnigraph.lang.catalog import PropertyType, Scalar

BOOL: Final = PropertyType(Scalar.BOOL)
TRUTH: Final = PropertyType(Scalar.BOOL, nullable=True)
I64: Final = PropertyType(Scalar.I64)
SCORE: Final = PropertyType(Scalar.F64, nullable=True)
ID: Final = PropertyType(Scalar.STRING)
NOW: Final = PropertyType(Scalar.DATETIME)
LiteralValue: TypeAlias = str | int | float | bool | tuple["LiteralValue", ...] | None


class Direction(StrEnum):
    OUT = "out"
    IN = "in"
    BOTH = "both"


REVERSED: Final = {Direction.OUT: Direction.IN, Direction.IN: Direction.OUT, Direction.BOTH: Direction.BOTH}


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


HopBound: TypeAlias = int | ParameterRef


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
    """Reciprocal rank fusion of two rankings of one variable; largest is best."""

    first: Nearest | Bm25
    second: Nearest | Bm25
    k: Expr
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
        case Rrf(first=first, second=second, k=k):
            return (first, second, k)
        case Aggregate(argument=argument) if argument is not None:
            return (argument,)
    return ()


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


def join_types(names: Iterable[str]) -> str:
    """Return the name of the union of some types, which may be unions themselves; engines resolve it by `split_type`.

    >>> join_types(["Post", "Comment|Post"]), split_type("Comment|Post")
    ('Comment|Post', ('Comment', 'Post'))
    """
    return "|".join(sorted({member for name in names for member in split_type(name)}))


def split_type(name: str) -> tuple[str, ...]:
    """Return the types of a union, in name order; a single type is a union of itself."""
    return tuple(name.split("|"))


def is_union(name: str) -> bool:
    return "|" in name


@dataclass(frozen=True, slots=True)
class Leg:
    """One of the edge types of a walk, from `source` to `target` as stored; the direction is that of the walk."""

    edge: str
    direction: Direction
    source: str
    target: str

    def reversed(self) -> Leg:
        return replace(self, direction=REVERSED[self.direction])

    @property
    def ends(self) -> tuple[tuple[str, str], ...]:
        """The pairs of types that it leads from and to."""
        out, back = (self.source, self.target), (self.target, self.source)
        if self.direction is Direction.BOTH:
            return (out,) if self.source == self.target else (out, back)
        return (out,) if self.direction is Direction.OUT else (back,)


def walk_space(source_type: str, legs: Iterable[Leg]) -> str:
    """Return the union of the types that a walk of several hops may visit."""
    return join_types([source_type, *(name for leg in legs for name in (leg.source, leg.target))])


@dataclass(frozen=True, slots=True)
class Path:
    """The paths that a walk binds: those that tie for the shortest (`is_all`), or the `count` shortest of each pair.

    Shortest means fewest hops, or least total `weight`, a property of the edges. `end` is the bound variable at which
    paths must end, as a filter behind the walk says, too.
    """

    variable: str
    is_all: bool
    count: HopBound
    weight: str | None
    end: str | None = None


@dataclass(frozen=True, slots=True)
class NodeScan:
    """All nodes of a type that pass the filters, crossed with the rows so far."""

    variable: str
    node_type: str
    filters: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Expand:
    """Walk an edge from a bound variable. With `edge_variable`, one row per stored edge, else per distinct node.

    A walk that `is_backwards` goes from the right end as written to the left one, and finds the same pairs. Without a
    `maximum` it goes as far as it leads. A walk over several edge types, or between ends of several types, has `legs`;
    `edge` is then the union of their names.
    """

    source: str
    source_type: str
    target: str
    target_type: str
    edge: str
    direction: Direction
    minimum: HopBound
    maximum: HopBound | None
    filters: tuple[Expr, ...] = ()
    edge_variable: str | None = None
    hops_variable: str | None = None
    is_backwards: bool = False
    legs: tuple[Leg, ...] = ()
    path: Path | None = None

    @property
    def is_single(self) -> bool:
        return self.minimum == self.maximum == 1 and self.path is None


@dataclass(frozen=True, slots=True)
class PathNodes:
    """Each node of a bound path, one row each."""

    path: str
    variable: str
    node_type: str
    filters: tuple[Expr, ...] = ()


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


Operator: TypeAlias = NodeScan | Expand | PathNodes | Filter | AntiJoin | OptionalJoin


@dataclass(frozen=True, slots=True)
class Column:
    """A column under the name results carry; a hidden one is only read by `having`."""

    name: str
    expression: Expr
    type: PropertyType
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class OrderKey:
    expression: Expr
    descending: bool


@dataclass(frozen=True, slots=True)
class ReadIR:
    """A read. A `rank` replaces the order keys; `is_grouped` is True if any column is an aggregate.

    `having` filters groups and reads columns; those that are there for it alone are hidden, with names that no source
    can spell. Of rows that are equal in `distinct_on`, the first in order is returned. The pattern starts from the rows
    of `source`, whose columns are bound as variables: entities that it passes on, and values.
    """

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
    having: Expr | None = None
    distinct_on: tuple[Expr, ...] = ()
    source: ReadIR | Union | None = None

    @property
    def returned(self) -> tuple[Column, ...]:
        """The columns of the result."""
        return tuple(column for column in self.columns if not column.is_hidden)

    @property
    def is_ordered(self) -> bool:
        """True if rows have an order: by keys, or for pages (`skip`) by what breaks ties."""
        return bool(self.order) or (self.skip is not None and self.rank is None)


@dataclass(frozen=True, slots=True)
class Union:
    """The rows of several reads, one after the other, as columns of common types."""

    parts: tuple[ReadIR, ...]
    columns: tuple[Column, ...]

    @property
    def returned(self) -> tuple[Column, ...]:
        return self.columns


def reads_of(read: ReadIR) -> Iterator[ReadIR]:
    """Yield a read and all reads that it starts from, the innermost first."""
    if isinstance(read.source, ReadIR):
        yield from reads_of(read.source)
    elif read.source is not None:
        for part in read.source.parts:
            yield from reads_of(part)
    yield read


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


class Verb(StrEnum):
    """How an insert treats an entity that exists: replace it, refuse, or keep the properties that are not named."""

    INSERT = "insert"
    CREATE = "create"
    UPSERT = "upsert"


@dataclass(frozen=True, slots=True)
class Insert:
    kind: str
    type_name: str
    assignments: tuple[Assignment, ...]
    verb: Verb = Verb.INSERT


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


@dataclass(frozen=True, slots=True)
class InsertMatched:
    """An insert for each row of a read, whose columns have the names of the stored columns."""

    kind: str
    type_name: str
    verb: Verb
    read: ReadIR
    types: tuple[PropertyType, ...]


@dataclass(frozen=True, slots=True)
class UpdateMatched:
    """An update of the entities whose ids a read returns in its first column; the others are the new values."""

    kind: str
    type_name: str
    read: ReadIR
    types: tuple[PropertyType, ...]


@dataclass(frozen=True, slots=True)
class DeleteMatched:
    """A delete of the entities whose ids a read returns, with the edges of deleted nodes."""

    kind: str
    type_name: str
    read: ReadIR
    cascades: tuple[str, ...]


Matched: TypeAlias = InsertMatched | UpdateMatched | DeleteMatched
Statement: TypeAlias = Insert | Update | Delete | Matched
MATCHED_ID: Final = "~id"


@dataclass(frozen=True, slots=True)
class MutationIR:
    name: str
    params: tuple[Parameter, ...]
    statements: tuple[Statement, ...]


QueryIR: TypeAlias = ReadIR | MutationIR
