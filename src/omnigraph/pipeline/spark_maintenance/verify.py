"""Verify on executors: ids and ends of edges meet in buckets, so that no process has to hold all of them.

Reports by `engine.maintain.verify`; changes nothing and writes nothing.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.maintain.verify import TypeScan, VerifyReport, count_lost, count_repeated, scan_in_process
from omnigraph.engine.maintain.verify import verify as run_verify
from omnigraph.engine.session import View
from omnigraph.engine.write.ndjson.blocks import Type
from omnigraph.errors import OmniGraphError, PipelineError, PipelineUnavailable
from omnigraph.graph import Graph
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import EdgeType
from omnigraph.limits import LOAD_SPLIT_BYTES, MAINTAIN_LOCAL_ROWS_MAX, MAINTAIN_TASK_ROWS
from omnigraph.pipeline.bulk_load.job import Place, place_of
from omnigraph.pipeline.bulk_load.key_hashes import hash_column
from omnigraph.pipeline.spark.executors import Engine, check_engine
from omnigraph.rules.arrow_typing import Column, pc
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.write.fragments import fragment_runs, scan_fragments

# A text, the type among whose ids it is or ought to be, and the column it was read from; `FAILED` marks a message.
_KEYS: Final = "bucket int, owner int, asker int, column int, text string"
_COUNTS: Final = "owner int, asker int, column int, rows long, wrong long, text string"
_COLUMNS: Final = ("id", "src", "dst")
_FAILED: Final = -1


@dataclass(frozen=True, slots=True)
class _Piece:
    """What one task reads: fragments of a type; `owners` says among whose ids each of its columns belongs."""

    type_place: int
    ref: DatasetRef
    fragment_ids: tuple[int, ...]
    owners: tuple[int, ...]


def verify(graph: Graph, *, engine: Engine = "auto", master: str | None = None, data: bool = False) -> VerifyReport:
    """Do what `Graph.verify` does, with the same report; on Spark, no process holds the ids of a whole type.

    By default, only branches with many entities are read on Spark, and only where Spark is installed.
    """
    check_engine(engine)
    graph_session = graph.session
    if engine == "local":
        return run_verify(graph_session, graph_session.actor, data=data)
    is_asked_for = engine == "spark" or master is not None

    def scan(view: View, types: Sequence[Type]) -> Mapping[str, TypeScan | OmniGraphError]:
        from omnigraph.pipeline.spark.session import session

        rows = sum(view.snapshot.state.pins[one.table_key].row_count for one in types)
        if not is_asked_for and rows <= MAINTAIN_LOCAL_ROWS_MAX:
            return scan_in_process(view, types)
        try:
            spark = session(master)
        except PipelineUnavailable:
            if is_asked_for:
                raise
            return scan_in_process(view, types)
        return look_elsewhere(spark, view, types)

    return run_verify(graph_session, graph_session.actor, scan, data=data)


def look_elsewhere(spark: Any, view: View, types: Sequence[Type]) -> Mapping[str, TypeScan | OmniGraphError]:
    """Read all ids of a view on executors and compare them, bucket by bucket."""
    from omnigraph.pipeline.spark.session import watched

    # Tasks open versions by path alone, so what was just published must be in its place.
    view.kernel.finish_links(view.snapshot)
    failed: dict[int, OmniGraphError] = {}
    pieces: list[_Piece] = []
    rows: dict[int, int] = {}
    for place, one in enumerate(types):
        try:
            rows[place] = view.dataset(one.table_key).count()
            pieces += _pieces(view, types, place)
        except OmniGraphError as error:
            failed[place] = error
    columns = sum(count * (3 if isinstance(types[place], EdgeType) else 1) for place, count in rows.items())
    buckets = max(1, math.ceil(columns / MAINTAIN_TASK_ROWS))
    read = _reader(place_of(view.kernel.store.root.uri, new_ulid()), pieces, buckets)

    def job() -> list[Any]:
        keys = spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(read, _KEYS)
        return list(keys.groupBy("bucket", "owner").applyInArrow(compare, _COUNTS).collect())

    counted = watched(spark, "verifying", job, lambda _: None) if pieces else []
    failed |= {row["asker"]: PipelineError(row["text"]) for row in counted if row["column"] == _FAILED}
    return {
        one.table_key: failed[place] if place in failed else _gathered(types, place, rows, counted, failed)
        for place, one in enumerate(types)
    }


def _pieces(view: View, types: Sequence[Type], place: int) -> list[_Piece]:
    one = types[place]
    nodes = {other.name: number for number, other in enumerate(types) if not isinstance(other, EdgeType)}
    ends = (nodes[one.source], nodes[one.target]) if isinstance(one, EdgeType) else ()
    dataset = view.dataset(one.table_key)
    runs = fragment_runs(dataset, LOAD_SPLIT_BYTES)
    return [_Piece(place, dataset.ref, tuple(run), (place, *ends)) for run in runs]


def _reader(place: Place, pieces: Sequence[_Piece], buckets: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    packed = [pickle.dumps(piece) for piece in pieces]
    seed = place.operation_id

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        # Spark throws a worker away that has not read its input to the end, and with it all that was imported.
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from keys_of(place, pickle.loads(packed[number]), buckets, seed)

    return read


def keys_of(place: Place, piece: _Piece, buckets: int, seed: str) -> Iterator[pa.RecordBatch]:
    """Yield the ids and ends of some fragments, each with the bucket in which it meets its like."""
    try:
        dataset = place.open(piece.ref)
        for batch in scan_fragments(dataset, piece.fragment_ids, _COLUMNS[: len(piece.owners)]):
            for column, owner in enumerate(piece.owners):
                texts: Column = batch.column(_COLUMNS[column])
                bucket = (hash_column(texts, seed) % np.uint64(buckets)).astype(np.int32)
                yield _keys(bucket, owner, piece.type_place, column, texts)
    except OmniGraphError as error:
        # Not raised: the other types can still be looked at.
        yield _keys(np.zeros(1, np.int32), piece.type_place, piece.type_place, _FAILED, pa.array([error.message]))


def _keys(bucket: Any, owner: int, asker: int, column: int, texts: Column) -> pa.RecordBatch:
    fixed = {name: np.full(len(texts), value, np.int32) for name, value in (("owner", owner), ("asker", asker))}
    members = {"bucket": bucket, **fixed, "column": np.full(len(texts), column, np.int32), "text": texts}
    return pa.RecordBatch.from_pydict(members)


def compare(keys: pa.Table) -> pa.Table:
    """Count, in one bucket of the ids of a type, those that come twice, and the ends that are not among them."""
    own = keys.filter(pc.equal(keys["column"], 0))["text"]
    found: list[tuple[int, int, int, int, int, str | None]] = []
    owner = keys["owner"][0].as_py()
    for group in keys.group_by(["asker", "column"]).aggregate([]).to_pylist():
        asker, column = group["asker"], group["column"]
        texts = keys.filter(pc.and_(pc.equal(keys["asker"], asker), pc.equal(keys["column"], column)))["text"]
        if column == _FAILED:
            found.append((owner, asker, column, 0, 0, texts[0].as_py()))
        else:
            wrong = count_repeated(texts) if column == 0 else count_lost(texts, own)
            found.append((owner, asker, column, len(texts), wrong, None))
    names = ("owner", "asker", "column", "rows", "wrong", "text")
    types = (pa.int32(), pa.int32(), pa.int32(), pa.int64(), pa.int64(), pa.string())
    values = zip(*found, strict=True)
    return pa.table({name: pa.array(one, type_) for name, type_, one in zip(names, types, values, strict=True)})


def _gathered(
    types: Sequence[Type],
    place: int,
    rows: Mapping[int, int],
    counted: Sequence[Any],
    failed: Mapping[int, OmniGraphError],
) -> TypeScan:
    seen, wrong = [0, 0, 0], [0, 0, 0]
    for row in counted:
        if row["asker"] == place:
            seen[row["column"]] += row["rows"]
            wrong[row["column"]] += row["wrong"]
    one = types[place]
    ends = {"src": one.source, "dst": one.target} if isinstance(one, EdgeType) else {}
    # A driver that runs out of memory gives back fewer rows and no error.
    if any(number != rows[place] for number in seen[: 1 + len(ends)]):
        raise PipelineError(
            f"Spark gave back {seen[0]} of {rows[place]} ids of `{one.name}`, so nothing is known about it; give the"
            " driver more memory and run it again"
        )
    unread = {types[number].name for number in failed if not isinstance(types[number], EdgeType)}
    lost = {column: rows[place] if end in unread else wrong[_COLUMNS.index(column)] for column, end in ends.items()}
    return TypeScan(rows[place], wrong[0] == 0, lost)
