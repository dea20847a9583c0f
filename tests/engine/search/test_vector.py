"""Nearest vectors are exact whichever way they are found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from omnigraph.engine.query.ranking import describe_nearest, nearest
from omnigraph.errors import DataError
from omnigraph.store.index import exact_knn, index_build, vector_search
from tests.support.search_fixtures import Notes

# Each way forces one path of the search: all in memory, by the index, as a stream, by a rough look first, in clusters.
WAYS: dict[str, list[tuple[object, str, int]]] = {
    "memory": [],
    "index": [(vector_search, "VECTOR_UNPARTITIONED_ROWS_MAX", 0)],
    "partitions": [
        (vector_search, "VECTOR_UNPARTITIONED_ROWS_MAX", 0),
        (exact_knn, "VECTOR_UNPARTITIONED_ROWS_MAX", 0),
        (exact_knn, "VECTOR_PARTITION_ROWS", 8),
        (vector_search, "SEARCHES_BEFORE_BALLS", 0),
        (vector_search, "READ_SHARE_MIN", 0),
    ],
    "compared": [
        (vector_search, "VECTOR_UNPARTITIONED_ROWS_MAX", 0),
        (exact_knn, "VECTOR_UNPARTITIONED_ROWS_MAX", 0),
        (exact_knn, "VECTOR_PARTITION_ROWS", 8),
        (vector_search, "SEARCHES_BEFORE_BALLS", 0),
        (vector_search, "READ_SHARE_MIN", 10**9),
    ],
    "stream": [(vector_search, "VECTOR_MATRIX_BYTES_MAX", 0)],
    "rough": [(exact_knn, "_BLOCK_ROWS", 2)],
    "clusters": [
        (vector_search, "VECTOR_UNPARTITIONED_ROWS_MAX", 0),
        (vector_search, "SEARCHES_BEFORE_CLUSTERS", 0),
        (exact_knn, "_CLUSTER_ROWS", 8),
    ],
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


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_nearest_any_way_gives_the_exact_best(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in WAYS[way]:
        monkeypatch.setattr(module, name, value)
    notes, vectors = many(tmp_path)
    for query in ([0.0, 0.0, 0.0], [9.0, 9.0, 9.0], [-1.5, 0.25, 2.0]):
        rows, distances = nearest(notes.view, "Note", "vec", query, None, 7)
        expected = by_hand(vectors, query)[:7]
        assert notes.names(rows.tolist()) == [name for _, name in expected]
        assert distances == pytest.approx([distance for distance, _ in expected], rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("told", [10_000, 1])
def test_nearest_candidates_restrict_before_the_limit(
    way: str, told: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in WAYS[way]:
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(vector_search, "TAKEN_CANDIDATES_MAX", told)
    notes, vectors = many(tmp_path)
    names = ["n001", "n002", "n003", "n004", "n005"]
    among = np.array(notes.rows(*names, "none1"), np.uint64)
    rows, _ = nearest(notes.view, "Note", "vec", [0.0, 0.0, 0.0], among, 2)
    expected = by_hand({name: vectors[name] for name in names}, [0.0, 0.0, 0.0])[:2]
    assert notes.names(rows.tolist()) == [name for _, name in expected]


def test_partitions_apart_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in WAYS["partitions"]:
        monkeypatch.setattr(module, name, value)
    random = np.random.default_rng(3)
    numbers = (np.repeat(np.eye(3) * 100, 64, axis=0) + random.normal(size=(192, 3))).astype(np.float32)
    vectors = {f"n{place:03}": row.tolist() for place, row in enumerate(numbers)}
    notes = Notes.at(tmp_path)
    notes.put(dict.fromkeys(vectors), vectors)
    notes.index()
    read: list[int] = []
    inner = vector_search.Partitions.read

    def counted(self: vector_search.Partitions, place: int) -> exact_knn.Matrix:
        read.append(place)
        return inner(self, place)

    monkeypatch.setattr(vector_search.Partitions, "read", counted)
    rows, _ = nearest(notes.view, "Note", "vec", [100.0, 0.0, 0.0], None, 3)
    assert notes.names(rows.tolist()) == [name for _, name in by_hand(vectors, [100.0, 0.0, 0.0])[:3]]
    # A third of the vectors lies where the query is; nothing else can be near enough.
    assert 0 < len(read) <= 12
    found = notes.session.view()
    assert "partitions of the index, bounded" in describe_nearest(found, "Note", "vec", 3)
    assert describe_nearest(found, "Note", "vec", None) == "in memory"


@pytest.mark.slow
def test_index_of_one_large_partition_is_compared_and_then_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As earlier versions built it."""
    monkeypatch.setattr(vector_search, "VECTOR_UNPARTITIONED_ROWS_MAX", 0)
    notes, vectors = many(tmp_path)
    for module in (exact_knn, vector_search, index_build):
        monkeypatch.setattr(module, "VECTOR_UNPARTITIONED_ROWS_MAX", 0)
    monkeypatch.setattr(vector_search, "SEARCHES_BEFORE_BALLS", 0)
    monkeypatch.setattr(exact_knn, "VECTOR_PARTITION_ROWS", 8)
    for text in ("all compared", "bounded by their reach"):
        rows, _ = nearest(notes.view, "Note", "vec", [0.1, 0.2, 0.3], None, 7)
        assert notes.names(rows.tolist()) == [name for _, name in by_hand(vectors, [0.1, 0.2, 0.3])[:7]]
        assert text in describe_nearest(notes.view, "Note", "vec", 7)
        if text == "all compared":
            notes.fold()


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
    monkeypatch.setattr(exact_knn, "_BLOCK_ROWS", 2)
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


