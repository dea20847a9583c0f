"""A graph whose schema an earlier release accepted with unknown annotations: it opens, and loses them by an apply."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.lang.diagnostic import LanguageError
from tests.support.earlier_schemas import unknown_annotations_accepted

OLD = "node A { k: String @key n: I32? @unqiue }"


@pytest.fixture
def place(tmp_path: Path) -> str:
    with unknown_annotations_accepted():
        og.init(str(tmp_path / "g.omni"), schema=OLD).close()
    return str(tmp_path / "g.omni")


def test_graph_with_an_unknown_annotation_opens_reads_and_writes(place: str) -> None:
    with og.open(place) as graph:
        graph.ingest(b'{"type":"A","data":{"k":"a","n":1}}')
        assert graph.query("query q() { match { $a: A } return { $a.n } }").to_json_rows() == [{"a.n": 1}]
        graph.branches.create("b")
        graph.ingest(b'{"type":"A","data":{"k":"b","n":1}}', branch="b")
        assert graph.branches.merge("b").commit is not None


def test_graph_keeps_or_loses_an_unknown_annotation_by_an_apply(place: str) -> None:
    with og.open(place) as graph:
        assert graph.schema.apply(OLD.replace("n: I32?", "m: I32?  n: I32?")).commit is not None
        assert graph.schema.apply("node A { k: String @key n: I32? m: I32? }").commit is not None
        with pytest.raises(LanguageError, match="there is no annotation `@unqiue`"):
            graph.schema.apply("node A { k: String @key n: I32? @unqiue m: I32? }")
