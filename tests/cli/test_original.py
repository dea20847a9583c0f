"""The words, options and JSON members of the original's command line, which scripts written for it rely on."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import __version__
from omnigraph.cli import main
from omnigraph.cli.commands import COMMANDS, find_command

ROOT = Path(__file__).parents[2]
SCHEMA = "node Port { code: String @key  berths: I32? }"
QUERIES = """query all() { match { $p: Port } return { $p.code } }
query add($code: String) { insert Port { code: $code } }
query grow($code: String, $n: I32?) { update Port set { berths: $n } where code = $code }
"""
BROKEN = 'query bad() { match { $p: Prot } return { $p.code } }\nquery empty() { insert Port { code: "x" } }\n'
CONFIG = """servers: {lake: {url: "http://127.0.0.1:9"}}
profiles:
  prod: {server: lake, default_graph: supply}
  here: {store: /data/g.omni}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    files = {"s.pg": SCHEMA, "q.gq": QUERIES, "bad.gq": BROKEN, "home/config.yaml": CONFIG}
    (tmp_path / "home").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def graph(place: Path) -> Path:
    og.init(place / "g.omni", SCHEMA).close()
    (place / "d.ndjson").write_text('{"type":"Port","data":{"code":"P1"}}\n', encoding="utf-8")
    return place


def answer(capsys: pytest.CaptureFixture[str], *given: str, status: int = 0) -> Any:
    capsys.readouterr()
    assert main([*given, "--json"]) == status
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("flag", ["--version", "-v"])
def test_version_flag_prints_the_release(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"omnigraph {__version__}"


@pytest.mark.parametrize("given", [["-h"], ["branch", "-h"], ["branch", "create", "-h"]])
def test_short_help_flag_prints_help(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(given) == 0
    assert "Usage: omnigraph" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "path", "count"),
    [
        (["read", "all"], "omnigraph query", 1),
        (["change"], "omnigraph mutate", 1),
        (["check"], "omnigraph lint", 1),
        (["query", "lint"], "omnigraph lint", 2),
        (["query", "check"], "omnigraph lint", 2),
        (["query", "all"], "omnigraph query", 1),
        (["schema", "get"], "omnigraph schema show", 2),
    ],
)
def test_alias_calls_its_command(given: list[str], path: str, count: int) -> None:
    command, found = find_command(given)
    assert command is not None
    assert (command.path, found) == (path, count)


def test_aliases_are_documented_and_no_command_of_their_own() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    aliases = [alias for command in COMMANDS for alias in command.aliases]
    assert len(aliases) == len(set(aliases)) == 6
    assert not {command.words for command in COMMANDS} & set(aliases)
    for command in COMMANDS:
        for alias in command.aliases:
            assert f"| `omnigraph {' '.join(alias)}` | `{command.path}` |" in page


