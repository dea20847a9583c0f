"""Folders in the shape of public cookbooks: each validates and applies as it is, and is served."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.cli import main
from tests.cluster.test_boot import query_names, served
from tests.support.cluster_folder import cluster, codes, deploy

pytestmark = pytest.mark.slow

FOLDERS = Path(__file__).parent / "folders"


@pytest.mark.parametrize(("name", "queries"), [("jobs", 11), ("radar", 6), ("garden", 14)])
def test_folder_validates_and_applies_unchanged(tmp_path: Path, name: str, queries: int) -> None:
    folder = tmp_path / name
    shutil.copytree(FOLDERS / name, folder)
    assert main(["cluster", "validate", "--config", str(folder)]) == 0
    report = deploy(folder)
    assert codes(report) == []
    assert report.members["converged"] is True
    assert cluster(folder).apply().members["state_written"] is False
    with served(folder, requires_all=True) as registry:
        assert len(query_names(registry, name)) == queries
    # What was deployed lies beside the files, and none of those has changed.
    for path in (FOLDERS / name).rglob("*.*"):
        assert (folder / path.relative_to(FOLDERS / name)).read_bytes() == path.read_bytes()


def test_folder_with_several_graphs_applies_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "office"
    shutil.copytree(FOLDERS / "office", folder)
    report = deploy(folder)
    assert codes(report) == []
    assert report.members["converged"] is True
    assert cluster(folder).apply().members["state_written"] is False
    with served(folder, requires_all=True) as registry:
        counts = {name: len(query_names(registry, name)) for name in registry.served}
    assert counts == {"archive": 0, "berlin": 4, "catalog-2026": 2, "lisbon": 6}


def test_policy_that_says_its_kind_is_used_for_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    shutil.copytree(FOLDERS / "jobs", folder)
    config = folder / "cluster.yaml"
    text = config.read_text().replace("applies_to: [jobs]", "applies_to: [here]")
    config.write_text(text.replace("[cluster]", "[jobs]").replace("[here]", "[cluster]"))
    findings = cluster(folder).validate().findings
    assert [item.code for item in findings] == ["policy_invalid"] * 2
    assert "a bundle of the kind `server` cannot be used for a graph" in findings[1].message


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """The deployed graph of the folder `garden`, with its seed loaded."""
    folder = tmp_path_factory.mktemp("folders") / "garden"
    shutil.copytree(FOLDERS / "garden", folder)
    assert codes(deploy(folder)) == []
    store = folder / "graphs" / "garden.omni"
    assert main(["load", "--store", str(store), str(folder / "seed.jsonl")]) == 0
    return cluster(folder).open("garden")


def run(graph: Graph, name: str, **params: object) -> list[list[Any]]:
    """Run a stored read of the folder."""
    source = (FOLDERS / "garden" / "queries" / "reads.gq").read_text()
    return [list(row.values()) for row in graph.query(source, name=name, params=params).to_json_rows()]


def write_on_spring(graph: Graph, name: str, **params: object) -> tuple[int, int]:
    """Run a stored mutation of the folder on a branch, and return how many nodes and edges it affected."""
    source = (FOLDERS / "garden" / "queries" / "writes.gq").read_text()
    receipt = graph.mutate(source, name=name, params=params, branch="spring")
    return receipt.affected_nodes, receipt.affected_edges


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("ties_from", {"plant": "kale"},
         [["HarmedBy", "leek", '["kale","leek"]'], ["HelpedBy", "bean", '["kale","bean"]'],
          ["HelpedBy", "leek", '["kale","leek"]']]),
        ("ties_to", {"plant": "leek"},
         [["FollowedBy", "bean"], ["HarmedBy", "bean"], ["HarmedBy", "kale"], ["HelpedBy", "kale"]]),
        ("tie_counts", {}, [["HarmedBy", 3, 2], ["HelpedBy", 3, 3], ["FollowedBy", 2, 2]]),
        ("neighbours", {},
         [["bean", "chives"], ["bean", "leek"], ["kale", "bean"], ["kale", "leek"], ["leek", "chives"]]),
        ("reachable", {"plant": "bean"}, [["kale", 1]]),
        ("reachable", {"plant": "kale"}, [["bean", 1], ["chives", 2]]),
        ("perennials", {}, [["chives", "Plant"]]),
        ("beds_in", {"year": 2026}, [["north", 1], ["south", 2]]),
        ("remarks", {}, [["r2", "Frost is no harm", "leek"], ["r1", "Slugs in spring", "bean"]]),
    ],
)  # fmt: skip
def test_stored_reads_answer_from_the_seed(
    garden: Graph, name: str, params: Mapping[str, object], expected: list[list[Any]]
) -> None:
    assert run(garden, name, **params) == expected


def test_stored_writes_address_edges_by_their_ends_and_nodes_by_their_id(garden: Graph) -> None:
    garden.branches.create("spring")
    # Known by its ends, a tie that is noted twice is one tie.
    for _ in range(2):
        assert write_on_spring(garden, "help", plant="bean", helper="kale") == (0, 1)
    assert write_on_spring(garden, "forget_help", plant="bean", helper="leek") == (0, 0)
    assert write_on_spring(garden, "forget_help", plant="bean", helper="kale") == (0, 1)
    assert write_on_spring(garden, "forget_harm", plant="bean") == (0, 2)
    assert write_on_spring(garden, "wait", plant="bean", years=3) == (0, 1)
    assert write_on_spring(garden, "reword", id="r1", text="No slugs") == (1, 0)
    assert write_on_spring(garden, "withdraw", id="r2") == (1, 1)
    left = "match { $p $tie:(harmedBy | followedBy) $q } return { $tie.@type as tie, $tie.@src as from, $q.slug as to }"
    rows = garden.query(f"{left} order {{ tie, from, to }}", branch="spring").to_json_rows()
    assert [list(row.values()) for row in rows] == [
        ["FollowedBy", "bean", "kale"],
        ["FollowedBy", "bean", "leek"],
        ["HarmedBy", "kale", "leek"],
    ]
