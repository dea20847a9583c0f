"""Cluster commands on a real folder and real graphs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.cli import main
from omnigraph.cluster import ClusterError
from omnigraph.cluster.applied_state import read_applied_pipelines
from omnigraph.cluster.apply import Apply
from omnigraph.failpoints import Point
from tests.support.cluster_folder import QUERIES, cluster, codes, write_folder

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "team")


def test_validate_lists_resources_and_their_digests(folder: Path) -> None:
    report = cluster(folder).validate()
    assert report.ok
    assert report.members["resources"] == ["graph.knowledge", "query.knowledge.all", "schema.knowledge"]


def test_apply_creates_the_declared_graph_and_converges(folder: Path) -> None:
    assert cluster(folder).import_().ok
    report = cluster(folder).apply()
    assert report.ok, report.findings
    assert report.members["converged"] is True
    with og.open(folder / "graphs" / "knowledge.omni") as graph:
        assert list(graph.schema.nodes) == ["Person"]
    again = cluster(folder).apply()
    assert again.members["state_written"] is False
    assert again.members["changes"] == []


def test_apply_without_a_ledger_says_what_to_do(folder: Path) -> None:
    with pytest.raises(ClusterError, match="cluster import"):
        cluster(folder).apply()


def test_apply_migrates_a_changed_schema(folder: Path) -> None:
    cluster(folder).import_()
    cluster(folder).apply()
    (folder / "person.pg").write_text("node Person { name: String @key  team: String? }\n")
    plan = cluster(folder).plan()
    changed = {item["resource"]: item for item in plan.members["changes"]}
    assert changed["schema.knowledge"]["migration"]["supported"] is True
    assert changed["graph.knowledge"]["disposition"] == "derived"
    assert cluster(folder).apply().members["converged"] is True
    with og.open(folder / "graphs" / "knowledge.omni") as graph:
        assert "team" in graph.schema.nodes["Person"].properties


def test_deleting_a_graph_needs_an_approval_of_this_very_change(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", graphs=("a", "b"))
    cluster(folder).import_()
    cluster(folder).apply()
    write_folder(folder, graphs=("a",))
    refused = cluster(folder).apply()
    assert refused.ok
    assert refused.members["converged"] is False
    assert "approval_required" in codes(refused)
    assert (folder / "graphs" / "b.omni").exists()
    assert cluster(folder).approve("graph.b").ok
    (folder / "queries" / "people.gq").write_text(QUERIES + "// reviewed\n")
    assert "approval_stale" in codes(cluster(folder).apply())
    assert cluster(folder).approve("graph.b").ok
    assert cluster(folder).apply().members["converged"] is True
    assert not (folder / "graphs" / "b.omni").exists()


@pytest.mark.parametrize("branch", ["main", "draft"])
def test_approval_is_stale_after_a_write_to_the_graph(tmp_path: Path, branch: str) -> None:
    folder = write_folder(tmp_path / "team", graphs=("a", "b"))
    cluster(folder).import_()
    cluster(folder).apply()
    write_folder(folder, graphs=("a",))
    with og.open(folder / "graphs" / "b.omni") as graph:
        graph.branches.create("draft")
        assert cluster(folder).approve("graph.b").ok
        graph.mutate('query add() { insert Person { name: "late" } }', branch=branch)
    assert "approval_stale" in codes(cluster(folder).apply())
    assert (folder / "graphs" / "b.omni").exists()
    assert cluster(folder).approve("graph.b").ok
    assert cluster(folder).apply().members["converged"] is True
    assert not (folder / "graphs" / "b.omni").exists()


def test_graph_that_is_written_to_during_the_apply_is_kept(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", graphs=("a", "b"))
    cluster(folder).import_()
    cluster(folder).apply()
    write_folder(folder, graphs=("a", "c"))
    assert cluster(folder).approve("graph.b").ok

    def write(_: str) -> None:
        with og.open(folder / "graphs" / "b.omni") as graph:
            graph.mutate('query add() { insert Person { name: "late" } }')

    # The plan is made, and `c` is being created.
    with failpoints.armed({Point.INIT_CLAIMED: write}):
        report = cluster(folder).apply()
    assert report.ok
    assert "approval_stale" in codes(report)
    assert report.members["converged"] is False
    assert (folder / "graphs" / "c.omni").exists()
    with og.open(folder / "graphs" / "b.omni") as graph:
        assert graph.query("query all() { match { $p: Person } return { $p.name } }").rows() == [{"p.name": "late"}]
    dispositions = {item["resource"]: item["disposition"] for item in report.members["changes"]}
    assert (dispositions["graph.b"], dispositions["graph.c"]) == ("blocked", "applied")
    assert cluster(folder).approve("graph.b").ok
    assert cluster(folder).apply().members["converged"] is True
    assert not (folder / "graphs" / "b.omni").exists()


def test_approval_holds_for_the_rest_of_an_interrupted_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "team", graphs=("a", "b"))
    cluster(folder).import_()
    cluster(folder).apply()
    write_folder(folder, graphs=("a",))
    assert cluster(folder).approve("graph.b").ok

    def delete_some(self: Apply, path: str) -> None:
        shutil.rmtree(folder / path / "__manifest")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Apply, "_delete_objects", delete_some)
        with pytest.raises(KeyboardInterrupt):
            cluster(folder).apply()
    assert cluster(folder).apply().members["converged"] is True
    assert not (folder / "graphs" / "b.omni").exists()


def test_graph_that_cannot_be_read_can_be_deleted(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", graphs=("a", "b"))
    cluster(folder).import_()
    cluster(folder).apply()
    write_folder(folder, graphs=("a",))
    shutil.rmtree(folder / "graphs" / "b.omni" / "__manifest")
    assert cluster(folder).approve("graph.b").ok
    assert cluster(folder).apply().members["converged"] is True
    assert not (folder / "graphs" / "b.omni").exists()


def test_refresh_notices_a_missing_graph_and_a_foreign_schema(folder: Path) -> None:
    cluster(folder).import_()
    cluster(folder).apply()
    with og.open(folder / "graphs" / "knowledge.omni") as graph:
        graph.schema.apply("node Person { name: String @key  extra: I64? }")
    report = cluster(folder).refresh()
    assert "schema_drifted" in codes(report)
    assert cluster(folder).apply().members["converged"] is True
    with og.open(folder / "graphs" / "knowledge.omni") as graph:
        assert "extra" not in graph.schema.nodes["Person"].properties


def test_errors_of_the_file_have_lines_and_columns(folder: Path) -> None:
    (folder / "cluster.yaml").write_text("version: 1\ngraphs:\n  g:\n    schema: person.pg\n    colour: red\nui: {}\n")
    with pytest.raises(ClusterError) as caught:
        cluster(folder)
    found = {finding.code: (finding.line, finding.column) for finding in caught.value.findings}
    assert found == {"future_phase_field": (6, 1), "unknown_key": (5, 5)}


def test_history_names_actor_and_changes(folder: Path) -> None:
    cluster(folder).import_()
    cluster(folder).apply()
    revisions = cluster(folder).history().members["revisions"]
    assert [item["operation"] for item in revisions] == ["apply", "import"]
    assert revisions[0]["actor"] == "ada"
    assert revisions[0]["changes"][0]["resource"] == "graph.knowledge"


PIPELINES = """\
pipelines:
  crm:
    graph: knowledge
    publish: { merge_into: main }
    sources: { accounts: { format: json, path: accounts } }
    nodes: { Person: { from: accounts } }
    expect: [{ query: all, rows: 2 }]
