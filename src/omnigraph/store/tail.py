"""What a version of a dataset has in common with another one: the rows that both begin with, and those that follow.

Reads alone; an append leaves all older fragments as they are, whatever the branch that it was made on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from omnigraph.store.dataset import Dataset, lance_errors

# What two fragments agree in when they hold the same rows: their data files, and the file of deleted rows.
_Identity: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Beginning:
    """So many fragments, and rows in them, that a version begins with just like another one does."""

    fragments: int
    rows: int


def shared_beginning(dataset: Dataset, other: Dataset) -> Beginning:
    """Return what a version begins with just like another version or branch of the same dataset."""
    fragments = rows = 0
    if not dataset.schema.equals(other.schema, check_metadata=True):
        # The same files may mean something else when a column has gone and another one has taken its name.
        return Beginning(0, 0)
    for own, theirs in zip(dataset.lance.get_fragments(), other.lance.get_fragments(), strict=False):
        if _identity(own.metadata) != _identity(theirs.metadata):
            break
        fragments, rows = fragments + 1, rows + own.metadata.num_rows
    return Beginning(fragments, rows)


def read_after(dataset: Dataset, beginning: Beginning, columns: Sequence[str]) -> pa.Table:
    """Return the rows that follow a beginning, in order."""
    rest = dataset.lance.get_fragments()[beginning.fragments :]
    if not rest:
        return dataset.schema.empty_table().select(list(columns))
    dataset.store.meter.count("scan", str(dataset.ref))
    with lance_errors(f"reading {dataset.ref}", dataset):
        return dataset.lance.scanner(columns=list(columns), fragments=rest).to_table()


def _identity(fragment: Any) -> _Identity:
    deleted = fragment.deletion_file
    return (
        *(file.path for file in fragment.files),
        *(tuple(file.fields) for file in fragment.files),
        None if deleted is None else deleted.path(fragment.id),
        repr(fragment.overlays),
    )
