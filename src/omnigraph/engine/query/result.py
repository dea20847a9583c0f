"""Query results: an Arrow table with conversions to Python, JSON, pandas and polars, whole or in bounded pieces.

Conversions to other libraries import them late and say what to install.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, overload

import orjson
import pyarrow as pa

from omnigraph.display import SHOWN_ROWS, count_of, html_table, text_table
from omnigraph.engine.json_text import iso_json_text
from omnigraph.errors import UsageError
from omnigraph.lang.scalars import readable
from omnigraph.lang.schema.arrow_schema import PHYSICAL, SCALARS
from omnigraph.limits import ANSWER_PIECE_BYTES, ANSWER_PIECE_CELLS, RESULT_BATCH_ROWS
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.time_columns import to_timestamps

if TYPE_CHECKING:
    from omnigraph.engine.query.budget import BudgetUsage


_SAFE_INTEGER: Final = 2**53 - 1


class Result:
    """The rows of one read, with the branch and commit they were read from.

    A result is a sequence of rows: it can be iterated and indexed, and a slice of it is a result. Libraries that take
    Arrow data (pandas, polars, DuckDB) take it as it is.

    >>> table = pa.table({"name": ["Ada", "Bob"], "age": [36, None]})
    >>> result = Result(table, "people", "main", None)
    >>> result[0], [row["name"] for row in result], len(result[1:])
    ({'name': 'Ada', 'age': 36}, ['Ada', 'Bob'], 1)
    >>> result
    name  age
    ----  ----
    Ada     36
    Bob   null
    2 rows of `people` on main
    """

    __slots__ = ("_spending", "_table", "branch", "graph_commit_id", "query_name")

    def __init__(
        self,
        table: pa.Table,
        query_name: str,
        branch: str,
        graph_commit_id: str | None,
        spending: BudgetUsage | None = None,
    ) -> None:
        self._table = table
        self._spending = spending
        self.query_name = query_name
        self.branch = branch
        self.graph_commit_id = graph_commit_id

    @property
    def columns(self) -> list[str]:
        """The column names, in order; no two are equal."""
        return list(self._table.column_names)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self._table.schema

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for part in split_table(self._table):
            yield from python_rows(part)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> Result: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | Result:
        if isinstance(index, slice):
            rows = range(*index.indices(len(self)))
            is_run = rows.step == 1
            part = self._table.slice(rows.start, len(rows)) if is_run else self._table.take(pa.array(rows, pa.int64()))
            return Result(part, self.query_name, self.branch, self.graph_commit_id, self._spending)
        row = range(len(self))[index]
        return python_rows(self._table.slice(row, 1))[0]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as an Arrow stream, for libraries that take Arrow data."""
        table: Any = _with_timestamps(self._table)
        return table.__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table; nothing is copied.

        Returns:
            The table.

        Example:
            >>> result = graph.query("query q() { match { $p: Person } return { $p.name as name } order { $p.name } }")
            >>> result.to_arrow().num_rows
            2
        """
        return self._table

    def batches(self, rows: int = RESULT_BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, none of them empty; nothing is copied.

        Args:
            rows: The maximum number of rows in a batch.

        Returns:
            The batches.

        Raises:
            UsageError: `rows` is below 1.

        Example:
            >>> result = graph.query("query q() { match { $p: Person } return { $p.name as name } order { $p.name } }")
            >>> [batch.num_rows for batch in result.batches(rows=1)]
            [1, 1]
        """
        if rows < 1:
            raise UsageError("a batch holds at least 1 row", rows=rows)
        yield from self._table.to_batches(max_chunksize=rows)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries of Python values; timestamps are timezone-aware datetimes.

        Returns:
            The rows.

        Example:
            >>> result = graph.query("query q() { match { $p: Person } return { $p.name as name } order { $p.name } }")
            >>> result.rows()
            [{'name': 'Ada'}, {'name': 'Bob'}]
        """
        return python_rows(self._table)

    def to_list(self) -> list[dict[str, Any]]:
        """Return the same as `rows`.

        Returns:
            The rows.

        Example:
            >>> result = graph.query("query q() { match { $p: Person } return { $p.name as name } order { $p.name } }")
            >>> result.to_list()[0]
            {'name': 'Ada'}
        """
        return self.rows()

    def to_json_rows(self, *, integers_as_text: bool = False) -> list[dict[str, Any]]:
        """Return JSON-ready rows: dates, timestamps, NaN and infinities as strings.

        Args:
            integers_as_text: Write integers beyond 2^53 - 1 as text, for readers whose numbers are floats.

        Returns:
            The rows.

        Example:
            >>> result = graph.query("query q() { match { $p: Person } return { $p.name as name } order { $p.name } }")
            >>> result.to_json_rows()[1]
            {'name': 'Bob'}
        """
        return json_rows(self._table, integers_as_text=integers_as_text)

    def json_pieces(self) -> Iterator[bytes]:
        """Yield the rows as JSON text in pieces, with commas between rows, inside the budget of the query.

        The time budget keeps running while pieces are consumed.

        Returns:
            The pieces.

        Raises:
            BudgetExceeded: The consumer is slower than the time budget.
            QueryCancelled: The query was cancelled.

        Example:
            >>> result = graph.query("query q() { match { $p: Person } return { $p.name as name } order { $p.name } }")
            >>> b"".join(result.json_pieces())
            b'{"name":"Ada"},{"name":"Bob"}'
        """
        return encode_json_pieces(self._table, self._spending)

    def arrow_pieces(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow batches of bounded size, inside the budget of the query.

        Returns:
            The batches.

        Raises:
            BudgetExceeded: The consumer is slower than the time budget.
            QueryCancelled: The query was cancelled.

        Example:
            >>> result = graph.query("query q() { match { $p: Person } return { $p.name as name } order { $p.name } }")
            >>> sum(batch.num_rows for batch in result.arrow_pieces())
            2
        """
        for part in split_table(self._table):
            if self._spending is not None:
                self._spending.check(_STAGE)
            yield from part.to_batches()

    @property
    def is_one_piece(self) -> bool:
        """Whether the rows fit into one piece of an answer."""
        return self._table.num_rows <= _piece_rows(self._table)

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame.

        Returns:
            The DataFrame.

        Raises:
            UsageError: pandas is not installed.

        Example:
            >>> result = graph.query("query q() { match { $p: Person } return { $p.name as name } order { $p.name } }")
            >>> result.to_pandas().shape
            (2, 1)
        """
        return to_pandas(self._table)

    def to_polars(self) -> Any:
        """Return a polars DataFrame.

        Returns:
            The DataFrame.

        Raises:
            UsageError: polars is not installed.

        Example:
            >>> graph.query("query q() { match { $p: Person } return { $p } }").to_polars().height  # doctest: +SKIP
            2
        """
        try:
            import polars  # type: ignore[import-not-found,unused-ignore]  # not a dependency
        except ImportError:
            raise UsageError("`to_polars` needs polars; install it with `pip install polars`") from None
        return polars.from_arrow(_with_timestamps(self._table))

    def __repr__(self) -> str:
        shown = text_table(self.columns, self._head_rows())
        more = f", the first {SHOWN_ROWS} shown" if len(self) > SHOWN_ROWS else ""
        return f"{shown}\n{count_of(len(self), 'row')} of `{self.query_name}` on {self.branch}{more}"

    def _repr_html_(self) -> str:
        note = f"{len(self):,} rows, the first {SHOWN_ROWS} shown" if len(self) > SHOWN_ROWS else ""
        return html_table(self.columns, self._head_rows(), note)

    def _head_rows(self) -> list[list[Any]]:
        return [list(row.values()) for row in json_rows(self._table.slice(0, SHOWN_ROWS))]


def to_pandas(table: pa.Table) -> Any:
    """Return a table as a pandas DataFrame."""
    try:
        import pandas  # type: ignore[import-untyped]  # noqa: F401 - Arrow needs it to be there
    except ImportError:
        raise UsageError("`to_pandas` needs pandas; install it with `pip install pandas`") from None
    return _with_timestamps(table).to_pandas()


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries of Python values."""
    return _rows(table, [_timestamps(column).to_pylist() for column in table.columns])


