"""Which versions of which datasets a listing of storage shows; no request of its own.

Only looks; what may go is decided above.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from omnigraph.store.dataset import MAX_VERSION
from omnigraph.store.objects import ObjectInfo

# A dataset or one of its forks.
Place = tuple[str, str | None]

_MANIFEST: Final = re.compile(r"(?P<path>.+?)(?:/tree/(?P<fork>[^/]+))?/_versions/(?P<number>\d{20})\.manifest")


def versions_of(objects: Iterable[ObjectInfo]) -> dict[Place, dict[int, int]]:
    """Return when each listed version was written, by dataset or fork and by number; staged ones do not count.

    >>> versions_of([ObjectInfo("nodes/a/tree/B/_versions/18446744073709551613.manifest", 1, 5)])
    {('nodes/a', 'B'): {2: 5}}
    """
    versions: dict[Place, dict[int, int]] = {}
    for info in objects:
        match = _MANIFEST.fullmatch(info.path)
        if match is not None:
            place = (match["path"], match["fork"])
            versions.setdefault(place, {})[MAX_VERSION - int(match["number"])] = info.modified_us
    return versions
