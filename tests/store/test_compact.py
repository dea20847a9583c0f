"""Compaction and the folding of small tails."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.store.index.index_build import IndexKind, IndexSpec, build, coverage
from omnigraph.store.write import compaction
from omnigraph.store.write.compaction import fold_tail, fragment_counts, plan
from omnigraph.store.write.transaction import append
from omnigraph.store.write.upsert import upsert
from tests.support.staged_fixtures import (
    blobs,
    commit,
    create,
    delete_ids,
    delete_where,
    image,
    people,
    pictures,
    rewrite,
    rows,
)

pytestmark = pytest.mark.slow

BY_ID = IndexSpec("id", IndexKind.BTREE, "by id")
BY_TEXT = IndexSpec("text", IndexKind.FULLTEXT, "by text")


def test_rewrite_many_fragments_become_one_with_the_same_rows(tmp_path: Path) -> None:
    dataset = create(tmp_path, *(people(range(i, i + 3)) for i in range(0, 30, 3)))
    dataset = commit(dataset, upsert(dataset, people([4, 40], n=-1)))
    dataset = commit(dataset, delete_ids(dataset, pa.array(["k7"])))
    before = rows(dataset)
    change = rewrite(dataset)
    assert change is not None
    assert fragment_counts(change) == (11, 1)
    dataset = commit(dataset, change)
    assert (dataset.fragment_rows, rows(dataset)) == ([30], before)
    assert rewrite(dataset) is None


def test_rewrite_covered_and_uncovered_fragments_stay_apart(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(3)), people(range(3, 6)))
    dataset = commit(dataset, build(dataset, [BY_ID, BY_TEXT]))
    dataset = commit(dataset, append(dataset, people([10])))
    dataset = commit(dataset, append(dataset, people([11])))
    dataset = commit(dataset, rewrite(dataset))
    assert dataset.fragment_rows == [6, 2]
    assert coverage(dataset)["by text"].uncovered == frozenset({5})


def test_rewrite_after_an_emptied_fragment_reuses_no_indexed_id(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(3)), people(range(3, 6)), people(range(6, 9)))
    dataset = commit(dataset, build(dataset, [BY_ID]))
    dataset = commit(dataset, delete_where(dataset, "id IN ('k6', 'k7', 'k8')"))
    dataset = commit(dataset, rewrite(dataset))
    assert [row["id"] for row in dataset.read(["id"], "id = 'k4'").to_pylist()] == ["k4"]
    assert coverage(dataset)["by id"].indexed == frozenset()


def test_rewrite_deleted_rows_are_gone_from_the_file(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(10)))
    dataset = commit(dataset, delete_where(dataset, "n < 6"))
    dataset = commit(dataset, rewrite(dataset))
    (fragment,) = dataset.lance.get_fragments()
    assert (fragment.physical_rows, fragment.num_deletions) == (6, 0)


def test_rewrite_blobs_are_exact(tmp_path: Path) -> None:
    dataset = create(tmp_path, pictures(range(5)), pictures(range(5, 12)), schema=pictures([]).schema)
    dataset = commit(dataset, delete_ids(dataset, pa.array(["k4"])))
    dataset = commit(dataset, rewrite(dataset))
    assert blobs(dataset) == {f"k{i}": image(i) for i in range(12) if i != 4}


def test_rewrite_empty_or_single_fragment_is_nothing(tmp_path: Path) -> None:
    assert rewrite(create(tmp_path / "empty")) is None
    assert rewrite(create(tmp_path / "one", people(range(9)))) is None


def test_plan_tasks_survive_a_pickle(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(3)), people(range(3, 6)))
    (task,) = pickle.loads(pickle.dumps(plan(dataset)))
    assert len(task.execute(dataset.lance).new_fragments) == 1


def test_fold_tail_few_fragments_is_nothing(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(50)), *(people([100 + i]) for i in range(4)))
    assert fold_tail(dataset, 4) is None


def test_fold_tail_one_too_many_folds_only_the_small_ones(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(50)), *(people([100 + i]) for i in range(5)))
    before = rows(dataset)
    dataset = commit(dataset, fold_tail(dataset, 4))
    assert (dataset.fragment_rows, rows(dataset)) == ([50, 5], before)
    assert fold_tail(dataset, 4) is None


def test_fold_tail_updates_and_deletes_keep_ids_versions_and_blobs(tmp_path: Path) -> None:
    dataset = create(tmp_path, pictures(range(20)), *(pictures([20 + i]) for i in range(4)), schema=pictures([]).schema)
    dataset = commit(dataset, upsert(dataset, pictures([3, 21])))
    dataset = commit(dataset, upsert(dataset, pictures([8, 9])))
    dataset = commit(dataset, delete_ids(dataset, pa.array(["k22", "k8"])))
    before = rows(dataset)
    dataset = commit(dataset, fold_tail(dataset, 3))
    assert (dataset.fragment_rows, rows(dataset)) == ([17, 5], before)
    assert blobs(dataset) == {f"k{i}": image(i) for i in range(24) if i not in (8, 22)}


def test_fold_tail_covered_fragments_stay_covered(tmp_path: Path) -> None:
    dataset = create(tmp_path, *(people([i]) for i in range(6)))
    dataset = commit(dataset, build(dataset, [BY_ID, BY_TEXT]))
    assert fold_tail(dataset, 4) is None
    for number in range(10, 15):
        dataset = commit(dataset, append(dataset, people([number])))
    dataset = commit(dataset, fold_tail(dataset, 4))
    assert dataset.fragment_rows == [1] * 6 + [5]
    assert {one.indexed for one in coverage(dataset).values()} == {frozenset(range(6))}


def test_fold_tail_on_branch_folds_what_it_inherited(tmp_path: Path) -> None:
    main = create(tmp_path, *(pictures([i]) for i in range(4)), schema=pictures([]).schema)
    branch = main.store.fork(main, "01HZX")
    branch = commit(branch, append(branch, pictures([4])))
    before = rows(branch)
    branch = commit(branch, fold_tail(branch, 4))
    assert (branch.fragment_rows, rows(branch)) == ([5], before)
    assert blobs(branch) == {f"k{i}": image(i) for i in range(5)}
    assert main.fragment_rows == [1] * 4


def test_fold_tail_after_every_commit_keeps_fragments_few(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(1000, 1200)))
    dataset = commit(dataset, build(dataset, [BY_ID]))
    rewritten = 0
    for number in range(130):
        dataset = commit(dataset, append(dataset, people([number])))
        change = fold_tail(dataset, 4)
        if change is not None:
            rewritten += sum(dataset.fragment_rows[-fragment_counts(change)[0] :])
            dataset = commit(dataset, change)
        assert len(dataset.fragment_rows) <= 1 + 4 * 4
    assert dataset.count() == 330
    # Every row moves up at most once per tier, and 130 rows fill three tiers of four.
    assert rewritten <= 3 * 130


def test_fold_tail_large_files_are_left_for_a_rewrite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = create(tmp_path, *(people([i]) for i in range(5)))
    assert fold_tail(dataset, 4) is not None
    monkeypatch.setattr(compaction, "FOLD_BYTES_MAX", 4_000)
    assert fold_tail(dataset, 4) is None
