"""Jobs: what every task of one load has to know, as plain values that travel; and how a task reaches the graph.

Tasks never talk to the manifest: all they learn about the graph is in here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import orjson

from omnigraph.lang.catalog import Catalog
from omnigraph.lang.schema import SchemaIR, catalog_of
from omnigraph.rules.delta import Intent
from omnigraph.settings import SETTINGS
from omnigraph.store.objects.uri import Location
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.store import Store
from omnigraph.store.write.fragments import claims

if TYPE_CHECKING:
    from omnigraph.pipeline.bulk_load.stage_split import EmbedJob


# Names with their values; None for one that is not set, wherever a task runs.
Settings: TypeAlias = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the graph is, for one operation, and the settings with which the driver reaches it."""

    uri: str
    operation_id: str
    settings: Settings = ()

    def store(self) -> Store:
        """Return the store of this place; tasks of one operation in one process share it."""
        # A worker of Spark serves one application, operation after operation, each with what its driver was told.
        os.environ.update({name: value for name, value in self.settings if value is not None})
        for name in (name for name, value in self.settings if value is None):
            os.environ.pop(name, None)
        return _store(self)

    def open(self, ref: DatasetRef) -> Dataset:
        return self.store().open(ref)


def place_of(uri: str, operation_id: str, more: Sequence[str] = ()) -> Place:
    """Return a place with the storage settings of this process, and `more` that tasks have from here or not at all."""
    names = (name for name in SETTINGS if name.startswith("AWS_") or name == "OMNIGRAPH_DURABILITY" or name in more)
    # Executors may have storage settings of their own.
    given = {name: os.environ.get(name) for name in sorted(names) if name in os.environ or name in more}
    return Place(uri, operation_id, tuple(given.items()))


@lru_cache(maxsize=4)
def _store(place: Place) -> Store:
    return Store(Location.parse(place.uri))


@dataclass(frozen=True, slots=True)
class Job:
    """One load as its tasks see it.

    `ir` is the schema that its input may name types of, `schema_hash` that of the whole graph; `base_version` is the
    manifest version that it was planned on, if it must not replace anything newer; `targets` are the datasets that rows
    of each type are staged for, `side` the folder for all other files. With `embed`, rows without a vector get one.
    """

    place: Place
    operation_id: str
    side: str
    ir: str
    schema_hash: str
    base_version: int | None
    intent: Intent
    unit: str
    targets: Mapping[str, DatasetRef]
    violations_max: int
    is_rejecting: bool
    embed: EmbedJob | None = None

    @property
    def claims(self) -> list[str]:
        """The beginnings of all paths at which tasks stage files."""
        return [path for ref in self.targets.values() for path in claims(ref, self.operation_id)]

    @property
    def catalog(self) -> Catalog:
        return catalog_from(self.ir)


@lru_cache(maxsize=4)
def catalog_from(ir: str) -> Catalog:
    return catalog_of(SchemaIR.from_json(orjson.loads(ir)))
