"""Stage what a schema change does to stored rows: columns converted, and rows written again with new ids or values.

Tasks run in threads or on Spark executors. A type whose columns alone change is not read at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.engine.graph_access import TaskStore
from omnigraph.engine.schema_data import DataCheck, TypeChange
from omnigraph.engine.tasks import Runner
from omnigraph.engine.write.staging import physical
from omnigraph.lang.catalog import EdgeType, NodeType, Type, TypeKey
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.lang.schema.key_ids import key_ids
from omnigraph.limits import SCHEMA_REWRITE_BATCH_ROWS, SCHEMA_REWRITE_BYTES
from omnigraph.manifest.plan import Effect
from omnigraph.rules.arrow_typing import Column, pc
from omnigraph.rules.defaults import default_column
from omnigraph.rules.delta import Ids, one_array
from omnigraph.store.blobs.cells import StoredBlobs, blob_columns
from omnigraph.store.lance_schema import physical_schema
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.lookup import ROW_ID
from omnigraph.store.store import Staged
from omnigraph.store.write.fragments import (
    FragmentText,
    Marked,
    fragment_ids,
    fragment_runs,
    scan_whole_rows,
    upserted,
    write_fragments_with_blobs,
)
from omnigraph.store.write.schema_change import convert_fragment, converted, converted_name, reshape
from omnigraph.store.write.transaction import Change

# Old ids, and the ids that take their place.
IdMap: TypeAlias = tuple[Ids, Ids]


@dataclass(frozen=True, slots=True)
class RowRewrite:
    """How the rows of a type are written again: `filled` properties get their default, `endpoints` maps ids by column,
    `is_rekeyed` computes ids.
    """

    type: Type
    filled: tuple[str, ...] = ()
    now_ms: int = 0
    endpoints: Mapping[str, IdMap] = field(default_factory=dict)
    is_rekeyed: bool = False

    @property
    def is_needed(self) -> bool:
        return bool(self.filled or self.endpoints) or self.is_rekeyed

    def apply(self, rows: pa.Table) -> pa.Table:
        """Return rows as they are written."""
        for name in self.filled:
            rows = _put(rows, name, default_column(self.type.properties[name], rows.num_rows, self.now_ms))
        for name, (old_ids, new_ids) in self.endpoints.items():
            ends = one_array(rows.column(name))
            rows = _put(rows, name, pc.coalesce(new_ids.take(pc.index_in(ends, value_set=old_ids)), ends))
        return _put(rows, "id", one_array(key_ids(self.type, rows))) if self.is_rekeyed else rows


def _put(rows: pa.Table, name: str, column: Column) -> pa.Table:
    index = rows.schema.get_field_index(name)
    return rows.set_column(index, rows.schema.field(index), column)


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Some fragments of a version; `manifest` is the staged one of a version that is not published yet."""

    ref: DatasetRef
    manifest: str | None
    fragment_ids: Sequence[int]


@dataclass(slots=True)
class RewrittenPart:
    """The new fragments of a task, and the old ones, of which no row is left."""

    fragments: list[FragmentText] = field(default_factory=list)
    marked: list[Marked] = field(default_factory=list)


def rewrite_part(store: TaskStore, rewrite: RowRewrite, operation_id: str, task: RewriteTask) -> RewrittenPart:
    """Write the rows of some fragments again."""
    dataset = store.open(task.ref, task.manifest)
    part = RewrittenPart()
    waiting: list[pa.Table] = []
    for fragment_id in task.fragment_ids:
        count = 0
        for rows in _read_rows(dataset, rewrite.type, fragment_id):
            count += rows.num_rows
            waiting.append(rewrite.apply(rows))
            if sum(table.nbytes for table in waiting) >= SCHEMA_REWRITE_BYTES:
                part.fragments += _write_rows(dataset, waiting, operation_id)
                waiting = []
        part.marked.append(Marked(fragment_id, None, count))
    if waiting:
        part.fragments += _write_rows(dataset, waiting, operation_id)
    return part


def _read_rows(dataset: Dataset, type_: Type, fragment_id: int) -> Iterator[pa.Table]:
    names = arrow_schema(type_).names
    for batch in scan_whole_rows(dataset, fragment_id, names, SCHEMA_REWRITE_BATCH_ROWS):
        if batch.num_rows:
            yield pa.Table.from_batches([batch]).select([*names, ROW_ID]).combine_chunks()


def _write_rows(dataset: Dataset, tables: list[pa.Table], operation_id: str) -> list[FragmentText]:
    rows = pa.concat_tables(tables).combine_chunks()
    names, count = blob_columns(dataset), rows.num_rows
    row_ids: Any = rows.column(ROW_ID).to_numpy()
    stored_blobs = StoredBlobs(dataset, np.arange(count), row_ids, {name: np.ones(count, np.bool_) for name in names})
    return write_fragments_with_blobs(dataset, physical(rows, dataset), [stored_blobs] if names else [], operation_id)


def convert_part(
    store: TaskStore, types: Mapping[str, pa.DataType], operation_id: str, task: RewriteTask
) -> list[FragmentText]:
    """Convert columns of some fragments."""
    dataset = store.open(task.ref, task.manifest)
    return [convert_fragment(dataset, fragment_id, types, operation_id) for fragment_id in task.fragment_ids]


