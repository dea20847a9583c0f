"""A terminal gets no control character from data, in any format, by any command; files and pipes get it as it is."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli import main
from omnigraph.cli.options import Format

CLI = Path(og.__file__).parent / "cli"
# Sets the title, colours text, rings, goes back; C1, a change of direction, and what prints as it is.
HOSTILE = "\x1b]0;PWNED\x07\x1b[31mred\r\x08\x7f\x9b31m\u202eén\u2028 ☃"
SCHEMA = "node Doc { k: String @key  t: String?  b: Blob?  kind: enum(a, b)? } edge Cites: Doc -> Doc"
ALL = "query all() { match { $d: Doc } return { $d.k, $d.t } }"
ALLOWED = {"\n", "\t"}


class Terminal(io.TextIOWrapper):
    """A standard stream that says that it is a terminal, and keeps what it gets."""

    def __init__(self) -> None:
        self.kept = io.BytesIO()
        super().__init__(self.kept, encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    def text(self) -> str:
        self.flush()
        return self.kept.getvalue().decode()


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    lines = [
        {"type": "Doc", "data": {"k": HOSTILE, "t": HOSTILE}},
        {"type": "Doc", "data": {"k": "plain", "t": "two\nlines\tand a tab", "b": "base64:G1szMW3CmzMxbf8="}},
        {"edge": "Cites", "from": HOSTILE, "to": "plain", "data": {"id": HOSTILE}},
    ]
    with og.init(folder / "g.omni", SCHEMA) as graph:
        graph.ingest("\n".join(map(json.dumps, lines)).encode())
        graph.branches.create("b")
        for branch, text in (("main", "x"), ("b", "y")):
            changed = [{"type": "Doc", "data": {"k": HOSTILE, "t": HOSTILE + text}}]
            graph.ingest(changed, branch=branch)
    (folder / "bad.ndjson").write_text(
        "\n".join(json.dumps({"type": HOSTILE, "data": {"k": "z", HOSTILE: 1}}) for _ in range(3))
        + "\n"
        + json.dumps({"type": "Doc", "data": {"k": "z", "kind": HOSTILE, "t": 7}}, ensure_ascii=False),
        encoding="utf-8",
    )
    return folder


def printed(given: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Run a command at a terminal, and return what it got on both streams, without colours of our own."""
    out, err = Terminal(), Terminal()
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", out)
        patch.setattr("sys.stderr", err)
        patch.setenv("NO_COLOR", "1")
        main(given)
    return out.text(), err.text()


def controls(text: str) -> set[str]:
    return {one for one in text if not one.isprintable() and one not in ALLOWED}


COMMANDS = [
    *(["query", "--store", "g.omni", "-e", ALL, "--format", shape.value] for shape in Format),
    ["export", "g.omni"],
    ["blob", "get", "node", "Doc", "plain", "b", "--store", "g.omni"],
    ["blob", "get", "node", "Doc", HOSTILE, "b", "--store", "g.omni"],
    ["changes", "poll", "g.omni", "--start", "beginning"],
    ["changes", "poll", "g.omni", "--start", "beginning", "--json"],
    ["diff", "main", "b", "--store", "g.omni"],
    ["diff", "main", "b", "--store", "g.omni", "--json"],
    ["branch", "merge", "b", "--store", "g.omni"],
    ["branch", "merge", "b", "--store", "g.omni", "--json"],
    ["ingest", "g.omni", "--data", "bad.ndjson"],
    ["ingest", "g.omni", "--data", "bad.ndjson", "--json"],
    ["query", "--store", "g.omni", "-e", ALL.replace("Doc", HOSTILE)],
    ["mutate", "--store", "g.omni", "-e", 'query q($k: String) { insert Doc { k: $k, kind: $k } }', "--params",
     json.dumps({"k": HOSTILE})],
    ["branch", "delete", HOSTILE, "--store", "g.omni"],
    ["commit", "show", HOSTILE, "--store", "g.omni"],
    [HOSTILE],
]  # fmt: skip


@pytest.mark.parametrize(
    "given", COMMANDS, ids=lambda given: " ".join(given[:3])[:40].encode("unicode_escape").decode()
)
def test_terminal_gets_no_control_character(given: list[str], graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(graph)
    out, err = printed(given, monkeypatch)
    assert out or err
    assert controls(out) == set()
    assert controls(err) == set()


def test_terminal_shows_what_was_escaped(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(graph)
    out, _ = printed(["query", "--store", "g.omni", "-e", ALL, "--format", "kv"], monkeypatch)
    assert "\\u001b]0;PWNED\\u0007\\u001b[31mred" in out
    assert "\\u009b31m\\u202eén" in out
    assert "two\nlines\tand a tab" in out


@pytest.mark.parametrize("shape", [Format.JSON, Format.JSONL])
def test_terminal_json_means_the_same(shape: Format, graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(graph)
    out, _ = printed(["query", "--store", "g.omni", "-e", ALL, "--format", shape.value], monkeypatch)
    rows = json.loads(out)["rows"] if shape is Format.JSON else list(map(json.loads, out.splitlines()))[1:]
    assert HOSTILE in {row["d.k"] for row in rows}


@pytest.mark.parametrize("shape", ["kv", "csv", "json", "jsonl"])
def test_pipe_gets_data_as_it_is(shape: str, graph: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["query", "--store", str(graph / "g.omni"), "-e", ALL, "--format", shape]) == 0
    out = capfdbinary.readouterr().out.decode()
    assert "\x9b31m\u202e" in out
    assert ("\x1b[31m" in out) is (shape in ("kv", "csv"))


def test_pipe_gets_an_export_as_it_is(graph: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["export", str(graph / "g.omni")]) == 0
    out = capfdbinary.readouterr().out
    assert "\x9b31m".encode() in out
    with og.open(graph / "g.omni", read_only=True) as opened:
        assert out == b"".join(opened.export())


def test_errors_are_escaped_wherever_they_go(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--json"]):
        assert main(["commit", "show", HOSTILE, "--store", str(graph / "g.omni"), *more]) == 1
        captured = capsys.readouterr()
        assert controls(captured.out + captured.err) == set()
    assert HOSTILE in json.loads(captured.out)["error"]


def test_colours_are_off_where_the_environment_says_so(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, is_coloured in (("NO_COLOR", "1", False), ("TERM", "dumb", False), ("TERM", "xterm", True)):
        err = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr("sys.stderr", err)
            patch.delenv("NO_COLOR", raising=False)
            patch.setenv("TERM", "xterm")
            patch.setenv(name, value)
            main(["branch", "nope"])
        assert ("\x1b[" in err.text()) is is_coloured


def test_all_output_goes_through_one_module() -> None:
    """Commands print through `output` alone; anything else could hand data to a terminal as it is."""
    for path in sorted(CLI.glob("*.py")):
        if path.name == "output.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                name = ast.unparse(node)
                assert name not in ("typer.echo", "typer.secho", "sys.stdout.write", "sys.stdout.buffer"), path.name
                assert not name.startswith("sys.stderr.write"), path.name
            assert not (isinstance(node, ast.Call) and ast.unparse(node.func) == "print"), path.name


def test_pipe_gets_the_bytes_of_a_blob(graph: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["blob", "get", "node", "Doc", "plain", "b", "--store", str(graph / "g.omni")]) == 0
    assert capfdbinary.readouterr().out == b"\x1b[31m\xc2\x9b31m\xff"
