"""Positions: every row that holds a value is found, whatever happened to the dataset, and memory stays bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.store.index.index_build import IndexKind, IndexSpec, build
from omnigraph.store.objects.backend import Meter
from omnigraph.store.read import lookup
from omnigraph.store.read.lookup import Positions, find, find_rows, hash_values, is_hashable
from omnigraph.store.write.upsert import upsert
from tests.support.staged_fixtures import commit, create, delete_ids, people

TEXTS = st.lists(st.text(max_size=300), min_size=1, max_size=20)


def ids(found: pa.Table) -> list[str]:
    return sorted(map(str, found["id"].to_pylist()))


@pytest.mark.slow
@given(TEXTS)
def test_hash_values_of_texts_differ_as_the_texts_do(texts: list[str]) -> None:
    hashes = hash_values(pa.array(texts, pa.string()))
    assert len(set(hashes.tolist())) == len(set(texts))
    sliced = hash_values(pa.array(["other", *texts], pa.string())[1:])
    assert hashes.tolist() == sliced.tolist()


def test_hash_values_of_long_texts_that_differ_in_the_middle_collide() -> None:
    one, two = ("x" * 100 + middle + "y" * 100 for middle in "ab")
    assert len(set(hash_values(pa.array([one, two])).tolist())) == 1


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0.0, -0.0, 1.5]),
        pa.array([0.0, -0.0, 1.5], pa.float32()),
        pa.array([True, True, False]),
        pa.array([5, 5, 2**64 - 1], pa.uint64()),
        pa.array([5, 5, -(2**63)], pa.int64()),
        pa.array([1, 1, 2], pa.date32()),
        pa.array([86_400_000, 86_400_000, 0], pa.date64()),
        pa.array([1, 1, 2], pa.timestamp("us", "UTC")),
    ],
    ids=lambda values: str(values.type),
)
def test_hash_values_first_two_are_equal_and_the_third_is_not(values: pa.Array[Any]) -> None:
    one, two, three = hash_values(values).tolist()
    assert one == two != three
    assert is_hashable(values.type)


def test_is_hashable_lists_and_vectors_are_not() -> None:
    assert not is_hashable(pa.list_(pa.string()))
    assert not is_hashable(pa.list_(pa.float32(), 4))


def test_find_colliding_hashes_tells_values_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = create(tmp_path, people(range(200)))

    def coarse(values: pa.Array[Any]) -> Any:
        return hash_values(values) % np.uint64(50)

    monkeypatch.setattr(lookup, "hash_values", coarse)
    monkeypatch.setattr(lookup, "hash_values", coarse)
    for number in range(0, 220, 20):
        assert ids(find(dataset, pa.array([f"k{number}"]))) == [f"k{number}"] * (number < 200)


def test_find_rows_all_columns_must_match_and_nulls_never_do(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(30)), people(range(30, 33), n=7))
    texts = pa.array([f"quick fox number {one}" for one in (0, 7, 31)])
    where: dict[str, pa.Array[Any]] = {"n": pa.array([7, 31], pa.int32()), "text": texts}
    assert ids(find_rows(dataset, ["id"], where)) == ["k31", "k7"]


def test_find_after_update_delete_and_fork_agrees_with_a_scan(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(50)))
    every = pa.array([f"k{number}" for number in range(60)])
    for step in range(3):
        assert find(dataset, every[:5]).num_rows == 5 - step
        dataset = commit(dataset, delete_ids(dataset, pa.array([f"k{step}"])))
        dataset = commit(dataset, upsert(dataset, people([10 + step, 50 + step], n=-1)))
        dataset = dataset.store.fork(dataset, f"fork{step}")
        assert ids(find(dataset, every)) == ids(dataset.read(["id"]))
        changed = find_rows(dataset, ["id"], {"n": pa.array([-1], pa.int32())})
        assert changed.num_rows == 2 * (step + 1)


def test_find_older_version_after_deletes_still_has_the_row(tmp_path: Path) -> None:
    old = create(tmp_path, people(range(20)))
    new = commit(old, delete_ids(old, pa.array(["k3"])))
    assert find(new, pa.array(["k3"])).num_rows == 0
    assert find(old, pa.array(["k3"])).num_rows == 1


def test_positions_exceeding_their_bytes_are_forgotten(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(20)), people(range(20, 40)))
    dataset.store.positions = Positions(bytes_max=16 * 20)
    assert find(dataset, pa.array(["k3", "k33"])).num_rows == 2
    assert len(dataset.store.positions._segments.values()) == 1
    assert dataset.store.positions._segments.nbytes == 16 * 20


def test_positions_of_a_type_too_large_for_memory_are_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "POSITION_BUILD_ROWS_MAX", 5)
    dataset = create(tmp_path, people(range(20)))
    dataset.store.positions = Positions(bytes_max=16 * 20)
    for _ in range(4):
        assert find(dataset, pa.array(["k3"])).num_rows == 1
    assert dataset.store.positions._segments.values() == []


def test_positions_of_an_indexed_column_wait_for_many_lookups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "POSITION_BUILD_ROWS_MAX", 5)
    monkeypatch.setattr(lookup, "_PROBE_ROWS", 4)
    dataset = create(tmp_path, people(range(20)))
    dataset = commit(dataset, build(dataset, [IndexSpec("id", IndexKind.BTREE, "id")]))
    kept = []
    for _ in range(7):
        assert find(dataset, pa.array(["k3"])).num_rows == 1
        kept.append(len(dataset.store.positions._segments.values()))
    assert kept == [0, 0, 0, 0, 0, 1, 1]


def test_positions_of_rows_just_written_are_read_on_first_use(tmp_path: Path) -> None:
    log: list[tuple[str, str]] = []
    dataset = create(tmp_path, people(range(60)))
    dataset.store.meter = Meter(log)
    find(dataset, pa.array(["k3"]))
    dataset = commit(dataset, upsert(dataset, people([3, 90])))
    log.clear()
    assert ids(find(dataset, pa.array(["k91", "k5"]))) == ["k5"]
    assert [kind for kind, _ in log] == ["take"]
    assert ids(find(dataset, pa.array(["k90", "k3"]))) == ["k3", "k90"]
    assert [kind for kind, _ in log] == ["take", "fragments", "take"]