"""


def test_pipelines_are_resources_that_are_applied(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = folder / "cluster.yaml"
    config.write_text(config.read_text() + PIPELINES)
    cluster(folder).import_()
    report = cluster(folder).apply()
    assert "pipeline.crm" in [change["resource"] for change in report.members["changes"]]
    # The ledger decides what runs: a change of the folder waits for the next apply.
    config.write_text(config.read_text().replace("rows: 2", "rows: 3").replace("merge_into: main", "merge_into: prod"))
    [applied] = read_applied_pipelines(str(folder)).values()
    assert (applied.declaration.target_branch, applied.declaration.expectations[0].rows) == ("main", 2)
    assert applied.declaration.folder == folder
    assert [source.text for source in applied.queries or ()] == [QUERIES]
    [change] = cluster(folder).plan().members["changes"]
    assert (change["resource"], change["operation"]) == ("pipeline.crm", "update")
    assert main(["pipeline", "plan", "crm", "--cluster", str(folder)]) == 0
    assert "load to `load/crm`, then merge it into `main`" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("graph: knowledge", "graph: knowlege", "unknown_graph"),
        ("    graph: knowledge\n", "", "unknown_graph"),
        ("Person:", "Persn:", "unknown_type"),
        ("query: all", "query: al", "query_not_found"),
        ("from: accounts", "from: account", "invalid_cluster_yaml"),
    ],
)
def test_pipelines_are_checked_with_the_cluster(folder: Path, before: str, after: str, code: str) -> None:
    config = folder / "cluster.yaml"
    config.write_text(config.read_text() + PIPELINES.replace(before, after))
    if code in ("invalid_cluster_yaml", "unknown_graph"):
        with pytest.raises(ClusterError) as caught:
            cluster(folder)
        assert {(item.code, item.line is not None) for item in caught.value.findings} == {(code, True)}
    else:
        assert codes(cluster(folder).validate()) == [code]
