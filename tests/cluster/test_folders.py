"""Folders in the shape of public cookbooks: each validates and applies as it is, and is served."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from omnigraph.cli import main
from tests.cluster.test_boot import query_names, served
from tests.support.cluster_folder import cluster, codes, deploy

FOLDERS = Path(__file__).parent / "folders"


@pytest.mark.parametrize(("name", "queries"), [("jobs", 11), ("radar", 6)])
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


def test_policy_that_says_its_kind_is_used_for_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    shutil.copytree(FOLDERS / "jobs", folder)
    config = folder / "cluster.yaml"
    text = config.read_text().replace("applies_to: [jobs]", "applies_to: [here]")
    config.write_text(text.replace("[cluster]", "[jobs]").replace("[here]", "[cluster]"))
    findings = cluster(folder).validate().findings
    assert [item.code for item in findings] == ["policy_invalid"] * 2
    assert "a bundle of the kind `server` cannot be used for a graph" in findings[1].message
