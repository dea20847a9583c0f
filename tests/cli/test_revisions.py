"""How commits are named and listed, and conflicts resolved, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli import main
from omnigraph.cli.app import own_parameters
from omnigraph.cli.commands import COMMANDS
from omnigraph.cli.history_output import draw_history, resolve_conflicts, shorten_ids
from omnigraph.errors import UsageError
from tests.support.graph_template import copy_built

pytestmark = pytest.mark.slow

NAMES = ("graph_commit_id", "parent_commit_id", "merged_parent_commit_id")


def build(path: Path) -> og.Graph:
    graph = og.init(path, "node Person { name: String @key  age: I32?  team: String? }")
    put(graph, age=1)
    graph.branches.create("review")
    put(graph, age=2)
    put(graph, "review", age=3, team="sea")
    return graph


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> og.Graph:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMNIGRAPH_STORE", "g.omni")
    return copy_built(build, tmp_path / "g.omni")


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


@pytest.mark.parametrize(
    ("options", "age"), [(["--ours"], 2), (["--theirs"], 3), (["--take", "Person:ann.age=theirs"], 3)]
)
def test_cherry_pick_resolves_conflicts(options: list[str], age: int, graph: og.Graph) -> None:
    commit = ids(graph, "review")[0]
    assert main(["cherry-pick", commit, "-q"]) == 1
    assert main(["cherry-pick", commit, "-q", *options]) == 0
    assert graph.get("Person", "ann") == {"id": "ann", "name": "ann", "age": age, "team": "sea"}


@pytest.mark.parametrize(("options", "age"), [(["--ours"], 9), (["--theirs"], 1)])
def test_revert_resolves_conflicts(
    options: list[str], age: int, graph: og.Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    put(graph, age=9)
    commit = ids(graph)[1]
    assert main(["revert", commit, "-q"]) == 1
    assert "resolve all with --ours or --theirs" in capsys.readouterr().err
    assert main(["revert", commit, "-q", *options]) == 0
    person = graph.get("Person", "ann")
    assert person is not None
    assert person["age"] == age


def test_both_sides_contradict_each_other(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["revert", "HEAD", "--ours", "--theirs"]) == 1
    assert "contradict each other" in capsys.readouterr().err


def test_take_beside_a_side_decides_property_by_property() -> None:
    conflict = {"kind": "DivergentUpdate", "type_key": "node:A", "entity_id": "x.y", "properties": ["p", "q"]}
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


WRITES = (
    ["mutate", "-e", 'query q() { update Person set { age: 9 } where name = "ann" }'],
    ["ingest", "--data", "bo.ndjson"],
    ["load", "--data", "bo.ndjson", "--engine", "local"],
    ["branch", "merge", "review", "--theirs"],
    ["branch", "merge", "review", "--theirs", "--engine", "local"],
    ["revert", "HEAD"],
    ["cherry-pick", "review", "--branch", "other"],
    ["schema", "apply", "--schema", "wider.pg"],
    ["optimize"],
    ["index", "build"],
)


@pytest.mark.parametrize("words", WRITES, ids=" ".join)
def test_command_that_commits_takes_a_message(
    words: list[str], graph: og.Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bo.ndjson").write_text('{"type": "Person", "data": {"name": "bo"}}\n')
    Path("wider.pg").write_text("node Person { name: String @key  age: I32?  team: String?  mail: String? }")
    graph.branches.create("other", at="HEAD~1")
    if words[0] == "schema":
        graph.branches.delete("other")
        graph.branches.delete("review")
    assert main([*words, "-m", "Correct ages\n\nas agreed", "--json"]) == 0
    commit = json.loads(capsys.readouterr().out)["commit"]
    assert commit["message"] == "Correct ages\n\nas agreed"
    assert main(["commit", "list", "--branch", commit["graph_branch"], "--limit", "1"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("Correct ages")
    assert main(["commit", "list", "--branch", commit["graph_branch"], "--graph"]) == 0
    assert ": Correct ages" in capsys.readouterr().out
    assert main(["commit", "show", commit["graph_commit_id"]]) == 0
    shown = capsys.readouterr().out
    assert "message" in shown
    # The lines of a message are aligned with its first one.
    assert shown.rstrip().splitlines()[-1] == " " * (shown.splitlines()[-3].index("Correct")) + "as agreed"


def test_every_command_that_commits_has_the_option() -> None:
    words = {" ".join(words[:2] if words[0] in ("branch", "schema", "index") else words[:1]) for words in WRITES}
    words |= {"embed", "repair"}
    with_message = {
        " ".join(command.words)
        for command in COMMANDS
        if any(parameter.name == "message" for parameter in own_parameters(command.run))
    }
    assert with_message == words


def test_schema_and_new_branch_start_at_a_past_state(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    graph.schema.apply("node Person { name: String @key  age: I32?  team: String?  nick: String? }")
    assert main(["schema", "show", "--at", "HEAD~1"]) == 0
    assert "nick" not in capsys.readouterr().out
    assert main(["schema", "show", "--at", "HEAD"]) == 0
    assert "nick" in capsys.readouterr().out
    assert main(["branch", "create", "old", "--at", "HEAD~2"]) == 0
    assert "branch old starts at HEAD~2" in capsys.readouterr().out
    assert ids(graph, "old") == ids(graph)[2:]
