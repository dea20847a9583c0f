"""LanceDB: search only, on a table of its own with a text index and a vector index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lancedb
import pyarrow.parquet as pq
from lancedb.rerankers import RRFReranker

from benchmarks.reads.engines import Ask
from benchmarks.reads.lines import Draw, Line

_LIMIT = 10
_PARTITIONS, _PROBES = 200, 8


def build(data: Path, home: Path) -> None:
    posts = pq.read_table(data / "post.parquet", columns=["slug", "text", "vec"])
    table = lancedb.connect(str(home)).create_table("post", posts)
    table.create_fts_index("text", stem=False, remove_stop_words=False, with_position=False)
    table.create_index(metric="l2", vector_column_name="vec", index_type="IVF_FLAT", num_partitions=_PARTITIONS)


class LanceDb:
    def __init__(self, home: Path) -> None:
        self._table: Any = lancedb.connect(str(home)).open_table("post")

    def ask(self, line: Line) -> Ask | None:
        return {Draw.WORDS: self._words, Draw.VECTOR: self._vector, Draw.BOTH: self._both}.get(line.draw)

    def _words(self, params: Any) -> Any:
        search = self._table.search(params["words"], query_type="fts", fts_columns="text")
        return search.select(["slug", "_score"]).limit(_LIMIT).to_arrow()

    def _vector(self, params: Any) -> Any:
        search = self._table.search(params["vec"], query_type="vector", vector_column_name="vec")
        return search.nprobes(_PROBES).select(["slug", "_distance"]).limit(_LIMIT).to_arrow()

    def _both(self, params: Any) -> Any:
        search = self._table.search(query_type="hybrid", vector_column_name="vec", fts_columns="text")
        search = search.vector(params["vec"]).text(params["words"]).nprobes(_PROBES).rerank(RRFReranker())
        return search.select(["slug"]).limit(_LIMIT).to_arrow()


def open_engine(home: Path) -> LanceDb:
    return LanceDb(home)
