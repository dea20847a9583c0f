"""Nearest vectors are exact whichever way they are found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from omnigraph.engine.read.search import nearest
from omnigraph.errors import DataError
from omnigraph.store import vector as store_vector
from tests.engine.search.notes import Notes

# Each way forces one path of the search: all in memory, by the index, as a stream.
WAYS = {
    "memory": {},
    "index": {"UNINDEXED_ROWS_MAX": 0},
    "stream": {"VECTOR_MATRIX_BYTES_MAX": 0},
    "rough": {"_BLOCK_ROWS": 2},
}


def many(path: Path, count: int = 300) -> tuple[Notes, dict[str, list[float]]]:
    """Notes whose vectors are distinct, with some notes that have none, and one changed after the index was built."""
    numbers = np.random.default_rng(7).normal(size=(count, 3)).astype(np.float32)
    vectors: dict[str, list[float]] = {f"n{index:03}": row.tolist() for index, row in enumerate(numbers)}
    notes = Notes.at(path)
    texts: dict[str, str | None] = dict.fromkeys([*vectors, "none1", "none2"])
    notes.put(texts, vectors)
    notes.index()
    vectors["n005"] = [9.0, 9.0, 9.0]
    notes.put({"n005": None, "none3": None}, {"n005": vectors["n005"]})
    notes.fold()
    vectors["late"] = [0.0, 0.0, 0.0]
    notes.put({"late": None}, {"late": vectors["late"]})
    return notes, vectors


def by_hand(vectors: dict[str, list[float]], query: list[float]) -> list[tuple[float, str]]:
    """Return distance and name of every vector, nearest first."""
    wide = np.asarray(query, np.float32).astype(np.float64)
    return sorted((float(np.linalg.norm(np.asarray(one, np.float64) - wide)), name) for name, one in vectors.items())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("query", [[0.0, 0.0, 0.0], [9.0, 9.0, 9.0], [-1.5, 0.25, 2.0]])
def test_nearest_any_way_gives_the_exact_best(
    way: str, query: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in WAYS[way].items():
        monkeypatch.setattr(store_vector, name, value)
    notes, vectors = many(tmp_path)
    rows, distances = nearest(notes.view, "Note", "vec", query, None, 7)
    expected = by_hand(vectors, query)[:7]
    assert notes.names(rows.tolist()) == [name for _, name in expected]
    assert distances == pytest.approx([distance for distance, _ in expected], rel=1e-12)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("told", [10_000, 1])
def test_nearest_candidates_restrict_before_the_limit(
    way: str, told: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in WAYS[way].items():
        monkeypatch.setattr(store_vector, name, value)
    monkeypatch.setattr(store_vector, "TOLD_ROWS_MAX", told)
    notes, vectors = many(tmp_path)
    names = ["n001", "n002", "n003", "n004", "n005"]
    among = np.array(notes.rows(*names, "none1"), np.uint64)
    rows, _ = nearest(notes.view, "Note", "vec", [0.0, 0.0, 0.0], among, 2)
    expected = by_hand({name: vectors[name] for name in names}, [0.0, 0.0, 0.0])[:2]
    assert notes.names(rows.tolist()) == [name for _, name in expected]


def test_nearest_without_a_limit_gives_every_vector_and_no_null(tmp_path: Path) -> None:
    notes, vectors = many(tmp_path)
    rows, _ = nearest(notes.view, "Note", "vec", [0.0, 0.0, 0.0])
    assert sorted(notes.names(rows.tolist())) == sorted(vectors)


def test_nearest_equal_distances_at_the_limit_are_all_given_in_row_order(tmp_path: Path) -> None:
    notes = Notes.at(tmp_path)
    vectors = {"far": [9, 0, 0], "a": [1, 0, 0], "b": [0, 1, 0], "c": [0, 0, 1], "near": [0, 0, 0]}
    notes.put(dict.fromkeys(vectors), vectors)
    rows, _ = nearest(notes.view, "Note", "vec", [0.0, 0.0, 0.0], None, 2)
    assert rows.tolist() == [*notes.rows("near"), *sorted(notes.rows("a", "b", "c"))]


def test_nearest_hardly_different_vectors_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_vector, "_BLOCK_ROWS", 2)
    base = np.float32(1000.0)
    step = np.spacing(base)
    vectors = {f"v{index:02}": [float(base + index * step), 1000.0, 1000.0] for index in range(40)}
    notes = Notes.at(tmp_path)
    notes.put(dict.fromkeys(vectors), vectors)
    rows, _ = nearest(notes.view, "Note", "vec", vectors["v20"], None, 3)
    assert set(notes.names(rows.tolist())) == {"v19", "v20", "v21"}


def test_nearest_type_without_entities_finds_nothing(tmp_path: Path) -> None:
    rows, distances = nearest(Notes.at(tmp_path).view, "Note", "vec", [0.0, 0.0, 0.0], None, 3)
    assert rows.tolist() == distances.tolist() == []


@pytest.mark.parametrize(
    "query", [[1.0], [1.0] * 4, [[1.0, 1.0, 1.0]], [0.0, float("nan"), 0.0], [0.0, float("inf"), 0.0], [1e39, 0.0, 0.0]]
)
def test_nearest_vector_that_does_not_fit_is_refused(query: list[float], tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        nearest(Notes.at(tmp_path).view, "Note", "vec", query, None, 3)
    assert caught.value.context["rule"] == "E4"