def test_read_and_change_run_a_query_string(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    insert = 'query add() { insert Port { code: "P1" } }'
    assert main(["change", "--uri", "g.omni", "--query-string", insert]) == 0
    found = answer(capsys, "read", "--store", "g.omni", "--query-string", QUERIES, "all")
    assert found["rows"] == [{"p.code": "P1"}]


@pytest.mark.slow
def test_uri_names_the_graph_of_branch_commit_and_changes_commands(
    graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["branch", "create", "b", "--uri", "g.omni"]) == 0
    assert answer(capsys, "branch", "list", "--uri", "g.omni")["branches"] == ["b", "main"]
    [commit, *_] = answer(capsys, "commit", "list", "--uri=g.omni")["commits"]
    assert main(["commit", "show", commit["graph_commit_id"], "--uri", "g.omni"]) == 0
    assert main(["changes", "poll", "--uri", "g.omni"]) == 0
    assert main(["changes", "baseline", "--uri", "g.omni", "--out", "base.ndjson"]) == 0
    assert main(["branch", "merge", "b", "--uri", "g.omni"]) == 0
    assert main(["--uri", "g.omni", "branch", "delete", "b"]) == 0
    assert main(["branch", "list", "--uri", "g.omni", "--store", "other.omni"]) == 1
    assert "two graphs were given" in capsys.readouterr().err


@pytest.mark.slow
def test_ingest_merges_and_makes_a_branch_from_main(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        found = answer(capsys, "ingest", "g.omni", "--data", "d.ndjson", "--branch", "new")
    assert (found["mode"], found["branch"], found["branch_created"]) == ("merge", "new", False)
    assert answer(capsys, "ingest", "g.omni", "--data", "d.ndjson")["branch"] == "main"


def test_export_takes_jsonl(graph: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    main(["ingest", "g.omni", "--data", "d.ndjson"])
    capfdbinary.readouterr()
    assert main(["export", "g.omni", "--jsonl"]) == 0
    assert capfdbinary.readouterr().out.count(b"\n") == 1
    assert main(["export", "g.omni", "--jsonl", "--format", "csv", "--out", "o"]) == 1


def test_schema_get_prints_the_source(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "schema", "get", "g.omni") == {"schema_source": SCHEMA}


def test_lint_json_has_the_members_of_the_original(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "check", "--schema", "s.pg", "--query", "bad.gq", status=1)
    counts = {name: found[name] for name in ("status", "queries_processed", "errors", "warnings", "infos")}
    assert counts == {"status": "error", "queries_processed": 2, "errors": 1, "warnings": 2, "infos": 0}
    assert (found["schema_source"], found["query_path"]) == ({"kind": "file", "path": "s.pg"}, "bad.gq")
    bad, empty = found["results"]
    assert bad == {"name": "bad", "kind": "read", "status": "error", "error": "there is no node type `Prot`"}
    assert (empty["kind"], empty["status"], len(empty["warnings"])) == ("mutation", "ok", 2)
    assert {"queries", "findings"} <= found.keys()
    on_graph = answer(capsys, "query", "lint", "--query", "q.gq", "--store", "g.omni")
    assert on_graph["schema_source"] == {"kind": "graph", "uri": "g.omni"}
    assert on_graph["results"][2] == {"name": "grow", "kind": "mutation", "status": "ok"}


def test_lint_finding_names_all_queries_that_it_is_about(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "two.gq").write_text(QUERIES.replace("set { berths: $n }", "set { berths: 1 }"), encoding="utf-8")
    (place / "s.pg").write_text(SCHEMA.replace("berths", "name: String?  berths"), encoding="utf-8")
    findings = answer(capsys, "lint", "--schema", "s.pg", "--query", "two.gq")["findings"]
    [finding] = [finding for finding in findings if finding["code"] == "L201"]
    assert (finding["type_name"], finding["property"], finding["query_names"]) == ("Port", "name", ["grow"])


def test_queries_json_has_the_members_of_the_original(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = answer(capsys, "queries", "list", "q.gq", "--schema", "s.pg")["queries"]
    [add] = [one for one in listed if one["name"] == "add"]
    assert (add["mcp_expose"], add["mutation"]) == (True, True)
    assert add["params"] == [{"name": "code", "kind": "string", "type": "String", "nullable": False}]
    fine = answer(capsys, "queries", "validate", "q.gq", "--schema", "s.pg")
    assert fine == {"ok": True, "queries": 3, "breakages": [], "warnings": []}
    refused = answer(capsys, "queries", "validate", "bad.gq", "--schema", "s.pg", status=1)
    assert (refused["ok"], refused["code"], refused["warnings"]) == (False, "language.rejected", [])
    assert refused["breakages"] == [{"query": "bad", "message": "there is no node type `Prot`"}]


def test_schema_plan_json_has_uri_and_step_count(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (graph / "new.pg").write_text(SCHEMA.replace("berths", "name: String?  berths"), encoding="utf-8")
    found = answer(capsys, "schema", "plan", "g.omni", "--schema", "new.pg")
    assert (found["uri"].endswith("g.omni"), found["supported"], found["step_count"]) == (True, True, 1)
    offline = answer(capsys, "schema", "plan", "--against", "s.pg", "--schema", "new.pg")
    assert (offline["uri"], offline["step_count"]) == ("s.pg", 1)


def test_profile_json_has_the_members_of_the_original(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "prod")
    here, prod = answer(capsys, "profile", "list")["profiles"]
    assert here.items() >= {"scope_kind": "store", "target": "/data/g.omni", "active": False, "valid": True}.items()
    assert prod.items() >= {"binding": "server: lake", "default_graph": "supply", "active": True}.items()
    shown = answer(capsys, "profile", "show")
    expected = {"scope_kind": "server", "target": "lake", "endpoint": "http://127.0.0.1:9", "output_format": "table"}
    assert shown.items() >= expected.items()


def test_login_of_an_undeclared_name_keeps_the_token_with_a_note(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    assert main(["login", "sea", "--json"]) == 0
    captured = capsys.readouterr()
    path = str(place / "home" / "credentials")
    assert json.loads(captured.out) == {"server": "sea", "credentials_path": path, "declared": False}
    assert "`sea` is not in the `servers`" in captured.err
    assert answer(capsys, "logout", "sea") == {"server": "sea", "credentials_path": path, "removed": True}
    assert answer(capsys, "logout", "sea")["removed"] is False


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["login", "lake", "--token", "secret"], "on standard input"),
        (["embed", "g.omni", "--seed", "f.jsonl"], "omnigraph load GRAPH --data FILE --mode merge --embed"),
        (["embed", "g.omni", "--spec", "f.yaml"], "not on seed files"),
        (["diff", "g.omni", "a", "b", "c"], "The graph comes first, or after `--store`."),
        (["ingest", "g.omni", "--data", "d", "--mode", "upsert"], "'upsert' is not one of"),
        (["load", "g.omni", "--mode", "add"], "is not one of 'append', 'merge', 'overwrite'"),
    ],
)
def test_refusal_says_what_to_do(
    given: list[str], message: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(given) == 1
    err = capsys.readouterr().err
    assert message in err
    assert "secret" not in err
    assert not {"\t", "Value error"} & {part for part in ("\t", "Value error") if part in err}