def json_rows(table: pa.Table, *, integers_as_text: bool = False) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries of JSON values."""
    return _rows(table, [_json_values(column, integers_as_text) for column in table.columns])


def _rows(table: pa.Table, values: list[list[Any]]) -> list[dict[str, Any]]:
    names = table.column_names
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)] if names else []


def _with_timestamps(table: pa.Table) -> pa.Table:
    """Return the table with instants as timestamps; other libraries read Arrow's date64 as whole days."""
    return pa.table([_timestamps(column) for column in table.columns], names=table.column_names)


def _timestamps(column: Any) -> Any:
    # Without a chunk it needs the type.
    return pa.chunked_array(map(to_timestamps, column.chunks), to_timestamps(pa.nulls(0, column.type)).type)


def _json_values(column: Any, integers_as_text: bool) -> list[Any]:
    is_list = pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type)
    type_ = column.type.value_type if is_list else column.type
    if type_ in PHYSICAL:
        stored = column.cast(pa.list_(PHYSICAL[type_]) if is_list else PHYSICAL[type_])
        return [readable(value, SCALARS[type_]) for value in stored.to_pylist()]
    values, format_value = column.to_pylist(), _json_formatter(type_, integers_as_text)
    if format_value is None:
        return list(values)
    if is_list:
        return [None if row is None else [format_value(item) for item in row] for row in values]
    return [format_value(value) for value in values]


