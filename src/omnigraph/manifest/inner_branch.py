"""The start of a branch at a commit that was published together with later ones.

No version of the catalog holds its state, so the new branch gets one of its own: each type that later commits of the
group have changed is forked at the version before the group, and what its earlier commits did is done there once more.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from omnigraph import clock
from omnigraph.ids import BranchId
from omnigraph.manifest.forks import fork_names
from omnigraph.manifest.heads import ObservedHead
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import Pin, Snapshot
from omnigraph.manifest.plan import Effect, Plan
from omnigraph.manifest.publish import publish
from omnigraph.store.blobs.cells import blob_columns
from omnigraph.store.read.dataset import WHOLE, Dataset
from omnigraph.store.read.lookup import ROW_ADDRESS
from omnigraph.store.read.partial_version import unpack
from omnigraph.store.write.transaction import Change, append
from omnigraph.store.write.upsert import delete_found, replace_with_images


def publish_start(kernel: Kernel, source: Snapshot, branch_id: BranchId, name: str, actor: str | None) -> None:
    """Publish the state of `source` on a branch whose catalog was just forked from it, and that has no name yet."""
    parts = {key: pin for key, pin in source.state.pins.items() if pin.part != WHOLE}
    before = {key: _before(pin) for key, pin in parts.items()}
    state = replace(source.state, branch_id=branch_id, pins={**source.state.pins, **before})
    base = replace(source, branch=name, state=state, slot=None)
    effects = []
    for key, pin in parts.items():
        forked = _fork(kernel, source, before[key], branch_id)
        effects.append(Effect(key, forked, (_repeat(kernel.dataset(source, key), pin, forked),)))
    links = kernel.links.unfinished(source)
    receipt = publish(kernel.store, ObservedHead(base, clock.elapsed()), Plan(None, tuple(effects), actor=actor), links)
    kernel.links.link_published(receipt)


def _before(pin: Pin) -> Pin:
    """Return the pin of the version before the group."""
    return replace(pin, version=pin.part.base, part=WHOLE, checksum=None)


def _fork(kernel: Kernel, source: Snapshot, pin: Pin, branch_id: BranchId) -> Dataset:
    dataset = kernel.links.open_pin(source, pin)
    kernel.links.finish_pin(source, pin)
    return kernel.store.fork(dataset, *fork_names(branch_id, pin))


def _repeat(state: Dataset, pin: Pin, forked: Dataset) -> Change:
    """Stage what the commits of the group did to a type up to a state."""
    addresses = unpack(pin.part.gone)
    gone = pa.table({ROW_ADDRESS: pa.array(addresses, pa.uint64())})
    rows = _written(state, forked)
    if not rows.num_rows:
        change = delete_found(forked, gone)
        assert change is not None, "a state that differs from the version before has rows or lost some"
        return change
    if not gone.num_rows:
        return append(forked, rows)
    return replace_with_images(forked, rows, np.zeros(0, np.int64), gone)


def _written(state: Dataset, forked: Dataset) -> pa.Table:
    """Return the rows that the group wrote and that last: those in no fragment of the version before."""
    before = {fragment.id for fragment in forked.fragments}
    written = [fragment.id for fragment in state.fragments if fragment.id not in before]
    if not written:
        return forked.schema.empty_table()
    blobs = blob_columns(state)
    with state.reading():
        rows = state.scanner([name for name in state.schema.names if name not in blobs], written).to_table()
    # A write of blobs is in no group, so the rows of one have none.
    columns = [
        pa.nulls(rows.num_rows, field.type) if field.name in blobs else rows.column(field.name)
        for field in forked.schema
    ]
    return pa.Table.from_arrays(columns, schema=forked.schema)
