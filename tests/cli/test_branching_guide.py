"""The guide to branching is run: its commands and its program print what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.guide_runner import run_guide


@pytest.mark.slow
def test_branching_guide_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_guide("branching.md", capsys) >= 5