def matrix_of(numbers: NDArray[np.float32]) -> exact_knn.Matrix:
    return exact_knn.Matrix(np.arange(len(numbers), dtype=np.uint64), numbers)


@pytest.mark.parametrize("limit", [1, 10, 500, 3_000])
@pytest.mark.parametrize("spread", [0.05, 5.0], ids=["apart", "mixed"])
def test_clusters_whatever_the_spread_find_what_the_matrix_finds(limit: int, spread: float) -> None:
    random = np.random.default_rng(3)
    centres = random.normal(size=(12, 6))
    numbers = (centres[random.integers(0, 12, 2_000)] + spread * random.normal(size=(2_000, 6))).astype(np.float32)
    # Many equal distances, so that ties at the limit lie in several clusters.
    numbers[::7] = numbers[::7].round()
    whole = matrix_of(numbers)
    clusters = exact_knn.Clusters(whole)
    for query in [numbers[0], numbers[1].round(), np.zeros(6, np.float32), np.full(6, 50, np.float32)]:
        rows, distances = clusters.nearest(query, limit)
        expected, exact = whole.nearest(query, limit)
        assert rows.tolist() == expected.tolist()
        assert distances.tolist() == exact.tolist()


def test_clusters_apart_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    centres = 100 * np.eye(8, dtype=np.float32)
    numbers = centres[random.integers(0, 8, 4_000)] + random.normal(size=(4_000, 8)).astype(np.float32)
    clusters = exact_knn.Clusters(matrix_of(numbers))
    compared: list[int] = []
    exactly = exact_knn.distances_to

    def counted(query: exact_knn.Vectors, vectors: exact_knn.Vectors) -> NDArray[np.float64]:
        compared.append(len(vectors))
        return exactly(query, vectors)

    monkeypatch.setattr(exact_knn, "distances_to", counted)
    clusters.nearest(centres[3], 5)
    assert 0 < sum(compared) < 1_000


def test_clusters_of_numbers_too_large_to_multiply_are_all_looked_at() -> None:
    numbers = np.array([[scale, 0.0] for scale in np.linspace(-3e38, 3e38, 400)], np.float32)
    whole = matrix_of(numbers)
    for query in (numbers[7], numbers[200]):
        rows, _ = exact_knn.Clusters(whole).nearest(query, 3)
        assert rows.tolist() == whole.nearest(query, 3)[0].tolist()
