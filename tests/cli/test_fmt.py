"""`omnigraph fmt`: what it writes, what it only reports, and its exit statuses."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli import main

UGLY = "node Port{code:String@key  // key\n berths:I32?}"
NEAT = "node Port {\n  code: String @key // key\n  berths: I32?\n}\n"
QUERY = "query q() { match { $p: Port } return { $p.code } }"


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "schema.pg"
    path.write_text(UGLY)
    return path


def test_fmt_rewrites_files_and_keeps_mode_and_link(schema: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema.chmod(0o640)
    link = schema.parent / "link.pg"
    link.symlink_to(schema)
    assert main(["fmt", str(link)]) == 0
    assert schema.read_text() == NEAT
    assert link.is_symlink()
    assert schema.stat().st_mode & 0o777 == 0o640
    assert capsys.readouterr().out == f"formatted {link}\n1 file, 1 changed\n"
    assert main(["fmt", str(schema), "--check"]) == 0
    assert capsys.readouterr().out == "1 file, 0 to change\n"


def test_fmt_directory_is_searched_for_both_endings(schema: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (schema.parent / "below").mkdir()
    query = schema.parent / "below" / "q.gq"
    query.write_text(QUERY)
    (schema.parent / "notes.txt").write_text("node   A{}")
    assert main(["fmt", str(schema.parent), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["files"]
    assert [(Path(file["file"]).name, file["changed"]) for file in listed] == [("q.gq", True), ("schema.pg", True)]
    assert query.read_text() == "query q() {\n  match { $p: Port }\n  return { $p.code }\n}\n"
    assert (schema.parent / "notes.txt").read_text() == "node   A{}"


@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_fmt_check_and_diff_write_nothing(option: str, schema: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmt", option, str(schema)]) == 1
    assert schema.read_text() == UGLY
    out = capsys.readouterr().out
    assert ("+  berths: I32?" in out) == (option == "--diff")


def test_fmt_broken_file_is_reported_and_others_are_formatted(schema: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = schema.parent / "broken.gq"
    broken.write_text("query {")
    assert main(["fmt", str(broken), str(schema)]) == 1
    captured = capsys.readouterr()
    assert "error[Q000]" in captured.err
    assert captured.out.endswith("2 files, 1 changed, 1 with errors, left as they are\n")
    assert (broken.read_text(), schema.read_text()) == ("query {", NEAT)


def feed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_fmt_standard_input_goes_to_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed(monkeypatch, UGLY)
    assert main(["fmt", "-", "--language", "pg"]) == 0
    assert capsys.readouterr().out == NEAT
    feed(monkeypatch, "node {")
    assert main(["fmt", "-", "--language", "pg"]) == 1
    captured = capsys.readouterr()
    assert (captured.out, "<stdin>:1:6" in captured.err) == ("", True)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(["-"], "add `--language"), (["a.pg", "-"], "stands alone"), (["notes.txt"], "neither in `.pg` nor")],
)
def test_fmt_unclear_input_is_refused(
    arguments: list[str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.pg").write_text(NEAT)
    assert main(["fmt", *arguments]) == 1
    assert reason in capsys.readouterr().err


def test_format_source_takes_texts_and_paths(schema: Path) -> None:
    assert og.format_source(UGLY, language="pg") == NEAT
    assert og.format_source(schema) == NEAT
    assert og.format_source(str(schema)) == NEAT
    assert schema.read_text() == UGLY
    with pytest.raises(og.UsageError, match="language"):
        og.format_source(UGLY)
    with pytest.raises(og.LanguageError):
        og.format_source("node {", language="pg")


def test_own_sources_are_formatted(capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).parents[2]
    assert main(["fmt", "--check", str(root / "examples"), str(root / "tests" / "cases")]) == 0, capsys.readouterr().out
