"""A graph of notes with texts and vectors, written straight through the store, indexed or not as a test needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from omnigraph.engine.session import GraphSession, View
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan
from omnigraph.store.index.index_build import IndexKind, IndexSpec, build
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.write.transaction import Change
from omnigraph.store.write.upsert import upsert
from tests.support.kernel_fixtures import create
from tests.support.staged_fixtures import fold

SCHEMA = "node Note { name: String @key  bodyText: String? @index  vec: Vector(3)? @index }"
NOTE = TypeKey("node:Note")
TEXT_INDEX = IndexSpec("bodyText", IndexKind.FULLTEXT, "text")
VECTOR_INDEX = IndexSpec("vec", IndexKind.VECTOR, "vector")


@dataclass
class Notes:
    """One graph and the names behind its row ids."""

    session: GraphSession

    @classmethod
    def at(cls, path: Path) -> Notes:
        return cls(GraphSession(create(str(path / "notes.omni"), SCHEMA)))

    def put(self, texts: Mapping[str, str | None], vectors: Mapping[str, Sequence[float] | None] | None = None) -> None:
        """Write notes, replacing those of the same name."""
        given = vectors or {}
        schema = self.view.dataset(NOTE).schema
        names = list(texts)
        columns: dict[str, list[Any]] = {
            "id": names,
            "name": names,
            "bodyText": list(texts.values()),
            "vec": [given.get(n) for n in names],
        }
        rows = pa.Table.from_arrays([pa.array(columns[one.name], one.type) for one in schema], schema=schema)
        self._commit("write", lambda dataset: upsert(dataset, rows))

    def index(self) -> None:
        self._commit("index", lambda dataset: build(dataset, [TEXT_INDEX, VECTOR_INDEX]))

    def fold(self) -> None:
        self._commit("fold", fold)

    @property
    def view(self) -> View:
        return self.session.view()

    def names(self, rows: Sequence[int]) -> list[str]:
        """Return the names of rows, in their order."""
        table = self.view.dataset(NOTE).take(list(rows), ["name"])
        return [str(name) for name in table.column("name").to_pylist()]

    def rows(self, *names: str) -> list[int]:
        """Return the row ids of names, in the order of the names."""
        table = self.view.dataset(NOTE).read(["name"], with_row_id=True)
        known = dict(zip(table.column("name").to_pylist(), table.column("_rowid").to_pylist(), strict=True))
        return [int(known[name] or 0) for name in names]

    def _commit(self, kind: str, stage: Callable[[Dataset], Change | None]) -> None:
        kernel = self.session.kernel

        def prepare(snapshot: Snapshot) -> Plan:
            dataset = kernel.writable(snapshot, NOTE)
            change = stage(dataset)
            assert change is not None
            return Plan(kind, (Effect(NOTE, dataset, (change,)),))

        kernel.commit("main", prepare, CommitPolicy.CHANGE)
