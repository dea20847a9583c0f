"""The rows of a group of mutations: what its members have changed so far, over the committed rows of one snapshot.

Each member asks its questions here, so that it sees what the ones before it in the group have done. What they wrote is
kept as images in their order, since the state after each of them can be read later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.entity_lookup import blob_properties
from omnigraph.engine.session import View
from omnigraph.engine.write.committed_rows import ColumnTest, CommittedRows
from omnigraph.engine.write.group_staging import MemberRows, TypeImages, stage_images
from omnigraph.engine.write.staging import Stager
from omnigraph.engine.write.statements import ForeseenId
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.lang.query.ir import CompareOp
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.limits import GROUP_BYTES_MAX, GROUP_ROWS_MAX
from omnigraph.manifest.group_commit import NotGroupable
from omnigraph.manifest.model import GroupChange, Snapshot, TypeIdentity
from omnigraph.manifest.plan import Effect
from omnigraph.rules.arrow_typing import Column, pc
from omnigraph.rules.delta import NO_IDS, Delta, Ids, Intent, is_among, one_array, without
from omnigraph.store.read.lookup import with_both_zeros


@dataclass
class _Images:
    """What members wrote to one type: all images in their order, which of them last, and all ids they touched."""

    type: Type
    rows: pa.Table
    is_live: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    touched: Ids = field(default_factory=lambda: NO_IDS)
    members: dict[int, MemberRows] = field(default_factory=dict)
    _live: pa.Table | None = None

    @property
    def live(self) -> pa.Table:
        """The images that last, one of each id."""
        if self._live is None:
            self._live = self.rows.filter(pa.array(self.is_live))
        return self._live

    def superseded_by(self, delta: Delta) -> NDArray[np.int64]:
        """Return the places of the images that a delta replaces or deletes."""
        return np.flatnonzero(self.is_live & is_among(one_array(self.rows.column("id")), delta.gone))

    def add(self, member: int, delta: Delta) -> None:
        superseded = self.superseded_by(delta)
        self.is_live[superseded] = False
        self.is_live = np.concatenate([self.is_live, np.ones(delta.rows.num_rows, np.bool_)])
        self.rows = pa.concat_tables([self.rows, delta.rows]).combine_chunks()
        first_touched = without(delta.gone, self.touched)
        self.touched = pa.concat_arrays([self.touched, first_touched])
        # Ids of a strict insert are new ones that were made for it.
        candidates = first_touched if delta.intent is Intent.UPSERT else NO_IDS
        self.members[member] = MemberRows(self.rows.num_rows, superseded, candidates)
        self._live = None

    def passing(self, where: Mapping[str, Column]) -> pa.Table:
        """Return the images that last and in which each column of `where` holds one of its values."""
        rows = self.live
        for name, values in where.items():
            rows = rows.filter(pc.is_in(rows.column(name), value_set=with_both_zeros(values)))
        return rows


@dataclass
class _Expected:
    """Ids of one type that members are going to look up, and what was found once one of them was asked for."""

    type: Type
    of_ids: list[str] = field(default_factory=list)
    of_rows: list[str] = field(default_factory=list)
    existing: Ids | None = None
    rows: pa.Table | None = None

    def covers(self, ids: Ids, *, of_rows: bool = False) -> bool:
        """Return True if several ids are expected, and these are among them."""
        expected = self.of_rows if of_rows else self.of_ids
        return len(expected) > 1 and len(ids) > 0 and bool(is_among(ids, pa.array(expected, pa.string())).all())


def _has_blobs(delta: Delta) -> bool:
    return any(delta.column(name).null_count < delta.rows.num_rows for name in blob_properties(delta.type))


class GroupRows(CommittedRows):
    """The committed rows as the next member of a group sees them: with what the members before it have changed."""

    def __init__(self, view: View, stager: Stager) -> None:
        super().__init__(view)
        self._stager = stager
        self._images: dict[TypeKey, _Images] = {}
        self._members = self._rows = self._bytes = 0
        self._expected: dict[TypeKey, _Expected] = {}

    @property
    def reads(self) -> frozenset[TypeKey]:
        return frozenset(self.types_read | self._images.keys())

    # -- the questions of statements and rules -----------------------------------------------------------------

    def existing(self, table_key: TypeKey, ids: Ids) -> Ids:
        images = self._images.get(table_key)
        if images is None:
            return self._existing(table_key, ids)
        mine = one_array(images.passing({"id": ids}).column("id"))
        return pa.concat_arrays([mine, self._existing(table_key, without(ids, images.touched))])

    def matching(self, table_key: TypeKey, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        images = self._images.get(table_key)
        if images is None:
            return super().matching(table_key, columns, where)
        names = list(dict.fromkeys(["id", *columns]))
        committed = self._untouched(images, super().matching(table_key, names, where))
        return pa.concat_tables([committed, images.passing(where).select(names)]).select(list(columns))

    def rows(self, type_: Type, test: ColumnTest) -> Iterator[pa.Table]:
        images = self._images.get(type_.table_key)
        for rows in super().rows(type_, test):
            yield rows if images is None else self._untouched(images, rows)
        if images is not None:
            yield images.live.filter(pa.array(test.mask(images.live)))

    def rows_where(self, type_: Type, where: Mapping[str, Column]) -> pa.Table:
        images = self._images.get(type_.table_key)
        if images is None:
            return self._rows_where(type_, where)
        committed = self._untouched(images, self._rows_where(type_, where))
        return pa.concat_tables([committed, images.passing(where)]).combine_chunks()

    def ids_passing(self, type_: Type, test: ColumnTest) -> Ids:
        if test.column == "id" and test.op is CompareOp.EQ:
            return self.existing(type_.table_key, one_array(pa.array([test.constant.as_py()], pa.string())))
        images = self._images.get(type_.table_key)
        if images is None:
            return super().ids_passing(type_, test)
        mine = one_array(images.live.filter(pa.array(test.mask(images.live))).column("id"))
        return pa.concat_arrays([mine, without(super().ids_passing(type_, test), images.touched)])

    # -- what members are going to look up ----------------------------------------------------------------------

    def expect(self, ids: Iterable[ForeseenId]) -> None:
        """Take note of ids that a member is going to look up; the first lookup fetches them for all members."""
        for foreseen in ids:
            expected = self._expected.setdefault(foreseen.type.table_key, _Expected(foreseen.type))
            (expected.of_rows if foreseen.has_row else expected.of_ids).append(foreseen.entity_id)

    def _existing(self, table_key: TypeKey, ids: Ids) -> Ids:
        expected = self._expected.get(table_key)
        if expected is None or not expected.covers(ids):
            return super().existing(table_key, ids)
        if expected.existing is None:
            expected.existing = super().existing(table_key, pa.array(expected.of_ids, pa.string()).unique())
        return expected.existing.filter(pa.array(is_among(expected.existing, ids)))

    def _rows_where(self, type_: Type, where: Mapping[str, Column]) -> pa.Table:
        expected = self._expected.get(type_.table_key)
        if expected is None or where.keys() != {"id"} or not expected.covers(where["id"], of_rows=True):
            return super().rows_where(type_, where)
        if expected.rows is None:
            expected.rows = super().rows_where(type_, {"id": pa.array(expected.of_rows, pa.string()).unique()})
        return expected.rows.filter(pa.array(is_among(one_array(expected.rows.column("id")), where["id"])))

    def _untouched(self, images: _Images, rows: pa.Table) -> pa.Table:
        return rows.filter(pa.array(~is_among(one_array(rows.column("id")), images.touched)))

    # -- the members -------------------------------------------------------------------------------------------

    def add(self, deltas: Mapping[TypeKey, Delta]) -> None:
        """Add the validated changes of the next member; `NotGroupable` if they do not fit in the group."""
        rows, size = self._size_with(deltas)
        for delta in deltas.values():
            self._check(delta)
        for delta in deltas.values():
            self._images_of(delta.type).add(self._members, delta)
        self._members, self._rows, self._bytes = self._members + 1, rows, size

    def _size_with(self, deltas: Mapping[TypeKey, Delta]) -> tuple[int, int]:
        rows = self._rows + sum(delta.rows.num_rows + len(delta.deleted) for delta in deltas.values())
        size = self._bytes + sum(delta.rows.nbytes + delta.deleted.nbytes for delta in deltas.values())
        if rows > GROUP_ROWS_MAX or size > GROUP_BYTES_MAX:
            raise NotGroupable
        return rows, size

    def _check(self, delta: Delta) -> None:
        if delta.intent is Intent.REPLACE or delta.kept or _has_blobs(delta):
            # The bytes of a blob stay where they were written, which is no place for an image that may not last.
            raise NotGroupable
        images = self._images.get(delta.key)
        if images is None or delta.rows.num_rows or not images.rows.num_rows:
            return
        if images.is_live.sum() == len(images.superseded_by(delta)):
            # The new version would not have a fragment of which no row lasts, and would not name the images for the
            # states in between.
            raise NotGroupable

    def _images_of(self, type_: Type) -> _Images:
        if type_.table_key not in self._images:
            self._images[type_.table_key] = _Images(type_, arrow_schema(type_).empty_table())
        return self._images[type_.table_key]

    def finish(self, snapshot: Snapshot) -> tuple[tuple[Effect, ...], list[dict[TypeIdentity, GroupChange]]]:
        """Stage what all members wrote; return the effects, and what each member did to which types."""
        effects: list[Effect] = []
        changes: list[dict[TypeIdentity, GroupChange]] = [{} for _ in range(self._members)]
        for key, images in sorted(self._images.items()):
            dataset = self.view.kernel.writable(snapshot, key)
            candidates = [member.candidates for member in images.members.values()]
            located = self.locate(key, pa.concat_arrays([NO_IDS, *candidates]))
            written = TypeImages(key, images.rows, ~images.is_live, located, images.members)
            effect = stage_images(dataset, written, self._stager)
            effects.append(effect)
            identity = snapshot.state.pins[key].identity
            for member, change in written.changes(dataset, effect).items():
                changes[member][identity] = change
        return tuple(effects), changes
