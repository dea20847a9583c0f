"""Conflicts as users see them: what clashes, where, and how the entity stands on either side.

Pure. Images are JSON objects with the columns of the entity, values spelled as an export spells them.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
import pyarrow as pa

from omnigraph.engine.changes.blob_values import BlobValues
from omnigraph.engine.jsontext import json_text
from omnigraph.engine.merge.rows import Clash, Kind
from omnigraph.errors import MergeConflict
from omnigraph.limits import MERGE_CONFLICTS_SHOWN
from omnigraph.rules.delta import one_array
from omnigraph.rules.violation import Violation

Image = dict[str, object]

_KINDS: Final = {
    "E5": Kind.UNIQUE_VIOLATION,
    "E6": Kind.UNIQUE_VIOLATION,
    "E9": Kind.ORPHAN_EDGE,
    "E10": Kind.CARDINALITY_VIOLATION,
}


@dataclass(frozen=True, slots=True)
class Conflict:
    """One thing that a merge cannot settle. An image is None where the entity is absent, or is no part of it."""

    type_key: str
    entity_id: str | None
    kind: Kind
    message: str
    properties: tuple[str, ...] = ()
    base: Image | None = None
    ours: Image | None = None
    theirs: Image | None = None

    def to_json(self) -> dict[str, object]:
        return {
            "type_key": self.type_key,
            "entity_id": self.entity_id,
            "kind": self.kind.value,
            "message": self.message,
            "properties": list(self.properties),
            "base": self.base,
            "ours": self.ours,
            "theirs": self.theirs,
        }


def conflict_of(type_key: str, clash: Clash, blobs: BlobValues) -> Conflict:
    """Return a clash as a conflict; `blobs` knows the bytes of blobs in its rows."""
    name = f"`{clash.entity_id}` of `{type_key.partition(':')[2]}`"
    if clash.kind is Kind.DELETE_VS_UPDATE:
        did, other = ("we deleted", "they changed") if clash.ours is None else ("they deleted", "we changed")
        message = f"{name}: {did} what {other}"
    else:
        did = "inserted" if clash.kind is Kind.DIVERGENT_INSERT else "changed"
        message = f"{name}: both sides {did} it, with different {', '.join(f'`{one}`' for one in clash.columns)}"
    images = [image_of(blobs.with_bytes(one)) for one in (clash.base, clash.ours, clash.theirs)]
    return Conflict(type_key, clash.entity_id, clash.kind, message, clash.columns, *images)


def conflict_from(violation: Violation, *images: Image | None) -> Conflict:
    """Return what is wrong with the merged graph as a conflict."""
    kind = _KINDS.get(violation.rule, Kind.VALUE_CONSTRAINT_VIOLATION)
    named = tuple(violation.property.split(", ")) if violation.property else ()
    key = violation.type_key or ""
    return Conflict(key, violation.entity_id, kind, violation.message, named, *images)


def image_of(row: pa.Table | None) -> Image | None:
    """Return a table of one row as a JSON object; None for no row."""
    if row is None:
        return None
    return {name: _value(one_array(row.column(name))) for name in row.column_names}


def _value(values: Any) -> object:
    if pa.types.is_large_binary(values.type):
        payload = values[0].as_py()
        return None if payload is None else f"base64:{b64encode(payload).decode()}"
    return orjson.loads(json_text(values)[0].as_py())


def refusal(conflicts: Sequence[Conflict], what: str, *, is_cut: bool = False) -> MergeConflict:
    """Return the error of a merge that has conflicts: a few in the message, all that are known in its context."""
    shown = "; ".join(one.message for one in conflicts[:MERGE_CONFLICTS_SHOWN])
    more = len(conflicts) - MERGE_CONFLICTS_SHOWN
    count = f"{'at least ' if is_cut else ''}{len(conflicts)} conflict{'s' if len(conflicts) > 1 else ''}"
    return MergeConflict(
        f"{what} has {count}, and nothing was changed: {shown}"
        f"{f'; and {more} more' if more > 0 else ''}. Settle them with resolutions, or change one of the sides",
        conflicts=[one.to_json() for one in conflicts],
    )
