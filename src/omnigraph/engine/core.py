"""The core that every engine part stands on: views of a graph, compiled queries, actors, and room for caches.

Owns no behaviour of its own; reading, writing and the rest are modules beside it that take a `Core`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

import orjson

from omnigraph.errors import GraphError, UsageError
from omnigraph.ids import CommitId
from omnigraph.lang.catalog import Catalog
from omnigraph.lang.query import CompiledQuery, compile_query
from omnigraph.lang.schema import SchemaIR, catalog_of
from omnigraph.lang.source import Source
from omnigraph.limits import CATALOG_CACHE_MAX, QUERY_CACHE_MAX
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.store.dataset import Dataset

K = TypeVar("K")
V = TypeVar("V")

# What a policy is asked: may this actor do this action to that? It raises when not. Scopes are branch names.
Enforce = Callable[[str, str, str | None], None]


def allow_all(action: str, scope: str, actor: str | None) -> None:
    """The policy of a graph that has none."""


class Lru(Generic[K, V]):
    """A small thread-safe cache that forgets what was not used for longest."""

    def __init__(self, entries_max: int) -> None:
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._entries_max = entries_max
        self._lock = Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, making it when it is not there."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        value = make()
        with self._lock:
            self._entries[key] = value
            while len(self._entries) > self._entries_max:
                self._entries.popitem(last=False)
        return value


@dataclass(frozen=True)
class View:
    """One snapshot, ready to be read: every dataset it opens is the one that the snapshot pins."""

    kernel: Kernel
    snapshot: Snapshot
    catalog: Catalog

    def dataset(self, table_key: str) -> Dataset:
        return self.kernel.dataset(self.snapshot, table_key)


@dataclass
class Core:
    """One opened graph as the engine sees it."""

    kernel: Kernel
    actor: str | None = None
    enforce: Enforce = allow_all
    _catalogs: Lru[str, Catalog] = field(default_factory=lambda: Lru(CATALOG_CACHE_MAX))
    _queries: Lru[tuple[str, str | None, str], CompiledQuery] = field(default_factory=lambda: Lru(QUERY_CACHE_MAX))

    def view(self, branch: str = MAIN, at: str | int | None = None) -> View:
        """Return the newest state of a branch, or the state at a commit, a tag, or a manifest version."""
        snapshot = self.kernel.snapshot(branch) if at is None else self._at(branch, at)
        return View(self.kernel, snapshot, self.catalog(snapshot))

    def catalog(self, snapshot: Snapshot) -> Catalog:
        """Return the catalog of the schema that a snapshot holds."""
        schema = snapshot.state.schema
        return self._catalogs.get(schema.ir_hash, lambda: catalog_of(SchemaIR.from_json(orjson.loads(schema.ir))))

    def compile(self, source: str, catalog: Catalog, name: str | None = None) -> CompiledQuery:
        """Return a query compiled against a catalog; the same text is compiled once."""
        key = (source, name, catalog.ir_hash)
        return self._queries.get(key, lambda: compile_query(Source("query.gq", source), catalog, name=name))

    def _at(self, branch: str, at: str | int) -> Snapshot:
        if isinstance(at, bool) or not isinstance(at, str | int):
            raise UsageError("`at` takes a commit id, a tag or a manifest version", at=str(at))
        if isinstance(at, int):
            return self.kernel.at_version(branch, at)
        tag = self.kernel.snapshot(MAIN).state.tags.get(at)
        try:
            return self.kernel.at_commit(tag.commit_id if tag else CommitId(at))
        except GraphError as error:
            if error.code != "commit.not_found" or tag is not None:
                raise
            raise GraphError(
                f"there is no commit or tag `{at}`; list them with `omnigraph commit list` and `omnigraph tag list`",
                code="commit.not_found",
                at=at,
            ) from error
