"""`--cluster` of maintenance, policy and queries commands, `cluster diff` and `cluster refresh --watch`."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.app import main
from tests.support.cluster_folder import QUERIES, cluster, deploy, write_folder

pytestmark = pytest.mark.slow

POLICIES = "policies:\n  team: {file: team.yaml, applies_to: [knowledge]}\n"
NEW_SCHEMA = "node Person { name: String @key  team: String? }\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_folder(tmp_path / "team", extra=POLICIES)
    deploy(folder)
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("command", [("optimize",), ("verify",), ("repair",), ("cleanup", "--keep", "1")])
def test_maintenance_finds_the_graph_in_the_applied_state(folder: Path, command: tuple[str, ...]) -> None:
    (folder / "cluster.yaml").write_text("version: 1\ngraphs: {}\n")
    assert main([*command, "--cluster", str(folder), "--graph", "knowledge", "--json"]) == 0
    assert main([*command, "--cluster", str(folder), "--json"]) == 0


def test_several_graphs_are_listed_and_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path / "team", graphs=("a", "b"))
    deploy(folder)
    assert main(["verify", "--cluster", str(folder)]) != 0
    assert "`a`, `b`" in capsys.readouterr().err
    assert main(["verify", "--cluster", str(folder), "--graph", "c"]) != 0
    assert "no graph `c`" in capsys.readouterr().err
    assert main(["verify", "--cluster", str(folder), "--graph", "b"]) == 0


def test_cluster_has_a_name_and_a_profile_in_the_configuration(
    folder: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"clusters: {{team: {{root: {folder}}}}}\nprofiles: {{prod: {{cluster: team, default_graph: knowledge}}}}\n"
    (home / "config.yaml").write_text(text)
    assert main(["verify", "--cluster", "team", "--json"]) == 0
    assert main(["verify", "--profile", "prod", "--json"]) == 0
    assert main(["queries", "list", "--cluster", "team"]) == 0
    capsys.readouterr()
    assert main(["snapshot", "--profile", "prod"]) != 0
    assert "is a cluster" in capsys.readouterr().err


def test_queries_of_a_cluster_are_the_applied_ones(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "queries" / "people.gq").write_text(QUERIES.replace("all", "later"))
    assert main(["queries", "list", "--cluster", str(folder)]) == 0
    listed = capsys.readouterr().out
    assert "all" in listed
    assert "later" not in listed
    assert main(["queries", "validate", "--cluster", str(folder), "--graph", "knowledge"]) == 0
    assert main(["queries", "validate", str(folder / "queries"), "--cluster", str(folder)]) == 0
    with og.open(folder / "graphs" / "knowledge.omni") as graph:
        graph.schema.apply('node Human @rename_from("Person") { name: String @key }')
    assert main(["queries", "validate", "--cluster", str(folder)]) != 0


def test_policy_of_a_cluster_is_the_applied_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "team.yaml").write_text("broken")
    arguments = ["--cluster", str(folder), "--graph", "knowledge"]
    assert main(["policy", "validate", *arguments]) == 0
    assert main(["policy", "explain", *arguments, "--actor", "ada", "--action", "read", "--branch", "main"]) == 0
    assert "allow" in capsys.readouterr().out
    assert main(["policy", "validate", "--cluster", str(folder), "--for", "server"]) != 0
    assert "no policy is bound to `cluster`" in capsys.readouterr().err
    assert main(["policy", "validate", *arguments, "--for", "server"]) != 0
    assert "leave out one of them" in capsys.readouterr().err
    assert main(["policy", "validate"]) != 0
    assert "--cluster DIR" in capsys.readouterr().err


def test_diff_shows_the_text_of_schema_and_query_changes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "person.pg").write_text(NEW_SCHEMA)
    (folder / "queries" / "people.gq").write_text(QUERIES.replace("as name", "as person"))
    assert main(["cluster", "diff", "--config", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "-node Person { name: String @key }" in lines
    assert "+node Person { name: String @key  team: String? }" in lines
    assert "+query all() { match { $p: Person } return { $p.name as person } }" in lines
    deploy(folder)
    assert cluster(folder).diff().members["diffs"] == []


def test_diff_of_an_adopted_graph_shows_its_live_schema(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team")
    og.init(folder / "graphs" / "knowledge.omni", NEW_SCHEMA).close()
    assert cluster(folder).import_().ok
    text = {item["resource"]: item["diff"] for item in cluster(folder).diff().members["diffs"]}["schema.knowledge"]
    assert "-node Person { name: String @key  team: String? }" in text


def test_watch_reports_drift_once_and_its_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = 0

    def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1
        assert seconds == 7
        if looks == 1:
            with og.open(folder / "graphs" / "knowledge.omni") as graph:
                graph.schema.apply(NEW_SCHEMA)
        if looks == 3:
            deploy(folder)
        if looks == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr("omnigraph.cli.cluster.pause", sleep)
    assert main(["cluster", "refresh", "--watch", "--every", "7", "--config", str(folder)]) == 130
    shown = capsys.readouterr()
    assert shown.err.count("schema_drifted") == 1
    assert shown.out.count("no drift") == 2


def test_init_and_schema_apply_leave_clusters_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph, schema = str(folder / "graphs" / "knowledge.omni"), str(folder / "person.pg")
    for arguments in (
        ["schema", "apply", graph, "--schema", schema],
        ["init", str(folder / "graphs" / "new.omni"), "--schema", schema],
        ["init", str(folder / "deep" / "inside" / "new.omni"), "--schema", schema],
    ):
        assert main(arguments) != 0
        assert "omnigraph cluster apply" in capsys.readouterr().err
    assert not (folder / "deep").exists()
    assert main(["init", str(folder.parent / "beside.omni"), "--schema", schema]) == 0


def test_diff_shows_nothing_of_a_graph_but_its_declaration(folder: Path) -> None:
    (folder / "person.pg").write_text(NEW_SCHEMA)
    texts = {item["resource"]: item["diff"] for item in cluster(folder).diff().members["diffs"]}
    assert texts["graph.knowledge"] == ""


def test_history_without_a_ledger_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path / "new")
    assert main(["cluster", "history", "--config", str(folder)]) == 0
    assert "warning[state_missing]" in capsys.readouterr().err
