"""The commit log: where commits go when they leave the window of `__manifest`.

Append-only; a commit found in both places is one commit.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from omnigraph.manifest import rows
from omnigraph.manifest.model import Commit
from omnigraph.store import log
from omnigraph.store.store import Store

LOG_PATH = "__commit_log"


def spill(store: Store, commits: Sequence[Commit]) -> None:
    """Write commits to the log, durably, before the publish that drops them from the window."""
    log.append(store, LOG_PATH, rows.as_table(map(rows.commit_row, commits)))


def read(store: Store) -> dict[str, Commit]:
    """Return every commit that has left a window, by id."""
    table = log.read(store, LOG_PATH)
    found: dict[str, Commit] = {}
    for row in table.to_pylist() if table is not None else ():
        row["json"] = orjson.loads(row["metadata"])
        found[row["object_id"]] = rows.decode_commit(row)
    return found
