"""Stage what a group of mutations wrote to one type: one fragment with all images, and one version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.write.staging import Stager, begin, physical
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import TAIL_FRAGMENTS_MAX
from omnigraph.manifest.model import GroupChange
from omnigraph.manifest.plan import Effect
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.delta import Ids, one_array
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.lookup import PLACE, ROW_ADDRESS, ROW_ID
from omnigraph.store.write.compaction import fold_tail
from omnigraph.store.write.upsert import delete_found, replace_with_images


@dataclass(frozen=True, slots=True)
class MemberRows:
    """What one member did to a type: how many images there are after it, which ones it superseded, and the ids that it
    was the first to touch, of which some may be committed."""

    rows: int
    superseded: NDArray[np.int64]
    candidates: Ids


@dataclass(frozen=True, slots=True)
class TypeImages:
    """All images of one type, which of them do not last, and the committed rows that members replaced or deleted."""

    key: TypeKey
    rows: pa.Table
    is_superseded: NDArray[np.bool_]
    located: pa.Table
    members: Mapping[int, MemberRows]

    def changes(self, dataset: Dataset, effect: Effect) -> dict[int, GroupChange]:
        """Return what each member did to the type, given the version that it was staged on."""
        ids, addresses = one_array(self.located.column("id")), self.located.column(ROW_ADDRESS).to_numpy()
        count, written = dataset.count(), 0
        changes: dict[int, GroupChange] = {}
        for member, rows in self.members.items():
            gone = addresses[pc.index_in(rows.candidates, value_set=ids).drop_null().to_numpy()]
            count += rows.rows - written - len(rows.superseded) - len(gone)
            written = rows.rows
            changes[member] = GroupChange(
                dataset.ref.branch,
                dataset.version,
                effect.version,
                rows.rows,
                tuple(gone.tolist()),
                tuple(rows.superseded.tolist()),
                count,
            )
        return changes


def stage_images(dataset: Dataset, images: TypeImages, stager: Stager) -> Effect:
    """Stage the images of all members as one change."""
    superseded, replaced = np.flatnonzero(images.is_superseded), images.located
    is_append = images.rows.num_rows > 0 and not len(superseded) and not replaced.num_rows
    fold = fold_tail(dataset, TAIL_FRAGMENTS_MAX, moves_blobs=is_append)
    if is_append:
        change = stager.append(images.key, dataset, images.rows)
        return Effect(images.key, dataset, (change,) if fold is None else (fold, change.following(fold)))
    begun = begin(dataset, fold)
    base = dataset if begun is None else begun.dataset
    if begun is not None and replaced.num_rows:
        # Folding has moved some of the rows; their row ids are what stays.
        replaced = base.take(replaced.column(ROW_ID).to_numpy().tolist(), PLACE)
    if images.rows.num_rows:
        change = replace_with_images(base, physical(images.rows, base), superseded, replaced)
    else:
        deletion = delete_found(base, replaced)
        assert deletion is not None, "a group that writes no rows of a type has deleted some"
        change = deletion
    return Effect(images.key, dataset, (change,), begun)
