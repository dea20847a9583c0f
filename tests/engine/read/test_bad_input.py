"""Bad input to a read: a coded error from the library and from the command line, never anything else."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph.cli import main
from omnigraph.engine.query.budget import Budget
from omnigraph.errors import OmniGraphError
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.diagnostic import LanguageError
from tests.support.read_fixtures import create

SCHEMA = """
node Note { name: String @key  text: String? @index  n: I32?  day: Date?  vec: Vector(2)? }
edge Cites: Note -> Note
"""
LINES: list[dict[str, Any]] = [
    {"type": "Note", "data": {"name": "a", "text": "sea", "n": 1, "vec": [0.0, 1.0]}},
    {"type": "Note", "data": {"name": "b"}},
    {"edge": "Cites", "from": "a", "to": "b"},
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    return create(tmp_path_factory.mktemp("bad"), LINES, SCHEMA)


def read(match: str = "$n: Note", rest: str = "", declared: str = "") -> str:
    return f"query q({declared}) {{ match {{ {match} }} return {{ $n }} {rest} }}"


def code_of(run: Callable[[], object]) -> str:
    """Return the code that a user sees: that of a diagnostic, the rule that data breaks, or the error's own."""
    with pytest.raises(OmniGraphError) as caught:
        run()
    error = caught.value
    # Whatever was given, the message can be printed and sent.
    json.dumps(error.to_json(), default=str).encode()
    assert error.message.encode()
    if isinstance(error, LanguageError):
        return error.diagnostics[0].code
    return str(error.context.get("rule", error.code))


NEAREST = read(rest="order { nearest($n.vec, $v) } limit 2", declared="$v: Vector(2)")
EQUAL = read("$n: Note $n.n = $x", declared="$x: I32")
FUSED = read(rest='order { rrf(bm25($n.text, "a"), bm25($n.text, "b"), $k) } limit 1', declared="$k: I64")
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("", {}, "E1"),
    ("hello", {}, "Q000"),
    (read("$n: Nope"), {}, "T1"),
    (read("$n: Note {nope: 1}"), {}, "T2"),
    (read("$n: Note $n nope $m"), {}, "T4"),
    (read("$n: Note $n.nope = 1"), {}, "T6"),
    (read("$n: Note $n.n = $nope"), {}, "T26"),
    (read(rest="order { nope }"), {}, "E2"),
    (read("$n: Note " + "(" * 300 + "$n.n = 1" + ")" * 300), {}, "Q000"),
    ('query q() { insert Note { name: "x" } }', {}, "T29"),
    (EQUAL, {}, "E2"),
    (EQUAL, {"x": None}, "E4"),
    (EQUAL, {"x": "one"}, "E4"),
    (EQUAL, {"x": 1.5}, "E4"),
    (EQUAL, {"x": True}, "E4"),
    (EQUAL, {"x": 2**31}, "E4"),
    (EQUAL, {"x": [1]}, "E4"),
    (read("$n: Note $n.n in $x", declared="$x: [I32]"), {"x": 1}, "E4"),
    (read("$n: Note $n.n in $x", declared="$x: [I32]"), {"x": [1, "two"]}, "E4"),
    (read("$n: Note $n.day = $x", declared="$x: Date"), {"x": "2024-02-30"}, "E4"),
    (read('$n: Note $n.day = date("2024-02-30")'), {}, "E4"),
    (read(rest="limit $x", declared="$x: I64"), {"x": -1}, "E4"),
    (read(rest="limit $x", declared="$x: I64"), {}, "E2"),
    (NEAREST, {}, "E2"),
    (NEAREST, {"v": [1.0]}, "E4"),
    (NEAREST, {"v": [1.0, 2.0, 3.0]}, "E4"),
    (NEAREST, {"v": [1.0, None]}, "E4"),
    (NEAREST, {"v": [1.0, "2"]}, "E4"),
    (NEAREST, {"v": [1.0, 1e39]}, "E4"),
    (NEAREST, {"v": "12"}, "E4"),
    (read(rest="order { nearest($n.vec, [1.0]) } limit 1"), {}, "T15"),
    (read('$n: Note fuzzy($n.text, "x", 99)'), {}, "E4"),
    (
        read(rest='order { rrf(bm25($n.text, "a"), bm25($n.text, "b"), $k) } limit 1', declared="$k: I64"),
        {"k": 0},
        "E4",
    ),
]


