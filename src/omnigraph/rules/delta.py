"""The changes of a write that the rules check: rows and deletes by type, and access to the committed rows.

Pure values over Arrow; parsing the rows and staging them happens elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.errors import DataError, KeyConflict, LimitExceeded
from omnigraph.lang.catalog import Catalog, EdgeType, NodeType, Type, TypeKey
from omnigraph.limits import VIOLATIONS_MAX
from omnigraph.public_values import OnDuplicate
from omnigraph.rules.arrow_typing import Column, Numbers, pc

Ids: TypeAlias = Column
NO_IDS: Final[Ids] = pa.array([], pa.string())
# From a line that counts through all files of an input to the name of its file or frame, and its line there.
Locate: TypeAlias = Callable[[int], tuple[str, int]]


class Intent(Enum):
    """How the rows of a delta relate to the committed rows: all new, new or updated, or the complete new content."""

    INSERT = "insert"
    UPSERT = "upsert"
    REPLACE = "replace"


# By the mode of a load.
INTENTS: Final = {"append": Intent.INSERT, "merge": Intent.UPSERT, "overwrite": Intent.REPLACE}


@dataclass(frozen=True)
class Delta:
    """The rows that a write inserts or updates in a type, and the ids it deletes. `lines` are their input lines.

    `kept` are, by column, the ids of rows that keep their stored blob; in `rows` that column holds an empty blob.
    `renamed` are ids of rows beside the ids under which they are committed.
    """

    type: NodeType | EdgeType
    rows: pa.Table
    intent: Intent = Intent.UPSERT
    deleted: Ids = field(default_factory=lambda: NO_IDS)
    lines: Numbers | None = None
    kept: Mapping[str, Ids] = field(default_factory=dict)
    renamed: tuple[Ids, Ids] = (NO_IDS, NO_IDS)

    @property
    def key(self) -> TypeKey:
        return self.type.table_key

    @property
    def ids(self) -> Ids:
        return self.column("id")

    @property
    def gone(self) -> Ids:
        """Ids whose committed rows are not in the final image, because they are deleted or replaced."""
        return pa.concat_arrays([self.ids, self.deleted])

    def column(self, name: str) -> Column:
        return one_array(self.rows.column(name))

    def committed_ids(self) -> Ids:
        """Return for each row the id under which it is committed, if it is."""
        return translate(self.ids, *self.renamed)

    def line(self, row: int) -> int | None:
        return None if self.lines is None else int(self.lines[row])


@dataclass(frozen=True)
class Changes:
    """All deltas of a write, by table key. `unit` is the word for an input line in messages.

    `locate` finds the file of a line, for an input of several files.
    """

    catalog: Catalog
    deltas: Mapping[TypeKey, Delta] = field(default_factory=dict)
    unit: str = "line"
    locate: Locate | None = None

    def node(self, name: str) -> Delta | None:
        return self.deltas.get(TypeKey.of("node", name))


def one_array(column: Any) -> Column:
    """Return a column as a single array, without copying if it is one chunk."""
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column


def is_among(values: Column, others: Column) -> Numbers:
    """Return a mask of the values that are in `others`.

    >>> is_among(pa.array(["a", "b"]), pa.array(["b"])).tolist()
    [False, True]
    """
    if len(others) == 0:
        return np.zeros(len(values), bool)
    return np.asarray(pc.is_in(values, value_set=others).to_numpy(zero_copy_only=False), bool)


def without(values: Column, others: Column) -> Column:
    return values if len(others) == 0 else values.filter(pa.array(~is_among(values, others)))


def translate(values: Column, old: Column, new: Column) -> Column:
    """Return values in which each one of `old` is replaced by its counterpart in `new`.

    >>> translate(pa.array(["a", "b"]), pa.array(["b"]), pa.array(["c"])).to_pylist()
    ['a', 'c']
    """
    return values if len(old) == 0 else pc.coalesce(new.take(pc.index_in(values, value_set=old)), values)


def choose_winner(choice: OnDuplicate, intent: Intent, type_: Type) -> OnDuplicate:
    """Return which of several incoming entities with one id is written.

    Without a choice of the caller, the last one wins where an upsert finds entities by id alone.
    """
    return "last" if choice == "error" and intent is Intent.UPSERT and not type_.key else choice


def last_of_each(ids: Ids) -> Numbers:
    """Return the index of the last row of each id, ascending.

    >>> last_of_each(pa.array(["a", "b", "a"])).tolist()
    [1, 2]
    """
    codes = ids.dictionary_encode().indices.to_numpy()
    last = np.zeros(int(codes.max()) + 1 if len(codes) else 0, np.int64)
    # For repeated indices numpy keeps the last assignment.
    last[codes] = np.arange(len(codes))
    return np.sort(last)


def first_of_each(ids: Ids) -> Numbers:
    """Return the index of the first row of each id, ascending.

    >>> first_of_each(pa.array(["a", "b", "a"])).tolist()
    [0, 1]
    """
    _, first = np.unique(ids.dictionary_encode().indices.to_numpy(), return_index=True)
    return np.sort(first)


class Committed(Protocol):
    """The committed rows of a graph, before the write that is being checked."""

    def existing(self, table_key: TypeKey, ids: Ids) -> Ids:
        """Return the ids that exist in a type."""

    def matching(self, table_key: TypeKey, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        """Return `columns` of the rows that match `where` (column -> accepted values); of all rows if it is empty."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule. `line` is the line or record number in the input, if known."""

    rule: str
    message: str
    type_key: TypeKey | None = None
    entity_id: str | None = None
    property: str | None = None
    value: str | None = None
    line: int | None = None

    def to_json(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if value is not None}


class Findings:
    """Violations in the order in which they are reported, up to a bound."""

    def __init__(
        self, violations_max: int = VIOLATIONS_MAX, *, unit: str = "line", locate: Locate | None = None
    ) -> None:
        self.violations: list[Violation] = []
        self.unit = unit
        self.locate = locate
        self._violations_max = violations_max

    @property
    def is_full(self) -> bool:
        return len(self.violations) >= self._violations_max

    @property
    def room(self) -> int:
        return self._violations_max - len(self.violations)

    def add(self, violation: Violation) -> None:
        if not self.is_full:
            self.violations.append(violation)

    def raise_if_any(self) -> None:
        """Raise the first violation as an error, with all violations in its context, if there are any."""
        if not self.violations:
            return
        first = self.violations[0]
        more = len(self.violations) - 1
        violations = [self._describe(violation) for violation in self.violations]
        prefix = "" if first.line is None else f"{self.unit} {violations[0]['line']}: "
        if "file" in violations[0]:
            prefix = f"`{violations[0]['file']}` {prefix}"
        message = f"{prefix}{first.message}"
        if more:
            message += f" (and {'at least ' if self.is_full else ''}{more} more)"
        context: dict[str, Any] = violations[0] | {"violations": violations}
        if more:
            context["violation_counts"] = dict(Counter(violation.rule for violation in self.violations))
            context["violations_truncated"] = self.is_full
        del context["message"]
        raise _CLASSES.get(first.rule, DataError)(message, **context)

    def _describe(self, violation: Violation) -> dict[str, object]:
        described = violation.to_json()
        if violation.line is not None and self.locate is not None:
            described["file"], described["line"] = self.locate(violation.line)
        return described


_CLASSES: dict[str, Any] = {"E11": KeyConflict, "E12": LimitExceeded, "N11": LimitExceeded}
