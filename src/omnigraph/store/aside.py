"""Asides: a version beside all others, for whoever has to build on a change before it can be published.

Writers cannot move it and readers cannot see it; it goes when the work on it is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lance import LanceDataset, Transaction

from omnigraph import failpoints
from omnigraph.failpoints import Point
from omnigraph.store.change import Change
from omnigraph.store.dataset import Dataset, lance_errors


@contextmanager
def aside(dataset: Dataset, change: Change) -> Iterator[Dataset]:
    """Hold a version that has a change of a published one, whatever becomes of the dataset meanwhile."""
    store, directory = dataset.store, dataset.ref.directory
    transaction = Transaction(dataset.version, change.transaction.operation)
    failpoints.hit(Point.DURABLE_BEFORE, f"aside {dataset.ref}")
    with lance_errors(f"committing aside of {dataset.ref}"):
        lance = LanceDataset.commit(
            dataset.lance, transaction, detached=True, storage_options=store.lance_options or None
        )
    store.meter.count("commit", str(dataset.ref))
    try:
        failpoints.hit(Point.DURABLE_AFTER, f"aside {dataset.ref}")
        yield Dataset(store, dataset.ref.at(lance.version), lance)
    finally:
        store.objects.discard(f"{directory}/_versions/d{lance.version}.manifest")
        store.objects.discard(f"{directory}/_transactions/{dataset.version}-{transaction.uuid}.txn")


def aside_claim(dataset: Dataset) -> str:
    """Return the beginning of the paths of all versions aside."""
    return f"{dataset.ref.directory}/_versions/d"
