"""The codes of refused migrations, with a one-line title each.

Pure data; `docs/schema.md` lists every one and a test says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

MIGRATION_CODES: Mapping[str, str] = MappingProxyType(
    {
        "OG-MF-100": "change that no migration supports",
        "OG-MF-103": "required property added to an existing type",
        "OG-MF-106": "type of a property changed",
    }
)
