"""What the tests of staged operations share: a small dataset, and committing a change to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance import blob_array, blob_field
from lance.dataset import Index

from omnigraph.store.index import index_build
from omnigraph.store.objects.uri import Location
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.lookup import find
from omnigraph.store.store import Store
from omnigraph.store.write import compaction
from omnigraph.store.write.transaction import Change, append
from omnigraph.store.write.upsert import delete_found

KEY = {"lance-schema:unenforced-primary-key": "true"}
DIMENSION = 4

_FIELDS: list[pa.Field[Any]] = [
    pa.field("id", pa.string(), nullable=False, metadata=KEY),
    pa.field("n", pa.int32(), metadata={"omnigraph.stable_property_id": "7"}),
    pa.field("text", pa.string()),
    pa.field("tags", pa.list_(pa.string())),
    pa.field("vector", pa.list_(pa.float32(), DIMENSION)),
]
SCHEMA = pa.schema(_FIELDS)

BLOB_SCHEMA = pa.schema([SCHEMA.field("id"), SCHEMA.field("n"), blob_field("image")])


def delete_ids(dataset: Dataset, ids: pa.Array[Any]) -> Change | None:
    """Stage the removal of the rows with these ids; absent ids are skipped."""
    return delete_found(dataset, find(dataset, ids)) if len(ids) else None


def delete_where(dataset: Dataset, predicate: str) -> Change | None:
    """Stage the removal of the rows for which a predicate is true; where it is null the row stays."""
    return delete_found(dataset, dataset.read([], predicate, with_row_address=True))


def people(numbers: Iterable[int], n: int | None = None) -> pa.Table:
    """Return rows k<number>; every fifth has no vector, every third no `n`."""
    numbers = list(numbers)
    return pa.table(
        {
            "id": [f"k{number}" for number in numbers],
            "n": [n if n is not None else number if number % 3 else None for number in numbers],
            "text": [f"quick fox number {number}" for number in numbers],
            "tags": [["a", str(number)] for number in numbers],
            "vector": [[float(number), 1.0, 2.0, 3.0] if number % 5 else None for number in numbers],
        },
        schema=SCHEMA,
    )


def image(number: int) -> bytes | None:
    """Return a blob that is inline, of its own file, or absent, in turn."""
    return None if number % 4 == 3 else (b"%06d" % number) * (30_000 if number % 4 == 0 else 5)


def pictures(numbers: Iterable[int]) -> pa.Table:
    numbers = list(numbers)
    return pa.table(
        {
            "id": [f"k{number}" for number in numbers],
            "n": pa.array(numbers, pa.int32()),
            "image": blob_array([image(number) for number in numbers]),
        },
        schema=BLOB_SCHEMA,
    )


@contextmanager
def earlier_analyser() -> Iterator[None]:
    """Build text indexes as releases before the first analyser of ours did: Lance's defaults on the stored texts."""

    def build(dataset: Dataset, column: str, name: str, fragments: Sequence[int]) -> Index:
        handle = copy(dataset.lance)
        part = handle.create_index_uncommitted(
            column, index_type="INVERTED", name=name, fragment_ids=list(fragments), replace=True, with_position=True
        )
        return handle.merge_existing_index_segments([part])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_build, "build_text_segment", build)
        # An index of today is not one of theirs, and is built again as a whole.
        patch.setattr(index_build, "ANALYSER", -1)
        yield


def commit(dataset: Dataset, change: Change | None) -> Dataset:
    """Commit and link one change, and hold it to what it promised: its row count, and the files it names."""
    assert change is not None
    staged = dataset.store.commit(dataset, [change], {"test": "staging"})
    assert staged.dataset.count() == change.row_count
    staged.dataset.lance.validate()  # type: ignore[no-untyped-call]
    objects = dataset.store.objects
    # Blobs that are small enough lie inside the data file, and then the directory beside it does not exist.
    promised = [file for file in change.files if not (file.startswith("data/") and file.endswith("/"))]
    paths = [f"{dataset.ref.directory}/{file}" for file in promised]
    there = [objects.list(path.rstrip("/")) if path.endswith("/") else objects.exists(path) for path in paths]
    assert all(there), paths
    dataset.store.link(staged.ref, staged.manifest)
    return staged.dataset


def create(root: Path | str, *parts: pa.Table, schema: pa.Schema = SCHEMA) -> Dataset:
    """Return a dataset with one fragment per part."""
    dataset = Store(Location.parse(str(root))).create("nodes/a", schema)
    for part in parts:
        dataset = commit(dataset, append(dataset, part))
    return dataset


def rewrite(dataset: Dataset) -> Change | None:
    """Stage a whole compaction as one change."""
    return compaction.rewritten(dataset, [compaction.execute(dataset, task) for task in compaction.plan(dataset)])


def fold(dataset: Dataset) -> Change | None:
    """Stage what the indexes of a dataset do not cover yet as one change."""
    plan = index_build.renewal(dataset, ())
    return index_build.renewed(dataset, plan, [index_build.build_segment(dataset, one) for one in plan.segments])


def rows(dataset: Dataset, *columns: str) -> dict[str, Any]:
    """Return `{id: row}`, with row id and row versions unless columns are named."""
    wanted = list(columns) or ["n", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    return {row["id"]: row for row in dataset.lance.to_table(columns=["id", *wanted]).to_pylist()}


def blobs(dataset: Dataset) -> dict[str, bytes | None]:
    """Return `{id: blob}`."""
    table = dataset.lance.to_table(columns=["id"], with_row_id=True)
    values = dataset.lance.read_blobs("image", ids=table["_rowid"].combine_chunks())
    return {str(key): value for key, (_, value) in zip(table["id"].to_pylist(), values, strict=True)}
