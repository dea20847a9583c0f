"""Read the ids and endpoints of types, and compare them in the memory of this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.session import View
from omnigraph.engine.tasks import report_progress
from omnigraph.errors import DataError, OmniGraphError
from omnigraph.lang.catalog import KINDS, NodeType, Type, TypeKey
from omnigraph.lang.schema.arrow_schema import key_ids


@dataclass(frozen=True, slots=True)
class TypeScan:
    """The result of reading the ids, endpoints and key of a type.

    `lost` counts dangling endpoints by column, `wrong_ids` ids that do not follow from the key.
    """

    rows: int
    has_unique_ids: bool
    lost: Mapping[str, int] = field(default_factory=dict)
    wrong_ids: int = 0


def scan_in_process(view: View, types: Sequence[Type]) -> Mapping[TypeKey, TypeScan | OmniGraphError]:
    """Read all ids of a view into memory and compare them, several types in parallel."""
    ids: dict[str, pa.ChunkedArray[pa.StringScalar]] = {}
    finished = count(1)
    turn = Lock()

    def scan_or_error(type_: Type) -> TypeScan | OmniGraphError:
        try:
            result: TypeScan | OmniGraphError = _scan_type(view, type_, ids)
        except OmniGraphError as error:
            result = error
        with turn:
            report_progress("types read", next(finished), len(types))
        return result

    results: dict[TypeKey, TypeScan | OmniGraphError] = {}
    # Endpoints are looked up among node ids, so nodes come first.
    for kind in KINDS:
        group = [type_ for type_ in types if type_.kind == kind]
        tasks = [partial(scan_or_error, type_) for type_ in group]
        results |= dict(zip((type_.table_key for type_ in group), view.kernel.store.in_parallel(tasks), strict=True))
    return results


def _scan_type(view: View, type_: Type, ids: dict[str, pa.ChunkedArray[pa.StringScalar]]) -> TypeScan:
    rows = view.dataset(type_.table_key).read(columns_to_verify(type_))
    row_ids = rows.column("id")
    if isinstance(type_, NodeType):
        ids[type_.name] = row_ids
    # A node type that could not be read is its own finding; nothing is known of the edges that lead to it.
    lost = {name: count_lost(rows.column(name), ids[end]) for name, end in type_.ends.items() if end in ids}
    return TypeScan(len(row_ids), count_repeated(row_ids) == 0, lost, len(find_wrong_ids(type_, rows)))


def columns_to_verify(type_: Type) -> list[str]:
    """Return the columns that show if the ids of a type are right: ids, endpoints and the key."""
    return list(dict.fromkeys(("id", *type_.ends, *type_.key)))


def find_wrong_ids(type_: Type, rows: pa.Table) -> pa.ChunkedArray[pa.StringScalar]:
    """Return the ids of rows that do not follow from the key; all of them if a key cannot be an id."""
    ids: pa.ChunkedArray[pa.StringScalar] = rows.column("id")
    if not type_.key or rows.num_rows == 0:
        return ids.slice(0, 0)
    try:
        is_wrong: Any = pc.not_equal(ids, pa.chunked_array([key_ids(type_, rows)]))
    except DataError:
        return ids
    return ids.filter(is_wrong.fill_null(True))


def count_repeated(ids: pa.ChunkedArray[pa.StringScalar]) -> int:
    """Return the number of missing or duplicate ids."""
    return len(ids) - int(pc.count_distinct(ids, mode="only_valid").as_py())


def count_lost(ends: pa.ChunkedArray[pa.StringScalar], ids: pa.ChunkedArray[pa.StringScalar]) -> int:
    """Return how many ends are not among some ids."""
    return len(ends) - int(pc.is_in(ends, value_set=ids).to_numpy().sum())
