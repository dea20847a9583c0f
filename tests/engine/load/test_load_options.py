"""Loads of files as they are: duplicates, columns by other names, other delimiters, bytes that are not UTF-8."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.cli.app import main
from omnigraph.engine.load import matching
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph
from tests.support.live_server import serving_graph
from tests.support.pipeline_fixtures import splits_of

SCHEMA = "node P { name: String @key  age: I32? }\nedge K: P -> P { n: I32?  @key(src, dst) }\nnode Free { n: I32? }\n"
LINES = "".join(f'{{"type": "P", "data": {{"name": "p{number % 4}", "age": {number}}}}}\n' for number in range(12))
# By key, the ages in the order of the lines.
AGES = {f"p{key}": [number for number in range(12) if number % 4 == key] for key in range(4)}


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.chdir(tmp_path)
    Path("p.ndjson").write_text(LINES)
    return og.init("g.omni", schema=SCHEMA)


def ages(graph: Graph) -> dict[str, int]:
    return {row["p.name"]: row["p.age"] for row in graph.query("match { $p: P } return { $p.name $p.age }")}


@pytest.mark.parametrize("split_bytes", [64, 1 << 20])
@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
@pytest.mark.parametrize(("choice", "index"), [("first", 0), ("last", -1)])
def test_one_of_several_duplicates_is_loaded(
    graph: Graph, choice: str, index: int, mode: str, split_bytes: int
) -> None:
    with splits_of(split_bytes):
        report = pipeline.load(graph, "p.ndjson", mode=mode, on_duplicate=choice)
    assert ages(graph) == {key: listed[index] for key, listed in AGES.items()}
    assert report.total_entities == len(AGES)


def test_duplicates_stay_an_error_by_default(graph: Graph) -> None:
    with pytest.raises(OmniGraphError, match="twice, in lines 1 and 5"):
        pipeline.load(graph, "p.ndjson")


def test_a_choice_that_ignores_other_splits_is_caught(graph: Graph) -> None:
    nothing = np.zeros(0, np.int64)
    with (
        splits_of(64),
        patch.object(matching, "find_superseded_rows", lambda *_: nothing),
        pytest.raises(OmniGraphError, match="twice"),
    ):
        pipeline.load(graph, "p.ndjson", on_duplicate="last")


def as_frame(text: str) -> pa.Table:
    return pa.Table.from_pylist([json.loads(line)["data"] for line in text.splitlines()])


INPUTS: dict[str, Callable[[], dict[str, Any]]] = {
    "path": lambda: {"data": "p.ndjson"},
    "bytes": lambda: {"data": LINES.encode()},
    "records": lambda: {"data": [json.loads(line) for line in LINES.splitlines()]},
    "frame": lambda: {"nodes": {"P": as_frame(LINES)}},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("way", INPUTS)
@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
@pytest.mark.parametrize(("choice", "index"), [("first", 0), ("last", -1)])
def test_graph_load_takes_one_of_several_duplicates(graph: Graph, choice: str, index: int, mode: str, way: str) -> None:
    receipt = graph.load(**INPUTS[way](), mode=mode, on_duplicate=choice)  # type: ignore[arg-type]
    assert ages(graph) == {key: listed[index] for key, listed in AGES.items()}
    assert receipt.total_entities == len(AGES)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", INPUTS)
def test_graph_load_keeps_duplicates_an_error_by_default(graph: Graph, way: str) -> None:
    with pytest.raises(OmniGraphError, match="twice"):
        graph.load(**INPUTS[way]())
    with pytest.raises(OmniGraphError, match="unknown on_duplicate `any`"):
        graph.load(**INPUTS[way](), on_duplicate="any")  # type: ignore[arg-type]


def test_entities_by_id_alone_are_chosen_alike_by_both_writers(graph: Graph) -> None:
    """Without a key, the last wins a merge by default; a choice overrules that, in a small write as in a bulk load."""
    rows = [{"type": "Free", "data": {"id": "u", "n": number}} for number in (1, 2, 3)]
    Path("u.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for choice, expected in (("error", 3), ("first", 1), ("last", 3)):
        graph.load(rows, on_duplicate=choice)  # type: ignore[arg-type]
        assert graph.get("Free", "u") == {"id": "u", "n": expected}, choice
        pipeline.load(graph, "u.ndjson", on_duplicate=choice)
        assert graph.get("Free", "u") == {"id": "u", "n": expected}, choice


@pytest.mark.slow
def test_served_load_takes_one_of_several_duplicates(graph: Graph) -> None:
    async def load_last(url: str) -> int:
        async with og.connect_async(url, graph="g") as client:
            return (await client.load(LINES.encode(), on_duplicate="last")).total_entities

    with serving_graph(graph.uri) as live:
        url = f"http://127.0.0.1:{live.port}"
        with og.connect(url, graph="g") as client:
            with pytest.raises(OmniGraphError, match="twice, in lines 1 and 5"):
                client.load(LINES.encode())
            client.load(LINES.encode(), on_duplicate="first")
        assert ages(graph) == {key: listed[0] for key, listed in AGES.items()}
        command = ["load", "--server", url, "--graph", "g", "--on-duplicate", "last", "--quiet", "--data", "p.ndjson"]
        assert main(command) == 0
        assert ages(graph) == {key: listed[-1] for key, listed in AGES.items()}
        assert asyncio.run(load_last(url)) == len(AGES)


def test_command_maps_columns_and_reads_other_delimiters(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.csv").write_text("full name;age\nada;36\nbob;41\nada;37\n")
    Path("k.csv").write_text("a;b;count\nada;bob;3\n")
    graph.close()
    command = ["load", "g.omni", "--node", "P=p.csv", "--edge", "K=k.csv:a->b", "--delimiter", ";", "--quiet"]
    command += ["--map", "P.full name=name", "--map", "K.count=n"]
    assert main(command) == 1
    assert "twice, in lines 2 and 4" in capsys.readouterr().err
    assert main([*command, "--on-duplicate", "last"]) == 0
    with og.open("g.omni") as opened:
        assert ages(opened) == {"ada": 37, "bob": 41}
        assert list(opened.query("match { $a $k: k $b } return { $k.n }")) == [{"k.n": 3}]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--map", "age=years"], "write `--map Type.column=property`"),
        (["--map", "Q.a=b"], "of which no file is given"),
        (["--delimiter", ";;"], "cannot separate"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    graph: Graph, options: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("p.csv").write_text("name,age\nada,36\n")
    assert main(["load", "g.omni", "--node", "P=p.csv", *options]) == 1
    assert reason in capsys.readouterr().err


def test_ragged_rows_that_are_not_utf8_are_reported_by_line(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.csv").write_bytes(b'name,age\na,1\n\xff\xfe,3,4\n"x\ny",\xff\nc,3\n\xc3\xa9,2\n')
    with pytest.raises(OmniGraphError) as caught:
        pipeline.load(graph, nodes={"P": "bad.csv"})
    violations = caught.value.context["violations"]
    assert isinstance(violations, list)
    assert [(found["line"], found["rule"]) for found in violations] == [(3, "N1"), (4, "N1")]
    assert "3 fields" in violations[0]["message"]
    assert "`age` is not UTF-8" in violations[1]["message"]
    assert "Exception ignored" not in capsys.readouterr().err
    report = pipeline.load(graph, nodes={"P": "bad.csv"}, on_error="quarantine", report="out")
    assert [rejected.line for rejected in report.rejected] == [3, 4]
    assert sorted(ages(graph)) == ["a", "c", "é"]


def test_characters_across_blocks_stay_whole(graph: Graph) -> None:
    from omnigraph.engine.input.csv_bytes import MarkedBytes

    text = "aé€😀\n".encode() * 3 + b"\xf0\x9f"
    for size in range(1, 9):
        position = 0
        pieces = [text[start : start + size] for start in range(0, len(text), size)]

        class Stream:
            def read(self, _: int, pieces: list[bytes] = pieces) -> bytes:
                return pieces.pop(0) if pieces else b""

        stream, read = MarkedBytes(Stream()), b""
        while piece := stream.read(size):
            read += piece
            position += 1
        assert read.decode() == "aé€😀\n" * 3 + "\U0010fff0\U0010ff9f"


def test_all_unknown_columns_are_named(graph: Graph) -> None:
    Path("p.csv").write_text("name,zz,yy\nada,1,2\n")
    with pytest.raises(OmniGraphError, match="has no property `zz` or `yy`"):
        pipeline.load(graph, nodes={"P": "p.csv"})
