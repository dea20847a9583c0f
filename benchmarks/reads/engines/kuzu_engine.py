"""Kuzu, with its text index; vectors are scanned, because its vector index takes a quarter of an hour to build."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import kuzu

from benchmarks.reads.engines import Ask, Params
from benchmarks.reads.engines.cypher import CypherEngine, load
from benchmarks.reads.lines import BY_NAME, Draw, Line

# Kuzu has no rank fusion: the best of both searches are fused outside, as its users do.
_FUSED, _LIMIT, _RANK_OFFSET = 50, 10, 60


def build(data: Path, home: Path) -> None:
    connection = load(kuzu, data, home)
    connection.execute("CALL CREATE_FTS_INDEX('Post', 'words', ['text'], stemmer := 'none')")
    connection.close()


class Kuzu(CypherEngine):
    def ask(self, line: Line) -> Ask | None:
        return self._fused() if line.draw is Draw.BOTH else super().ask(line)

    def _fused(self) -> Ask:
        texts = [BY_NAME[name].cypher.replace("10", str(_FUSED)) for name in ("bm25", "vector")]
        words, vector = (self.connection.prepare(text) for text in texts)
        execute = self.connection.execute

        def ask(params: Params) -> list[tuple[Any]]:
            scores: Counter[str] = Counter()
            for statement, name in ((words, "words"), (vector, "vec")):
                for rank, (slug,) in enumerate(execute(statement, {name: params[name]}).get_all(), 1):
                    scores[slug] += 1 / (_RANK_OFFSET + rank)  # type: ignore[assignment]  # a counter adds floats too
            return [(slug,) for slug, _ in scores.most_common(_LIMIT)]

        return ask


def open_engine(home: Path) -> Kuzu:
    return Kuzu(kuzu, home)
