"""The answer of a read as JSON text or Arrow batches, a bounded piece at a time and inside the budget of its query.

What is held at once is one piece, whatever the size of the answer. Few rows are spelled as Python values, many by
kernels on whole columns: each is several times faster than the other where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute

from omnigraph.engine.jsontext import NULL, json_text
from omnigraph.limits import ANSWER_PIECE_BYTES, ANSWER_PIECE_CELLS

if TYPE_CHECKING:
    from omnigraph.engine.read.budget import Spending

# The stubs know fewer argument types than the kernels take.
pc: Any = pyarrow.compute

# From so many rows on the kernels win, if not each of many columns has to start them for a few rows.
_KERNEL_ROWS: Final = 1_024
_WHERE: Final = "the answer"
_INSTANT_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"
# A value has at least this many characters, and a comma or bracket.
_CELL_BYTES_MIN: Final = 2


def json_pieces(table: pa.Table, spending: Spending | None = None) -> Iterator[bytes]:
    """Yield the rows of a table as JSON objects with commas between them, without the brackets of the list.

    Raises `BudgetExceeded` before the first piece when the whole cannot fit into what the query may hold.
    """
    if spending is not None:
        spending.reserve_bytes(_json_bytes_min(table), _WHERE)
    total, is_first = 0, True
    for part in pieces(table):
        if spending is not None:
            spending.check(_WHERE)
        text = _spell(part)
        total += len(text) + 1
        if spending is not None:
            spending.reserve_bytes(total, _WHERE)
        yield text if is_first else b"," + text
        is_first = False


def is_one_piece(table: pa.Table) -> bool:
    """Whether a table is small enough to be answered at once."""
    return table.num_rows <= _piece_rows(table)


def pieces(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of a table in parts of bounded size; of bytes on average, of cells always."""
    step = _piece_rows(table)
    for start in range(0, table.num_rows, step):
        yield table.slice(start, step)


def _piece_rows(table: pa.Table) -> int:
    row_bytes = table.nbytes // max(table.num_rows, 1) + 1
    return max(1, min(ANSWER_PIECE_CELLS // max(table.num_columns, 1), ANSWER_PIECE_BYTES // row_bytes))


def _json_bytes_min(table: pa.Table) -> int:
    """Return how long the text is at least: names and signs of every row, and what texts hold."""
    names = sum(len(name.encode()) + 3 + _CELL_BYTES_MIN for name in table.column_names)
    texts = [column for column in table.columns if pa.types.is_string(column.type)]
    return table.num_rows * names + sum(max(column.nbytes - 5 * len(column), 0) for column in texts)


def _spell(part: pa.Table) -> bytes:
    if part.num_rows < _KERNEL_ROWS or not part.num_columns:
        from omnigraph.engine.read.result import json_rows

        return orjson.dumps(json_rows(part))[1:-1]
    parts: list[Any] = []
    for place, (name, column) in enumerate(zip(part.column_names, part.columns, strict=True)):
        parts.append(("," if place else "{") + orjson.dumps(name).decode() + ":")
        parts.append(_column_text(column.combine_chunks()))
    rows = pc.binary_join_element_wise(*parts, "}", "")
    ends: Any = pa.array([0, len(rows)], pa.int32())
    return bytes(pc.binary_join(pa.ListArray.from_arrays(ends, rows), ",")[0].as_buffer())


def _column_text(values: Any) -> Any:
    """Return the JSON text of each value; dates and instants as ISO 8601."""
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    type_ = values.type
    is_list = pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_)
    if is_list and type_.value_type in (pa.date32(), pa.date64()):
        # Kernels have no lists of dates; they are as rare as they are small.
        from omnigraph.engine.read.result import json_rows

        texts = [orjson.dumps(row["v"]).decode() for row in json_rows(pa.table([values], names=["v"]))]
        return pa.array(texts, pa.string())
    if type_ == pa.date32():
        return _quoted(pc.cast(values, pa.string()))
    if type_ == pa.date64():
        # Arrow takes date64 for whole days wherever it converts it, so the milliseconds are cast as numbers.
        return _quoted(pc.strftime(values.view(pa.int64()).cast(pa.timestamp("ms")), _INSTANT_FORMAT))
    return json_text(values)


def _quoted(texts: Any) -> Any:
    return pc.fill_null(pc.binary_join_element_wise('"', texts, '"', ""), NULL)
