"""What set rules ask of the rows that are there already.

The in-process engine answers from key caches, indexes and scans; a pipeline may answer with joins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from omnigraph.rules.delta import Ids
from omnigraph.rules.kernels import Column


class Committed(Protocol):
    """The committed rows of a graph, before the write that is being checked."""

    def existing(self, table_key: str, ids: Ids) -> Ids:
        """Return those of the ids that exist in a type."""
        ...

    def matching(self, table_key: str, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        """Return the columns of the rows in which each column of `where` holds one of its values; all rows if empty."""
        ...
