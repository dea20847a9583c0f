"""Passes over the input of an inference: its tables profiled by tasks, on threads or Spark.

Every scan holds one batch and the merged results, whose size does not depend on the number of rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from omnigraph.engine.infer.profile import ColumnProfile, Sketch, TableProfile, hash_values, profile_column
from omnigraph.engine.infer.untyped_rows import Rows, read_rows
from omnigraph.engine.input.splits import Split
from omnigraph.engine.key_buckets.hashes import Hashes
from omnigraph.engine.tasks import Runner
from omnigraph.lang.catalog import NodeType, Property, PropertyType, TypeKey
from omnigraph.lang.schema.arrow_schema import key_ids

T = TypeVar("T")
Results: TypeAlias = dict[Any, T]
Merge: TypeAlias = Callable[[T, T], T]


@dataclass(frozen=True, slots=True)
class Probe:
    """Columns of a table whose values are looked at together, as the id of a node: `types` are those of a key."""

    key: TypeKey
    columns: tuple[str, ...]
    types: tuple[PropertyType, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """What is read, and where tasks run."""

    runner: Runner
    splits: Sequence[Split]
    frames: Mapping[TypeKey, Any]

    def profile_tables(self) -> dict[TypeKey, TableProfile]:
        return self._run("reading the input", profile_rows, TableProfile.merge)

    def sketch_ids(self, probes: Sequence[Probe]) -> dict[Probe, Sketch]:
        """Return the sketches of the ids that columns make together."""
        scan = self._only({probe.key for probe in probes})
        return scan._run("comparing keys", partial(_sketch_rows, probes), Sketch.merge)

    def find_duplicates(self, probe: Probe, low: int, high: int) -> bool:
        """Return True if two rows have the same hash in a range."""
        scan = self._only({probe.key})
        parts = scan._run("checking a key", partial(_hash_rows, probe, low, high), add)
        hashes = np.concatenate([np.zeros(0, np.uint64), *parts.get(probe, [])])
        return len(np.unique(hashes)) < len(hashes)

    def _only(self, keys: set[TypeKey]) -> Scan:
        """Return the scan of the inputs that may hold these tables; a split of NDJSON may hold any."""
        splits = [split for split in self.splits if split.table_key is None or split.table_key in keys]
        return replace(self, splits=splits, frames={key: self.frames[key] for key in self.frames if key in keys})

    def _run(self, stage: str, work: Callable[[Rows], Results[T]], merge: Merge[T]) -> Results[T]:
        tasks = partial(_scan_split, work, merge)
        parts = self.runner.run(stage, tasks, self.splits, [split.size for split in self.splits]) if self.splits else []
        for key, frame in self.frames.items():
            parts += _scan_frame(self.runner, stage, key, frame, work, merge)
        return _merge_all(parts, merge)


def _scan_split(work: Callable[[Rows], Results[T]], merge: Merge[T], split: Split) -> Results[T]:
    return _merge_all(map(work, read_rows(split)), merge)


def _scan_frame(
    runner: Runner, stage: str, key: TypeKey, frame: Any, work: Callable[[Rows], Results[T]], merge: Merge[T]
) -> list[Results[T]]:
    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (Rows(key, pa.Table.from_batches([batch])) for batch in batches)
        yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(_merge_all(map(work, tables), merge))]})

    return [pickle.loads(bytes(result)) for result in runner.map_frame(stage, frame, scan, "result binary")]


def _merge_all(parts: Any, merge: Merge[T]) -> Results[T]:
    merged: Results[T] = {}
    for part in parts:
        for key, value in part.items():
            merged[key] = merge(merged[key], value) if key in merged else value
    return merged


def profile_rows(rows: Rows) -> dict[TypeKey, TableProfile]:
    columns: dict[str, ColumnProfile] = {}
    for name, column in zip(rows.table.column_names, rows.table.columns, strict=True):
        if name:
            columns[name] = profile_column(column, is_text=name in rows.texts, is_json=rows.is_json)
    return {rows.key: TableProfile(rows.table.num_rows, columns)}


def _sketch_rows(probes: Sequence[Probe], rows: Rows) -> dict[Probe, Sketch]:
    return {probe: Sketch.of(_hash_ids(probe, rows)) for probe in probes if probe.key == rows.key}


def _hash_rows(probe: Probe, low: int, high: int, rows: Rows) -> dict[Probe, list[Hashes]]:
    if probe.key != rows.key:
        return {}
    hashes = _hash_ids(probe, rows)
    return {probe: [hashes[(hashes >= np.uint64(low)) & (hashes <= np.uint64(high))]]}


def _hash_ids(probe: Probe, rows: Rows) -> Hashes:
    table = rows.table
    if not set(probe.columns) <= set(table.column_names):
        return np.zeros(0, np.uint64)
    if len(probe.columns) == 1:
        return hash_values(table.column(probe.columns[0]))
    parts = zip(probe.columns, probe.types, strict=True)
    properties = {name: Property(name, type_, number) for number, (name, type_) in enumerate(parts, start=1)}
    return hash_values(key_ids(NodeType(probe.key.name, 1, 1, properties, key=probe.columns), table))
