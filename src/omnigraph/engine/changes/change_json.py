"""Format changes as JSON text, one line each, with images formatted as in an export.

Pure and vectorised with Arrow kernels.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import orjson
import pyarrow as pa

from omnigraph.engine.changes.row_diff import RowChanges
from omnigraph.engine.changes.state_diff import Pair, Side
from omnigraph.engine.json_text import json_text
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.delta import one_array


def change_texts(pair: Pair, changes: RowChanges) -> tuple[Any, Any]:
    """Return the ids of all changes in ascending order, and the text of each."""
    groups = [
        (changes.inserted, "insert", None, changes.inserted),
        (changes.after, "update", changes.before, changes.after),
        (changes.deleted, "delete", changes.deleted, None),
    ]
    ids = [one_array(rows.column("id")) for rows, *_ in groups]
    texts = [_texts(pair, op, rows, before, after) for rows, op, before, after in groups]
    all_ids = pa.concat_arrays(ids)
    order = pc.sort_indices(all_ids)
    return all_ids.take(order), pa.concat_arrays(texts).take(order)


def _texts(pair: Pair, op: str, rows: pa.Table, before: pa.Table | None, after: pa.Table | None) -> Any:
    if rows.num_rows == 0:
        return pa.array([], pa.string())
    type_ = orjson.dumps({"id": pair.type_id, "name": pair.known.type_.name}).decode()
    parts: list[Any] = [f'{{"kind":"{pair.kind}","type":{type_},"id":', json_text(one_array(rows.column("id")))]
    parts.append(f',"op":"{op}"')
    for name, images, side in (("before", before, pair.before), ("after", after, pair.after)):
        if images is not None:
            assert isinstance(side, Side), "an image has a state that it is from"
            parts += [f',"{name}":', image_texts(side.type_, images)]
    return pc.binary_join_element_wise(*parts, "}", "")


def image_texts(type_: NodeType | EdgeType, rows: pa.Table) -> Any:
    """Return each row as `{properties, endpoints?}`, with every property of its type."""
    parts: list[Any] = ['{"properties":{']
    for index, name in enumerate(sorted(type_.properties)):
        comma = "," if index else ""
        parts += [f"{comma}{orjson.dumps(name).decode()}:", _value_texts(one_array(rows.column(name)))]
    parts.append("}")
    if isinstance(type_, EdgeType):
        ends = [json_text(one_array(rows.column(name))) for name in ("src", "dst")]
        parts += [',"endpoints":{"from":', ends[0], ',"to":', ends[1], "}"]
    # A type without properties has only literal parts, which would join to a single text.
    empty = pc.replace_with_mask(one_array(rows.column("id")), pa.repeat(True, rows.num_rows), "")
    return pc.binary_join_element_wise(empty, *parts, "}", "")


def _value_texts(values: Any) -> Any:
    if not pa.types.is_large_binary(values.type):
        return json_text(values)
    encoded = [None if value is None else f"base64:{b64encode(value).decode()}" for value in values.to_pylist()]
    return json_text(pa.array(encoded, pa.string()))
