"""Schema changes: columns added, dropped and renamed without touching a data file.

Stages only; every change is one `Project` transaction that keeps field ids, row ids and the indexes of what remains.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
from lance import LanceOperation

from omnigraph.store.lance_schema import edit_schema
from omnigraph.store.read.dataset import Dataset, lance_errors
from omnigraph.store.write.transaction import Change, changed


def reshape(
    dataset: Dataset,
    *,
    add: Sequence[pa.Field[Any]] = (),
    drop: Collection[str] = (),
    rename: Mapping[str, str] | None = None,
) -> Change | None:
    """Stage any number of column changes as one transaction.

    Drops and renames speak of the names before the change; added columns must be nullable and are null in every row.
    An index on a dropped column goes with it; one on a renamed column stays.
    """
    names = rename or {}
    if not add and not drop and not names:
        return None
    _check(dataset.schema, add, drop, names)
    with lance_errors(f"reshaping {dataset.ref}"):
        schema = edit_schema(
            dataset.lance.lance_schema, add=add, drop=drop, rename=names, next_id=int(dataset.lance.max_field_id) + 1
        )
    # The claim lets Lance see that no staged row of the older shape could break the new one.
    return changed(dataset, LanceOperation.Project(schema, preserves_nullability=True), dataset.count())


def _check(schema: pa.Schema, add: Sequence[pa.Field[Any]], drop: Collection[str], rename: Mapping[str, str]) -> None:
    # The planner has checked all of this against the catalog, so a breach here is our own bug.
    for name in (*drop, *rename):
        assert name in schema.names, f"no column `{name}`"
    assert not set(drop) & set(rename), "a column cannot be dropped and renamed at once"
    assert all(field.nullable for field in add), "an added column must be nullable"
    names = [rename.get(name, name) for name in schema.names if name not in drop] + [field.name for field in add]
    assert len(set(names)) == len(names), f"two columns would share a name: {sorted(names)}"
