"""Source files are read in one place, and unreadable ones are the caller's fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import UsageError
from omnigraph.lang.diagnostic import LanguageError
from omnigraph.limits import SOURCE_BYTES_MAX
from omnigraph.source_files import read_source


def test_read_source_existing_file_keeps_name_and_text(tmp_path: Path) -> None:
    path = tmp_path / "s.pg"
    path.write_bytes(b"node A {}\r\n")
    source = read_source(path, "S1")
    assert (source.name, source.text) == (str(path), "node A {}\r\n")


def test_read_source_oversize_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.pg"
    path.write_bytes(b" " * (SOURCE_BYTES_MAX + 1))
    with pytest.raises(LanguageError):
        read_source(path, "S1")


@pytest.mark.parametrize("name", ["missing.pg", ".", "nul\0byte.pg", "x" * 5000])
def test_read_source_unreadable_path_is_a_usage_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_source(tmp_path / name, "S1")
