"""Reads and writes of the IR: operators of a pattern, stages of a query, and the statements of a mutation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

from omnigraph.lang.catalog import PropertyType
from omnigraph.lang.query.ir.expressions import CompareOp, Expr, Parameter, ParameterRef, Rank

HopBound: TypeAlias = int | ParameterRef


class Direction(StrEnum):
    OUT = "out"
    IN = "in"
    BOTH = "both"


REVERSED: Final = {Direction.OUT: Direction.IN, Direction.IN: Direction.OUT, Direction.BOTH: Direction.BOTH}


def join_types(names: Iterable[str]) -> str:
    """Return the name of the union of some types, which may be unions themselves; engines resolve it by `split_type`.

    >>> join_types(["Post", "Comment|Post"]), split_type("Comment|Post")
    ('Comment|Post', ('Comment', 'Post'))
    """
    return "|".join(sorted({member for name in names for member in split_type(name)}))


def split_type(name: str) -> tuple[str, ...]:
    """Return the types of a union, in name order; a single type is a union of itself."""
    return tuple(name.split("|"))


def common_types(first: str, second: str) -> str | None:
    """Return the union of the types that two types or unions share; None if they share none.

    >>> common_types("Comment|Post", "Page|Post"), common_types("Page", "Post")
    ('Post', None)
    """
    members = set(split_type(first)) & set(split_type(second))
    return join_types(members) if members else None


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
    paths must end; a filter behind the walk checks the same.
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

    @property
    def joins_types(self) -> bool:
        """True for one edge between different types, which cannot follow itself: it is walked once or not at all."""
        return not self.legs and self.source_type != self.target_type and self.path is None

    def reversed(self) -> Expand:
        """Return the walk from its target to its source, which finds the same pairs."""
        return replace(
            self,
            source=self.target,
            source_type=self.target_type,
            target=self.source,
            target_type=self.source_type,
            direction=REVERSED[self.direction],
            is_backwards=not self.is_backwards,
            legs=tuple(leg.reversed() for leg in self.legs),
        )


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


@dataclass(frozen=True, slots=True)
class CountJoin:
    """Bind how many results the inner pipeline has, started from that row; with `is_existence`, 1 or 0."""

    inner: tuple[Operator, ...]
    variable: str
    is_existence: bool


@dataclass(frozen=True, slots=True)
class Unwind:
    """Bind each element of a list, one row each; a missing or empty list has none."""

    collection: Expr
    variable: str
    type: PropertyType


Operator: TypeAlias = NodeScan | Expand | PathNodes | Unwind | Filter | AntiJoin | OptionalJoin | CountJoin
# Operators that run a pipeline of their own.
Join: TypeAlias = AntiJoin | OptionalJoin | CountJoin


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
class GroupLimit:
    """How many rows of those that are equal in the keys are returned, the first in order."""

    count: int | ParameterRef
    keys: tuple[Expr, ...]


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
    is_grouped: bool = False
    is_distinct: bool = False
    rank: Rank | None = None
    order: tuple[OrderKey, ...] = ()
    skip: int | ParameterRef | None = None
    limit: int | ParameterRef | None = None
    having: Expr | None = None
    distinct_on: tuple[Expr, ...] = ()
    source: ReadIR | Union | None = None
    limit_per: GroupLimit | None = None

    @property
    def returned(self) -> tuple[Column, ...]:
        """The columns of the result."""
        return tuple(column for column in self.columns if not column.is_hidden)

    @property
    def is_ordered(self) -> bool:
        """True if rows have an order: by keys, or for pages (`skip`) and the first of groups by what breaks ties."""
        is_cut = self.skip is not None or self.limit_per is not None
        return bool(self.order) or (is_cut and self.rank is None)


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
class Rename(Update):
    """An update of a key; edges of the types in `repointed` follow the nodes to their new ids."""

    repointed: tuple[str, ...]


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
class RenameMatched(UpdateMatched):
    """An update of the keys of entities; edges of the types in `repointed` follow the nodes to their new ids."""

    repointed: tuple[str, ...]


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
