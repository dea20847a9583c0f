"""The guide to operations is run, on a local graph and on S3: its commands print what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.guide_runner import run_guide
from tests.support.s3_server import S3Server, s3_server

__all__ = ["s3_server"]


@pytest.mark.slow
def test_operations_guide_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_guide("operations.md", capsys) >= 6


@pytest.mark.slow
@pytest.mark.s3
def test_operations_guide_prints_the_same_on_s3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], s3_server: S3Server
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_guide("operations.md", capsys, s3_server.uri("deep/graph.omni")) >= 6
