"""Ladybug: its search extensions are downloaded at run time, so it answers no text search here and scans vectors."""

from __future__ import annotations

from pathlib import Path

import ladybug

from benchmarks.reads.engines import Ask
from benchmarks.reads.engines.cypher import CypherEngine, load
from benchmarks.reads.lines import Draw, Line


def build(data: Path, home: Path) -> None:
    load(ladybug, data, home).close()


class Ladybug(CypherEngine):
    def ask(self, line: Line) -> Ask | None:
        return None if line.draw in (Draw.WORDS, Draw.BOTH) else super().ask(line)


def open_engine(home: Path) -> Ladybug:
    return Ladybug(ladybug, home)
