"""Rows of a table as a reader yields them, with their place in the file."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from omnigraph.rules.arrow_typing import Numbers


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows, the line on which each starts, the range of their lines, and the text of malformed rows by line."""

    table: pa.Table
    numbers: Numbers
    lines: range
    malformed: dict[int, str]
