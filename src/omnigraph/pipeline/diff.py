"""Diff as a DataFrame: what differs between two states of a graph, each task comparing a share of one type.

The states are found in the driver, as `Graph.diff` finds them; entities are looked at in tasks alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from omnigraph.engine.changes.cursor import Selection
from omnigraph.engine.changes.row_diff import candidates
from omnigraph.engine.changes.state_diff import CHANGE_SCHEMA, Pair, changes_of, compared, of_ops, selected
from omnigraph.engine.past_names import NOW, Naming
from omnigraph.engine.session import AsOf
from omnigraph.graph import Graph
from omnigraph.ids import new_ulid
from omnigraph.limits import STREAM_TASK_ROWS, STREAM_WINDOW_ROWS
from omnigraph.manifest.model import MAIN
from omnigraph.pipeline.bulk_load.job import Place, place_of
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.read.version_diff import moved_estimate

_LAYOUT: Final = (
    "kind string, type_name string, id string, op string, published_dataset_version long, `from` string, `to` string"
)


@dataclass(frozen=True, slots=True)
class Share:
    """One of several shares of what may differ in a type; a version is None where the type does not exist."""

    place: Place
    table_key: str
    version: int
    before: DatasetRef | None
    after: DatasetRef | None
    selection: Selection
    number: int
    shares: int


def diff(
    graph: Graph,
    a: AsOf,
    b: AsOf,
    *,
    kinds: Sequence[str] | None = None,
    types: Sequence[str] | None = None,
    ops: Sequence[str] | None = None,
    branch: str = MAIN,
    names: Naming = NOW,
    spark: Any = None,
) -> Any:
    """Return the changes of `Graph.diff` as a DataFrame of Spark, in no order; read when its rows are asked for."""
    from omnigraph.pipeline.spark.session import session

    before, after, selection = compared(graph.session, a, b, kinds, types, ops, branch, names)
    kernel = graph.session.kernel
    for view in (before, after):
        # Tasks open versions by path alone, so what was just published must be in its place.
        kernel.finish_links(view.snapshot)
    place = place_of(graph.uri, new_ulid())
    shares = [one for pair in selected(before, after, selection) for one in _shares(place, pair, selection)]
    running = spark if spark is not None else session()
    numbers = running.range(0, len(shares), 1, max(1, len(shares)))

    def run(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_share(shares[number])

    return numbers.mapInArrow(run, _LAYOUT)


def _shares(place: Place, pair: Pair, selection: Selection) -> list[Share]:
    if pair.before is not None and pair.after is not None:
        size = moved_estimate(pair.before.dataset, pair.after.dataset)
    else:
        size = pair.known.pin.row_count
    count = max(1, -(-size // STREAM_TASK_ROWS))
    before, after = (side.pin.ref if side else None for side in (pair.before, pair.after))
    pin = pair.known.pin
    return [Share(place, pin.table_key, pin.version, before, after, selection, one, count) for one in range(count)]


def read_share(share: Share) -> Iterator[pa.RecordBatch]:
    """Yield what differs in a share, a window of entities at a time."""
    before, after = (None if ref is None else share.place.open(ref) for ref in (share.before, share.after))
    found = of_ops(candidates(before, after), share.selection)
    first, last = (found.num_rows * one // share.shares for one in (share.number, share.number + 1))
    for offset in range(first, last, STREAM_WINDOW_ROWS):
        window = found.slice(offset, min(STREAM_WINDOW_ROWS, last - offset))
        changes = changes_of(share.table_key, share.version, before, after, window)
        yield from changes.cast(CHANGE_SCHEMA).combine_chunks().to_batches()
