"""Upserts, updates and strict inserts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from lance import LanceOperation

from omnigraph.store.index.index_build import IndexKind, IndexSpec, build
from omnigraph.store.read.lookup import FILTER_VALUES_MAX, find
from omnigraph.store.write.upsert import upsert
from tests.support.staged_fixtures import blobs, commit, create, image, people, pictures, rows

BY_ID = IndexSpec("id", IndexKind.BTREE, "id")
BY_N = IndexSpec("n", IndexKind.BTREE, "n")


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("size", [2, 102])
def test_upsert_existing_and_new_rows_replaces_and_adds(tmp_path: Path, size: int, indexed: bool) -> None:
    dataset = create(tmp_path, people(range(200)), people(range(200, 205)))
    if indexed:
        dataset = commit(dataset, build(dataset, [BY_ID]))
    dataset = commit(dataset, upsert(dataset, people([205])))
    before = rows(dataset)
    dataset = commit(dataset, upsert(dataset, people([205, 204, *range(size - 2), 300], n=-1)))
    after = rows(dataset)
    assert after.keys() - before.keys() == {"k300"}
    touched = {"k205", "k204", *(f"k{i}" for i in range(size - 2))}
    for key, row in before.items():
        if key in touched:
            assert after[key]["n"] == -1
            assert after[key]["_row_last_updated_at_version"] == dataset.version
            assert after[key]["_rowid"] not in {one["_rowid"] for one in before.values()}
        else:
            assert after[key] == row
    assert after["k300"]["_row_created_at_version"] == dataset.version


def test_upsert_only_new_rows_becomes_append(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(3)))
    change = upsert(dataset, people([7, 8]))
    assert change is not None
    assert isinstance(change.transaction.operation, LanceOperation.Append)
    moved = commit(dataset, upsert(dataset, people([0], n=9)))
    after = rows(commit(moved, change.rebased(moved)))
    assert {after["k7"]["_rowid"], after["k8"]["_rowid"]}.isdisjoint({row["_rowid"] for row in rows(moved).values()})


def test_upsert_with_known_ids_agrees_with_looking(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(3)))
    new = upsert(dataset, people([7]), find(dataset, pa.array(["k7"])))
    mixed = upsert(dataset, people([1, 7], n=5), find(dataset, pa.array(["k1", "k7"])))
    assert new is not None
    assert isinstance(new.transaction.operation, LanceOperation.Append)
    assert rows(commit(dataset, mixed), "n")["k1"] == {"id": "k1", "n": 5}


def test_upsert_no_rows_is_nothing(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(3)))
    assert upsert(dataset, people([])) is None


def test_upsert_into_empty_dataset_adds_rows(tmp_path: Path) -> None:
    dataset = create(tmp_path)
    assert rows(commit(dataset, upsert(dataset, people([1, 2])))).keys() == {"k1", "k2"}


def test_upsert_same_id_twice_is_refused_as_our_bug(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(3)))
    with pytest.raises(AssertionError, match="distinct"):
        upsert(dataset, people([9, 9]))


def test_upsert_changed_value_leaves_no_stale_index_hit(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(1, 50), n=7))
    dataset = commit(dataset, build(dataset, [BY_ID, BY_N]))
    dataset = commit(dataset, upsert(dataset, people([5], n=8)))
    assert (dataset.count("n = 7"), dataset.count("n = 8"), dataset.count("id = 'k5'")) == (48, 1, 1)
    assert dataset.read(["id"], "n = 7 AND id = 'k5'").num_rows == 0


def test_upsert_blob_rows_keeps_every_blob(tmp_path: Path) -> None:
    dataset = create(tmp_path, pictures(range(8)), schema=pictures([]).schema)
    dataset = commit(dataset, upsert(dataset, pictures([4, 5, 8])))
    assert blobs(dataset) == {f"k{i}": image(i) for i in range(9)}


def test_upsert_on_branch_leaves_source_alone(tmp_path: Path) -> None:
    main = create(tmp_path, people(range(5), n=1))
    branch = main.store.fork(main, "01HZX")
    branch = commit(branch, upsert(branch, people([1, 9], n=2)))
    assert (branch.count("n = 2"), branch.count(), main.count("n = 2"), main.count()) == (2, 6, 0, 5)


def test_find_more_ids_than_are_probed_scans(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(6)), people(range(6, 8)))
    ids = pa.array([f"k{i}" for i in range(5, FILTER_VALUES_MAX + 9)])
    assert set(find(dataset, ids)["id"].to_pylist()) == {"k5", "k6", "k7"}
    assert find(create(tmp_path / "empty"), ids).num_rows == 0


def test_find_ids_with_quotes_and_controls_are_exact(tmp_path: Path) -> None:
    odd = ["a'b", "x\\y", "n\x00l", "é", "a\nb", '"q"', "''", "%", ""]
    table = people(range(len(odd)))
    dataset = create(tmp_path, table.set_column(0, table.schema.field("id"), pa.array(odd)))
    dataset = commit(dataset, build(dataset, [BY_ID]))
    for text in odd:
        assert find(dataset, pa.array([text]))["id"].to_pylist() == [text]
