"""How benchmarks build the history that they measure on."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PEOPLE = "node Person { name: String @key  age: I32?  about: String? }"


def without_syncs() -> AbstractContextManager[object]:
    """Build history quickly: what is measured later is synced as usual."""
    return patch.dict(os.environ, OMNIGRAPH_DURABILITY="process")


def write_people(path: Path, rows: int) -> None:
    """Write a Parquet file of nodes of `PEOPLE`."""
    numbers = np.arange(rows)
    names = pa.array([f"p{number}" for number in numbers.tolist()])
    about = pa.array([f"words {number % 97} and {number % 1009} more" for number in numbers.tolist()])
    pq.write_table(pa.table({"name": names, "age": pa.array(numbers % 90, pa.int32()), "about": about}), path)
