"""What reading an input comes to: the entities of each type as Arrow tables, with the lines they came from.

Pure values; how the tables were made is the decoder's business.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.lang.schema.arrow import arrow_schema
from omnigraph.rules.kernels import Numbers

Type: TypeAlias = NodeType | EdgeType


@dataclass(frozen=True, slots=True)
class Part:
    """Some entities of one type, in the layout of the type, and the line of each."""

    type: Type
    rows: pa.Table
    numbers: Numbers


@dataclass(slots=True)
class Loaded:
    """All entities of one type that an input holds. `rows` and `lines` are in the order of the input."""

    type: Type
    parts: list[Part] = field(default_factory=list)
    count: int = 0
    size: int = 0

    def add(self, part: Part) -> None:
        """Add entities; parts may come in any order."""
        self.parts.append(part)
        self.count += part.rows.num_rows
        self.size += part.rows.nbytes

    @property
    def rows(self) -> pa.Table:
        order = self._order()
        if len(self.parts) == 1 and order is None:
            return self.parts[0].rows
        rows = pa.concat_tables([arrow_schema(self.type).empty_table(), *(part.rows for part in self.parts)])
        return rows.combine_chunks() if order is None else rows.take(order).combine_chunks()

    @property
    def lines(self) -> Numbers:
        order = self._order()
        return self._numbers() if order is None else self._numbers()[order]

    def _numbers(self) -> Numbers:
        return np.concatenate([np.empty(0, np.int64), *(part.numbers for part in self.parts)])

    def _order(self) -> Numbers:
        """Return the rows in the order of their lines; None if they are in it already."""
        numbers = self._numbers()
        return None if (numbers[1:] >= numbers[:-1]).all() else np.argsort(numbers, kind="stable")
