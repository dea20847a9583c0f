"""Mark committed rows that staged rows replace as deleted: one task per fragment, so that no two change one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from omnigraph.engine.graph_access import GraphAccess
from omnigraph.engine.tasks import Runner
from omnigraph.pipeline.key_buckets.files import FileSlice, write_numbers
from omnigraph.rules.arrow_typing import Numbers
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.read.lookup import ROW_ADDRESS
from omnigraph.store.write.fragments import Marked, mark_rows

# The addresses of some rows, by fragment.
Addresses = Mapping[int, FileSlice]


def write_addresses(access: GraphAccess, folder: str, addresses: Numbers) -> Addresses:
    """Write the addresses of rows by fragment, which is the upper half of an address."""
    ordered = np.sort(addresses.astype(np.int64))
    return write_numbers(access.store(), folder, ordered, ordered >> 32)


@dataclass(frozen=True, slots=True)
class MarkTask:
    """One fragment, and the file slices with the addresses of the rows to delete."""

    ref: DatasetRef
    fragment_id: int
    addresses: tuple[FileSlice, ...]


def mark_fragment(access: GraphAccess, task: MarkTask) -> Marked:
    """Add rows of one fragment to its deletion file."""
    store = access.store()
    addresses = np.concatenate([slice_.read_numbers(store) for slice_ in task.addresses])
    return mark_rows(access.open(task.ref), task.fragment_id, pa.table({ROW_ADDRESS: addresses}))


def mark_replaced(
    runner: Runner, access: GraphAccess, stage: str, replaced: Iterable[tuple[DatasetRef, Addresses]]
) -> dict[DatasetRef, list[Marked]]:
    """Mark all rows at some addresses as deleted, and return what was written of each dataset."""
    slices: dict[tuple[DatasetRef, int], tuple[FileSlice, ...]] = {}
    for ref, addresses in replaced:
        for fragment, slice_ in addresses.items():
            slices[ref, fragment] = (*slices.get((ref, fragment), ()), slice_)
    tasks = [MarkTask(ref, fragment, parts) for (ref, fragment), parts in slices.items()]
    marked: dict[DatasetRef, list[Marked]] = {}
    for task, result in zip(tasks, runner.run(stage, partial(mark_fragment, access), tasks), strict=True):
        marked.setdefault(task.ref, []).append(result)
    return marked
