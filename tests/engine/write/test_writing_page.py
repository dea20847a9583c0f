"""The page on writing does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "writing.md"


def test_writing_page_examples_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(
        r"^```python\n(.*?)^```$(?:\n```text\n(.*?)^```$)?", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert len(blocks) >= 6
    names: dict[str, object] = {}
    for block, shown in blocks:
        exec(compile(block, PAGE.name, "exec"), names)  # what a reader would paste
        assert capsys.readouterr().out == shown
