"""What people type first: words of git, a graph in another place, a schema as an argument, odd file names."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.app import main
from omnigraph.cli.git_words import GIT_WORDS, GROUP_WORDS

SCHEMA = "node P { name: String @key }\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_STORE", "")
    Path("s.pg").write_text(SCHEMA)
    og.init("g", schema=SCHEMA).close()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("branch create g", "`omnigraph branch create g NAME`"),
        ("diff g main", "`omnigraph diff g main B`"),
        ("revert g", "`omnigraph revert g ID`"),
        ("branch merge g", "`omnigraph branch merge g SOURCE`"),
        ("tag create g", "`omnigraph tag create g NAME`"),
        ("revert s3://lake/graph", "`omnigraph revert s3://lake/graph ID`"),
        ("merge x g", "`omnigraph branch merge GRAPH SOURCE`"),
        ("checkout x", "`--branch NAME`"),
        ("show", "`omnigraph commit show GRAPH ID`"),
        ("status g", "`omnigraph snapshot GRAPH`"),
        ("pull", "`omnigraph clone SOURCE TARGET`"),
        ("push", "`omnigraph clone SOURCE TARGET`"),
        ("commit g", "`omnigraph commit list GRAPH`"),
        ("commit -m x", "omnigraph commit"),
        ("log g", "`omnigraph commit list GRAPH`"),
        ("branch g", "`omnigraph branch create GRAPH NAME`"),
    ],
)
def test_message_says_what_to_write(folder: Path, words: str, remedy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 1
    told = capsys.readouterr().err
    assert remedy in told
    assert "serve" not in told.replace("server", "")
    assert "no graph was given" not in told


@pytest.mark.parametrize("word", sorted(GIT_WORDS))
def test_words_of_git_are_no_commands_and_name_real_ones(word: str) -> None:
    from omnigraph.cli.commands import COMMANDS

    paths = {command.path for command in COMMANDS}
    assert f"omnigraph {word}" not in paths
    for text in (GIT_WORDS[word], *GROUP_WORDS.values()):
        for piece in text.split("`")[1::2]:
            if piece.startswith("omnigraph "):
                assert any(piece.startswith(f"{path} ") for path in paths), piece


def test_schema_may_follow_the_graph(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "h", "s.pg"]) == 0
    Path("t.pg").write_text(SCHEMA + "node Q {}\n")
    assert main(["schema", "plan", "h", "t.pg"]) == 0
    assert "+ add node Q" in capsys.readouterr().out
    assert main(["schema", "apply", "h", "t.pg", "--quiet"]) == 0
    assert main(["schema", "plan", "--store", "h", "t.pg"]) == 0
    assert "No changes." in capsys.readouterr().out
    assert main(["init", "k", "s.pg", "--schema", "t.pg"]) == 1
    assert "two schemas were given" in capsys.readouterr().err
    assert main(["init", "k"]) == 1
    assert "no schema was given" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("out", "remedy"),
    [("y.xlsx", "name a directory"), ("y.parquet", "--format parquet"), ("y.graphml", "--format graphml > y.graphml")],
)
def test_export_to_a_file_name_is_refused(
    folder: Path, out: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "g", "--out", out]) == 1
    told = capsys.readouterr().err
    assert remedy in told
    assert "ndjson, parquet or csv" in told
    assert not Path(out).exists()
