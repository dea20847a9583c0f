"""Output that cannot be written: a coded error and its exit status, never a traceback, from every command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli import main
from tests.cli.test_page import RUNNABLE, prepare, run, world

__all__ = ["world"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no device that is always full"),
]
SCHEMA = "node Person { name: String @key  photo: Blob? }"
PERSON = {"type": "Person", "data": {"name": "ann", "photo": "base64:aGVsbG8="}}
READ = "query q() { match { $p: Person } return { $p.name } }"
# What prints nothing when it works.
SILENT = (" > ", "--out", "completion", "login", "logout", "lint")
SAMPLE = ("branch create", "blob get", "commit list", "export", "query", "policy explain")


@pytest.fixture
def root(tmp_path: Path) -> str:
    with og.init(tmp_path / "graph.omni", SCHEMA) as graph:
        graph.ingest([PERSON])
    return graph.uri


def sampled(line: str) -> object:
    is_sample = line.removeprefix("omnigraph ").startswith(SAMPLE)
    return pytest.param(line, marks=[] if is_sample else [pytest.mark.long])


@pytest.mark.parametrize("line", [sampled(line) for line in RUNNABLE if not any(one in line for one in SILENT)])
def test_command_whose_output_fails_says_so(
    line: str, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, line = prepare(line, world, tmp_path, monkeypatch)
    capfd.readouterr()
    full = open("/dev/full", "w", encoding="utf-8")  # noqa: SIM115 - closing it would fail again
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", full)
        assert run(line, folder, monkeypatch) == 1
    printed = capfd.readouterr().err
    assert "Traceback" not in printed
    assert "output.failed" in printed
    assert "no space left on device" in printed


def shell(words: list[str], redirect: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", f'exec "$@" {redirect}', "sh", sys.executable, "-m", "omnigraph", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [["--help"], ["version"], ["commit", "list", "--json"], ["export"]])
def test_process_whose_output_fails_ends_with_its_own_status(root: str, words: list[str]) -> None:
    store = ["--store", root] if len(words) > 1 or words == ["export"] else []
    finished = shell([*words, *store], "> /dev/full")
    assert finished.returncode == 1
    assert "output.failed" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert "Exception ignored" not in finished.stderr


def test_process_whose_output_is_closed_says_so(root: str) -> None:
    for words in (["commit", "list"], ["commit", "list", "--json"], ["export"]):
        finished = shell([*words, "--store", root], ">&-")
        assert finished.returncode == 1
        assert "output.failed" in finished.stderr
        assert "Traceback" not in finished.stderr
        assert "Exception ignored" not in finished.stderr
    written = shell(["branch", "create", "x", "--store", root], ">&-")
    assert (written.returncode, "effect: applied" in written.stderr) == (1, True)


def test_process_without_standard_streams_works(root: str) -> None:
    assert shell(["commit", "list", "--store", root], "2> /dev/full").returncode == 0
    failed = shell(["commit", "list", "--store", root, "--branch", "nope"], "2> /dev/full")
    assert (failed.returncode, failed.stdout) == (1, "")


def test_write_whose_receipt_fails_says_that_it_was_applied(
    root: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", open("/dev/full", "w", encoding="utf-8"))  # noqa: SIM115
        insert = 'query q() { insert Person { name: "bob" } }'
        assert main(["mutate", "--store", root, "-e", insert]) == 1
        assert "effect: applied" in capfd.readouterr().err
        patch.setattr("sys.stdout", open("/dev/full", "w", encoding="utf-8"))  # noqa: SIM115
        assert main(["query", "--store", root, "-e", READ, "--json"]) == 1
        assert '"effect": "none"' in capfd.readouterr().err
    assert len(og.open(root).query(READ).to_json_rows()) == 2


@pytest.mark.parametrize(
    "words",
    [
        ["export", "--out", "{}"],
        ["export", "--out", "{}", "--format", "parquet"],
        ["changes", "baseline", "--out", "{}"],
        ["blob", "get", "node", "Person", "ann", "photo", "--out", "{}"],
    ],
)
@pytest.mark.parametrize("where", ["/proc/nope/x", "taken/x", "taken", "/dev/full/x", "locked/x"])
def test_file_that_cannot_be_written_is_an_error_with_a_code(
    root: str, words: list[str], where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("x")
    (tmp_path / "locked").mkdir(mode=0o500)
    is_possible = (where == "taken" and "export" not in words) or (where == "locked/x" and os.geteuid() == 0)
    status = main([*(one.format(where) for one in words), "--store", root])
    printed = capfd.readouterr().err
    assert status == (0 if is_possible else 1)
    assert is_possible or re.search(r"^error\[(usage\.invalid|storage\.failed)\]: .*(taken|x)", printed, re.MULTILINE)
