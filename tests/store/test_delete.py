"""Deletes by id and by predicate."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from lance import LanceOperation

from omnigraph.errors import StorageError
from omnigraph.store.index.index_build import IndexKind, IndexSpec, build
from omnigraph.store.write.transaction import Change
from tests.support.staged_fixtures import blobs, commit, create, delete_ids, delete_where, image, people, pictures, rows

BY_ID = IndexSpec("id", IndexKind.BTREE, "id")


@pytest.mark.parametrize("indexed", [False, True])
def test_delete_ids_some_present_removes_exactly_those(tmp_path: Path, indexed: bool) -> None:
    dataset = create(tmp_path, people(range(10)), people(range(10, 20)))
    if indexed:
        dataset = commit(dataset, build(dataset, [BY_ID]))
    before = rows(dataset)
    dataset = commit(dataset, delete_ids(dataset, pa.array(["k3", "k12", "k19", "nobody"])))
    assert rows(dataset) == {key: row for key, row in before.items() if key not in ("k3", "k12", "k19")}


def test_delete_ids_none_present_is_nothing(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(3)))
    assert delete_ids(dataset, pa.array(["nobody"])) is None
    assert delete_ids(dataset, pa.array([], pa.string())) is None
    assert delete_where(dataset, "n > 1000") is None


def test_delete_ids_deleted_before_is_nothing(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(3)))
    dataset = commit(dataset, delete_ids(dataset, pa.array(["k1"])))
    assert delete_ids(dataset, pa.array(["k1"])) is None


def test_delete_where_all_rows_of_a_fragment_drops_it(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(1, 3)), people(range(10, 20)), people(range(40, 42)))
    change = delete_where(dataset, "id IN ('k1', 'k2', 'k10', 'k40', 'k41')")
    assert isinstance(change, Change)
    assert isinstance(change.transaction.operation, LanceOperation.Delete)
    assert list(change.transaction.operation.deleted_fragment_ids) == [0, 2]
    assert commit(dataset, change).fragment_rows == [9]


def test_delete_where_everything_leaves_an_empty_dataset(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(3)), people(range(3, 5)))
    dataset = commit(dataset, delete_where(dataset, "true"))
    assert (dataset.count(), dataset.fragment_rows, dataset.lance.has_stable_row_ids) == (0, [], True)


def test_delete_where_predicate_is_null_keeps_the_row(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(9)))
    nulls = dataset.count("n IS NULL")
    dataset = commit(dataset, delete_where(dataset, "n <> 4"))
    assert nulls == 3
    assert (dataset.count("n IS NULL"), dataset.count()) == (3, 4)


def test_delete_where_bad_predicate_is_a_storage_error(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(3)))
    with pytest.raises(StorageError):
        delete_where(dataset, "nope = 1")


def test_delete_ids_on_branch_leaves_source_alone(tmp_path: Path) -> None:
    main = create(tmp_path, people(range(5)))
    main = commit(main, delete_ids(main, pa.array(["k4"])))
    branch = main.store.fork(main, "01HZX")
    branch = commit(branch, delete_ids(branch, pa.array(["k1"])))
    assert (sorted(rows(branch)), sorted(rows(main))) == (["k0", "k2", "k3"], ["k0", "k1", "k2", "k3"])


def test_delete_ids_blob_rows_keeps_the_other_blobs(tmp_path: Path) -> None:
    dataset = create(tmp_path, pictures(range(8)), schema=pictures([]).schema)
    dataset = commit(dataset, delete_ids(dataset, pa.array(["k0", "k5"])))
    assert blobs(dataset) == {f"k{i}": image(i) for i in (1, 2, 3, 4, 6, 7)}
