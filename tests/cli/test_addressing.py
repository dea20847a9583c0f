"""The graph of a command: before its arguments, after `--store`, or in `OMNIGRAPH_STORE`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli import main

COUNT = "query people() { match { $p: Person } return { count($p) as people } }"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("addressing")
    with og.init(folder / "g.omni", "node Person { name: String @key }") as graph:
        graph.ingest([{"type": "Person", "data": {"name": "ann"}}])
        graph.tags.create("one")
        graph.branches.create("review")
    return folder


@pytest.fixture
def place(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(template / "g.omni", tmp_path / "g.omni")
    (tmp_path / "q.gq").write_text(COUNT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    for name in ("OMNIGRAPH_STORE", "OMNIGRAPH_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "branch list",
        "branch create | review/ada",
        "tag delete | one",
        "diff | main one",
        "branch merge | review --dry-run",
        "query | people --query q.gq",
        "query | --query q.gq",
    ],
)
def test_graph_is_addressed_in_the_same_way_by_every_command(
    command: str, template: Path, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, _, rest = command.partition("|")
    outcomes = []
    for front, back, store in (("g.omni", "", ""), ("", "--store g.omni", ""), ("", "", "g.omni")):
        monkeypatch.setenv("OMNIGRAPH_STORE", store)
        shutil.rmtree(place / "g.omni")
        shutil.copytree(template / "g.omni", place / "g.omni")
        outcomes.append((main(f"{words} {front} {rest} {back}".split()), capsys.readouterr().out))
    assert outcomes[0][0] == 0
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_query_takes_graph_and_name(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "g.omni", "people", "--query", "q.gq", "--format", "csv"]) == 0
    assert capsys.readouterr().out == "people\n1\n"


def test_command_line_wins_over_the_variable(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMNIGRAPH_STORE", "missing.omni")
    assert main(["branch", "list", "g.omni"]) == 0
    assert main(["branch", "list"]) == 1
    assert "missing.omni" in capsys.readouterr().err


def test_variable_wins_over_the_profile_of_the_environment(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "nowhere")
    monkeypatch.setenv("OMNIGRAPH_STORE", "g.omni")
    assert main(["branch", "list"]) == 0


def test_two_graphs_are_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["branch", "create", "g.omni", "b", "--store", "other.omni"]) == 1
    assert "two graphs were given" in capsys.readouterr().err


def test_command_without_a_graph_says_how_to_name_one(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["branch", "create", "review/ada"]) == 1
    assert "set OMNIGRAPH_STORE" in capsys.readouterr().err
