"""The graph of a command: before its arguments, after `--store`, or in `OMNIGRAPH_STORE`."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli import main

pytestmark = pytest.mark.slow

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


BODY = "match { $p: Person } return { count($p) as people }"


@pytest.mark.parametrize(
    "given",
    [
        ["g.omni", "q.gq"],
        ["g.omni", "q.gq", "people"],
        ["q.gq", "people", "--store", "g.omni"],
        ["q.gq", "g.omni"],
        ["plain", "q.gq"],
        ["g.omni", BODY],
        ["plain", BODY],
        [BODY, "--store", "g.omni"],
        ["g.omni", "-e", BODY],
        ["g.omni", "-"],
        ["g.omni", "people", "--query", "-"],
    ],
    ids=" ".join,
)
def test_query_takes_a_file_or_a_text_as_argument(
    given: list[str], place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "plain").symlink_to(place / "g.omni")
    monkeypatch.setattr("sys.stdin", io.StringIO(COUNT))
    assert main(["query", *given, "--format", "csv"]) == 0
    assert capsys.readouterr().out == "people\n1\n"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["g.omni", "q.gq", "--query", "q.gq"], "the argument and `--query` both give a query"),
        (["g.omni", "q.gq", "-e", BODY], "the argument and `-e` both give a query"),
        (["q.gq", "q.gq"], "`q.gq` and `q.gq` are two queries"),
        (["g.omni", "people", "again"], "`people` and `again` are two names of queries"),
        (["g.omni"], "no query was given; name a `.gq` file, or write the query itself in quotes"),
    ],
)
def test_query_refuses_two_queries_and_none(
    given: list[str], message: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", *given]) == 1
    assert message in capsys.readouterr().err


def test_mutation_takes_a_text_as_argument(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ('insert Person { name: "bob" }', 'delete Person where name = "bob"'):
        assert main(["mutate", "g.omni", text]) == 0
        assert "1 node and 0 edges on main" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["load", "ingest"])
@pytest.mark.parametrize(
    "given",
    [
        ["g.omni", "a.ndjson"],
        ["a.ndjson", "--store", "g.omni"],
        ["g.omni", "--data", "a.ndjson"],
        ["g.omni", "a.ndjson", "b.ndjson"],
        ["g.omni", "-"],
    ],
    ids=" ".join,
)
def test_load_takes_files_as_arguments(
    command: str, given: list[str], place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        line = f'{{"type": "Person", "data": {{"name": "{name}"}}}}\n'
        (place / f"{name}.ndjson").write_text(line)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((place / "a.ndjson").read_bytes())))
    assert main([command, *given]) == 0
    assert f"node Person: {2 if 'b.ndjson' in given else 1}\n" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--analyze", "--profile"])
def test_explain_analyzes_and_profile_names_a_profile(
    option: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "g.omni", "q.gq", option, "--json"]) == 0
    assert main(["explain", "g.omni", "q.gq"]) == 0
    assert main(["explain", "q.gq", "--profile", "nowhere"]) == 1
    assert "there is no profile `nowhere`" in capsys.readouterr().err
