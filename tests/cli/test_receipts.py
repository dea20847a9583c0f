"""What writes print as JSON: the whole commit, from storage and from a server alike; and stored queries that break."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli import main
from tests.support.live_server import ADD, DATA, SCHEMA, serving_graph

WIDER = SCHEMA.replace("age: I32?", "age: I32?\n    mail: String?")
AGES = "query ages() { match { $p: Person } return { $p.age as age } }\n"
NAMES = "query names() { match { $p: Person } return { $p.name as name } }\n"
MEMBERS = {
    "message",
    *("graph_commit_id", "graph_branch", "graph_manifest_version", "parent_commit_id", "merged_parent_commit_id"),
    *("actor_id", "created_at", "kind", "operation_id", "properties"),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with og.init("g.omni", SCHEMA) as graph:
        graph.ingest(DATA)
    (tmp_path / "wider.pg").write_text(WIDER)
    (tmp_path / "narrow.pg").write_text(SCHEMA.replace("    age: I32?\n", ""))
    (tmp_path / "one.ndjson").write_text('{"type": "Person", "data": {"name": "new"}}\n')
    return tmp_path


@pytest.fixture(params=["store", "server"])
def target(place: Path, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    if request.param == "store":
        yield ["--store", "g.omni"]
        return
    with serving_graph("g.omni") as live:
        yield ["--server", f"http://{live.host}:{live.port}", "--graph", "g"]


def printed(capsys: pytest.CaptureFixture[str], *given: str, status: int = 0) -> dict[str, object]:
    capsys.readouterr()
    assert main([*given, "--json", "--quiet"]) == status
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
def test_writes_print_the_commit_that_commit_show_prints(target: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Every command that writes, on storage and through a server."""
    add = ["mutate", "-e", ADD, "--params"]
    writes = [
        [*add, '{"name": "q"}'],
        ["ingest", "--data", "one.ndjson", "--mode", "merge"],
        ["load", "--data", "one.ndjson", "--mode", "merge"],
        ["schema", "apply", "--schema", "wider.pg"],
    ]
    for one in writes:
        commit = printed(capsys, *one, *target)["commit"]
        assert isinstance(commit, dict), one
        assert commit.keys() == MEMBERS
        assert commit == printed(capsys, "commit", "show", str(commit["graph_commit_id"]), *target)
    printed(capsys, "branch", "create", "draft", *target)
    drafted = printed(capsys, *add, '{"name": "r"}', "--branch", "draft", *target)["commit"]
    assert isinstance(drafted, dict)
    assert drafted["graph_branch"] == "draft"
    merged = printed(capsys, "branch", "merge", "draft", *target)["commit"]
    assert isinstance(merged, dict)
    assert (merged["graph_branch"], merged["kind"]) == ("main", "merge")
    reverted = printed(capsys, "revert", str(drafted["graph_commit_id"]), *target)["commit"]
    assert isinstance(reverted, dict)
    assert reverted["parent_commit_id"] == merged["graph_commit_id"]
    nothing = printed(capsys, "mutate", "-e", 'query n() { delete Person where name = "nobody" }', *target)
    assert nothing["commit"] is None


@pytest.mark.slow
def test_schema_apply_with_queries_refuses_what_breaks_one(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "stored").mkdir()
    (place / "stored" / "all.gq").write_text(AGES + NAMES)
    given = ["schema", "apply", "g.omni", "--schema", "narrow.pg", "--allow-drops"]
    refused = printed(capsys, *given, "--queries", "stored", status=1)
    assert refused["code"] == "schema.breaks_queries"
    queries = refused["queries"]
    assert isinstance(queries, list)
    assert [one["name"] for one in queries] == ["ages"]
    assert printed(capsys, *given)["applied"] is True
    listed = printed(capsys, "queries", "list", "stored", "--store", "g.omni")
    shown = {name: [one["name"] for one in listed[name]] for name in ("queries", "broken")}  # type: ignore[attr-defined]
    assert shown == {"queries": ["names"], "broken": ["ages"]}
    assert main(["queries", "list", "stored", "--store", "g.omni"]) == 0
    assert "ages   broken" in capsys.readouterr().out
    assert main(["queries", "validate", "stored", "--store", "g.omni"]) == 1


def test_schema_apply_on_a_server_takes_no_queries(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["schema", "apply", "--schema", "narrow.pg", "--queries", "stored", "--server", "http://127.0.0.1:1"]
    assert main([*given, "--graph", "g"]) == 1
    assert "a server checks its own stored queries" in capsys.readouterr().err
