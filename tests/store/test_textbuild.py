"""Text segments: built on terms elsewhere, in parts and in batches, they answer for the rows of the dataset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.store.index import text_index_build
from omnigraph.store.index.index_build import (
    IndexKind,
    IndexSpec,
    Renewal,
    Segment,
    build_segment,
    coverage,
    merge_segments,
    renewed,
)
from omnigraph.store.index.text_search import TextSearch
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.write.transaction import append
from tests.store.test_analyser import TERMS
from tests.support.staged_fixtures import SCHEMA, commit, create, delete_ids, people

SPEC = IndexSpec("text", IndexKind.FULLTEXT, "words")
QUERIES = ("sea", "élan", "東京", "北京 strasse", "istanbul", "x" * 60, "ไทย cafe", "the", "quick number")


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Three fragments of texts in many scripts, some null, some rows deleted."""
    made = create(tmp_path)
    texts = [*TERMS, None, "", "e\u0301lan"]
    for first in (0, 100, 200):
        rows = people(range(first, first + len(texts)))
        rows = rows.set_column(SCHEMA.get_field_index("text"), SCHEMA.field("text"), pa.array(texts, pa.string()))
        made = commit(made, append(made, rows))
    return commit(made, delete_ids(made, pa.array(["k3", "k104", "k200"])))


def answers(dataset: Dataset) -> Iterator[tuple[list[int], list[float]]]:
    search = TextSearch(dataset, "text")
    for query in QUERIES:
        hits = search.search(query)
        assert set(search.matches(query).tolist()) == set(hits.rows.tolist())
        yield hits.rows.tolist(), hits.scores.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 2**25], ids=["in batches", "all at once"])
def test_segment_in_parts_answers_like_no_index(
    dataset: Dataset, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_index_build, "ANALYSED_BYTES_MAX", at_once)
    monkeypatch.setattr(text_index_build, "_READ_ROWS", 7)
    expected = list(answers(dataset))
    assert sum(len(rows) for rows, _ in expected) > 20
    fragments = [fragment.id for fragment in dataset.fragments]
    parts = [build_segment(dataset, Segment(SPEC, tuple(own))) for own in (fragments[:1], fragments[1:])]
    plan = Renewal((Segment(SPEC, tuple(fragments)),))
    indexed = commit(dataset, renewed(dataset, plan, [merge_segments(dataset, parts)]))
    assert coverage(indexed)["words"].indexed == set(fragments)
    search = TextSearch(indexed, "text")
    assert search._indexed is not None
    assert bool(np.all(search._indexed.known))
    assert list(answers(indexed)) == expected, "to the last bit"


def test_segment_is_of_this_dataset_and_leaves_nothing_behind(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    fragments = tuple(fragment.id for fragment in dataset.fragments)
    segment = build_segment(dataset, Segment(SPEC, fragments))
    assert segment.fields == [dataset.field_ids["text"]]
    assert (segment.dataset_version, set(segment.fragment_ids)) == (dataset.version, set(fragments))
    assert list(scratch.iterdir()) == []
    listed = dataset.store.objects.list(f"{dataset.ref.directory}/_indices/{segment.uuid}")
    assert sorted(one.size_bytes for one in listed) == sorted(one.size_bytes for one in segment.files or ())


def test_segment_of_texts_without_words_answers_nothing(tmp_path: Path) -> None:
    made = create(tmp_path)
    rows = people(range(3))
    rows = rows.set_column(SCHEMA.get_field_index("text"), SCHEMA.field("text"), pa.array([None, "of the", "😀"]))
    made = commit(made, append(made, rows))
    segment = build_segment(made, Segment(SPEC, tuple(fragment.id for fragment in made.fragments)))
    indexed = commit(made, renewed(made, Renewal(()), [segment]))
    assert list(answers(indexed)) == [([], []) for _ in QUERIES]
