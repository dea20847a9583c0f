"""Indexes never change a result: random worlds with churn from 0 to 90 %, against answers by definition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph.engine.query import ranking
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.store.index import exact_knn, index_build, text_search, vector_search
from omnigraph.store.read import live_rows
from omnigraph.store.write import compaction
from tests.engine.index.churn_world import World, schema
from tests.engine.index.test_coverage import lie
from tests.support.s3_server import S3Server, s3_server

pytestmark = pytest.mark.slow

__all__ = ["s3_server"]

STEPS = 12


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every path of a search be gone by worlds of a few dozen entities."""
    for module, name, value in (
        (vector_search, "VECTOR_UNPARTITIONED_ROWS_MAX", 0),
        (exact_knn, "VECTOR_UNPARTITIONED_ROWS_MAX", 0),
        (exact_knn, "VECTOR_PARTITION_ROWS", 8),
        (vector_search, "SEARCHES_BEFORE_BALLS", 1),
        (vector_search, "TAKEN_CANDIDATES_MAX", 3),
    ):
        monkeypatch.setattr(module, name, value)


def run(root: Path, seeds: Iterable[int], steps: int = STEPS) -> int:
    """Let worlds happen; return how many states were checked. A failure tells all that had happened."""
    checks = 0
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text_search, "_SCORED_DOCUMENTS_MAX", (0, 65_536)[seed % 5 > 2])
            patch.setattr(text_search, "_SCORED_MAX", (0, 3)[seed % 7 == 0])
            patch.setattr(text_search, "_RARE_MAX", (0, 3, 65_536)[seed % 4 % 3])
            patch.setattr(text_search, "_ASKED_MORE", 1)
            patch.setattr(vector_search, "READ_SHARE_MIN", (0, 4, 10**9)[seed % 3])
            patch.setattr(vector_search, "VECTOR_MATRIX_BYTES_MAX", (0, 2**27)[seed % 2])
            world = World(root / str(seed), seed)
            try:
                world.run(steps)
            except Exception as error:
                raise AssertionError("\n".join([f"seed {seed}", *world.log])) from error
            finally:
                world.graph.close()
        checks += world.checks
    return checks


def test_indexes_change_no_answer(tmp_path: Path) -> None:
    assert run(tmp_path, range(1)) > 5


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 300, 20))
def test_indexes_change_no_answer_in_any_world(tmp_path: Path, first: int) -> None:
    assert run(tmp_path, range(first, first + 20)) > 100


@pytest.mark.s3
def test_indexes_on_s3_are_read_there_by_forks_of_forks(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork finds the files of inherited indexes; nothing falls back to reading all texts or vectors."""
    monkeypatch.setattr(vector_search, "VECTOR_MATRIX_BYTES_MAX", 0)
    monkeypatch.setattr(vector_search, "SEARCHES_BEFORE_BALLS", 0)
    monkeypatch.setattr(vector_search, "READ_SHARE_MIN", 0)
    with og.init(s3_server.uri("churn"), schema=schema(0)) as graph:
        docs = [{"name": f"d{number}", "n": number, "text": "sea wind", "vec": [number, 0]} for number in range(30)]
        graph.ingest([{"type": "Doc", "data": one} for one in docs])
        graph.maintenance.ensure_indices()
        for name, source in (("b1", "main"), ("b2", "b1")):
            graph.branches.create(name, from_=source)
            graph.mutate(
                f'query q() {{ insert Doc {{ name: "{name}" n: 1 text: "reef" vec: [0.5, 0.0] }} }}', branch=name
            )
    with og.open(s3_server.uri("churn")) as graph:
        dataset = session_of(graph).view("b2").dataset(TypeKey("node:Doc"))
        texts = text_search.TextSearch(dataset, "text")
        assert texts._indexed is not None
        assert int(np.count_nonzero(texts._indexed.lengths)) == 30
        assert len(texts.matches("sea")) == 30
        assert len(texts.matches("reef")) == 2
        monkeypatch.setattr(vector_search.VectorSearch, "_streamed", lambda *_: pytest.fail("all vectors were read"))
        monkeypatch.setattr(vector_search, "VECTOR_MATRIX_BYTES_MAX", 64)
        _, distances = vector_search.VectorSearch(dataset, "vec").search(np.array([0.4, 0], np.float32), None, 3)
        assert distances.round(3).tolist() == [0.1, 0.1, 0.4]


# -- broken engines that these worlds must notice ------------------------------------------------------------------


def believe_writers(patch: pytest.MonkeyPatch) -> None:
    """Let writers claim what no index knows, and readers believe it."""
    lie(patch)
    patch.setattr(
        index_build._Honesty, "coverage", lambda self, one: frozenset(one.fragment_ids) & self._fragments.keys()
    )


def believe_row_ids(patch: pytest.MonkeyPatch) -> None:
    """Take every row that an index answers for one that lives."""

    def positions(self: live_rows.LiveRows, rows: live_rows.RowIds) -> live_rows.Positions:
        return np.minimum(np.searchsorted(self._sorted, rows), len(self._sorted) - 1)

    patch.setattr(live_rows.LiveRows, "positions", positions)
    patch.setattr(compaction, "shrunk_fragments", lambda rewrite: frozenset())


def believe_statistics(patch: pytest.MonkeyPatch) -> None:
    """Take the scores of an index for those of the rows that live."""

    def rescored(self: Any, positions: Any, repeats: Counter[str], _: Any) -> Any:
        answer = self.indexed.best(repeats.elements(), 10**6)
        scores = np.zeros(len(self._lengths))
        scores[answer.positions] = answer.scores
        return scores[positions]

    patch.setattr(text_search._Texts, "_rescored", rescored)


def fuse_everything(patch: pytest.MonkeyPatch) -> None:
    """Fuse whole rankings instead of windows."""
    patch.setattr(ranking.Ranking, "_window_size", lambda self, run: None)


@pytest.mark.parametrize("mutate", [believe_writers, believe_row_ids, believe_statistics, fuse_everything])
@pytest.mark.sampled(2)
def test_broken_engines_are_noticed(
    tmp_path: Path, mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError, match="seed") as caught:
        run(tmp_path, range(20))
    # A wrong answer, or an answer about a row that is not there.
    assert isinstance(caught.value.__cause__, AssertionError), caught.value.__cause__


def test_lying_writers_change_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lie(monkeypatch)
    assert run(tmp_path, range(1)) > 5
