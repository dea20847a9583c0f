"""The rows that live at one pinned version, by stable row id: what any index answers is checked against them."""

from __future__ import annotations

import weakref
from collections.abc import Collection
from threading import Lock
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.store.dataset import Dataset

RowIds: TypeAlias = NDArray[np.uint64]
Positions: TypeAlias = NDArray[Any]
Flags: TypeAlias = NDArray[np.bool_]

_ROW_ID: Final = "_rowid"
_lock: Final = Lock()


class LiveRows:
    """Row ids in the order of a scan; a position in it is what readers know a row by."""

    def __init__(self, dataset: Dataset) -> None:
        self.ids: RowIds = dataset.read([], with_row_id=True).column(_ROW_ID).to_numpy()
        fragments = dataset.fragments
        self._fragment_ids = [fragment.id for fragment in fragments]
        self._ends = np.cumsum([fragment.num_rows for fragment in fragments])
        assert len(self.ids) == (int(self._ends[-1]) if len(fragments) else 0), (
            "a scan returns the rows of all fragments"
        )
        is_sorted = len(self.ids) < 2 or bool(np.all(self.ids[1:] > self.ids[:-1]))
        self._order = None if is_sorted else np.argsort(self.ids, kind="stable")
        self._sorted = self.ids if self._order is None else self.ids[self._order]

    def positions(self, rows: RowIds) -> Positions:
        """Return where rows are, -1 for those that do not live at this version."""
        if len(self.ids) == 0:
            return np.full(len(rows), -1, np.intp)
        places = np.searchsorted(self._sorted, rows)
        places[places == len(self._sorted)] = 0
        is_live = self._sorted[places] == rows
        found: Positions = places if self._order is None else self._order[places]
        return np.where(is_live, found, -1)

    def chosen(self, rows: RowIds, flags: Flags) -> Flags:
        """Return which rows live and are at a flagged position."""
        places = self.positions(rows)
        found: Flags = places >= 0
        found[found] = flags[places[found]]
        return found

    def in_fragments(self, fragment_ids: Collection[int]) -> Flags:
        """Return which positions lie in some fragments."""
        flags = np.zeros(len(self.ids), np.bool_)
        start = 0
        for fragment_id, end in zip(self._fragment_ids, self._ends.tolist(), strict=True):
            flags[start:end] = fragment_id in fragment_ids
            start = end
        return flags

    def span(self, fragment_id: int) -> slice:
        """Return the positions of one fragment."""
        place = self._fragment_ids.index(fragment_id)
        return slice(int(self._ends[place - 1]) if place else 0, int(self._ends[place]))

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes if self._order is None else 3 * self.ids.nbytes


_known: Final[weakref.WeakKeyDictionary[Dataset, weakref.ref[LiveRows]]] = weakref.WeakKeyDictionary()


def live_rows(dataset: Dataset) -> LiveRows:
    """Return the live rows of a version, read once for as long as anybody holds them."""
    with _lock:
        held = _known.get(dataset)
        live = held() if held is not None else None
    if live is None:
        live = LiveRows(dataset)
        with _lock:
            _known[dataset] = weakref.ref(live)
    return live
