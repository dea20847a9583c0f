"""The guide to clusters is run: its commands print what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.guide_runner import run_guide


@pytest.mark.slow
def test_cluster_guide_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_guide("cluster.md", capsys) >= 4


def test_guide_lists_every_code() -> None:
    root = Path(__file__).parent.parent.parent
    sources = [*(root / "src" / "omnigraph" / "cluster").glob("*.py"), root / "src/omnigraph/server/registry.py"]
    text = "\n".join(path.read_text() for path in sources)
    constructed = re.findall(r'(?:\b(?:cluster_)?error|\bwarning|Finding|Quarantine|_fault)\(\s*"([a-z_]+)"', text)
    at_places = re.findall(
        r'"([a-z]+(?:_[a-z]+)+)"\s*\)', "\n".join(re.findall(r"document\.fault\(.*?\"\)", text, re.S))
    )
    guide = (root / "docs" / "cluster.md").read_text()
    assert len(set(constructed)) > 30
    assert sorted({code for code in (*constructed, *at_places) if f"`{code}`" not in guide}) == []
