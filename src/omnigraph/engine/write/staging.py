"""Stage validated deltas as the effects of a commit plan, or rows that tasks write before their commit.

New rows become an append, which a retry can reuse; existing ones an upsert by id. Small fragments at the end of a
dataset are compacted in the same commit, so that many small writes stay cheap to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph import errors
from omnigraph.engine.session import GraphSession, View
from omnigraph.engine.write.committed_rows import CommittedRows
from omnigraph.errors import LimitExceeded, OmniGraphError, ReadSetChanged
from omnigraph.ids import OperationId
from omnigraph.lang.catalog import Catalog, Type, TypeKey
from omnigraph.limits import TAIL_FRAGMENTS_MAX, WRITE_BYTES_MAX, WRITE_ENTITIES_MAX
from omnigraph.manifest.intents import Declared, declared
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan, Receipt
from omnigraph.manifest.requirements import PinIs, Requirement, SchemaIs
from omnigraph.rules.arrow_typing import Column, arrays, pc
from omnigraph.rules.delta import Changes, Delta, Intent, is_among, one_array
from omnigraph.store.blobs.cells import StoredBlobs, blob_columns
from omnigraph.store.lance_schema import BLOB_MARK
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.lookup import PLACE, ROW_ID
from omnigraph.store.store import Staged, StaleBase
from omnigraph.store.write.compaction import fold_tail
from omnigraph.store.write.fragments import FragmentText, claims, remove_staged, write_fragments_with_blobs
from omnigraph.store.write.transaction import Change, append, overwrite
from omnigraph.store.write.upsert import delete_found, upsert


@dataclass(slots=True)
class Stager:
    """Stages the deltas of one write; caches appends so that a retry does not write them again."""

    appended: dict[TypeKey, tuple[pa.Table, str, Change]] = field(default_factory=dict)

    def plan(
        self,
        session: GraphSession,
        kind: str,
        changes: Changes,
        committed: CommittedRows,
        requirements: Sequence[Requirement] = (),
        properties: Mapping[str, str] | None = None,
    ) -> Plan:
        """Stage validated changes, and return their commit plan."""
        effects = self.stage(committed.view, changes.deltas, committed)
        return Plan(
            kind,
            effects,
            requirements=(SchemaIs(changes.catalog.ir_hash), *requirements),
            actor=session.actor,
            properties=properties or {},
            reads=frozenset(committed.types_read | changes.deltas.keys()),
        )

    def stage(self, view: View, deltas: Mapping[TypeKey, Delta], committed: CommittedRows) -> tuple[Effect, ...]:
        """Return one effect for each type that changes."""
        effects = [self._effect(view, delta, committed) for delta in deltas.values()]
        return tuple(effect for effect in effects if effect is not None)

    def _effect(self, view: View, delta: Delta, committed: CommittedRows) -> Effect | None:
        if delta.intent is not Intent.REPLACE and delta.rows.num_rows == 0 and len(delta.deleted) == 0:
            return None
        dataset = view.kernel.writable(view.snapshot, delta.key)
        if delta.intent is Intent.REPLACE:
            return Effect(delta.key, dataset, (overwrite(dataset, physical(delta.rows, dataset)),))
        replaced = committed.locate(delta.key, delta.gone) if delta.intent is Intent.UPSERT else None
        is_append = len(delta.deleted) == 0 and (replaced is None or replaced.num_rows == 0)
        fold = fold_tail(dataset, TAIL_FRAGMENTS_MAX, moves_blobs=is_append)
        if is_append:
            change = self._append(dataset, delta)
            return Effect(delta.key, dataset, (change,) if fold is None else (fold, change.following(fold)))
        assert replaced is not None, "a strict insert deletes nothing"
        return _on_top(delta, dataset, _begin(dataset, fold), replaced)

    def _append(self, dataset: Dataset, delta: Delta) -> Change:
        # The same rows on the same branch of the dataset need only be moved to its newest version.
        earlier = self.appended.get(delta.key)
        if earlier is not None and earlier[1] == dataset.ref.directory and earlier[0].equals(delta.rows):
            return earlier[2].rebased(dataset)
        change = append(dataset, physical(delta.rows, dataset))
        self.appended[delta.key] = (delta.rows, dataset.ref.directory, change)
        return change


def _begin(dataset: Dataset, fold: Change | None) -> Staged | None:
    """Commit a fold as a detached version, so that updates and deletes can be staged on top of it."""
    if fold is None:
        return None
    try:
        return dataset.store.commit(dataset, [fold], {})
    except StaleBase:
        # Another writer committed to this path; the publish will detect it, and folding can wait.
        return None


def _on_top(delta: Delta, dataset: Dataset, begun: Staged | None, replaced: pa.Table) -> Effect | None:
    base = dataset
    if begun is not None:
        # Folding has moved some of the rows; their row ids are what stays.
        base = begun.dataset
        replaced = base.take(replaced.column(ROW_ID).to_numpy().tolist(), PLACE)
    if delta.rows.num_rows == 0:
        change = delete_found(base, replaced)
    else:
        # Deleted rows leave together with those that are replaced.
        change = upsert(base, physical(delta.rows, base), replaced, kept_blobs(base, delta, replaced))
    return Effect(delta.key, dataset, (change,), begun) if change is not None else None


def kept_blobs(base: Dataset, delta: Delta, replaced: pa.Table) -> list[StoredBlobs]:
    """Return the blobs that updated rows keep; `replaced` has the addresses of the rows they replace."""
    if not delta.kept:
        return []
    rows = pc.index_in(delta.committed_ids(), value_set=one_array(replaced.column("id")))
    row_numbers = np.flatnonzero(pc.is_valid(rows))
    ids, row_ids = delta.ids.take(pa.array(row_numbers)), one_array(replaced.column(ROW_ID)).take(rows.drop_null())
    columns = {name: np.asarray(is_among(ids, blob_ids), np.bool_) for name, blob_ids in delta.kept.items()}
    is_kept = np.logical_or.reduce(list(columns.values()))
    assert is_kept.sum() == len(pc.unique(pa.concat_arrays(list(delta.kept.values())))), "what is kept is there"
    columns = {name: mask[is_kept] for name, mask in columns.items()}
    return [StoredBlobs(base, row_numbers[is_kept], row_ids.to_numpy()[is_kept], columns)]


def physical(rows: pa.Table, dataset: Dataset) -> pa.Table:
    """Return rows with the columns and types that a dataset stores; blobs become Lance blobs."""
    columns: list[Any] = []
    for target in dataset.schema:
        column: Any = rows.column(target.name).combine_chunks()
        columns.append(_blobs(column, target.type) if BLOB_MARK in (target.metadata or {}) else column)
    return pa.Table.from_arrays(columns, schema=dataset.schema)


def _blobs(values: Any, target: Any) -> Any:
    storage = target.storage_type
    fields = [storage.field(index) for index in range(storage.num_fields)]
    children = [values if field.name == "data" else pa.nulls(len(values), field.type) for field in fields]
    struct = arrays.StructArray.from_arrays(children, fields=fields, mask=pc.is_null(values))
    return arrays.ExtensionArray.from_storage(target, struct)


def check_size(
    type_: Type,
    entities: int,
    size: int,
    entities_max: int | None = None,
    bytes_max: int | None = None,
) -> None:
    """Raise if a write has too many entities or bytes of one type (E12); kept blobs do not count."""
    entities_max = WRITE_ENTITIES_MAX if entities_max is None else entities_max
    bytes_max = WRITE_BYTES_MAX if bytes_max is None else bytes_max
    if entities > entities_max:
        raise too_large(f"keyed entities for {type_.table_key}", entities_max, entities, type_.name, "entities")
    if size > bytes_max:
        raise too_large(f"keyed write bytes for {type_.table_key}", bytes_max, size, type_.name, "bytes")


def too_large(resource: str, limit: int, actual: int, name: str, unit: str, rule: str = "E12") -> LimitExceeded:
    """Return the error of a write with too much data of one type."""
    return LimitExceeded(
        f"this write has at least {actual} {unit} of `{name}`, but one write is limited to {limit}; split it, or"
        " load it with the pipeline",
        rule=rule,
        resource=resource,
        limit=limit,
        actual=actual,
    )


def put_column(rows: pa.Table, name: str, column: Column) -> pa.Table:
    """Return rows with other values in a column."""
    index = rows.schema.get_field_index(name)
    return rows.set_column(index, rows.schema.field(index), column)


def gather_rows(tables: Iterable[pa.Table], bytes_max: int, rows_max: int | None = None) -> Iterator[pa.Table]:
    """Yield the rows of tables together, as soon as there are so many bytes or rows."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        rows, size = sum(table.num_rows for table in waiting), sum(table.nbytes for table in waiting)
        if size >= bytes_max or (rows_max is not None and rows >= rows_max):
            yield pa.concat_tables(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def rewrite_rows(dataset: Dataset, rows: pa.Table, operation_id: str) -> list[FragmentText]:
    """Write stored rows with other values into new fragments; they keep their blobs, which are found by row id."""
    names, count = blob_columns(dataset), rows.num_rows
    columns = {name: np.ones(count, np.bool_) for name in names}
    stored = StoredBlobs(dataset, np.arange(count), rows.column(ROW_ID).to_numpy(), columns)
    return write_fragments_with_blobs(dataset, physical(rows, dataset), [stored] if names else [], operation_id)


def require_same_types(before: Catalog, after: Catalog, table_keys: Iterable[TypeKey]) -> None:
    """Raise `ReadSetChanged` if the definition of a type that is written has changed; other types may have."""
    if before.ir_hash == after.ir_hash:
        return
    old, new = ({type_.table_key: type_ for type_ in catalog.types} for catalog in (before, after))
    for table_key in table_keys:
        if old.get(table_key) != new.get(table_key):
            raise ReadSetChanged(
                f"the schema of `{table_key.name}` changed while the write was prepared; nothing was written, retry",
                member="schema_ir_hash",
                expected=before.ir_hash,
                actual=after.ir_hash,
                type_key=table_key,
            )


def require_unchanged(session: GraphSession, snapshot: Snapshot, effects: Iterable[Effect]) -> tuple[Requirement, ...]:
    """Return the requirements of effects that hold for any state with the same schema and versions of their types."""
    pins = (PinIs(effect.table_key, snapshot.state.pins[effect.table_key].version) for effect in effects)
    return (SchemaIs(session.catalog(snapshot).ir_hash), *pins)


@dataclass
class LazyIntent:
    """The intent of work that may be prepared several times; declared once, before anything is written for it."""

    session: GraphSession
    kind: str
    stack: ExitStack
    declared: Declared | None = None
    _lock: Lock = field(default_factory=Lock)

    def declare(self, snapshot: Snapshot) -> Declared:
        """Declare the intent, unless an earlier attempt did."""
        with self._lock:
            if self.declared is None:
                intent = declared(self.session.kernel.store, self.kind, snapshot, self.session.actor)
                self.declared = self.stack.enter_context(intent)
            return self.declared


class StagedCommit:
    """Declares one intent for all attempts, and claims each dataset before anything is staged for it."""

    def __init__(self, session: GraphSession, kind: str) -> None:
        self._session = session
        self._stack = ExitStack()
        self._intent = LazyIntent(session, kind, self._stack)
        self._targets: set[DatasetRef] = set()

    @property
    def operation_id(self) -> OperationId | None:
        """The id of the intent; None as long as nothing had to be staged."""
        return self._intent.declared.operation_id if self._intent.declared is not None else None

    def declare(self, snapshot: Snapshot) -> OperationId:
        """Declare the intent, unless an earlier attempt did."""
        self._session.kernel.reject_read_only()
        return self._intent.declare(snapshot).operation_id

    def claim(self, dataset: Dataset) -> Dataset:
        """Let the intent say that files of a dataset are being staged."""
        if self._intent.declared is not None and dataset.ref not in self._targets:
            self._intent.declared.staging(*claims(dataset.ref, self._intent.declared.operation_id))
            self._targets.add(dataset.ref)
        return dataset

    def publish(
        self,
        branch: str,
        prepare: Callable[[Snapshot], Plan | None],
        policy: CommitPolicy,
        planned_files: Callable[[], Set[str]],
    ) -> Receipt | None:
        """Publish, and remove staged files that the published plan does not consist of."""
        keep: Set[str] = set()
        with self._stack:
            try:
                receipt = self._session.kernel.commit(branch, prepare, policy)
                keep = planned_files()
                return receipt
            except OmniGraphError as error:
                keep = set() if error.effect is errors.Effect.NONE else planned_files()
                raise
            except BaseException:
                # An interrupt may arrive after the publish, which refers to these files.
                keep = planned_files()
                raise
            finally:
                if self.operation_id is not None:
                    remove_staged(self._session.kernel.store, self._targets, self.operation_id, keep)
