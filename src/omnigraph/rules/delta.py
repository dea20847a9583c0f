"""Deltas: what one write does to one type, as the rules see it.

Pure values over Arrow; how the rows came about, and how they will be staged, is somebody else's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.lang.catalog import Catalog, EdgeType, NodeType
from omnigraph.rules.arrow_typing import Column, Numbers, pc

Ids: TypeAlias = Column
NO_IDS: Final[Ids] = pa.array([], pa.string())


class Intent(Enum):
    """What the rows of a delta are to those that are there: strictly new, new or newer, or all there will be."""

    INSERT = "insert"
    UPSERT = "upsert"
    REPLACE = "replace"


@dataclass(frozen=True)
class Delta:
    """The rows that a write leaves in one type, and the ids it takes out. `lines` says where rows came from.

    `kept` are, by column, the ids of rows that keep the blob which is stored; the rows hold an empty one in its place.
    """

    type: NodeType | EdgeType
    rows: pa.Table
    intent: Intent = Intent.UPSERT
    deleted: Ids = field(default_factory=lambda: NO_IDS)
    lines: Numbers | None = None
    kept: Mapping[str, Ids] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.type.table_key

    @property
    def ids(self) -> Ids:
        return self.column("id")

    @property
    def gone(self) -> Ids:
        """Ids whose committed rows are not part of the final image, because they are deleted or replaced."""
        return pa.concat_arrays([self.ids, self.deleted])

    def column(self, name: str) -> Column:
        return one_array(self.rows.column(name))

    def line(self, row: int) -> int | None:
        return None if self.lines is None else int(self.lines[row])


@dataclass(frozen=True)
class Changes:
    """All deltas of one write, by table key. `unit` is what messages call the lines that rows came from."""

    catalog: Catalog
    deltas: Mapping[str, Delta] = field(default_factory=dict)
    unit: str = "line"

    def node(self, name: str) -> Delta | None:
        return self.deltas.get(f"node:{name}")

    def edge(self, name: str) -> Delta | None:
        return self.deltas.get(f"edge:{name}")


def one_array(column: Any) -> Column:
    """Return a column as one array."""
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column


def is_among(values: Column, others: Column) -> Numbers:
    """Return for each value whether it is one of the others.

    >>> is_among(pa.array(["a", "b"]), pa.array(["b"])).tolist()
    [False, True]
    """
    if len(others) == 0:
        return np.zeros(len(values), bool)
    return np.asarray(pc.is_in(values, value_set=others).to_numpy(zero_copy_only=False), bool)


def without(values: Column, others: Column) -> Column:
    """Return the values that are not among the others."""
    return values if len(others) == 0 else values.filter(pa.array(~is_among(values, others)))


def last_of_each(ids: Ids) -> Numbers:
    """Return the positions of the last row of every id, in their order.

    >>> last_of_each(pa.array(["a", "b", "a"])).tolist()
    [1, 2]
    """
    codes = ids.dictionary_encode().indices.to_numpy()
    last = np.zeros(int(codes.max()) + 1 if len(codes) else 0, np.int64)
    # Later assignments win, and numpy keeps the last of repeated indices.
    last[codes] = np.arange(len(codes))
    return np.sort(last)


class Committed(Protocol):
    """The committed rows of a graph, before the write that is being checked."""

    def existing(self, table_key: str, ids: Ids) -> Ids:
        """Return those of the ids that exist in a type."""
        ...

    def matching(self, table_key: str, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        """Return the columns of the rows in which each column of `where` holds one of its values; all rows if empty."""
        ...
