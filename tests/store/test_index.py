"""Indexes: built in one transaction, covered per fragment, folded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lance import LanceOperation

from omnigraph.store.index.index_build import IndexKind, IndexSpec, build, coverage, missing
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.write.transaction import append
from omnigraph.store.write.upsert import upsert
from tests.support.staged_fixtures import SCHEMA, commit, create, delete_where, fold, people, rewrite, rows

pytestmark = pytest.mark.slow

BY_ID = IndexSpec("id", IndexKind.BTREE, "by id")
BY_N = IndexSpec("n", IndexKind.BTREE, "by n")
BY_TEXT = IndexSpec("text", IndexKind.FULLTEXT, "by text")
BY_VECTOR = IndexSpec("vector", IndexKind.VECTOR, "by vector")
ALL = (BY_ID, BY_N, BY_TEXT, BY_VECTOR)


def answers(dataset: Dataset) -> list[Any]:
    """Return what the four indexes answer; the same rows must come whatever they cover."""
    lance = dataset.lance
    near = {"column": "vector", "q": np.array([21.2, 1, 2, 3], np.float32), "k": 3}
    return [
        sorted(str(one) for one in dataset.read(["id"], "id IN ('k4', 'k12', 'k21')")["id"].to_pylist()),
        dataset.count("n >= 4"),
        lance.to_table(full_text_query="21", columns=["id", "_score"])["id"].to_pylist(),
        lance.to_table(full_text_query="fox", columns=["id", "_score"]).num_rows,
        lance.to_table(nearest=near, columns=["id", "_distance"]).to_pylist(),
    ]


def segments(dataset: Dataset) -> dict[str, list[list[int]]]:
    return {
        one.name: sorted(sorted(segment.fragment_ids) for segment in one.segments)
        for one in dataset.lance.describe_indices()
    }


def test_build_all_kinds_is_one_transaction_and_is_used(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(20)), people(range(20, 25)))
    plain = dataset.lance.to_table(
        nearest={"column": "vector", "q": np.array([21.2, 1, 2, 3], np.float32), "k": 3}, columns=["id", "_distance"]
    ).to_pylist()
    after = commit(dataset, build(dataset, ALL))
    assert after.version == dataset.version + 1
    assert segments(after) == {spec.name: [[0, 1]] for spec in ALL}
    assert answers(after)[4] == plain
    assert answers(after)[:4] == [["k12", "k21", "k4"], 14, ["k21"], 25]
    assert "ScalarIndexQuery" in after.lance.scanner(filter="id = 'k4'").explain_plan()
    assert build(after, ALL) is None


def test_build_only_missing_ones_are_built(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(5)))
    dataset = commit(dataset, build(dataset, [BY_ID]))
    change = build(dataset, [BY_ID, BY_N])
    assert change is not None
    assert isinstance(change.transaction.operation, LanceOperation.CreateIndex)
    assert [index.name for index in change.transaction.operation.new_indices] == ["by n"]
    assert commit(dataset, change).version == dataset.version + 1


def test_build_empty_dataset_is_nothing(tmp_path: Path) -> None:
    dataset = create(tmp_path)
    assert build(dataset, ALL) is None
    assert missing(dataset, ALL) == ([], [])
    assert fold(dataset) is None


def test_build_vector_without_vectors_is_pending(tmp_path: Path) -> None:
    dataset = create(tmp_path, people([0, 5, 10]))
    ready, pending = missing(dataset, ALL)
    assert ready == [BY_ID, BY_N, BY_TEXT]
    assert [(one.spec, one.reason) for one in pending] == [(BY_VECTOR, "the column holds no vector yet")]
    dataset = commit(dataset, build(dataset, ALL))
    assert "by vector" not in coverage(dataset)
    assert build(dataset, ALL) is None
    dataset = commit(dataset, upsert(dataset, people([5, 6])))
    assert "by vector" in coverage(commit(dataset, build(dataset, ALL)))


@pytest.mark.parametrize(
    ("values", "probe"),
    [
        (pa.array([True, False, None]), "c = true"),
        (pa.array([1.5, -1.5, None], pa.float64()), "c = 1.5"),
        (pa.array([1.5, -1.5, None], pa.float32()), "c > 0"),
        (pa.array([2**63, 1, None], pa.uint64()), "c > 5"),
        (pa.array([7, 0, None], pa.date32()), "c = date '1970-01-08'"),
        (pa.array([7, 0, None], pa.timestamp("us", "UTC")), "c > timestamp '1970-01-01 00:00:00'"),
    ],
    ids=["bool", "float64", "float32", "uint64", "date", "timestamp"],
)
def test_build_btree_of_each_type_is_used(tmp_path: Path, values: pa.Array[Any], probe: str) -> None:
    schema = pa.schema([SCHEMA.field("id"), pa.field("c", values.type)])
    dataset = create(tmp_path, pa.table({"id": ["a", "b", "c"], "c": values}, schema=schema), schema=schema)
    dataset = commit(dataset, build(dataset, [IndexSpec("c", IndexKind.BTREE, "c")]))
    assert "ScalarIndexQuery" in dataset.lance.scanner(filter=probe).explain_plan()
    assert dataset.read(["id"], probe)["id"].to_pylist() == ["a"]


def test_build_leaves_no_empty_folders(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(5)))
    dataset = commit(dataset, build(dataset, ALL))
    indexes = [one for one in tmp_path.rglob("_indices/*") if one.is_dir()]
    assert len(indexes) == len(ALL)
    assert [one for index in indexes for one in index.rglob("*") if one.is_dir()] == []


def test_coverage_after_writes_names_the_new_fragments(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(5)), people(range(5, 8)))
    dataset = commit(dataset, build(dataset, [BY_ID, BY_TEXT]))
    dataset = commit(dataset, append(dataset, people([10])))
    dataset = commit(dataset, upsert(dataset, people([1])))
    dataset = commit(dataset, delete_where(dataset, "id IN ('k5', 'k6', 'k7')"))
    found = coverage(dataset)
    assert found.keys() == {"by id", "by text"}
    assert {(one.indexed, one.uncovered) for one in found.values()} == {(frozenset({0}), frozenset({2, 3}))}


def test_fold_new_fragments_become_a_delta_segment(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(20)))
    dataset = commit(dataset, build(dataset, ALL))
    for number in (20, 21, 22):
        dataset = commit(dataset, append(dataset, people([number])))
    scanned = answers(dataset)
    dataset = commit(dataset, fold(dataset))
    assert segments(dataset) == {spec.name: [[0], [1, 2, 3]] for spec in ALL}
    assert answers(dataset) == scanned
    assert fold(dataset) is None


def test_fold_small_segments_are_merged_large_ones_stay(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(100)))
    dataset = commit(dataset, build(dataset, ALL))
    for number in range(100, 116):
        dataset = commit(dataset, append(dataset, people([number])))
        dataset = commit(dataset, fold(dataset))
    for found in segments(dataset).values():
        assert found[0] == [0]
        assert 2 <= len(found) <= 6
        assert sorted(fragment for segment in found for fragment in segment) == list(range(17))
    scanned = create(tmp_path / "plain", people(range(116)))
    scanned = commit(scanned, build(scanned, ALL))
    assert answers(dataset) == answers(scanned)


def test_fold_as_much_new_as_old_is_a_rebuild(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(5)))
    dataset = commit(dataset, build(dataset, ALL))
    dataset = commit(dataset, append(dataset, people(range(5, 12))))
    assert segments(commit(dataset, fold(dataset))) == {spec.name: [[0, 1]] for spec in ALL}


def test_fold_fragment_without_vectors_is_covered(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(20)))
    dataset = commit(dataset, build(dataset, ALL))
    dataset = commit(dataset, append(dataset, people([25])))
    dataset = commit(dataset, fold(dataset))
    assert coverage(dataset)["by vector"].uncovered == frozenset()
    assert dataset.count("vector IS NULL") == 5
    assert answers(dataset)[:4] == [["k12", "k4"], 12, [], 21]
    assert [row["id"] for row in answers(dataset)[4]] == ["k19", "k18", "k17"]


def test_fold_after_rewrite_restores_coverage(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(20)), people(range(20, 25)))
    dataset = commit(dataset, build(dataset, ALL))
    before, found = rows(dataset), answers(dataset)
    dataset = commit(dataset, rewrite(dataset))
    dataset = commit(dataset, fold(dataset))
    assert segments(dataset) == {spec.name: [[2]] for spec in ALL}
    assert (rows(dataset), answers(dataset)) == (before, found)


def test_fold_on_branch_leaves_source_alone(tmp_path: Path) -> None:
    main = create(tmp_path, people(range(20)))
    main = commit(main, build(main, ALL))
    branch = main.store.fork(main, "01HZX")
    branch = commit(branch, append(branch, people([21, 22])))
    branch = commit(branch, fold(branch))
    assert segments(branch)["by n"] == [[0], [1]]
    assert segments(main)["by n"] == [[0]]
    assert answers(branch)[:3] == [["k12", "k21", "k4"], 12, ["k21"]]
