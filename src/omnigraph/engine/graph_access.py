"""How tasks reach a graph from any process: its address, and the storage settings of the driver.

Tasks never read the manifest; what they need to know of the graph is sent to them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import orjson

from omnigraph.lang.catalog import Catalog
from omnigraph.lang.schema import SchemaIR, catalog_of
from omnigraph.settings import SETTINGS
from omnigraph.store.objects.uri import Location
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.store import Store

# Names of environment variables with their values; None for a variable that must be unset in the task's process.
Settings: TypeAlias = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class GraphAccess:
    """The address of a graph and the driver's storage settings, for the tasks of one operation."""

    uri: str
    operation_id: str
    settings: Settings = ()

    def store(self) -> Store:
        """Return the store; tasks of one operation in one process share it."""
        self.apply_settings()
        return _cached_store(self)

    def apply_settings(self) -> None:
        """Set the storage settings of the driver in the process of a task."""
        # A Spark worker serves one operation after another, so each sets and unsets what its own driver sent.
        os.environ.update({name: value for name, value in self.settings if value is not None})
        for name in (name for name, value in self.settings if value is None):
            os.environ.pop(name, None)

    def open(self, ref: DatasetRef) -> Dataset:
        return self.store().open(ref)


class TaskStore:
    """The store of a graph for tasks: in threads the driver's own, in another process one that is opened by address."""

    def __init__(self, access: GraphAccess, store: Store | None = None) -> None:
        self.access = access
        self._store = store or access.store()

    def __reduce__(self) -> tuple[object, ...]:
        return TaskStore, (self.access,)

    def open(self, ref: DatasetRef, manifest: str | None = None) -> Dataset:
        """Open a version; `manifest` is the staged one of a version that is not published yet."""
        return self._store.open(ref) if manifest is None else self._store.open_unlinked(ref, manifest)


def graph_access(uri: str, operation_id: str, required: Sequence[str] = ()) -> GraphAccess:
    """Return access with the storage settings of this process; `required` settings are unset in tasks if unset here."""
    names = (name for name in SETTINGS if name.startswith("AWS_") or name == "OMNIGRAPH_DURABILITY" or name in required)
    # A storage setting that is unset here is left alone: executors may be configured by themselves.
    settings = {name: os.environ.get(name) for name in sorted(names) if name in os.environ or name in required}
    return GraphAccess(uri, operation_id, tuple(settings.items()))


@lru_cache(maxsize=4)
def _cached_store(access: GraphAccess) -> Store:
    return Store(Location.parse(access.uri))


@lru_cache(maxsize=4)
def parse_catalog(ir: str) -> Catalog:
    return catalog_of(SchemaIR.from_json(orjson.loads(ir)))
