"""Pins of many catalogs: which versions of which datasets they name, without decoding the rest.

A long history names the same versions again and again, so pins are made unique batch by batch; memory follows what is
different, not how many catalogs there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import GraphError
from omnigraph.ids import CommitId
from omnigraph.limits import REACH_BATCH_VERSIONS
from omnigraph.manifest import catalog_format, encoding
from omnigraph.store.files.reachability import DatasetFork, NeededFiles
from omnigraph.store.files.versions import read_overwritten
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.store import Store

_COLUMNS = (
    "object_type",
    "location",
    "metadata",
    "table_key",
    "stable_table_id",
    "table_incarnation_id",
    "table_version",
    "table_branch",
)


@dataclass
class CatalogPins:
    """What some catalogs name: versions by dataset or fork, the names of types, and the head of each catalog.

    `needed` are the files of the catalogs themselves.
    """

    versions: dict[DatasetFork, set[int]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    heads: dict[DatasetRef, CommitId | None] = field(default_factory=dict)
    needed: NeededFiles | None = None

    def update(self, other: CatalogPins) -> None:
        for location, numbers in other.versions.items():
            self.versions.setdefault(location, set()).update(numbers)
        self.names = other.names | self.names
        self.heads |= other.heads
        if self.needed is None:
            self.needed = other.needed
        elif other.needed is not None:
            self.needed.update(other.needed)


def read_pins(store: Store, catalogs: Sequence[DatasetRef]) -> CatalogPins:
    """Return what catalogs name; each is read once, and one that cannot be read is an error."""
    pins = CatalogPins()
    tasks = [
        partial(_read_batch, store, catalogs[begin : begin + REACH_BATCH_VERSIONS])
        for begin in range(0, len(catalogs), REACH_BATCH_VERSIONS)
    ]
    for part in store.in_parallel(tasks):
        pins.update(part)
    return pins


def _read_batch(store: Store, catalogs: Sequence[DatasetRef]) -> CatalogPins:
    needed = NeededFiles()
    pins, tables = CatalogPins(needed=needed), []
    for ref in catalogs:
        table = _read_checked(store, ref, needed)
        with encoding.report_damage(f"catalog `{ref}`", "no version was removed; restore it from a backup"):
            pins.heads[ref] = _head(table)
        kinds = pc.is_in(table["object_type"], value_set=pa.array(["table", "table_version"]))
        tables.append(table.filter(kinds).drop_columns(["metadata"]))
    if not tables:
        return pins
    # Consecutive catalogs differ in a few rows, so grouping all columns leaves about as many rows as there were
    # changes.
    distinct = pa.concat_tables(tables).group_by([column for column in _COLUMNS if column != "metadata"]).aggregate([])
    located = {
        encoding.read_identity(row): row["location"]
        for row in distinct.filter(pc.field("object_type") == "table").to_pylist()
    }
    for row in distinct.filter(pc.field("object_type") == "table_version").to_pylist():
        with encoding.report_damage("a catalog", "no version was removed; restore it from a backup"):
            path = located[encoding.read_identity(row)]
        pins.versions.setdefault((path, row["table_branch"]), set()).add(row["table_version"])
        pins.names.setdefault(path, row["table_key"])
    return pins


def _read_checked(store: Store, ref: DatasetRef, needed: NeededFiles) -> pa.Table:
    table = read_overwritten(store, ref, _COLUMNS, needed)
    stamp = encoding.check_stamp(table.schema, f"`{ref}`")
    if stamp != catalog_format.FORMAT_STAMP:
        # An upgrade from an older format may read any column.
        table = read_overwritten(store, ref, None, needed)
        for upgrade in catalog_format.upgrade_path(stamp, catalog_format.FORMAT_STAMP) or ():
            table = upgrade.rewrite(table)
        table = table.select(_COLUMNS)
    kinds = Counter(table["object_type"].to_pylist())
    # Cleanup deletes what no catalog names, so a catalog that lost rows must stop it instead of naming too little.
    is_whole = kinds["graph_head"] == 1 and kinds["table"] == kinds["table_version"]
    if not is_whole or not kinds.keys() <= encoding.KINDS:
        raise GraphError(
            f"catalog `{ref}` is damaged: it has rows {dict(kinds)}; no version was removed. Restore it from a backup",
            code="graph.corrupt",
            object=str(ref),
        )
    return table


def _head(table: pa.Table) -> CommitId | None:
    [metadata] = table.filter(pc.field("object_type") == "graph_head")["metadata"].to_pylist()
    head = orjson.loads(metadata or "{}")["head_commit_id"]
    return None if head is None else CommitId(head)
