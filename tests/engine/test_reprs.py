"""What an interactive session shows of histories and reports is short, and escaped where it is HTML."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli import main

HOSTILE = "<script>alert(1)</script>\x1b[31m\nnext"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(
        tmp_path / "g.omni", "node Person { name: String @key  note: String? }\nedge Knows: Person -> Person"
    )
    graph.load([{"type": "Person", "data": {"name": HOSTILE, "note": HOSTILE}}], message="<script>alert(1)</script>")
    graph.load([{"type": "Person", "data": {"name": "Bob"}}, {"edge": "Knows", "from": "Bob", "to": HOSTILE}])
    return graph


def test_reprs_of_histories_are_tables_without_control_characters(graph: og.Graph) -> None:
    log, blame = repr(graph.log("Person", HOSTILE)), repr(graph.blame("Person", HOSTILE))
    for text in (
        log,
        blame,
        repr(graph.diff("HEAD~1", "main")),
        repr(graph.query("match { $p: Person } return { $p.* }")),
    ):
        assert "\x1b" not in text
        assert len(text) < 2_000
    assert "1 change of Person" in log
    assert "2 properties of Person" in blame


def test_reprs_of_reports_are_one_line(graph: og.Graph) -> None:
    for report in (
        graph.maintenance.ensure_indices(),
        graph.maintenance.optimize(),
        graph.maintenance.cleanup(keep=1, dry_run=True),
    ):
        assert len(repr(report)) < 200, repr(report)


def test_html_of_values_is_escaped(graph: og.Graph) -> None:
    shown = [
        graph.query("match { $p: Person } return { $p.* }")._repr_html_(),
        graph.diff("HEAD~1", "main")._repr_html_(),
        graph._repr_html_(),
        graph.schema._repr_html_(),
        graph.show()._repr_svg_(),
        graph.explain('match { $p: Person $p.name = "<script>" } return { $p }')._repr_html_(),
    ]
    for text in shown:
        assert "<script" not in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["commit", "changes", "HEAD~1"],
        ["log", "Person", HOSTILE],
        ["diff", "HEAD~2", "main"],
        ["query", "-e", "match { $p: Person } return { $p.* }"],
    ],
)
def test_command_line_prints_no_control_characters_of_values(
    arguments: list[str], graph: og.Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--store", graph.uri]) == 0
    shown = capsys.readouterr().out
    assert "alert(1)" in shown
    assert "\x1b" not in shown


def test_same_edges_loaded_again_name_the_key_that_would_help(tmp_path: Path) -> None:
    schema = "node P { name: String @key }\nedge K: P -> P { @unique(src, dst) }"
    edge = [{"type": "P", "data": {"name": "a"}}, {"edge": "K", "from": "a", "to": "a"}]
    with og.init(tmp_path / "h.omni", schema) as graph:
        graph.load(edge)
        with pytest.raises(og.DataError, match=r"@key\(src, dst\)"):
            graph.load(edge)
