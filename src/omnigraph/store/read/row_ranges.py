"""Parts of a pinned version for parallel readers: whole fragments, or ranges of the rows of a large one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from lance.fragment import LanceFragment

from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.lookup import ROW_ADDRESS


@dataclass(frozen=True, slots=True)
class RowRange:
    """What one task reads: all rows of some fragments, or those of a single one from `start` to before `stop`.

    Deleted rows are not counted.
    """

    fragment_ids: tuple[int, ...]
    start: int = 0
    stop: int | None = None


def split_rows(dataset: Dataset, rows_max: int) -> list[RowRange]:
    """Return parts of at most `rows_max` rows: small fragments together, each large one cut into equal ranges.

    Every row is in exactly one part, and parts are in the order of a scan.
    """
    parts: list[RowRange] = []
    run: list[int] = []
    run_rows = 0
    for fragment_id, rows in ((fragment.id, fragment.num_rows) for fragment in dataset.fragments):
        if run and run_rows + rows > rows_max:
            parts.append(RowRange(tuple(run)))
            run, run_rows = [], 0
        if rows <= rows_max:
            run.append(fragment_id)
            run_rows += rows
            continue
        count = -(-rows // rows_max)
        bounds = [rows * number // count for number in range(count + 1)]
        parts += [RowRange((fragment_id,), start, stop) for start, stop in pairwise(bounds)]
    return [*parts, RowRange(tuple(run))] if run else parts


def scan_range(
    dataset: Dataset, part: RowRange, columns: Sequence[str], where: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Stream columns of the rows of a part that satisfy a condition, with their row ids."""
    with dataset.reading():
        fragments = [dataset.fragment(fragment_id) for fragment_id in part.fragment_ids]
        offset = limit = None
        if part.stop is not None and where is None:
            offset, limit = part.start, part.stop - part.start
        elif part.stop is not None:
            # Lance applies limits after a filter, so a filtered range is a range of addresses.
            first, last = (_address_at(fragments[0], position) for position in (part.start, part.stop - 1))
            where = f"({where}) AND {ROW_ADDRESS} >= {first} AND {ROW_ADDRESS} <= {last}"
        scanner = dataset.lance.scanner(
            columns=list(columns), filter=where, fragments=fragments, with_row_id=True, offset=offset, limit=limit
        )
        yield from scanner.to_batches()


def _address_at(fragment: LanceFragment, position: int) -> int:
    row = fragment.scanner(columns=[], with_row_address=True, offset=position, limit=1).to_table()
    return int(row.column(ROW_ADDRESS)[0].as_py())
