"""Every name of a branch is recorded by construction: made, renamed, deleted, cleaned up, or interrupted in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import orjson
import pytest

import omnigraph as og
from omnigraph.graph import Graph, session_of
from omnigraph.manifest import branches as branch_control
from omnigraph.manifest import encoding, history
from omnigraph.manifest.heads import BranchHeads
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, UNKNOWN_NAMES, BranchNames, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.manifest.updates import AddBranch, DropBranch


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "g.omni", "node Person { name: String @key }") as made:
        yield made


def add(graph: Graph, name: str, branch: str) -> str:
    receipt = graph.mutate(f'query q() {{ insert Person {{ name: "{name}" }} }}', branch=branch)
    assert receipt.commit is not None
    return receipt.commit.commit_id


def names(graph: Graph, commit: str) -> BranchNames:
    """Return the names as a handle that was just opened finds them."""
    session = session_of(og.open(graph.uri))
    return session.names_of(session.kernel.find_commit(commit))  # type: ignore[arg-type]


def shown(graph: Graph, commit: str) -> object:
    return graph.commit(commit).branch


def forget_names(graph: Graph, name: str) -> None:
    """Leave the row of a branch as an older release writes it."""
    kernel = session_of(graph).kernel

    def prepare(main: Snapshot) -> Plan:
        old = replace(main.state.branches[name], recorded_names=None)
        return Plan(None, updates=(DropBranch(name), AddBranch(old)))

    kernel.commit(MAIN, prepare, CommitPolicy.CONTROL)


@pytest.mark.slow
def test_names_live_renamed_and_deleted_branch_keeps_all(graph: Graph) -> None:
    graph.branches.create("a")
    commit = add(graph, "x", "a")
    assert names(graph, commit) == BranchNames(("a",))
    graph.branches.rename("a", "b")
    graph.branches.rename("b", "c")
    assert names(graph, commit) == BranchNames(("a", "b", "c"))
    graph.branches.merge("c", delete_branch=True)
    assert names(graph, commit) == BranchNames(("a", "b", "c"))
    assert shown(graph, commit) == "c"
    graph.branches.create("c")
    assert names(graph, add(graph, "y", "c")) == BranchNames(("c",))


@pytest.mark.slow
def test_names_survive_cleanup(graph: Graph) -> None:
    graph.branches.create("a")
    commit = add(graph, "x", "a")
    graph.branches.merge("a", delete_branch=True)
    graph.maintenance.cleanup(keep=1, older_than=timedelta(0), confirm=True)
    assert names(graph, commit) == BranchNames(("a",))


def test_names_of_a_branch_with_an_interrupted_deletion_are_kept(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.branches.create("a")
    commit = add(graph, "x", "a")
    with monkeypatch.context() as broken:
        broken.setattr(branch_control, "DropBranch", None)
        with pytest.raises(TypeError):
            graph.branches.delete("a")
    assert names(graph, commit) == BranchNames(("a",))
    graph.branches.rename("a", "b")
    assert names(graph, commit) == BranchNames(("a", "b"))
    graph.branches.delete("b")
    # Both deletions wrote to the log; the second one knows more.
    assert names(graph, commit) == BranchNames(("a", "b"))


@pytest.mark.slow
def test_names_that_an_older_release_did_not_record_are_unknown(graph: Graph) -> None:
    graph.branches.create("a")
    commit = add(graph, "x", "a")
    forget_names(graph, "a")
    assert names(graph, commit) == BranchNames(("a",), is_complete=False)
    graph.branches.rename("a", "b")
    assert not names(graph, commit).is_complete
    graph.branches.merge("b", delete_branch=True)
    assert names(graph, commit) == UNKNOWN_NAMES
    assert len(str(shown(graph, commit))) == 26


def test_upgrade_recovers_names_from_history(graph: Graph) -> None:
    graph.branches.create("a")
    commit = add(graph, "x", "a")
    graph.branches.rename("a", "b")
    forget_names(graph, "b")
    assert og.upgrade(graph.uri).named == ("b",)
    assert names(graph, commit) == BranchNames(("a", "b"))
    assert og.upgrade(graph.uri).named == ()


def test_upgrade_leaves_names_unknown_that_history_does_not_tell(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.branches.create("a")
    forget_names(graph, "a")
    at_version = Kernel.at_version

    def reclaimed(self: Kernel, branch: str, version: int) -> Snapshot:
        return at_version(self, branch, 10**6 if version < 3 else version)

    monkeypatch.setattr(Kernel, "at_version", reclaimed)
    assert og.upgrade(graph.uri).named == ()
    assert not session_of(graph).kernel.snapshot().state.branches["a"].names.is_complete


def test_names_of_live_branches_cost_no_request(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        graph.branches.create(name)
    session = session_of(og.open(graph.uri))
    snapshot = session.kernel.snapshot("a")
    monkeypatch.setattr(BranchHeads, "refresh", None)
    monkeypatch.setattr(history, "open_log", None)
    assert session.names_of(snapshot) == BranchNames(("a",))


def test_row_of_a_branch_that_contradicts_its_names_is_damaged(graph: Graph) -> None:
    graph.branches.create("a")
    branch = session_of(graph).kernel.snapshot().state.branches["a"]
    row = encoding._branch_row(replace(branch, recorded_names=("b",)))
    with pytest.raises(ValueError, match="contradicts"):
        encoding._decode_branch({"object_id": row[0], "json": orjson.loads(row[3] or "")})
