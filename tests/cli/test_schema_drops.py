"""`schema apply` and what a new schema leaves out: listed, asked for on a terminal, refused elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson
import pytest

import omnigraph as og
from omnigraph.cli.app import main
from omnigraph.errors import GraphError
from omnigraph.lang.migrate import MigrationPlan

FULL = """
node Person { name: String @key  age: I32?  mail: String? @unique  @range(age, 0..150)  @index(age) }
node City { name: String @key }
edge Knows: Person -> Person @card(0..9) { @key(src, dst) }
"""
# The wider range succeeds the narrow one, and an index is no rule.
SHORT = """
node Person { name: String @key  age: I32?  mail: String?  @range(age, 0..200) }
edge Knows: Person -> Person {}
"""
DROPPED = [
    "drop @unique(mail) from node Person",
    "drop @key(dst, src) from edge Knows",
    "drop @card(0..9) from edge Knows",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("full.pg").write_text(FULL)
    Path("short.pg").write_text(SHORT)
    og.init("g.omni", schema=FULL).close()
    return tmp_path


def apply(*options: str) -> int:
    return main(["schema", "apply", "g.omni", "--schema", "short.pg", "--quiet", *options])


def schema_of(address: str = "g.omni") -> str:
    with og.open(address) as graph:
        return graph.schema.source


def test_plan_lists_what_goes_without_a_successor(folder: Path) -> None:
    with og.open("g.omni") as graph:
        plan = graph.schema.plan(SHORT)
        assert "drops what the schema leaves out" not in plan.render()
        assert "4 of them drop what the schema leaves out." in plan.render().splitlines()[0]
        rendered = [step.render().removeprefix("- ") for step in plan.drops]
        assert sorted(rendered) == sorted([*DROPPED, "drop node City (soft)"])
        assert graph.schema.plan(FULL + "node New {}").drops == ()


def test_apply_without_terminal_is_refused_with_the_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert apply() == 1
    told = capsys.readouterr().err
    assert all(text in told for text in (*DROPPED, "drop node City (soft)", "--allow-drops", "nothing was applied"))
    assert schema_of() == FULL
    assert apply("--json") == 1
    refused = orjson.loads(capsys.readouterr().out)
    assert refused["code"] == "schema.drops"
    assert [step["kind"] for step in refused["drops"]].count("drop_constraint") == 3


@pytest.mark.parametrize("option", ["--allow-drops", "--allow-data-loss"])
def test_apply_with_permission_drops(folder: Path, option: str) -> None:
    assert apply(option) == 0
    assert schema_of() == SHORT


@pytest.mark.parametrize(("answer", "status"), [("yes", 0), ("no", 1), ("", 1)])
def test_apply_on_a_terminal_lists_and_asks(
    folder: Path, answer: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda *_, default, **__: answer or default)
    assert apply() == status
    told = capsys.readouterr().err
    assert all(f"- {text}" in told for text in DROPPED)
    assert schema_of() == (SHORT if status == 0 else FULL)


def test_python_drops_unless_it_is_told_not_to(folder: Path) -> None:
    with og.open("g.omni") as graph:
        with pytest.raises(GraphError) as caught:
            graph.schema.apply(SHORT, allow_drops=False)
        assert caught.value.code == "schema.drops"
        assert graph.schema.apply(FULL + "node New {}", allow_drops=False).applied
        assert graph.schema.apply(SHORT).applied


def test_a_plan_that_counts_no_drops_is_caught(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MigrationPlan, "drops", (), raising=False)
    assert apply() == 0, "without the rule the schema would be dropped in silence"
