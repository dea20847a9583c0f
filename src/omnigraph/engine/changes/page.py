"""Pages: the changes of one commit as text, from a place on, until a page is full.

Reads a window of entities at a time, so the memory of a page follows the page and not the commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute

from omnigraph.engine.changes.changeset import of_ops
from omnigraph.engine.changes.pair import Pair
from omnigraph.engine.changes.selection import Selection
from omnigraph.engine.changes.text import change_texts
from omnigraph.engine.changes.token import Place, place_of, rejected
from omnigraph.engine.core import Lru
from omnigraph.limits import CHANGE_CACHE_MAX, CHANGE_ID_BYTES_MAX, CHANGE_WINDOW_BLOB_ROWS, CHANGE_WINDOW_ROWS
from omnigraph.manifest.kernel import Kernel

# The stubs know fewer argument types than the kernels take.
pc: Any = pyarrow.compute

# Which entities of a large commit changed is found out once for all of its pages.
_found: WeakKeyDictionary[Kernel, Lru[object, pa.Table]] = WeakKeyDictionary()


@dataclass(slots=True)
class Room:
    """What a page may still hold; bytes are a target, so a change too large for any page travels alone."""

    changes: int
    bytes: int
    is_untouched: bool = True

    def take(self, texts: Any) -> int:
        """Return how many of the texts still fit, and count them as held."""
        sizes = np.cumsum(pc.binary_length(texts).to_numpy(zero_copy_only=False))
        fitting = min(self.changes, int(np.searchsorted(sizes, self.bytes, side="right")))
        if fitting == 0 and self.is_untouched:
            fitting = 1
        if fitting:
            self.changes -= fitting
            self.bytes -= int(sizes[fitting - 1])
            self.is_untouched = False
        # What comes after a change that did not fit must not overtake it.
        if fitting < len(texts):
            self.changes = 0
        return fitting


@dataclass(slots=True)
class Part:
    """A run of changes of one commit. Unless it is complete, `last` is the place of the last one; None is none."""

    texts: list[Any] = field(default_factory=list)
    last: Place | None = None
    is_complete: bool = True


def fill(kernel: Kernel, pairs: list[Pair], selection: Selection, after: Place | None, room: Room) -> Part:
    """Return the selected changes after a place, as far as there is room."""
    part = Part(last=after)
    for type_key, ids, texts in _windows(kernel, pairs, selection, after):
        fitting = room.take(texts) if room.changes else 0
        if fitting:
            part.texts.append(texts.slice(0, fitting))
            part.last = place_of(type_key, ids[fitting - 1].as_py())
        if fitting < len(texts):
            part.is_complete = False
            return part
    return part


def _windows(
    kernel: Kernel, pairs: list[Pair], selection: Selection, after: Place | None
) -> Iterator[tuple[str, Any, Any]]:
    """Yield type key, ids and texts of changes in the order of the feed; no window is empty."""
    keys = [_type_key(pair) for pair in pairs]
    if after is not None and after.type_key not in keys:
        raise rejected("its place is not in the commit")
    start = keys.index(after.type_key) if after is not None else 0
    for key, pair in zip(keys[start:], pairs[start:], strict=True):
        if pair.is_same_data or not selection.has_type(pair.known.pin.table_key):
            continue
        found = of_ops(_candidates(kernel, pair), selection)
        if after is not None and after.type_key == key:
            found = found.slice(_start(found.column("id").combine_chunks(), after))
        rows = CHANGE_WINDOW_BLOB_ROWS if pair.known.type_.has_blobs else CHANGE_WINDOW_ROWS
        for offset in range(0, found.num_rows, rows):
            ids, texts = change_texts(pair, pair.compare(found.slice(offset, rows)))
            if len(ids):
                yield key, ids, texts


def _type_key(pair: Pair) -> str:
    return f"{pair.kind}:{pair.identity}"


def _candidates(kernel: Kernel, pair: Pair) -> pa.Table:
    key = tuple(side.pin.ref if side else None for side in (pair.before, pair.after))
    return _found.setdefault(kernel, Lru(CHANGE_CACHE_MAX)).get(key, pair.candidates)


def _start(ids: Any, after: Place) -> int:
    """Return where the ids begin that come after a place."""
    if after.digest is None:
        return len(ids) - (pc.sum(pc.greater(ids, after.entity_id)).as_py() or 0)
    is_long = pc.greater(pc.binary_length(ids), CHANGE_ID_BYTES_MAX)
    alike = np.flatnonzero(pc.and_(is_long, pc.starts_with(ids, after.entity_id)).to_numpy(zero_copy_only=False))
    for position in alike.tolist():
        if sha256(ids[position].as_py().encode()).hexdigest() == after.digest:
            return int(position) + 1
    raise rejected("its place is not in the commit")
