"""An input that is no NDJSON is recognised from its beginning and refused once, with what to do."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.errors import DataError

CSV = b"k,n\n" + b"a,1\n" * 200
INPUTS = [
    (CSV, "this looks like CSV, not NDJSON; load it with `omnigraph load GRAPH --node TYPE=FILE --mode merge`"),
    (b"\xef\xbb\xbfk;n\r\na;1\r\n", "this looks like CSV"),
    (b"k\tn\n", "this looks like CSV"),
    (b'[\n{"type": "A", "data": {"k": "a"}}\n]\n', "this is a JSON array, but NDJSON has one object per line"),
    (b' [{"type": "A", "data": {"k": "a"}}]', "this is a JSON array"),
    (b"PAR1\x15\x04\x15", "this is Parquet, not NDJSON"),
    (gzip.compress(b'{"type":"A"}', mtime=0), "this is compressed data"),
    (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "this is binary data, not NDJSON"),
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    return og.init(tmp_path_factory.mktemp("formats") / "g.omni", "node A { k: String @key  n: I32? }")


@pytest.mark.parametrize(("data", "message"), INPUTS)
def test_other_format_is_refused_once(data: bytes, message: str, graph: og.Graph) -> None:
    with pytest.raises(DataError) as raised:
        graph.ingest(data)
    assert raised.value.message.startswith(message)
    assert raised.value.message.endswith("Nothing was written")
    assert raised.value.context["rule"] == "N1"


@pytest.mark.parametrize(("data", "message"), INPUTS[:6])
def test_other_format_of_a_load_names_the_file(data: bytes, message: str, graph: og.Graph, tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson"
    path.write_bytes(data)
    with pytest.raises(DataError) as raised:
        pipeline.load(graph, [str(path)], mode="merge", engine="local")
    assert f"`{path}`: {message}" in raised.value.message


@pytest.mark.parametrize(
    "data", [b"root:x:0:0\nbin:x:1:1\n", b"hello\nthere, you\n", b'{"type": "A",\n"data": {"k": "a,b"}}\n']
)
def test_what_may_be_ndjson_goes_to_the_decoder(data: bytes, graph: og.Graph) -> None:
    with pytest.raises(DataError, match="line 1: this is not valid JSON"):
        graph.ingest(data)


def test_many_findings_are_counted_by_rule(graph: og.Graph) -> None:
    lines = b"x\n" * 70 + b'{"type": "B"}\n' * 70
    with pytest.raises(DataError) as raised:
        graph.ingest(lines)
    assert raised.value.context["violation_counts"] == {"N1": 70, "N4": 30}
    assert raised.value.context["violations_truncated"] is True
    assert len(raised.value.context["violations"]) == 100  # type: ignore[arg-type]
