"""Writes of the IR: the statements of a mutation, with values of their own or for each row of a read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from omnigraph.lang.catalog import PropertyType
from omnigraph.lang.query.ir.expressions import CompareOp, Expr, Parameter
from omnigraph.lang.query.ir.reads import ReadIR


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
