"""`omnigraph policy …` and `omnigraph queries …`: what they print and how they end; their guides are run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.cli import main
from tests.support.guide_runner import run_guide

BUNDLE = """
version: 1
groups: {team: [ann]}
rules:
  - {id: r, allow: {actors: {group: team}, actions: [read]}}
"""
CASES = """
version: 1
cases:
  - {id: reads, actor: ann, action: read, branch: main, expect: allow}
  - {id: writes, actor: ann, action: change, branch: main, expect: EXPECTED}
"""
SCHEMA = "node Person { name: String @key age: I32? face: Vector(2)? }\n"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(BUNDLE)
    (tmp_path / "schema.pg").write_text(SCHEMA)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(("page", "checks_min"), [("policy.md", 3), ("queries.md", 2)])
def test_guide_prints_what_it_shows(page: str, checks_min: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_guide(page, capsys) >= checks_min


def answer(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, object]:
    assert main([*words, "--json"]) == status
    told = json.loads(capsys.readouterr().out)
    assert isinstance(told, dict)
    return told


def test_policy_validate_counts_actors_and_tells_what_is_wrong(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "policy", "validate", "policy.yaml") == {
        "bundle": "policy.yaml",
        "ok": True,
        "actors": 1,
        "rules": 1,
    }
    (place / "policy.yaml").write_text("version: 2\nfoo: 1\n")
    told = answer(capsys, "policy", "validate", "policy.yaml", status=1)
    assert told["code"] == "policy.invalid"
    assert isinstance(told["problems"], list)
    assert len(told["problems"]) == 2
    assert main(["policy", "validate", "none.yaml"]) == 1


def test_policy_validate_server_bundle_takes_no_graph_action(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "validate", "policy.yaml", "--for", "server"]) == 1
    assert "bundle of a graph" in capsys.readouterr().err


@pytest.mark.parametrize(("expected", "status"), [("deny", 0), ("allow", 1)])
def test_policy_test_ends_by_whether_all_hold(
    expected: str, status: int, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "tests.yaml").write_text(CASES.replace("EXPECTED", expected))
    told = answer(capsys, "policy", "test", "policy.yaml", "--tests", "tests.yaml", status=status)
    assert told["ok"] is (status == 0)
    assert main(["policy", "test", "policy.yaml", "--tests", "tests.yaml"]) == status
    assert f"2 cases, {status} failed" in capsys.readouterr().out


def test_policy_explain_prints_decision_and_rule(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("policy", "explain", "policy.yaml", "--actor", "ann", "--action")
    told = answer(capsys, *words, "read", "--branch", "main")
    assert (told["allowed"], told["rule"]) == (True, "r")
    told = answer(capsys, *words, "branch_merge", "--branch", "x", "--target-branch", "main")
    assert (told["allowed"], told["rule"], told["target_branch"]) == (False, None, "main")
    assert main([*words, "dance"]) == 1


def test_queries_list_shows_kinds_of_parameters(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "q").mkdir()
    (place / "q" / "b.gq").write_text(
        "query near($v: Vector(2), $names: [String]) { match { $p: Person } return { $p.name }"
        " order { nearest($p.face, $v) } limit 1 }"
    )
    (place / "q" / "a.gq").write_text("query add($n: String, $a: I64?) { insert Person { name: $n } }")
    (place / "q" / "deeper").mkdir()
    (place / "q" / "deeper" / "c.gq").write_text("not read")
    told = answer(capsys, "queries", "list", "q", "--schema", "schema.pg")
    assert told == {
        "broken": [],
        "queries": [
            {
                "name": "add",
                "tool_name": "add",
                "mutation": True,
                "mcp_expose": True,
                "params": [
                    {"name": "n", "kind": "string", "type": "String", "nullable": False},
                    {"name": "a", "kind": "bigint", "type": "I64", "nullable": True},
                ],
            },
            {
                "name": "near",
                "tool_name": "near",
                "mutation": False,
                "mcp_expose": True,
                "params": [
                    {"name": "v", "kind": "vector", "type": "Vector(2)", "vector_dim": 2, "nullable": False},
                    {"name": "names", "kind": "list", "type": "[String]", "item_kind": "string", "nullable": False},
                ],
            },
        ],
    }
    checked = answer(capsys, "queries", "validate", "q", "--schema", "schema.pg")
    assert isinstance(checked["warnings"], list)
    assert [one["code"] for one in checked["warnings"]] == ["L204"]


def test_queries_validate_tells_all_that_is_wrong_at_once(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "q").mkdir()
    (place / "q" / "a.gq").write_text("query one() { match { $p: Nobody } return { $p.name } }")
    (place / "q" / "b.gq").write_text("query two() { match { $p: Person } return { $p.nothing } }\n")
    twice = "query three() { match { $p: Person } return { $p.name } }\n"
    (place / "q" / "c.gq").write_text(twice)
    (place / "q" / "d.gq").write_text(twice)
    told = answer(capsys, "queries", "validate", "q", "--schema", "schema.pg", status=1)
    assert isinstance(told["diagnostics"], list)
    assert sorted(one["code"] for one in told["diagnostics"]) == ["L203", "T1", "T6"]
    assert {Path(one["file"]).name for one in told["diagnostics"]} == {"a.gq", "b.gq", "d.gq"}


def test_queries_validate_needs_one_thing_to_check_against(place: Path) -> None:
    (place / "q").mkdir()
    assert main(["queries", "validate", "q"]) == 1
    assert main(["queries", "validate", "q", "--schema", "schema.pg"]) == 1, "a directory without queries is a mistake"
    assert main(["init", "g.omni", "--schema", "schema.pg"]) == 0
    (place / "q" / "a.gq").write_text("query one() { match { $p: Person } return { $p.name } }")
    assert main(["queries", "validate", "q", "--store", "g.omni"]) == 0
    assert main(["queries", "validate", "q", "--store", "g.omni", "--schema", "schema.pg"]) == 1
