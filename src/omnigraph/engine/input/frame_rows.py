"""Rows of frames, read again from the files that they were staged in: where they come from, for errors and quarantine.

A frame of a declared pipeline may have the column `ORIGIN`, which is no property: the file and the line of each row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet

from omnigraph.engine.input.splits import Split
from omnigraph.lang.catalog import EdgeType, Type

ORIGIN: Final = "__origin"


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """A row of a frame: its view, the file and line that it was read from, if known, its key, and the row itself."""

    view: str
    file: str | None
    line: int | None
    key: str
    row: pa.Table

    def __str__(self) -> str:
        location = f"a row of `{self.view}`" if self.file is None else f"`{self.file}`"
        location += "" if self.line is None else f" line {self.line}"
        return f"{location} ({self.key})" if self.key else location

    def to_json(self) -> dict[str, object]:
        return {"source": self.view, "file": self.file, "line": self.line, "key": self.key}


class FrameRows:
    """Finds rows of staged frames; holds those of one split at a time."""

    def __init__(self) -> None:
        self._split: Split | None = None
        self._table: pa.Table | None = None

    def find(self, split: Split, row: int, type_: Type) -> RowOrigin | None:
        """Return a row of a split, by its number there; None if the split is no frame of a view."""
        view = None if split.columns is None else split.columns.view
        if view is None:
            return None
        if self._split is not split or self._table is None:
            self._split, self._table = split, _read_table(split)
        row_table = self._table.slice(row, 1)
        values = row_table.to_pylist()[0]
        origin: Any = values.pop(ORIGIN, None) or {}
        return RowOrigin(view, origin.get("file"), origin.get("line"), ", ".join(_key_of(values, type_)), row_table)


def _read_table(split: Split) -> Any:
    if split.content is not None:
        return split.content
    with split.open() as file:
        return pyarrow.parquet.ParquetFile(file).read_row_groups(list(range(split.start, split.stop)))


def _key_of(values: dict[str, Any], type_: Type) -> Iterator[str]:
    ends = {"src": "from", "dst": "to"} if isinstance(type_, EdgeType) else {}
    names = [ends.get(name, name) for name in type_.key] or (["from", "to"] if ends else ["id"])
    for name in names:
        if name in values:
            yield f"{name} = {values[name]}"


def without_origin(names: list[str], split: Split) -> list[str]:
    """Return the columns of a staged frame that are properties."""
    is_traced = split.columns is not None and split.columns.view is not None
    return [name for name in names if name != ORIGIN] if is_traced else names
