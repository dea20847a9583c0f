"""Lookup: where the rows of given values lie.

Reads one pinned version; positions in memory or an index make it cheap, and neither is needed for a right answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.store.dataset import Dataset
from omnigraph.store.positions import RowIds

ID: Final = "id"
ROW_ID: Final = "_rowid"
ROW_ADDRESS: Final = "_rowaddr"
PLACE: Final = (ID, ROW_ID, ROW_ADDRESS)

# Above this many values one pass over the column costs less than a filter that lists them.
FILTER_VALUES_MAX: Final = 4_096
# Taking rows one by one costs about this many times what a pass over them costs.
_TAKE_COST: Final = 10

# A row with more columns than this is looked up by its keys first, and then taken.
_WIDE_COLUMNS: Final = 256
# Lance takes no typed filter on columns of these types.
_UNFILTERED: Final = ("uint32", "uint64", "date64[ms]")


def is_filterable(stored: pa.DataType) -> bool:
    """Tell whether Lance takes a typed filter on a column of this type; others need a filter text."""
    return str(stored) not in _UNFILTERED


def find(dataset: Dataset, ids: pa.Array[Any]) -> pa.Table:
    """Return id, row id and row address of every row whose id is among `ids`, in no particular order."""
    return find_rows(dataset, [ID], {ID: ids})


def find_rows(dataset: Dataset, columns: Sequence[str], where: Mapping[str, pa.Array[Any]]) -> pa.Table:
    """Return columns, row id and row address of the rows in which each column of `where` holds one of its values."""
    names = list(dict.fromkeys([*columns, *where]))
    if dataset.count() == 0 or any(len(values) == 0 for values in where.values()):
        return _nothing(dataset, columns)
    values = {name: _both_zeros(one) for name, one in where.items()}
    row_ids = _candidates(dataset, values)
    if row_ids is not None and len(row_ids) == 0:
        return _nothing(dataset, columns)
    if row_ids is None and len(names) > _WIDE_COLUMNS:
        # Lance plans a scan in time quadratic to the number of its columns, and a take of rows does not.
        narrow = dataset.read(list(where), _condition(values), with_row_id=True)
        row_ids = narrow.column(ROW_ID).to_numpy()
        if len(row_ids) == 0:
            return _nothing(dataset, columns)
    is_wide = row_ids is not None and len(names) > _WIDE_COLUMNS
    if row_ids is not None and (is_wide or len(row_ids) * _TAKE_COST < dataset.count()):
        found = dataset.take(row_ids.tolist(), [*names, ROW_ID, ROW_ADDRESS])
    else:
        found = dataset.read(names, _condition(values), with_row_id=True, with_row_address=True)
    for name, one in values.items():
        found = found.filter(pc.is_in(found.column(name), value_set=one))
    return found.select([*columns, ROW_ID, ROW_ADDRESS])


def _candidates(dataset: Dataset, where: Mapping[str, pa.Array[Any]]) -> RowIds | None:
    """Return the rows that may hold a value in every column, as far as positions tell; None when they do not."""
    found: RowIds | None = None
    for name, values in where.items():
        rows = dataset.store.positions.rows_of(dataset, name, values)
        if rows is not None:
            found = rows if found is None else np.intersect1d(found, rows)
    return found


def _condition(where: Mapping[str, pa.Array[Any]]) -> pc.Expression | None:
    condition = None
    for name, values in where.items():
        if len(values) <= FILTER_VALUES_MAX and is_filterable(values.type):
            one = pc.field(name).isin(values)
            condition = one if condition is None else condition & one
    return condition


def _both_zeros(values: pa.Array[Any]) -> pa.Array[Any]:
    # Zero has two signs, which filters tell apart and rules do not.
    if not pa.types.is_floating(values.type):
        return values
    return pa.concat_arrays([values, pc.negate(values.filter(pc.equal(values, pa.scalar(0.0, values.type))))])


def _nothing(dataset: Dataset, columns: Sequence[str]) -> pa.Table:
    places = [pa.field(name, pa.uint64()) for name in (ROW_ID, ROW_ADDRESS)]
    return pa.schema([*(dataset.schema.field(name) for name in columns), *places]).empty_table()


def ids_of(rows: pa.Table) -> pa.Array[Any]:
    """Return the id column as one array; the caller has made sure that no id comes twice."""
    ids = rows.column(ID).combine_chunks()
    assert len(pc.unique(ids)) == len(ids), "ids must be distinct within one change"
    return ids
