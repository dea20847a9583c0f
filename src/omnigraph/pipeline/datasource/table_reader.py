"""Reading a type as a DataFrame: columns, conditions and states are options, and each task reads whole fragments.

Conditions are never taken from Spark's own push-down: it keeps them on a relation that other parts of a query share,
and answers would be wrong. One reader reads one commit, whatever is written meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from omnigraph.engine.export import split_batch
from omnigraph.engine.session import View
from omnigraph.engine.write.ndjson.blocks import Type
from omnigraph.errors import StorageError, UsageError
from omnigraph.graph import Graph
from omnigraph.ids import CommitId, new_ulid
from omnigraph.lang.catalog import Scalar
from omnigraph.lang.query.syntax_errors import suggestion
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.limits import LOAD_SPLIT_BYTES
from omnigraph.pipeline.bulk_load.job import Place, catalog_from, place_of
from omnigraph.pipeline.datasource.options import READ, GivenOptions, coded, given_options
from omnigraph.pipeline.datasource.spark_types import column_names, find_type, spark_fields, to_frame
from omnigraph.rules.arrow_typing import Column, arrays, pc
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.ordered_scan import ROW_ID, read_blobs
from omnigraph.store.write.fragments import fragment_runs, scan_fragments


@dataclass(frozen=True, slots=True)
class Scan:
    """One pinned version of one type, as tasks know it."""

    place: Place
    ir: str
    table_key: str
    ref: DatasetRef

    @property
    def type(self) -> Type:
        return catalog_from(self.ir).type_of(self.table_key)

    def open(self) -> Dataset:
        return self.place.open(self.ref)


def plan_scan(view: View, table_key: str) -> tuple[Scan, list[list[int]]]:
    """Return how tasks reach a type of a view, and the fragments that each of them is to read."""
    # Tasks open versions by path alone, so what was just published must be in its place.
    view.kernel.finish_links(view.snapshot)
    dataset = view.dataset(table_key)
    place = place_of(view.kernel.store.root.uri, new_ulid())
    scan = Scan(place, view.snapshot.state.schema.ir, table_key, dataset.ref)
    return scan, fragment_runs(dataset, LOAD_SPLIT_BYTES)


def stored_rows(scan: Scan, fragment_ids: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield rows as they are stored, with their row ids: blobs as descriptors, in batches that bound their bytes."""
    blobs = [name for name in columns if _is_blob(scan.type, name)]
    for batch in scan_fragments(scan.open(), fragment_ids, columns):
        yield from split_batch(batch, blobs)


def read_rows(
    scan: Scan, fragment_ids: Sequence[int], columns: Sequence[str], where: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some fragments that satisfy a condition, in the layout of their type."""
    type_, dataset = scan.type, scan.open()
    layout = pa.schema([arrow_schema(type_).field(name) for name in columns])
    blobs = [name for name in columns if _is_blob(type_, name)]
    for batch in scan_fragments(dataset, fragment_ids, columns, where):
        for part in split_batch(batch, blobs):
            found = [
                _payloads(dataset, name, part) if name in blobs else part.column(part.schema.get_field_index(name))
                for name in columns
            ]
            yield pa.RecordBatch.from_arrays(found, schema=layout)


def _is_blob(type_: Type, name: str) -> bool:
    return name in type_.properties and type_.properties[name].type.scalar is Scalar.BLOB


def _payloads(dataset: Dataset, name: str, batch: pa.RecordBatch) -> Column:
    descriptors = batch.column(name)
    valid = pc.is_valid(descriptors).to_numpy(zero_copy_only=False)
    found = [one or b"" for one in read_blobs(dataset, name, batch.column(ROW_ID).filter(pa.array(valid)))]
    # Blobs may be large: a single one is not copied.
    sizes = np.zeros(batch.num_rows, np.int64)
    sizes[valid] = [len(one) for one in found]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    data = found[0] if len(found) == 1 else b"".join(found)
    bits = None if valid.all() else arrays.py_buffer(np.packbits(valid, bitorder="little"))
    return arrays.Array.from_buffers(
        pa.large_binary(), batch.num_rows, [bits, arrays.py_buffer(offsets), arrays.py_buffer(data)]
    )


_QUOTED: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`""")


@dataclass(frozen=True, slots=True)
class Pinned:
    """The commit that a read shows from now on, and the one whose schema it names things by."""

    commit: CommitId
    today: CommitId


def pinned(options: Mapping[str, str]) -> Pinned | None:
    """Return what a read of these options shows from now on; None for a write or a stream."""
    if not {name.lower() for name in options} <= {*READ}:
        return None
    given = given_options(options, READ)
    with given.open() as graph:
        commit, today = _view(graph, given, None).snapshot.head, graph.core.kernel.snapshot(given.branch).head
        assert commit is not None, "every state has a commit that made it"
        assert today is not None, "a graph is born with a commit"
        return Pinned(commit, today)


