"""Schema changes: columns added, dropped, renamed and made nullable without touching a file, and columns converted.

Stages only. A change of metadata is one `Project` transaction that keeps field ids, row ids and the indexes of what
remains. A conversion writes one new file for each fragment and leaves the other columns alone; it is a `Merge`, which
adds the converted columns under other names, and a `Project` that gives them the names of those they replace.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
from lance import LanceOperation

from omnigraph.store.lance_schema import edit_schema
from omnigraph.store.read.dataset import Dataset, lance_errors
from omnigraph.store.write.fragments import FragmentText, accept_proofs, parse_fragments, rename_files
from omnigraph.store.write.transaction import Change, changed, staging, stored_files


def reshape(
    dataset: Dataset,
    *,
    add: Sequence[pa.Field[Any]] = (),
    drop: Collection[str] = (),
    rename: Mapping[str, str] | None = None,
    relax: Collection[str] = (),
) -> Change | None:
    """Stage any number of column changes as one transaction.

    All but `add` use the names before the change; added columns must be nullable and are null in every row.
    An index on a dropped column goes with it; one on a renamed column stays.
    """
    names = rename or {}
    # A column that takes nulls already, as added ones do regardless of the schema, needs no change.
    relax = [name for name in relax if not dataset.schema.field(name).nullable]
    if not add and not drop and not names and not relax:
        return None
    _check(dataset.schema, add, drop, names)
    with lance_errors(f"reshaping {dataset.ref}"):
        schema = edit_schema(
            dataset.lance.lance_schema,
            add=add,
            drop=drop,
            rename=names,
            relax=relax,
            next_id=int(dataset.lance.max_field_id) + 1,
        )
    # The claim lets Lance see that no staged row of the older shape could break the new one.
    return changed(dataset, LanceOperation.Project(schema, preserves_nullability=True), dataset.count())


def converted_name(name: str) -> str:
    """Return the name of a converted column until it takes over that of the column it replaces."""
    # No property has such a name, so a column with it cannot clash with another one.
    return f"{name}~converted"


def convert_fragment(
    dataset: Dataset, fragment_id: int, types: Mapping[str, pa.DataType], operation_id: str
) -> FragmentText:
    """Write the converted columns of one fragment to a file of their own; return the fragment with that file."""

    def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays: list[Any] = [batch.column(name).cast(type_) for name, type_ in types.items()]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(_converted_fields(dataset, types)))

    with staging(dataset, f"converting columns of {dataset.ref}", dataset, step="convert"):
        fragment = dataset.fragment(fragment_id)
        known_files = {file.path for file in fragment.metadata.files}
        merged, _ = fragment.merge_columns(convert, columns=list(types))
    return rename_files(dataset, merged, operation_id, known_files)


def converted(dataset: Dataset, fragments: Sequence[FragmentText], types: Mapping[str, pa.DataType]) -> Change:
    """Return the change that adds converted columns under names of their own; `fragments` are all of the dataset."""
    add = _converted_fields(dataset, types)
    with lance_errors(f"converting columns of {dataset.ref}"):
        schema = edit_schema(dataset.lance.lance_schema, add=add, next_id=int(dataset.lance.max_field_id) + 1)
    accept_proofs(dataset, fragments)
    operation = LanceOperation.Merge(parse_fragments(fragments), schema, preserves_nullability=True)
    return changed(dataset, operation, dataset.count(), stored_files(dataset.fragments))


def _converted_fields(dataset: Dataset, types: Mapping[str, pa.DataType]) -> list[pa.Field[Any]]:
    fields = [(dataset.schema.field(name), type_) for name, type_ in types.items()]
    return [pa.field(converted_name(field.name), type_, True, field.metadata) for field, type_ in fields]


def _check(schema: pa.Schema, add: Sequence[pa.Field[Any]], drop: Collection[str], rename: Mapping[str, str]) -> None:
    # The planner has checked all of this against the catalog, so a breach here is our own bug.
    for name in (*drop, *rename):
        assert name in schema.names, f"no column `{name}`"
    assert not set(drop) & set(rename), "a column cannot be dropped and renamed at once"
    assert all(field.nullable for field in add), "an added column must be nullable"
    names = [rename.get(name, name) for name in schema.names if name not in drop] + [field.name for field in add]
    assert len(set(names)) == len(names), f"two columns would share a name: {sorted(names)}"
