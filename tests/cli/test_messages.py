"""Messages for mistakes that new users make: what happened, whether anything was changed, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli import main

SCHEMA = "interface Named { name: String? }\nnode A implements Named { k: String @key }"
QUERIES = "".join(f"query q{number}() {{ match {{ $a: A }} return {{ $a.k }} }}\n" for number in range(10))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("messages")
    for name, text in {"s.pg": SCHEMA, "q.gq": QUERIES}.items():
        (folder / name).write_text(text, encoding="utf-8")
    og.init(folder / "g.omni", SCHEMA).close()
    return folder


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("init g.omni --schema s.pg", "g.omni` is already a graph; open it, or choose another address"),
        ("branch delete main --store g.omni", "`main` cannot be deleted: every graph has it"),
        ("branch rename main trunk --store g.omni", "`main` cannot be renamed: every graph has it"),
        ("diff main nope --store g.omni", "there is no branch, tag or commit `nope`"),
        ("cleanup g.omni --keep 0", "the newest commit of each branch is always kept; use 1 or more"),
        (
            "query nope --store g.omni --query q.gq",
            "it holds `q0`, `q1`, `q2`, `q3`, `q4`, `q5`, `q6`, `q7` and 2 more",
        ),
        ("query --store g.omni --query q.gq", "the source holds 10 queries; name the one to run"),
        (
            "branch list --server http://127.0.0.1:9 --graph g",
            "cannot reach http://127.0.0.1:9: [Errno 111] Connection refused; check the address, and",
        ),
    ],
)
def test_mistake_is_answered_with_what_to_do(
    given: str, message: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr("omnigraph.client.transport.CLIENT_BACKOFF_MILLISECONDS", 1)
    assert main(given.split()) == 1
    assert message in capsys.readouterr().err


def test_cleanup_without_confirm_says_what_would_stay(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    assert main(["cleanup", "g.omni", "--keep", "3"]) == 0
    err = capsys.readouterr().err
    assert "and keep the newest 3 commits of each branch; nothing was removed" in err
    assert "None" not in err


def test_what_is_missing_is_shown_at_no_place(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    assert main(["query", "nope", "--store", "g.omni", "--query", "q.gq"]) == 1
    [block] = [one for one in capsys.readouterr().err.split("error[") if "no query" in one]
    assert "^" not in block
    assert ":1:1" not in block


def test_revert_works_across_a_schema_change(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.omni", "node A { k: String @key }") as graph:
        made = graph.ingest([{"type": "A", "data": {"k": "a"}}])
        graph.schema.apply("node A { k: String @key  n: I32? }")
        assert made.commit_id is not None
        assert graph.revert(made.commit_id).commit is not None
        assert graph.get("A", "a") is None


def test_file_that_is_no_ndjson_is_refused_once(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    (place / "passwd.ndjson").write_text(
        "".join(f"user{number}:x:{number}\n" for number in range(50)), encoding="utf-8"
    )
    for command in ("ingest", "load"):
        assert main([command, "g.omni", "--data", "passwd.ndjson", "-q"]) == 1
        err = capsys.readouterr().err
        assert "this is not NDJSON: no line begins with `{`; write one JSON object per line. Nothing was written" in err
        assert err.count("error[") == 1


def test_lint_says_what_no_update_sets_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.pg").write_text("node A { k: String @key  a: I32?  b: I32?  c: I32? }", encoding="utf-8")
    (tmp_path / "q.gq").write_text("query q($k: String) { update A set { a: 1 } where k = $k }", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["lint", "--schema", "s.pg", "--query", "q.gq"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "note[L201]: no update sets b, c of `A`\n"
    assert captured.out == "1 query, 2 findings: ok\n"


def test_notes_on_a_schema_are_shown_by_init_and_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.pg").write_text("node A { n: I32  @range(n, 9..1) }")
    assert main(["init", "new.omni", "--schema", "odd.pg"]) == 0
    assert "[S29]" in capsys.readouterr().err
    assert main(["schema", "plan", "new.omni", "--schema", "odd.pg"]) == 0
    assert "[S29]" in capsys.readouterr().err