def schema_of(options: Mapping[str, str], pin: Pinned | None) -> Any:
    """Return the Spark schema of a read."""
    given = given_options(options, READ)
    with given.open() as graph:
        type_ = find_type(_view(graph, given, pin).catalog, given.type)
        return StructType.fromJson({"type": "struct", "fields": spark_fields(type_, _columns(given, type_))})


class Reader(DataSourceReader):
    """Plans a read in the driver, and reads fragments in tasks."""

    def __init__(self, options: Mapping[str, str], pin: Pinned | None, schema: Any) -> None:
        given = given_options(options, READ)
        with given.open() as graph:
            view = _view(graph, given, pin)
            type_ = find_type(view.catalog, given.type)
            self._layout = checked_layout(type_, schema)
            self._where = _checked_filter(view, type_, given)
            self._scan, self._runs = plan_scan(view, type_.table_key)

    def partitions(self) -> list[Any]:
        return [Run(one) for one in self._runs]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        # A type without entities has no fragments, and Spark then reads one partition of nothing.
        if isinstance(partition, Run):
            with coded(is_planning=False):
                yield from frame_rows(self._scan, partition.value, self._layout, self._where)


class Run(InputPartition):
    """Fragments that one task reads."""


def frame_rows(scan: Scan, fragment_ids: list[int], layout: pa.Schema, where: str | None) -> Iterator[pa.RecordBatch]:
    """Yield rows as Spark takes them."""
    for batch in read_rows(scan, fragment_ids, layout.names, where):
        yield framed(scan.type, batch, layout)


def framed(type_: Type, batch: Any, layout: pa.Schema) -> pa.RecordBatch:
    """Return rows of a type with every column in the type that Spark has for it."""
    columns = []
    for field in layout:
        column, property_ = batch.column(field.name), type_.properties.get(field.name)
        columns.append(column.cast(field.type) if property_ is None else to_frame(column, property_.type, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=layout)


def checked_layout(type_: Type, schema: Any) -> pa.Schema:
    """Return the Arrow schema of a Spark schema, which may leave columns out but not change them."""
    names = [str(name) for name in schema.fieldNames()]
    _refuse_unknown(type_, names)
    own = StructType.fromJson({"type": "struct", "fields": spark_fields(type_, names)})
    for given, known in zip(schema.fields, own.fields, strict=True):
        if given.dataType.simpleString() != known.dataType.simpleString():
            raise UsageError(
                f"`{type_.name}.{known.name}` is `{known.dataType.simpleString()}` in Spark, and the given schema says"
                f" `{given.dataType.simpleString()}`; leave the schema away and cast afterwards",
                column=known.name,
            )
    layout: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return layout


def _view(graph: Graph, given: GivenOptions, pin: Pinned | None) -> View:
    if pin is None:
        return graph.core.view(given.branch, given.at, names=given.naming)
    today = graph.core.kernel.at_commit(pin.today)
    return graph.core.view(given.branch, pin.commit, names=given.naming, today=today)


def _columns(given: GivenOptions, type_: Type) -> list[str]:
    names = given.names("columns")
    if names is None:
        return column_names(type_)
    _refuse_unknown(type_, names)
    return names


def _refuse_unknown(type_: Type, names: list[str]) -> None:
    known = column_names(type_)
    for name in names:
        if name not in known:
            hint = suggestion(name, known) or f"it has {', '.join(known)}"
            raise UsageError(f"`{type_.name}` has no column `{name}`; {hint}", column=name)


def _checked_filter(view: View, type_: Type, given: GivenOptions) -> str | None:
    where = given.values.get("filter")
    if where is None:
        return None
    if not is_one_condition(where):
        raise UsageError(
            f"`{where}` is not one condition on `{type_.name}`: its brackets or quotes do not match, or it has a"
            " comment; write one condition in SQL",
            option="filter",
        )
    try:
        # Nothing satisfies this, so only the text is looked at. Lance reads a condition up to where it makes sense and
        # drops the rest; in brackets it has to make sense to the end.
        view.dataset(type_.table_key).count(f"({where}) AND false")
    except StorageError as error:
        raise UsageError(f"`{where}` is no condition on `{type_.name}`: {error.message}", option="filter") from error
    return f"({where})"


def is_one_condition(text: str) -> bool:
    """Tell whether a text in SQL stays within brackets that are put around it.

    >>> is_one_condition("name = ')' OR (age > 3)"), is_one_condition("age > 3) OR (true"), is_one_condition("a -- b")
    (True, False, False)
    """
    bare = _QUOTED.sub("", text)
    if any(sign in bare for sign in ("'", '"', "`", "--", "/*", ";")):
        return False
    depth = 0
    for sign in bare:
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            return False
    return depth == 0