def _json_formatter(type_: pa.DataType, integers_as_text: bool) -> Any:
    if pa.types.is_floating(type_):
        return _format_float
    if integers_as_text and pa.types.is_integer(type_):
        return lambda value: str(value) if value is not None and abs(value) > _SAFE_INTEGER else value
    return None


def _format_float(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


# From this many rows on, Arrow kernels encode faster than a loop over rows.
_KERNEL_ROWS: Final = 1_024
_STAGE: Final = "the answer"
# A value has at least one character, and a comma or bracket.
_CELL_BYTES_MIN: Final = 2


def encode_json_pieces(table: pa.Table, spending: BudgetUsage | None = None) -> Iterator[bytes]:
    """Yield the rows of a table as JSON objects with commas between them, without the brackets of the list.

    Raises `BudgetExceeded` before the first piece if the text cannot fit into the memory budget of the query.
    """
    if spending is not None:
        spending.reserve_bytes(_json_bytes_min(table), _STAGE)
    total, is_first = 0, True
    for part in split_table(table):
        if spending is not None:
            spending.check(_STAGE)
        text = _encode_rows(part)
        total += len(text) + 1
        if spending is not None:
            spending.reserve_bytes(total, _STAGE)
        yield text if is_first else b"," + text
        is_first = False


def split_table(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of a table in parts of bounded size; of bytes on average, of cells always."""
    step = _piece_rows(table)
    for start in range(0, table.num_rows, step):
        yield table.slice(start, step)


def _piece_rows(table: pa.Table) -> int:
    row_bytes = table.nbytes // max(table.num_rows, 1) + 1
    return max(1, min(ANSWER_PIECE_CELLS // max(table.num_columns, 1), ANSWER_PIECE_BYTES // row_bytes))


def _json_bytes_min(table: pa.Table) -> int:
    """Return a lower bound of the JSON size: names and punctuation of every row, and the contents of strings."""
    names = sum(len(name.encode()) + 3 + _CELL_BYTES_MIN for name in table.column_names)
    texts = [column for column in table.columns if pa.types.is_string(column.type)]
    return table.num_rows * names + sum(max(column.nbytes - 5 * len(column), 0) for column in texts)


def _encode_rows(part: pa.Table) -> bytes:
    if part.num_rows < _KERNEL_ROWS or not part.num_columns:
        return orjson.dumps(json_rows(part))[1:-1]
    parts: list[Any] = []
    for index, (name, column) in enumerate(zip(part.column_names, part.columns, strict=True)):
        parts.append(("," if index else "{") + orjson.dumps(name).decode() + ":")
        values: Any = column.combine_chunks()
        parts.append(iso_json_text(values))
    rows = pc.binary_join_element_wise(*parts, "}", "")
    ends: Any = pa.array([0, len(rows)], pa.int32())
    return bytes(pc.binary_join(pa.ListArray.from_arrays(ends, rows), ",")[0].as_buffer())
