"""Input that is bad as a whole: too long, too much, compressed, wrongly encoded. Told with a remedy, at no effect."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli import main
from omnigraph.graph import Graph
from omnigraph.limits import INGEST_LINE_BYTES_MAX, VIOLATIONS_MAX, WRITE_ENTITIES_MAX
from tests.support.write_fixtures import create, refused, rows, unchanged

pytestmark = pytest.mark.slow

SCHEMA = "node P { code: String @key  n: I32?  note: String?  v: Vector(2)? }"


def line(code: str, rest: str = "") -> bytes:
    return f'{{"type":"P","data":{{"code":"{code}"{rest}}}}}'.encode()


def unknown_members() -> str:
    return "".join(f',"u{number}":1' for number in range(10**6))


# Each makes its input only when asked, for some are large: code, line, words, input.
BAD: dict[str, tuple[str, int | None, tuple[str, ...], Callable[[], bytes]]] = {
    "32 MiB line": (
        "N11", 2, ("33554432", "`load` the file"),
        lambda: line("a") + b"\n" + line("b", f',"note":"{"x" * INGEST_LINE_BYTES_MAX}"'),
    ),
    "one entity too many": (
        "E12", None, (str(WRITE_ENTITIES_MAX), "split"),
        lambda: b"\n".join(line(f"{number}") for number in range(WRITE_ENTITIES_MAX + 1)),
    ),
    "a million unknown members": ("N11", 2, ("split",), lambda: line("a") + b"\n" + line("b", unknown_members())),
    "NaN in a vector": ("N1", 1, ("JSON",), lambda: line("a", ',"v":[NaN,1.0]')),
    "gzip": ("N1", 1, ("decompress",), lambda: gzip.compress(line("a"), mtime=0)),
    "UTF-16": ("N1", 1, ("UTF-8",), lambda: line("a").decode().encode("utf-16")),
    "Latin-1": ("N1", 2, ("UTF-8",), lambda: line("a") + b"\n" + line("\xe9").decode().encode("latin-1")),
    "mark in the middle": ("N1", 2, ("BOM", "one JSON object"), lambda: line("a") + b"\n\xef\xbb\xbf" + line("b")),
    "carriage return alone": ("N2", 1, ("use a line for each",), lambda: line("a") + b"\r" + line("b")),
}  # fmt: skip
# What is only too much for one ingest, the command loads.
LOADED = ("32 MiB line", "one entity too many")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return create(tmp_path / "g", SCHEMA)


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_alike_by_bytes_file_and_command(
    graph: Graph, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, number, words, make = BAD[name]
    data = make()
    path = tmp_path / "bad.ndjson"
    path.write_bytes(data)
    given: tuple[Any, ...] = (data, path)
    for one in given:
        error = refused(graph, code, lambda: graph.ingest(one, mode="append"))  # noqa: B023 - run at once
        assert error.context.get("line") == number
        assert all(word in error.message for word in words), error.message
    if name in LOADED:
        return
    with unchanged(graph):
        assert main(["ingest", graph.uri, "--data", str(path), "--mode", "merge", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert code in json.dumps(said)
    assert graph.ingest(line("good"), mode="append").total_entities == 1, "the next write works"


def test_dictionaries_with_a_million_unknown_members_name_the_first_ones(graph: Graph) -> None:
    record = json.loads(line("b", unknown_members()))
    error = refused(graph, "N6", lambda: graph.ingest([record]))
    found = error.context["violations"]
    assert isinstance(found, list)
    assert len(found) == VIOLATIONS_MAX
    assert error.context["property"] == "u0"


def test_dictionaries_with_nan_in_a_vector_name_property_and_value(graph: Graph) -> None:
    record = {"type": "P", "data": {"code": "a", "v": [float("nan"), 1.0]}}
    error = refused(graph, "N10", lambda: graph.ingest([record]))
    assert error.context["property"] == "v"
    assert "nan" in error.message


def test_line_ends_may_be_mixed_and_a_mark_may_come_first(graph: Graph) -> None:
    data = b"\xef\xbb\xbf" + line("a") + b"\r\n\r\n" + line("b") + b"\n \t\n" + line("c") + b"\r\n"
    assert graph.ingest(data, mode="append").total_entities == 3
    assert set(rows(graph, "node:P")) == {"a", "b", "c"}
