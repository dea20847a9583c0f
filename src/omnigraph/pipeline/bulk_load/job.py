"""The values that travel from the driver to every task of a load, and a task's access to the graph.

Tasks never read the manifest: all they know of the graph is in a `Job`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

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

# Names of environment variables with their values; None for a variable that must be unset in the task's process.
Settings: TypeAlias = tuple[tuple[str, str | None], ...]

# How violations of an input name a row: "line 7".
UNIT: Final = "line"


@dataclass(frozen=True, slots=True)
class GraphAccess:
    """The address of a graph and the driver's storage settings, for the tasks of one operation."""

    uri: str
    operation_id: str
    settings: Settings = ()

    def store(self) -> Store:
        """Return the store; tasks of one operation in one process share it."""
        # A Spark worker serves one operation after another, so each sets and unsets what its own driver sent.
        os.environ.update({name: value for name, value in self.settings if value is not None})
        for name in (name for name, value in self.settings if value is None):
            os.environ.pop(name, None)
        return _cached_store(self)

    def open(self, ref: DatasetRef) -> Dataset:
        return self.store().open(ref)


def graph_access(uri: str, operation_id: str, required: Sequence[str] = ()) -> GraphAccess:
    """Return access with the storage settings of this process; `required` settings are unset in tasks if unset here."""
    names = (name for name in SETTINGS if name.startswith("AWS_") or name == "OMNIGRAPH_DURABILITY" or name in required)
    # A storage setting that is unset here is left alone: executors may be configured by themselves.
    settings = {name: os.environ.get(name) for name in sorted(names) if name in os.environ or name in required}
    return GraphAccess(uri, operation_id, tuple(settings.items()))


@lru_cache(maxsize=4)
def _cached_store(access: GraphAccess) -> Store:
    return Store(Location.parse(access.uri))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A load as its tasks see it.

    Attributes:
        access: Where the graph is; its operation id names all files of the load.
        scratch: Folder for key segments and other temporary files.
        ir: Schema with the types that the input may name, as JSON.
        schema_hash: Hash of the graph's full schema.
        base_version: Manifest version that an overwrite was planned on; None if it may replace newer rows.
        targets: The datasets that rows of each type are staged for.
        violations_max: How many violations a task reports.
        is_rejecting: Whether wrong entities are left out instead of failing the load.
        embed: How to make missing `@embed` vectors; None if they are not made.
    """

    access: GraphAccess
    scratch: str
    ir: str
    schema_hash: str
    base_version: int | None
    intent: Intent
    targets: Mapping[str, DatasetRef]
    violations_max: int
    is_rejecting: bool = False
    embed: EmbedJob | None = None

    @property
    def operation_id(self) -> str:
        return self.access.operation_id

    @property
    def claims(self) -> list[str]:
        """The path prefixes under which tasks stage files."""
        return [path for ref in self.targets.values() for path in claims(ref, self.operation_id)]

    @property
    def catalog(self) -> Catalog:
        return parse_catalog(self.ir)


@lru_cache(maxsize=4)
def parse_catalog(ir: str) -> Catalog:
    return catalog_of(SchemaIR.from_json(orjson.loads(ir)))
