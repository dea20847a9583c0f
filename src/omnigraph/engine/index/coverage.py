"""What there is to say about how far the indexes of a dataset know its entities.

Reads metadata alone. No finding changes a result: what an index does not really know is scanned.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.store.dataset import Dataset
from omnigraph.store.index import coverage


def describe_coverage(dataset: Dataset) -> Iterator[str]:
    """Tell of indexes that another analyser built, that claim entities which are newer, or that lag behind."""
    found = coverage(dataset)
    outdated = sorted(name for name, one in found.items() if one.is_outdated)
    if outdated:
        yield (
            f"text indexes were built by another analyser: {', '.join(outdated)}; texts are analysed in memory until"
            " `omnigraph optimize` has built the indexes again"
        )
    false = sorted(name for name, one in found.items() if one.false)
    if false:
        yield (
            f"indexes claim entities that they were not built on: {', '.join(false)}; these are scanned until"
            " `omnigraph optimize` has built the indexes again"
        )
    uncovered = sorted(name for name, one in found.items() if one.uncovered - one.false and not one.is_outdated)
    if uncovered:
        yield f"indexes do not cover the newest entities: {', '.join(uncovered)}; run `omnigraph optimize`"
