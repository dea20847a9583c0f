"""`omnigraph shell`: statements from standard input, and a session at a real terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli import main
from omnigraph.cli.shell import COMMAND_NAMES, Session, is_complete, split_statements
from omnigraph.cli.shell_completion import complete, completions
from omnigraph.cli.target import Capability, Flags, Target
from omnigraph.source_files import read_source

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
PEOPLE = [{"type": "Person", "data": {"name": name, "age": age}} for name, age in (("ann", 40), ("bob", 20))]
NAMES = "match { $p: Person } return { $p.name as name } order { name }"

STAGES = (
    "match { $p: Person } with { max($p.age) as $n } match { $q: Person  $q.age = $n } return { $q.name as name } "
    'union match { $p: Person { name: "bob" } } return { $p.name as name } order { name desc }'
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shell")
    with og.init(folder / "g.omni", SCHEMA) as graph:
        graph.ingest(PEOPLE)
        graph.tags.create("two-people")
        graph.branches.create("review")
    return folder


@pytest.fixture
def place(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(template / "g.omni", tmp_path / "g.omni")
    (tmp_path / "q.gq").write_text(
        "query older($n: I32) { match { $p: Person  $p.age > $n } return { $p.name as name } }\n"
        "query all() { match { $p: Person } return { $p.name as name } }"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    return tmp_path


def run(text: str, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return main(["shell", "g.omni", "--format", "csv", *options])


@pytest.mark.parametrize(
    ("text", "output"),
    [
        (NAMES, "name\nann\nbob\n"),
        ("match { $p: Person }\nreturn { $p.name as name }\n\n:quit\nnonsense", "name\nann\nbob\n"),
        (
            ':params {"n": 30}\nquery q($n: I32) { match { $p: Person  $p.age > $n } return { count($p) as c } };',
            "$n = 30\nc\n1\n",
        ),
        (':queries q.gq\n:run older {"n": 30}', "2 queries, older, all; run one with `:run NAME`\nname\nann\n"),
        (":schema Person", "node Person {\n  age: I32?\n  name: String\n  @key(name)\n  @index(name)\n}\n"),
        (":branch review\n:branch", "  main\n* review\n"),
        (STAGES, "name\nbob\nann\n"),
    ],
    ids=["line", "lines", "params", "run", "schema", "branch", "stages"],
)
def test_statements_of_standard_input_run_in_order(
    text: str, output: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(text, monkeypatch) == 0
    assert capsys.readouterr().out == output


@pytest.mark.parametrize(("text", "part"), [(f":explain {NAMES}", "Person"), (":help", ":schema [TYPE]")])
def test_command_prints_what_it_is_asked_for(
    text: str, part: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(text, monkeypatch) == 0
    assert part in capsys.readouterr().out


def test_mutations_report_what_they_changed(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    insert = 'insert Person { name: "cy" age: 3 }'
    assert run(f"{insert}\n{NAMES}\n:at two-people\n{NAMES}", monkeypatch) == 0
    out = capsys.readouterr().out
    assert out.startswith("1 node and 0 edges on main, commit ")
    assert out.endswith("name\nann\nbob\ncy\nname\nann\nbob\n")
    assert run(f":at two-people\n{insert}", monkeypatch) == 1
    assert "go back to the branch with `:at`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("match { $p: Nobody } return { $p }", "Nobody"),
        (":branch nope", "there is no branch `nope`; the branches are main, review"),
        (":nope", "there is no command `:nope`; `:help` lists them"),
        (":run nope", "there is no query `nope`"),
        (":format xml", "the formats are table, kv, csv, jsonl, json"),
        (":undo", "has written nothing"),
    ],
)
def test_first_error_ends_what_standard_input_says(
    text: str, message: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{text}\n\n{NAMES}", monkeypatch) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        (":help", True),
        ("match { $p: Person }", False),
        (NAMES, True),
        ("match { $p: Person }\nreturn { $p }", False),
        ("match { $p: Person }\nreturn { $p }\n\n", True),
        ("match { $p: Person }\nreturn { $p };", True),
        ("match {\n\n$p: Person", False),
        ("match }", True),
    ],
)
def test_statement_is_complete_where_it_can_run(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def test_empty_lines_inside_of_a_query_do_not_end_it() -> None:
    text = "query q() {\n\n  match { $p: Person }\n\n  return { $p }\n}\n\nmatch { $p: Person } return { $p }\n"
    assert len(list(split_statements(text.splitlines(keepends=True)))) == 2


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (":sc", {":schema", ":branch", ":quit"}),
        ("match { $p: Per", {"Person", "Knows", "knows", "name", "age", "return", "starts_with", "count"}),
        (":branch re", {"main", "review"}),
        (":at t", {"main", "review", "two-people"}),
        (":format c", {"csv", "json"}),
        (":run a", {"all", "older"}),
    ],
)
def test_completion_knows_what_may_follow(before: str, words: set[str], place: Path) -> None:
    target = Target("omnigraph shell", Capability.ANY, Flags(store="g.omni"))
    with target.open_to_read() as graph:
        session = Session(target, graph)
        session.define(read_source(place / "q.gq", "Q000"))
        assert words <= set(complete(before, session, COMMAND_NAMES))


@pytest.mark.parametrize(
    ("before", "word", "candidates"),
    [
        ("match { $p: Person } return { $p.", "$p.", {"$p.name", "$p.age", "$p.@id", "$p.@type"}),
        ("match { $p: Person $p.na", "$p.na", {"$p.name"}),
        ("match { $p knows $q } return { $q.a", "$q.a", {"$q.age"}),
        ("match { $p: Person } return { $p.@i", "$p.@i", {"$p.@id"}),
        (":sch", ":sch", {":schema"}),
    ],
)
def test_completion_after_a_dot_has_the_properties_of_the_variable(
    before: str, word: str, candidates: set[str], place: Path
) -> None:
    target = Target("omnigraph shell", Capability.ANY, Flags(store="g.omni"))
    with target.open_to_read() as graph:
        found = completions(before, Session(target, graph), COMMAND_NAMES)
    assert found[0] == word
    assert set(found[1]) == candidates


def test_shell_without_prompt_toolkit_says_how_to_install_it(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert main(["shell", "g.omni"]) == 1
    assert "pip install 'omnigraph[shell]'" in capsys.readouterr().err


class Terminal:
    """A shell at a pseudo-terminal."""

    def __init__(self, folder: Path) -> None:
        self.master, slave = pty.openpty()
        # Without an answer to its question for the cursor, prompt_toolkit would wait and warn.
        env = {**os.environ, "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm", "OMNIGRAPH_HOME": str(folder / "home")}
        command = [sys.executable, "-m", "omnigraph", "shell", "g.omni", "--format", "csv"]
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=env)
        os.close(slave)
        self.text = ""

    def send(self, text: str, expected: str) -> str:
        """Type a text, and return what appears from then on, up to an expected text."""
        start = len(self.text)
        os.write(self.master, text.encode())
        deadline = time.monotonic() + 30
        while expected not in self.text[start:]:
            assert time.monotonic() < deadline, self.text[start:]
            if select.select([self.master], [], [], 1)[0]:
                received = os.read(self.master, 65536).decode(errors="replace")
                self.text += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]", "", received)
        return self.text[start:]

    def close(self) -> None:
        os.close(self.master)
        self.process.wait(30)


@pytest.fixture
def terminal(place: Path) -> Iterator[Terminal]:
    pytest.importorskip("prompt_toolkit")
    opened = Terminal(place)
    yield opened
    if opened.process.poll() is None:
        opened.process.kill()
    opened.close()


@pytest.mark.slow
def test_session_at_a_terminal(terminal: Terminal, place: Path) -> None:
    terminal.send("", "main>")
    assert "bob" in terminal.send(f"{NAMES}\r", "bob")
    # Several lines run after an empty one; Tab completes a type and a property.
    terminal.send("match { $p: Per\t }\r", "...")
    terminal.send("return { count($p) as people }\r\r", "people")
    terminal.send('insert Person { name: "cy" }\r', "[y/N]")
    terminal.send("n\r", "nothing was changed")
    terminal.send('insert Person { name: "cy" }\r', "[y/N]")
    assert "1 node and 0 edges on main" in terminal.send("y\r", "`:undo` reverts it")
    terminal.send(":undo\r", "reverted ")
    terminal.send(":branch review\r", "review>")
    terminal.send("match { $p: Nobody } return { $p }\r", "there is no node type")
    terminal.send("half a statement\x03", "review>")
    terminal.send(":quit\r", "")
    assert terminal.process.wait(30) == 0
    history = place / "home" / "shell_history"
    assert "insert Person" in history.read_text(encoding="utf-8")
    assert history.stat().st_mode & 0o077 == 0
    with og.open(place / "g.omni", read_only=True) as graph:
        assert [commit.kind for commit in graph.commits(limit=2)] == ["revert", "mutation"]
