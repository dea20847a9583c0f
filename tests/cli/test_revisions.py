"""How commits are named and listed, and conflicts resolved, on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import omnigraph as og
from omnigraph.cli import main
from omnigraph.cli.conflicts import resolve_conflicts
from omnigraph.cli.revisions import draw_history, resolve_revision, shorten_ids
from omnigraph.errors import GraphError, UsageError

NAMES = ("graph_commit_id", "parent_commit_id", "merged_parent_commit_id")


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> og.Graph:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMNIGRAPH_STORE", "g.omni")
    graph = og.init(tmp_path / "g.omni", "node Person { name: String @key  age: I32?  team: String? }")
    put(graph, age=1)
    graph.branches.create("review")
    put(graph, age=2)
    put(graph, "review", age=3, team="sea")
    return graph


def put(graph: og.Graph, branch: str = "main", **values: object) -> None:
    graph.ingest([{"type": "Person", "data": {"name": "ann", **values}}], branch=branch)


def ids(graph: og.Graph, branch: str = "main") -> list[str]:
    return [str(commit.commit_id) for commit in graph.commits(branch)]


def age(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    query = "query q() { match { $p: Person } return { $p.age as age } }"
    assert main(["query", "-e", query, "--format", "jsonl", *options]) == 0
    return str(json.loads(capsys.readouterr().out)["age"])


def test_state_is_named_in_every_way(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    head, before, _ = ids(graph)
    graph.tags.create("now")
    assert [age(capsys, "--at", at) for at in (head, "HEAD", "now")] == ["2"] * 3
    assert [age(capsys, "--at", at) for at in (before, "HEAD~1", "HEAD~", "now~1", "main~1")] == ["1"] * 5
    assert age(capsys, "--at", shorten_ids(ids(graph) + ids(graph, "review"))[before].lower()) == "1"
    assert age(capsys, "--at", "2999-01-01") == "2"


@pytest.mark.parametrize(
    ("at", "code"), [("HEAD~9", "commit.not_found"), ("1999-01-01", "commit.not_found"), ("0000000000", "not_found")]
)
def test_state_that_is_not_there_is_refused(
    at: str, code: str, graph: og.Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["commit", "show", at]) == 1
    assert code in capsys.readouterr().err


def test_short_id_of_several_commits_is_refused_with_all_of_them() -> None:
    commits = [SimpleNamespace(commit_id=f"01JCW0V7Q2M4RRP5K3WBF8E1Z{end}") for end in "AB"]
    listed = SimpleNamespace(list=lambda: ["main"])
    stub = SimpleNamespace(branches=listed, tags=SimpleNamespace(list=list), commits=lambda branch: commits)
    with pytest.raises(GraphError) as caught:
        resolve_revision(cast(Any, stub), "01JCW0V7Q2")
    assert caught.value.code == "commit.ambiguous"
    assert caught.value.context["commits"] == [commit.commit_id for commit in commits]
    assert resolve_revision(cast(Any, stub), "01JCW0V7Q2M4RRP5K3WBF8E1ZA") == "01JCW0V7Q2M4RRP5K3WBF8E1ZA"


def test_lists_show_heads_and_names_of_deleted_branches(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["branch", "list"]) == 0
    shown = capsys.readouterr().out
    assert ids(graph)[0][:10] in shown
    assert ids(graph, "review")[0][:10] in shown
    assert main(["branch", "merge", "review", "--theirs", "--delete-branch", "-q"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["commit", "list", "--graph"]) == 0
    assert "(review)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "values"),
    [
        (["--ours"], (2, "sea")),
        (["--theirs"], (3, "sea")),
        (["--take", "Person:ann.age=theirs", "--ours"], (3, "sea")),
        (["--take", "Person:ann=ours"], (2, "sea")),
    ],
)
def test_merge_resolves_conflicts(options: list[str], values: tuple[int, str], graph: og.Graph) -> None:
    assert main(["branch", "merge", "review", "-q"]) == 1
    assert main(["branch", "merge", "review", "-q", *options]) == 0
    query = "query q() { match { $p: Person } return { $p.age as age, $p.team as team } }"
    [row] = graph.query(query).to_json_rows()
    # Only the review changed the team, which is no conflict.
    assert (row["age"], row["team"]) == values


def test_take_beside_a_side_decides_property_by_property() -> None:
    conflict = {"type_key": "node:A", "entity_id": "x.y", "properties": ["p", "q"]}
    taken = resolve_conflicts([conflict], "ours", ["A:x.y.q=theirs"])
    assert {(item["property"], item["take"]) for item in taken} == {("p", "ours"), ("q", "theirs")}
    for wrong in ("A:x.y.q", "A:x.y.z=ours", "B:x.y=ours"):
        with pytest.raises(UsageError):
            resolve_conflicts([conflict], None, [wrong])


def test_history_is_drawn_with_lines_that_join_and_part() -> None:
    rows = [("f", "e", "c"), ("e", "d", "b"), ("d", "a", None), ("c", "a", None), ("b", "a", None), ("a", None, None)]
    lines = [line for line, _ in draw_history([dict(zip(NAMES, row, strict=True)) for row in rows])]
    assert lines == [
        "*",
        "|\\",
        "* |",
        "|\\ \\",
        "* | |",
        "| | *",
        "| * |",
        "|_|/",
        "|/",
        "*",
    ]


def test_diff_shows_values_before_and_after(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "HEAD~1", "review"]) == 0
    assert 'age 1 → 3, team null → "sea"' in capsys.readouterr().out
    graph.branches.delete("review")
    graph.schema.apply("node Person { name: String @key  age: I32?  team: String?  mail: String? }")
    graph.ingest([{"type": "Person", "data": {"name": "bo", "mail": "b"}}])
    assert main(["diff", "HEAD~2", "main"]) == 0
    assert 'mail "b", name "bo"' in capsys.readouterr().out
    assert main(["diff", "HEAD~2", "main", "--names", "then"]) == 0
    assert "bo" in capsys.readouterr().out


def test_write_expects_a_head_by_its_short_id(graph: og.Graph) -> None:
    text = 'query q() { update Person set { age: 9 } where name = "ann" }'
    short = shorten_ids([*ids(graph), *ids(graph, "review")])
    head, before, _ = ids(graph)
    assert main(["mutate", "-e", text, "--if-commit", short[before]]) == 4
    assert main(["mutate", "-e", text, "--if-commit", short[head]]) == 0
