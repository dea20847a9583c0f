"""When the rows of a fragment were last written, as its metadata tells.

Lance keeps it as runs of rows of one version; a rewrite carries the versions of its rows along.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from omnigraph.store.dataset import Dataset, lance_errors
from omnigraph.store.protobuf import read_message

_RUN: Final = 1
_RUN_VERSION: Final = 2
_COLUMN: Final = "_row_last_updated_at_version"


def newest_row_version(dataset: Dataset, fragment: Any) -> int:
    """Return the newest version at which any row of a fragment was written, deleted rows included."""
    inline = (fragment.metadata.to_json().get("last_updated_at_version_meta") or {}).get("inline")
    if inline is not None:
        return max(_run_versions(bytes(inline)), default=0)
    with lance_errors(f"reading {dataset.ref}", dataset):
        found = fragment.scanner(columns=[_COLUMN]).to_table().column(_COLUMN)
    return max((int(one or 0) for one in found.unique().to_pylist()), default=0)


def _run_versions(message: bytes) -> Iterator[int]:
    """Return the versions of the runs of a row version sequence.

    >>> list(_run_versions(bytes([10, 8, 10, 4, 10, 2, 16, 20, 16, 3])))
    [3]
    """
    for tag, run in read_message(message):
        assert tag == _RUN, "a row version sequence consists of runs"
        assert isinstance(run, bytes)
        # Protobuf leaves out a zero.
        yield next((value for key, value in read_message(run) if key == _RUN_VERSION and isinstance(value, int)), 0)
