"""The id of a node from its key values, by both functions that derive it.

Apart from the runner because it needs pyarrow, which no other case does.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import pyarrow as pa

from omnigraph.lang.catalog import NodeType, Scalar
from omnigraph.lang.schema.arrow_schema import arrow_schema, key_id, key_ids
from tests.support.case_expectations import CaseFailure


def key_of(node: NodeType, values: Mapping[str, object]) -> str:
    """Return the id of one node, having checked that the columnar and the scalar function agree on it."""
    typed = {name: _typed(node, name, value) for name, value in values.items()}
    schema = pa.schema([arrow_schema(node).field(name) for name in typed])
    [columnar] = key_ids(node, pa.RecordBatch.from_pylist([typed], schema=schema)).to_pylist()
    scalar = key_id(node, typed)
    if columnar != scalar:
        raise CaseFailure(f"`key_ids` gives `{columnar}`, `key_id` gives `{scalar}`")
    return scalar


def _typed(node: NodeType, name: str, value: object) -> object:
    scalar = node.properties[name].type.scalar
    if scalar is Scalar.DATE and isinstance(value, str):
        return dt.date.fromisoformat(value)
    if scalar is Scalar.DATETIME and isinstance(value, str):
        return dt.datetime.fromisoformat(value)
    return value
