"""Policies and providers of graphs that stay although the folder no longer declares them, and of lost content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cluster.applied_state import read_applied, read_policies
from tests.cluster.test_boot import POLICIES, refusal, served, write_provider
from tests.support.cluster_folder import POLICY, changes, cluster, deploy, write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "team")


def policy_texts(folder: Path) -> dict[str, str]:
    ledger = cluster(folder).ledger
    return read_policies(ledger, read_applied(ledger))


@pytest.mark.parametrize("kept", ["", "policies:\n  team: {file: team.yaml, applies_to: [other, new]}\n"])
def test_graph_that_waits_for_its_deletion_keeps_its_policy(tmp_path: Path, kept: str) -> None:
    both = "policies:\n  team: {file: team.yaml, applies_to: [knowledge, other]}\n"
    folder = write_folder(tmp_path / "team", graphs=("knowledge", "other"), extra=both)
    deploy(folder)
    write_folder(folder, graphs=("other", "new"), extra=kept)
    assert deploy(folder).members["converged"] is False
    expected = {"graph.knowledge", "graph.other", "graph.new"} if kept else {"graph.knowledge"}
    assert set(policy_texts(folder)) == expected
    assert deploy(folder).members["state_written"] is False
    assert cluster(folder).approve("graph.knowledge").ok
    assert deploy(folder).members["converged"] is True
    assert set(policy_texts(folder)) == expected - {"graph.knowledge"}


def test_policy_of_a_waiting_graph_leaves_the_others_to_their_new_one(tmp_path: Path) -> None:
    both = "policies:\n  team: {file: team.yaml, applies_to: [knowledge, other]}\n"
    folder = write_folder(tmp_path / "team", graphs=("knowledge", "other"), extra=both)
    deploy(folder)
    write_folder(folder, graphs=("other",), extra="policies:\n  mine: {file: team.yaml, applies_to: [other]}\n")
    report = deploy(folder)
    assert changes(report)["policy.team"]["reason"] == "dependency_not_applied"
    assert set(policy_texts(folder)) == {"graph.knowledge", "graph.other"}


def test_policy_of_a_waiting_graph_does_not_become_one_of_the_server(folder: Path) -> None:
    write_folder(folder, graphs=("knowledge", "other"), extra=POLICIES)
    deploy(folder)
    (folder / "server.yaml").write_text(POLICY.replace("[read, invoke_query]", "[graph_list]"))
    write_folder(folder, graphs=("other",), extra="policies:\n  team: {file: server.yaml, applies_to: [cluster]}\n")
    assert changes(deploy(folder))["policy.team"]["disposition"] == "blocked"
    assert set(policy_texts(folder)) == {"graph.knowledge"}


def test_created_graph_has_its_policy_although_another_one_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = "policies:\n  team: {file: team.yaml, applies_to: [a, b]}\n"
    folder = write_folder(tmp_path / "team", graphs=("a", "b"), extra=both)

    def fail_second(uri: str, *arguments: object, **named: Any) -> og.Graph:
        if "b.omni" in uri:
            raise og.StorageError("no space left")
        return og.init(uri, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("omnigraph.cluster.apply.init", fail_second)
    assert not deploy(folder).ok
    assert set(policy_texts(folder)) == {"graph.a"}
    monkeypatch.undo()
    assert deploy(folder).members["converged"] is True
    assert set(policy_texts(folder)) == {"graph.a", "graph.b"}


def test_provider_of_a_graph_that_stays_is_kept(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", graphs=("knowledge",))
    write_provider(folder, "mock")
    deploy(folder)
    write_folder(folder, graphs=("other",))
    report = deploy(folder)
    assert changes(report)["provider.embedding.texts"]["reason"] == "dependency_not_applied"
    with served(folder) as registry:
        assert set(registry.served) == {"knowledge", "other"}
    assert cluster(folder).approve("graph.knowledge").ok
    assert deploy(folder).members["converged"] is True


def test_refresh_never_opens_a_graph_whose_policy_is_lost(folder: Path) -> None:
    write_folder(folder, extra=POLICIES)
    deploy(folder)
    [path] = (folder / "__cluster" / "resources" / "policy").rglob("*.yaml")
    path.write_text("tampered")
    assert cluster(folder).refresh().ok
    assert refusal(folder) == ["catalog_payload_missing"]
    assert deploy(folder).members["converged"] is True
    assert set(policy_texts(folder)) == {"graph.knowledge"}
