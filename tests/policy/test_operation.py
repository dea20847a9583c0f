"""What became of a write: who is told, and what is never called absent."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import PolicyDenied, UsageError
from omnigraph.graph import Graph
from omnigraph.ids import new_ulid
from omnigraph.policy import load_bundle
from tests.support.merge_fixtures import people

OLD = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
WRITE = "query w($name: String) { insert Person { name: $name } }"
MAIN_ONLY = """
version: 1
groups: {writers: [ada, bob]}
protected_branches: [main]
rules:
  - {id: read-main, allow: {actors: {group: writers}, actions: [read], branch_scope: protected}}
  - {id: write, allow: {actors: {group: writers}, actions: [change], branch_scope: any}}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """A graph whose drafts both actors write and neither reads."""
    with people(tmp_path) as made:
        made.branches.create("draft")
        return og.open(made.uri, policy=load_bundle(MAIN_ONLY))


def test_operation_applied_is_found_by_both_of_its_ids(graph: Graph) -> None:
    chosen = new_ulid()
    receipt = graph.acting_as("ada", chosen).mutate(WRITE, params={"name": "Eve"})
    assert receipt.commit is not None
    for one in (chosen, f" {receipt.commit.operation_id} "):
        found = graph.acting_as("bob").operation(one)
        assert (found.operation_id, found.outcome) == (one.strip(), "applied")
        assert found.commit == graph.acting_as("bob").commit(receipt.commit.commit_id)


@pytest.mark.slow
def test_operation_applied_long_ago_is_found(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.manifest.publish.COMMIT_WINDOW_ROWS", 2)
    ada, chosen = graph.acting_as("ada"), new_ulid()
    graph.acting_as("ada", chosen).mutate(WRITE, params={"name": "Eve"})
    for number in range(6):
        ada.mutate(WRITE, params={"name": f"n{number}"})
    assert ada.operation(chosen).outcome == "applied"


def test_operation_applied_where_the_asker_may_not_read_is_refused(graph: Graph) -> None:
    graph.acting_as("bob", OLD).mutate(WRITE, params={"name": "Eve"}, branch="draft")
    with pytest.raises(PolicyDenied):
        graph.acting_as("ada").operation(OLD)
    with pytest.raises(PolicyDenied):
        graph.operation(OLD)


def test_operation_of_the_asker_is_told_where_it_may_not_read(graph: Graph) -> None:
    receipt = graph.acting_as("bob", OLD).mutate(WRITE, params={"name": "Eve"}, branch="draft")
    found = graph.acting_as("bob").operation(OLD)
    assert receipt.commit is not None
    assert found.commit is not None
    assert (found.outcome, found.commit.commit_id) == ("applied", receipt.commit.commit_id)


def test_operation_that_nothing_knows_is_pending_while_it_may_come(graph: Graph) -> None:
    bob, young = graph.acting_as("bob"), new_ulid()
    assert (bob.operation(young).outcome, bob.operation(OLD).outcome) == ("pending", "absent")
    with pytest.raises(UsageError, match="operation_id"):
        bob.operation("none")
