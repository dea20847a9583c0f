"""Every rule of input and of entities through every way in: ingest and load, as calls, as commands, and on Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli import main
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph
from omnigraph.pipeline import load
from tests.support.bad_inputs import BOUNDED, ELSEWHERE, ENTITIES, EVERY, LINES, WHOLE, Bad
from tests.support.pipeline_fixtures import lines_of, splits_of, world

pytestmark = pytest.mark.slow

GOOD = lines_of([{"type": "Person", "data": {"name": "zoe"}}])


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph that nothing is written to, however often it is tried."""
    return world(tmp_path_factory.mktemp("bad") / "g.omni")


def files_of(graph: Graph) -> set[str]:
    return {str(path) for path in Path(graph.uri).rglob("*") if path.is_file()}


def test_bad_inputs_break_every_rule_that_an_input_can() -> None:
    broken = {one.code for one in (*LINES, *ENTITIES, *WHOLE, *BOUNDED)}
    assert broken | ELSEWHERE == EVERY
    assert not broken & ELSEWHERE


@pytest.mark.parametrize("bad", [*LINES, *ENTITIES, *WHOLE, *BOUNDED], ids=lambda bad: f"{bad.code} {bad.name}")
def test_bad_input_is_refused_by_its_code_on_every_way_in(
    graph: Graph, tmp_path: Path, bad: Bad, capsys: pytest.CaptureFixture[str]
) -> None:
    file, before, files = tmp_path / "in.ndjson", graph.snapshot().version, files_of(graph)
    file.write_bytes(bad.raw)
    options = ["--data", str(file), "--mode", bad.mode, "--yes", "--quiet", "--json"]
    with pytest.raises(OmniGraphError) as caught:
        graph.ingest(file, mode=bad.mode)  # type: ignore[arg-type]
    answers = [caught.value.to_json()]
    # The command loads what is only too much for one ingest.
    if bad not in BOUNDED:
        answers.append(said(["ingest", graph.uri, *options], capsys))
        with pytest.raises(OmniGraphError) as caught:
            load(graph, file, mode=bad.mode, engine="local")
        answers += [caught.value.to_json(), said(["load", graph.uri, *options], capsys)]
    for answer in answers:
        assert (answer["rule"], answer.get("line"), answer["effect"]) == (bad.code, bad.line, "none")
        assert {**answer, "violations": None} == {**answers[0], "violations": None}
    assert (graph.snapshot().version, files_of(graph)) == (before, files)


@pytest.mark.parametrize("is_bulk", [False, True])
def test_overwrite_that_removes_a_source_with_its_edges_is_accepted(tmp_path: Path, is_bulk: bool) -> None:
    graph = og.init(tmp_path / "g.omni", "node P { k: String @key } edge E: P -> P @card(1..2)")
    both = [{"type": "P", "data": {"k": key}} for key in "ab"]
    graph.ingest([*both, *({"edge": "E", "from": key, "to": key} for key in "ab")])
    kept = lines_of([both[0], {"edge": "E", "from": "a", "to": "a"}])
    (tmp_path / "in.ndjson").write_bytes(kept)
    if is_bulk:
        load(graph, tmp_path / "in.ndjson", mode="overwrite", engine="local")
    else:
        graph.ingest(kept, mode="overwrite")
    assert [entity["to"] for entity in map(json.loads, graph.export()) if "edge" in entity] == ["a"]


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return what a command that fails says as JSON, and nothing beside it."""
    assert main(arguments) == 1
    found = capsys.readouterr()
    answer: dict[str, Any] = json.loads(found.out)
    return answer


@pytest.mark.spark
def test_bad_inputs_on_spark_are_told_with_all_their_codes(
    spark: Any, graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, before, files = tmp_path / "in.ndjson", graph.snapshot().version, files_of(graph)
    for bads in (LINES, ENTITIES):
        file.write_bytes(GOOD + b"".join(one.raw for one in bads))
        options = ["--data", str(file), "--mode", "append", "--engine", "spark", "--quiet", "--json"]
        with splits_of(len(file.read_bytes()) // 3):
            answer = said(["load", graph.uri, *options], capsys)
        assert {one["rule"] for one in answer["violations"]} == {one.code for one in bads}
        if bads is LINES:
            # Every line but the first is wrong, and is told once.
            assert [one["line"] for one in answer["violations"]] == list(range(2, len(LINES) + 2))
            assert [one["rule"] for one in answer["violations"]] == [one.code for one in LINES]
    assert (graph.snapshot().version, files_of(graph)) == (before, files)


@pytest.mark.spark
def test_bad_inputs_on_spark_go_to_quarantine_by_their_codes(spark: Any, tmp_path: Path) -> None:
    graph, file = world(tmp_path / "g.omni"), tmp_path / "in.ndjson"
    bads = [*LINES, *ENTITIES]
    file.write_bytes(b"".join(one.raw for one in bads) + GOOD)
    options = ["--data", str(file), "--mode", "append", "--engine", "spark", "--quiet"]
    assert main(["load", graph.uri, *options, "--on-error", "quarantine", "--report", str(tmp_path / "out")]) == 0
    rejected = [json.loads(line) for line in (tmp_path / "out" / "rejected.ndjson").read_text().splitlines()]
    assert {one["code"] for one in rejected} == {one.code for one in bads}
    assert [one["code"] for one in rejected[: len(LINES)]] == [one.code for one in LINES]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    # Of those that repeat each other the first is right.
    assert report["total_entities"] == 3
