"""Messages for mistakes that new users make: what happened, whether anything was changed, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli import main
from omnigraph.errors import GraphError

SCHEMA = "interface Named { name: String? }\nnode A implements Named { k: String @key }"
QUERIES = "".join(f"query q{number}() {{ match {{ $a: A }} return {{ $a.k }} }}\n" for number in range(10))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("messages")
    for name, text in {"s.pg": SCHEMA, "q.gq": QUERIES, "less.pg": "node A { k: String @key }"}.items():
        (folder / name).write_text(text, encoding="utf-8")
    og.init(folder / "g.omni", SCHEMA).close()
    return folder


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("init g.omni --schema s.pg", "g.omni` is already a graph; open it, or choose another address"),
        ("branch delete main --store g.omni", "`main` cannot be deleted: every graph has it"),
        ("branch rename main trunk --store g.omni", "`main` cannot be renamed: every graph has it"),
        ("diff main nope --store g.omni", "there is no branch, commit or tag `nope`"),
        ("cleanup g.omni --keep 0", "the newest commit of each branch is always kept; use 1 or more"),
        (
            "query nope --store g.omni --query q.gq",
            "it holds `q0`, `q1`, `q2`, `q3`, `q4`, `q5`, `q6`, `q7` and 2 more",
        ),
        ("query --store g.omni --query q.gq", "the source holds 10 queries; name the one to run"),
        ("branch list --server http://127.0.0.1:9 --graph g", "check its address and that it is running. Nothing"),
    ],
)
def test_mistake_is_answered_with_what_to_do(
    given: str, message: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
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


@pytest.mark.parametrize(
    "given",
    ["query nope --store g.omni --query q.gq", "schema plan g.omni --schema less.pg"],
    ids=["name", "interface"],
)
def test_what_is_missing_is_shown_at_no_place(
    given: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    assert main(given.split()) == 1
    blocks = capsys.readouterr().err.split("error[")
    [block] = [one for one in blocks if "no query" in one or "cannot be removed" in one]
    assert "^" not in block
    assert ":1:1" not in block


def test_revert_across_a_schema_change_names_the_branch_once(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.omni", "node A { k: String @key }") as graph:
        made = graph.ingest([{"type": "A", "data": {"k": "a"}}])
        graph.schema.apply("node A { k: String @key  n: I32? }")
        assert made.commit_id is not None
        with pytest.raises(GraphError, match="the schema of `main` has changed since that commit; nothing was changed"):
            graph.revert(made.commit_id)
