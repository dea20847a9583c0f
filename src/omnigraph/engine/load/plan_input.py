"""Plan the input of a load: any source as splits, each of one task, before anything is decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omnigraph.engine.input.frames import as_frame, check_sources, frame_name, read_frame, require_frame
from omnigraph.engine.input.ndjson.reader import is_records
from omnigraph.engine.input.splits import Columns, Split, find_table_key, is_frame, parse_columns
from omnigraph.engine.input.spool import Spool, in_memory
from omnigraph.engine.load.job import InputSchema
from omnigraph.errors import DataError, UsageError
from omnigraph.lang.catalog import Catalog, TypeKey


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The input of a load: splits, and DataFrames of Spark by type.

    `table_keys` are the types that it may hold. Types that the caller `named` are loaded even if it has no row of them.
    """

    splits: Sequence[Split]
    frames: Mapping[TypeKey, Columns]
    table_keys: Sequence[TypeKey]
    named: Sequence[TypeKey]
    schema: InputSchema
    unit: str = "line"


def plan_input(
    spool: Spool, schema: InputSchema, data: Any, nodes: Mapping[str, Any], edges: Mapping[str, Any]
) -> LoadPlan:
    """Cut the sources into splits. NDJSON may hold any type; other sources hold the type they were passed for."""
    catalog = schema.catalog
    tables = _parse_tables(catalog, nodes, edges)
    has_data = data is not None and not (tables and isinstance(data, list | tuple) and not data)
    if not has_data and not tables:
        raise UsageError("there is nothing to load; give `data`, `nodes` or `edges`")
    frames = {key: columns for key, columns in tables.items() if is_frame(columns.data)}
    splits = spool.plan_data(data) if has_data else []
    for key, columns in tables.items():
        splits += spool.plan_table(key, columns, catalog.type_of(key).properties) if key not in frames else []
    table_keys = sorted(type_.table_key for type_ in catalog.types) if has_data else sorted(tables)
    return LoadPlan(splits, frames, table_keys, list(tables), schema, _unit(splits, frames))


def _unit(splits: Sequence[Split], frames: Mapping[TypeKey, Columns]) -> str:
    """Return what errors call a place in the input."""
    if all(split.format == "records" for split in splits) and not frames:
        return "record"
    return "row" if all(split.columns is not None and split.columns.name is not None for split in splits) else "line"


def _parse_tables(catalog: Catalog, nodes: Mapping[str, Any], edges: Mapping[str, Any]) -> dict[TypeKey, Columns]:
    tables: dict[TypeKey, Columns] = {}
    for kind, sources in (("node", nodes), ("edge", edges)):
        for name, source in sources.items():
            columns = parse_columns(as_frame(source))
            if kind == "node" and columns.source is not None:
                raise UsageError(
                    f"`{name}` is a node type, which has no endpoints; omit `:{columns.source}->{columns.target}`",
                    type=name,
                )
            tables[find_table_key(catalog, kind, str(name))] = columns
    return tables


def plan_small_write(
    spool: Spool, schema: InputSchema, data: Any, nodes: Mapping[str, Any], edges: Mapping[str, Any]
) -> LoadPlan:
    """Plan to read NDJSON, dictionaries or frames as far as one small write goes; of a path, NDJSON of any name."""
    check_sources(data, nodes, edges)
    if not nodes and not edges:
        format_ = "records" if is_records(data) else "ndjson"
        unit = "record" if format_ == "records" else "line"
        return LoadPlan([in_memory(format_, data, 0)], {}, [], [], schema, unit)
    tables = {}
    for kind, frames in (("node", nodes), ("edge", edges)):
        for name, source in frames.items():
            frame = require_frame(name, as_frame(source))
            tables[_find_type(schema.catalog, kind, str(name))] = read_frame(frame)
    splits = [
        in_memory("arrow", reader, 0, key, Columns(None, name=frame_name(key.name))) for key, reader in tables.items()
    ]
    return LoadPlan(splits, {}, [], list(tables), schema, "row")


def _find_type(catalog: Catalog, kind: str, name: str) -> TypeKey:
    try:
        return find_table_key(catalog, kind, name)
    except UsageError as error:
        raise DataError(f"{error.message}. Nothing was written", rule="N4", type=name) from None
