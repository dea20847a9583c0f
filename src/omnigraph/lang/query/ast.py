"""The syntax tree of `.gq`, with the position of every part.

Pure values; nothing here knows the schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.diagnostic import Span

# The name of a query that is written without one.
UNNAMED: Final = "unnamed"
# What every node or edge has besides its properties. They stand where a property may, and no property has such a name.
SYSTEM_FIELDS: Final = ("@id", "@type", "@src", "@dst")


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
    """`$v.name`, of a property or of a system field."""

    variable: Name
    property: Name
    span: Span


@dataclass(frozen=True, slots=True)
class Alias:
    """A bare name: a column, or in a statement over a type a property or a system field of it."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function or of an operator such as `+`; `count(*)` is a call of `count` without arguments."""

    function: str
    arguments: tuple[Expression, ...]
    span: Span
    is_distinct: bool = False


@dataclass(frozen=True, slots=True)
class Conversion:
    """`cast(operand as type)`."""

    operand: Expression
    type: PropertyType
    span: Span


@dataclass(frozen=True, slots=True)
class Quantifier:
    """`any($item in collection where condition)`, or `all`."""

    function: str
    item: Name
    collection: Expression
    condition: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class Subquery:
    """`exists { … }`, whether a pattern matches beside a row, or `count { … }`, in how many ways."""

    word: str
    clauses: tuple[Clause, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Element:
    """`list[position]`."""

    collection: Expression
    position: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class Case:
    """A branch is `when condition then value`."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None
    span: Span


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
    collection: Expression
    span: Span
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Inverse:
    """`not condition`."""

    condition: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class AnyOf:
    conditions: tuple[Expression, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class AllOf:
    conditions: tuple[Expression, ...]
    span: Span


Expression: TypeAlias = (
    Literal | ListLiteral | Variable | PropertyAccess | Alias | Call | Conversion | Quantifier | Element | Case
    | Comparison | NullTest | Membership | Inverse | AnyOf | AllOf | Subquery
)  # fmt: skip
Value: TypeAlias = Literal | ListLiteral | Variable | Call


def parts_of(expression: Expression) -> Iterator[Expression]:
    """Yield the expressions that an expression is directly made of."""
    match expression:
        case Call(arguments=parts) | AnyOf(conditions=parts) | AllOf(conditions=parts):
            yield from parts
        case Conversion(operand=operand) | NullTest(operand=operand):
            yield operand
        case Comparison(left=left, right=right):
            yield from (left, right)
        case Element(collection=collection, position=position):
            yield from (collection, position)
        case Membership(operand=operand, collection=collection):
            yield from (operand, collection)
        case Quantifier(collection=collection, condition=condition):
            yield from (collection, condition)
        case Inverse(condition=condition):
            yield condition
        case Case(branches=branches, otherwise=otherwise):
            for branch in branches:
                yield from branch
            if otherwise is not None:
                yield otherwise
        case Subquery(clauses=clauses):
            yield from expressions_in(clauses)


def expressions_in(clauses: Iterable[Clause]) -> Iterator[Expression]:
    """Yield the expressions among some clauses, and in the blocks among them."""
    for clause in clauses:
        if isinstance(clause, Negation | Optional):
            yield from expressions_in(clause.clauses)
        elif isinstance(clause, Unwind):
            yield clause.collection
        elif not isinstance(clause, Binding | Traversal | Path):
            yield clause


def names_bound_in(clauses: Iterable[Clause]) -> Iterator[str]:
    """Yield the variables that the bindings and walks among some clauses name, and those in the blocks among them."""
    for clause in clauses:
        if isinstance(clause, Negation | Optional):
            yield from names_bound_in(clause.clauses)
        elif isinstance(clause, Path):
            yield from (clause.variable.text, *clause.traversal.names)
        elif isinstance(clause, Traversal):
            yield from clause.names
        elif isinstance(clause, Binding | Unwind) and clause.variable.text != "_":
            yield clause.variable.text


def walk_expression(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and everything in it, however deep, in written order."""
    yield expression
    for part in parts_of(expression):
        yield from walk_expression(part)


@dataclass(frozen=True, slots=True)
class Match:
    """One `name: value` of a binding, an insert or an update."""

    property: Name
    value: Value


@dataclass(frozen=True, slots=True)
class Binding:
    """A node pattern; several `types` are alternatives."""

    variable: Name
    types: tuple[Name, ...]
    matches: tuple[Match, ...]
    span: Span

    @property
    def type(self) -> Name:
        return self.types[0]


@dataclass(frozen=True, slots=True)
class Hops:
    """Hop bounds: numbers or the parameters that will hold them; no maximum means an open range."""

    minimum: int | Variable
    maximum: int | Variable | None
    span: Span


@dataclass(frozen=True, slots=True)
class Traversal:
    """A traversal; several `edges` are alternatives, and the edge `_` is any edge."""

    left: Name
    edges: tuple[Name, ...]
    right: Name
    undirected: bool
    edge_variable: Name | None
    hops: Hops | None
    hops_variable: Name | None
    span: Span

    @property
    def edge(self) -> Name:
        return self.edges[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The variables that have a name."""
        written = (self.left, self.right, self.edge_variable, self.hops_variable)
        return tuple(name.text for name in written if name is not None and name.text != "_")


@dataclass(frozen=True, slots=True)
class Path:
    """A path of a traversal: all shortest ones, or the `count` shortest, by hops or by a property of the edges."""

    variable: Name
    is_all: bool
    count: int | Variable
    weight: Name | None
    traversal: Traversal
    span: Span


@dataclass(frozen=True, slots=True)
class Negation:
    clauses: tuple[Clause, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Optional:
    clauses: tuple[Clause, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Unwind:
    """`unwind list as $element`: each element of a list, a row each."""

    collection: Expression
    variable: Name
    span: Span


Clause: TypeAlias = Binding | Traversal | Path | Unwind | Negation | Optional | Expression


@dataclass(frozen=True, slots=True)
class Projection:
    """A column, or a variable that a `with` binds; an alias `is_variable` if it is written with `$`."""

    expression: Expression
    alias: Name | None
    is_variable: bool = False


@dataclass(frozen=True, slots=True)
class EntityProjection:
    """Several properties of a variable, each a column: `$v { a, b }`, or all of them: `$v.*`."""

    variable: Name
    properties: tuple[Name, ...] | None
    span: Span


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
class LimitPer:
    """`limit n per { key, … }`: of the rows that are equal in the keys, the first in order."""

    count: Bound
    keys: tuple[Expression, ...]

    @property
    def span(self) -> Span:
        return self.count.span


@dataclass(frozen=True, slots=True)
class Read:
    """A read; `distinct_on` are the keys of which the first row each is returned.

    `stages` are what stands before each `with`, in written order: a pattern, and what the `with` makes of its rows.
    """

    clauses: tuple[Clause, ...]
    distinct: bool
    distinct_on: tuple[Expression, ...]
    projections: tuple[Projection | EntityProjection, ...]
    having: Expression | None
    order: tuple[Ordering, ...]
    skip: Bound | None
    limit: Bound | None
    stages: tuple[Read, ...] = ()
    limit_per: LimitPer | None = None


@dataclass(frozen=True, slots=True)
class Union:
    """Several reads one after the other; equal rows once, unless it `is_all`. The order is that of the whole."""

    parts: tuple[Read, ...]
    is_all: bool
    order: tuple[Ordering, ...]
    skip: Bound | None
    limit: Bound | None


@dataclass(frozen=True, slots=True)
class Assign:
    """One `name: expression` of a statement."""

    property: Name
    value: Expression


@dataclass(frozen=True, slots=True)
class Insert:
    """An insert; `verb` is `insert`, `create` or `upsert`."""

    verb: str
    type: Name
    assignments: tuple[Assign, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Update:
    """An `update` or `rename` of a type where a condition holds; in both, a bare name is a property."""

    verb: str
    type: Name
    assignments: tuple[Assign, ...]
    condition: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class Delete:
    type: Name
    condition: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class UpdateMatched:
    """An `update` or `rename` of a variable of the pattern before it."""

    verb: str
    variable: Name
    assignments: tuple[Assign, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class DeleteMatched:
    variable: Name
    span: Span


@dataclass(frozen=True, slots=True)
class Pattern:
    """The pattern of the statements after it."""

    clauses: tuple[Clause, ...]
    span: Span


Statement: TypeAlias = Insert | Update | Delete | UpdateMatched | DeleteMatched | Pattern


@dataclass(frozen=True, slots=True)
class Mutation:
    """Statements in order; `is_mixed` says that deletes may stand beside inserts and updates."""

    statements: tuple[Statement, ...]
    is_mixed: bool = False


@dataclass(frozen=True, slots=True)
class Param:
    name: Name
    type: PropertyType
    type_span: Span


@dataclass(frozen=True, slots=True)
class Query:
    """A query; one that is written as its body alone is called `unnamed`, at an empty span."""

    name: Name
    params: tuple[Param, ...]
    description: str | None
    instruction: str | None
    body: Read | Union | Mutation
