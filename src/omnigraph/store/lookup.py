"""Lookup: where the rows of given ids lie.

Reads one pinned version; an index on `id` makes small lookups cheap, and none is needed for a right answer.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.store.dataset import Dataset, lance_errors

ID: Final = "id"
ROW_ADDRESS: Final = "_rowaddr"

# Above this many ids one scan of the id column costs less than probing an index for each of them.
PROBED_IDS_MAX: Final = 4_096

_NOTHING: Final = pa.table({ID: pa.array([], pa.string()), ROW_ADDRESS: pa.array([], pa.uint64())})


def find(dataset: Dataset, ids: pa.Array[Any]) -> pa.Table:
    """Return `id` and row address of every row whose id is among `ids`, in no particular order."""
    dataset.store.meter.count("scan", str(dataset.ref))
    with lance_errors(f"looking up ids of {dataset.ref}"):
        if len(ids) <= PROBED_IDS_MAX:
            return dataset.lance.to_table(columns=[ID], filter=pc.field(ID).isin(ids), with_row_address=True)
        batches = [
            batch.filter(pc.is_in(batch[ID], value_set=ids))
            for batch in dataset.lance.to_batches(columns=[ID], with_row_address=True)
        ]
    return pa.Table.from_batches(batches, batches[0].schema) if batches else _NOTHING


def ids_of(rows: pa.Table) -> pa.Array[Any]:
    """Return the id column as one array; the caller has made sure that no id comes twice."""
    ids = rows.column(ID).combine_chunks()
    assert len(pc.unique(ids)) == len(ids), "ids must be distinct within one change"
    return ids