@dataclass
class SchemaRewrite:
    """Stages the effects of a schema change, node types first: edges follow the ids of their nodes."""

    store: TaskStore
    runner: Runner
    check: DataCheck
    operation_id: str
    now_ms: int
    _id_maps: dict[str, IdMap] = field(default_factory=dict)

    def stage(self, change: TypeChange, dataset: Dataset) -> Effect | None:
        """Return what a schema change does to the dataset of a type; None if nothing."""
        begun = self._convert(change, dataset)
        base = begun.dataset if begun else dataset
        names = {name: converted_name(name) for name in change.retyped} if begun else {}
        metadata = self._reshape(change, base, names)
        rewrite = self._plan_rewrite(change)
        if not rewrite.is_needed or dataset.count() == 0:
            changes = () if metadata is None else (metadata,)
            return Effect(change.old.table_key, dataset, changes, begun) if changes or begun else None
        if metadata is not None:
            begun = dataset.store.commit(dataset, [metadata], {}, begun)
        updated = self._rewrite(rewrite, begun.dataset if begun else dataset, begun)
        if updated is None and begun is None:
            return None
        return Effect(change.old.table_key, dataset, () if updated is None else (updated,), begun)

    def _convert(self, change: TypeChange, dataset: Dataset) -> Staged | None:
        """Commit converted columns beside those they replace, as a version that nothing names yet."""
        types = change.retyped
        if not types or not fragment_ids(dataset):
            return None
        work = partial(convert_part, self.store, types, self.operation_id)
        tasks = [RewriteTask(dataset.ref, None, run) for run in fragment_runs(dataset)]
        texts = self.runner.run(f"converting {change.new.name}", work, tasks)
        merged = converted(dataset, [text for part in texts for text in part], types)
        return dataset.store.commit(dataset, [merged], {})

    def _reshape(self, change: TypeChange, base: Dataset, converted_names: Mapping[str, str]) -> Change | None:
        columns, retyped = change.columns, change.retyped
        drop = [*columns.dropped, *retyped]
        rename = {name: new for name, new in columns.renamed.items() if name not in retyped}
        add = [*columns.added]
        new_names = {old.name: new.name for old, new in change.kept.values()}
        if converted_names:
            rename |= {column: new_names[name] for name, column in converted_names.items()}
        else:
            # Without rows there is nothing to convert: the columns are replaced.
            fields = physical_fields(change.new)
            add += [fields[new_names[name]].with_nullable(True) for name in retyped]
        relax = [name for name in change.relaxed if name not in retyped]
        return reshape(base, add=[item.with_nullable(True) for item in add], drop=drop, rename=rename, relax=relax)

    def _plan_rewrite(self, change: TypeChange) -> RowRewrite:
        new = change.new
        rewrite = RowRewrite(new, change.filled, self.now_ms, is_rekeyed=change.is_rekeyed)
        if isinstance(new, NodeType):
            return rewrite
        endpoints = self._follow_nodes(new)
        is_rekeyed = change.is_rekeyed or bool(endpoints.keys() & set(new.key))
        return replace(rewrite, endpoints=endpoints, is_rekeyed=is_rekeyed)

    def _follow_nodes(self, edge: EdgeType) -> dict[str, IdMap]:
        """Return, by column, the ids of nodes that have changed."""
        return {column: self._id_maps[node] for column, node in edge.ends.items() if node in self._id_maps}

    def _rewrite(self, rewrite: RowRewrite, dataset: Dataset, begun: Staged | None) -> Change | None:
        """Write all rows again; None if the ids are those they have already."""
        type_ = rewrite.type
        if rewrite.is_rekeyed:
            rows = dataset.read(list(dict.fromkeys(("id", *type_.ends, *type_.key, *rewrite.filled))))
            old_ids = one_array(rows.column("id"))
            new_ids = one_array(rewrite.apply(rows).column("id"))
            self.check.check_key(type_, old_ids, new_ids)
            if old_ids.equals(new_ids) and not rewrite.endpoints and not rewrite.filled:
                return None
            if isinstance(type_, NodeType):
                self._id_maps[type_.name] = (old_ids, new_ids)
        work = partial(rewrite_part, self.store, rewrite, self.operation_id)
        manifest = begun.manifest if begun else None
        tasks = [RewriteTask(dataset.ref, manifest, run) for run in fragment_runs(dataset)]
        parts = self.runner.run(f"rewriting {type_.name}", work, tasks)
        marked = [mark for part in parts for mark in part.marked]
        return upserted(dataset, [text for part in parts for text in part.fragments], marked)


def physical_fields(type_: Type) -> dict[str, Any]:
    """Return the stored columns of a type by name."""
    return {item.name: item for item in physical_schema(arrow_schema(type_))}


def changed_keys(changes: Sequence[TypeChange]) -> set[TypeKey]:
    """Return the types whose stored rows or columns may change, by their old keys."""
    rekeyed = {change.new.name for change in changes if isinstance(change.new, NodeType) and change.is_rekeyed}
    return {
        change.old.table_key
        for change in changes
        if change.columns.changed
        or change.retyped
        or change.relaxed
        or change.is_rekeyed
        or rekeyed & {*change.new.ends.values()}
    }
