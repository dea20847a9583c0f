"""How an input is read: with which types, and within which bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.engine.external_blobs import BlobReader
from omnigraph.engine.input.ndjson.blocks import Loaded
from omnigraph.lang.catalog import Catalog, TypeKey


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of each type one small write may hold: entities, and bytes of Arrow."""

    entities_max: int
    bytes_max: int

    def are_exceeded(self, loaded: Mapping[TypeKey, Loaded]) -> bool:
        """Return True if more was read than that."""
        return any(rows.size > self.bytes_max or rows.count > self.entities_max for rows in loaded.values())


@dataclass(frozen=True, slots=True)
class Reading:
    """How an input is read.

    Attributes:
        catalog: The types that it may hold.
        now_ms: What the default `now()` means, in milliseconds since 1970: the same in all splits of a load.
        blobs: Reads external blobs; None if none are allowed.
        bounds: Those of a small write, with which lines are shorter as well; None for a load.
        is_compatible: Whether lines are of the compatible dialect.
    """

    catalog: Catalog
    now_ms: int
    blobs: BlobReader | None = None
    bounds: Bounds | None = None
    is_compatible: bool = False
