"""The committed rows of one snapshot, as set rules and statements ask for them.

Reads only what a question names: ids from the key cache, columns through typed Lance filters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from omnigraph.engine.core import View
from omnigraph.engine.write.keycache import key_cache
from omnigraph.engine.write.predicate import is_filterable
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.lang.schema.arrow import arrow_schema
from omnigraph.rules.delta import NO_IDS, Ids, is_among, without
from omnigraph.rules.kernels import Column, pc
from omnigraph.store.dataset import Dataset, lance_errors

# Above this many values one pass over the column costs less than a filter that lists them.
FILTER_VALUES_MAX: Final = 4_096


class CommittedRows:
    """The rows of a view. What was read once for a write is not read again for the same write."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._seen: dict[str, list[Ids]] = {}
        self._answers: dict[tuple[str, ...], tuple[Mapping[str, Column], pa.Table]] = {}

    def existing(self, table_key: str, ids: Ids) -> Ids:
        """Return those of the ids that exist in a type."""
        seen = pa.concat_arrays([NO_IDS, *self._seen.get(table_key, ())])
        known = ids.filter(pa.array(is_among(ids, seen)))
        others = without(ids, seen)
        return pa.concat_arrays([known, key_cache(self.view.kernel).existing(self.view.dataset(table_key), others)])

    def matching(self, table_key: str, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        """Return columns of the rows in which each column of `where` holds one of its values."""
        question = (table_key, *columns, "where", *where)
        asked, answer = self._answers.get(question, (None, None))
        # A delete looks for edges to take along, and the rules look for those that were forgotten.
        if asked is None or answer is None or not all(asked[name].equals(values) for name, values in where.items()):
            answer = self._find(table_key, columns, where)
            self._answers[question] = (where, answer)
        return answer

    def _find(self, table_key: str, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        dataset = self.view.dataset(table_key)
        if dataset.count() == 0 or any(len(values) == 0 for values in where.values()):
            return _empty(dataset, columns)
        condition = None
        for name, values in where.items():
            if len(values) <= FILTER_VALUES_MAX and is_filterable(values.type):
                one = pc.field(name).isin(_both_zeros(values))
                condition = one if condition is None else condition & one
        found = dataset.read(list(dict.fromkeys([*columns, *where])), condition)
        for name, values in where.items():
            found = found.filter(pc.is_in(found.column(name), value_set=_both_zeros(values)))
        return found.select(list(columns))

    def rows(self, type_: NodeType | EdgeType, condition: Any) -> Iterator[pa.Table]:
        """Stream whole rows that satisfy a condition, blobs included, in the type's own columns."""
        dataset = self.view.dataset(type_.table_key)
        if dataset.count() == 0:
            return
        logical = arrow_schema(type_)
        dataset.store.meter.count("scan", str(dataset.ref))
        with lance_errors(f"reading {dataset.ref}"):
            batches = dataset.lance.to_batches(columns=logical.names, filter=condition, blob_handling="all_binary")
            for batch in batches:
                if batch.num_rows:
                    self._seen.setdefault(type_.table_key, []).append(batch.column("id"))
                    yield pa.Table.from_batches([batch]).cast(logical)


def _both_zeros(values: Column) -> Column:
    # Zero has two signs, which filters tell apart and rules do not.
    if not pa.types.is_floating(values.type):
        return values
    return pa.concat_arrays([values, pc.negate(values.filter(pc.equal(values, 0.0)))])


def _empty(dataset: Dataset, columns: Sequence[str]) -> pa.Table:
    fields: list[Any] = [dataset.schema.field(name) for name in columns]
    return pa.schema(fields).empty_table()
