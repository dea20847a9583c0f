"""The guide to the pipeline runs as it stands: its Python and its shell, block after block, and its words on S3."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import omnigraph as og
from omnigraph.engine.input.filesystems import filesystem
from tests.support.s3_server import S3Server, s3_server

__all__ = ["s3_server"]

GUIDE = Path(__file__).parents[2] / "docs" / "pipeline.md"
BLOCK = re.compile(
    r"(?:^<!-- needs: (?P<needs>\w+) -->\n)?^```(?P<language>python|sh)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


def programs(needs: str | None) -> Iterator[tuple[str, str]]:
    """Yield the blocks that need something special, or nothing; neighbours of one language are one program."""
    blocks = [found for found in BLOCK.finditer(GUIDE.read_text(encoding="utf-8")) if found["needs"] == needs]
    for language, group in groupby(blocks, lambda found: found["language"]):
        yield language, "\n".join(found["text"] for found in group)


@pytest.mark.spark
@pytest.mark.slow
def test_guide_runs_block_after_block(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    [(_, python), (_, shell)] = programs(None)
    exec(compile(python, GUIDE.name, "exec"), {})  # what a reader would paste, in a session that is running
    printed = capsys.readouterr().out
    assert [line.split()[1:3] for line in printed.splitlines()] == [["2", "E8"], ["3", "E9"]]
    run = subprocess.run(["sh", "-e", "-c", shell], capture_output=True, text=True)
    assert run.returncode == 0, (run.stdout, run.stderr)
    assert "already" in run.stdout
    assert og.open(tmp_path / "people.omni").branches.list() == ["main", "review/more"]


@pytest.mark.s3
def test_guide_on_s3_runs(s3_server: S3Server) -> None:
    table = pa.table({"name": ["ann", "bob"], "age": [1, None]})
    pa.parquet.write_table(table, "graphs/incoming/a.parquet", filesystem=filesystem(s3_server.uri("incoming")))
    [(_, text)] = programs("s3")
    exec(compile(text, GUIDE.name, "exec"), {})  # what a reader would paste
    assert len(b"".join(og.open("s3://graphs/people").export()).splitlines()) == 2