@pytest.mark.parametrize(("source", "params", "code"), CASES)
def test_query_bad_input_is_a_coded_error(graph: og.Graph, source: str, params: dict[str, Any], code: str) -> None:
    assert code_of(lambda: graph.query(source, params=params)) == code


@pytest.mark.parametrize(("source", "params", "code"), CASES)
def test_command_bad_input_is_a_coded_error(
    graph: og.Graph, source: str, params: dict[str, Any], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["query", "--store", graph.uri, "-e", source, "--params", json.dumps(params)])
    captured = capsys.readouterr()
    assert (status, captured.out) == (1, "")
    assert captured.err.startswith(f"error[{code}]")


@pytest.mark.parametrize(
    "vector",
    [[1.0, math.nan], [math.inf, 0.0], [10**400, 0], [True, False], [1j, 0], np.ones((1, 2)), {"a": 1, "b": 2}],
)
def test_query_vector_that_json_cannot_spell_is_refused(graph: og.Graph, vector: object) -> None:
    assert code_of(lambda: graph.query(NEAREST, params={"v": vector})) == "E4"


def test_query_text_that_is_no_unicode_is_refused(graph: og.Graph) -> None:
    source = read("$n: Note $n.text = $x", declared="$x: String")
    assert code_of(lambda: graph.query(source, params={"x": "\ud800"})) == "E4"
    assert code_of(lambda: graph.query(read('$n: Note $n.text = "\ud800"'))) == "Q000"


def test_query_parameters_that_are_not_named_are_refused(graph: og.Graph) -> None:
    assert code_of(lambda: graph.query(EQUAL, params=[1])) == "usage.invalid"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ({"name": "nope"}, "E1"),
        ({"branch": "nope"}, "branch.not_found"),
        ({"at": "nope"}, "commit.not_found"),
        ({"at": 99}, "graph.version_reclaimed"),
        ({"at": 0}, "usage.invalid"),
        ({"at": -1}, "usage.invalid"),
        ({"at": 2**70}, "usage.invalid"),
        ({"at": 1.5}, "usage.invalid"),
    ],
)
def test_query_of_what_is_not_there_is_a_coded_error(graph: og.Graph, where: dict[str, Any], code: str) -> None:
    assert code_of(lambda: graph.query(read(), **where)) == code


@pytest.mark.parametrize("text", ["a' OR '1'='1", "a\0b", '+("*~:^', "w " * 20_000, "\\", "é" * 5_000])
def test_query_odd_text_is_only_text(graph: og.Graph, text: str) -> None:
    for match in ("{name: $x}", "$n.text = $x", "search($n.text, $x)", "fuzzy($n.text, $x, 1)"):
        source = read(f"$n: Note {match}", declared="$x: String")
        assert graph.query(source, params={"x": text}).rows() == []


def test_query_result_of_more_rows_than_allowed_is_refused(graph: og.Graph) -> None:
    assert len(graph.query(read(), budget=Budget(rows_max=2))) == 2
    assert code_of(lambda: graph.query(read(), budget=Budget(rows_max=1))) == "query.budget_exceeded"


@pytest.mark.parametrize("part", ["_versions", "data"])
def test_query_at_a_version_that_was_removed_is_a_coded_error(tmp_path: Path, part: str) -> None:
    graph = create(tmp_path, LINES[:1], SCHEMA)
    commit = graph.commits()[0].commit_id
    pin = graph.snapshot().state.pins[TypeKey("node:Note")]
    graph.ingest(LINES[1:2], mode="append")
    graph.close()
    folder = Path(graph.uri) / pin.path / part
    # Lance names the manifest of a version by what the version lacks of the largest number.
    removed = f"{2**64 - 1 - pin.version}.manifest" if part == "_versions" else "*"
    for file in folder.glob(removed):
        file.unlink()
    with og.open(graph.uri) as again:
        expected = "graph.version_reclaimed" if part == "_versions" else "storage.failed"
        assert code_of(lambda: again.query(read("$n: Note $n.n = 1"), at=commit)) == expected
        if part == "_versions":
            assert len(again.query(read())) == 2


def test_command_at_a_commit_that_is_not_there_is_a_coded_error(
    graph: og.Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", "--store", graph.uri, "-e", read(), "--snapshot", "nope"]) == 1
    assert capsys.readouterr().err.startswith("error[commit.not_found]")
    assert main(["query", "--store", graph.uri, "-e", read(), "--params", '{"v": NaN}']) == 1
    assert capsys.readouterr().err.startswith("error[usage.invalid]")
