"""A sample of the distinct values of a column: the smallest hashes, with how often each occurs.

Samples of different columns keep the same hashes, so they can be compared; a sample that keeps all hashes is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from omnigraph.limits import INFER_SKETCH_VALUES
from omnigraph.pipeline.key_buckets.hashes import Hashes
from omnigraph.rules.arrow_typing import Numbers

_HASHES: Final = 2**64


@dataclass(frozen=True, slots=True)
class Sketch:
    """Distinct hashes below `bound`, sorted, and the number of occurrences of each."""

    hashes: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    counts: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    bound: int = _HASHES

    @classmethod
    def of(cls, hashes: Hashes) -> Sketch:
        """Return the sketch of the values with these hashes.

        >>> Sketch.of(np.array([7, 3, 7], np.uint64)).distinct
        2
        """
        distinct, counts = np.unique(hashes, return_counts=True)
        return _cut(distinct, counts, _HASHES)

    def merge(self, other: Sketch) -> Sketch:
        """Return the sketch of the values of both."""
        distinct, positions = np.unique(np.concatenate([self.hashes, other.hashes]), return_inverse=True)
        counts = np.zeros(len(distinct), np.int64)
        np.add.at(counts, positions, np.concatenate([self.counts, other.counts]))
        return _cut(distinct, counts, min(self.bound, other.bound))

    @property
    def is_exact(self) -> bool:
        return self.bound == _HASHES

    @property
    def distinct(self) -> int:
        """The number of distinct values, estimated if the sketch is not exact."""
        return len(self.hashes) if self.is_exact else round(len(self.hashes) * (_HASHES / self.bound))

    @property
    def has_duplicates(self) -> bool:
        return bool((self.counts > 1).any())

    def is_within(self, other: Sketch) -> bool:
        """Return True if all values that both samples could hold, and at least one, are in the other.

        >>> few, many = (Sketch.of(np.arange(n, dtype=np.uint64)) for n in (3, 5))
        >>> few.is_within(many), many.is_within(few), Sketch().is_within(many)
        (True, False, False)
        """
        bound = min(self.bound, other.bound)
        comparable = self.hashes if bound == _HASHES else self.hashes[self.hashes < np.uint64(bound)]
        return len(comparable) > 0 and bool(np.isin(comparable, other.hashes, assume_unique=True).all())


def _cut(distinct: Hashes, counts: Numbers, bound: int) -> Sketch:
    """Keep hashes below the bound, and at most as many as a sketch holds."""
    if bound < _HASHES:
        keep = distinct < np.uint64(bound)
        distinct, counts = distinct[keep], counts[keep]
    if len(distinct) > INFER_SKETCH_VALUES:
        bound = int(distinct[INFER_SKETCH_VALUES])
        distinct, counts = distinct[:INFER_SKETCH_VALUES], counts[:INFER_SKETCH_VALUES]
    return Sketch(distinct, counts, bound)
