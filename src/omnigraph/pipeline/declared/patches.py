"""Completes the rows of `mode: patch` with what is stored, or for new entities with the defaults of the schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from omnigraph import clock
from omnigraph.graph import Graph
from omnigraph.lang.catalog import Catalog, EdgeType, NodeType, Property, Scalar
from omnigraph.pipeline.bulk_load.column_mapping import ColumnMapper
from omnigraph.pipeline.bulk_load.splits import Columns
from omnigraph.pipeline.declared.config import PipelineDeclaration
from omnigraph.pipeline.spark.session import register
from omnigraph.rules.defaults import default_value
from omnigraph.rules.delta import Findings

_ID: Final = "id of the row"


def complete_rows(
    graph: Graph, pipeline: PipelineDeclaration, spark: Any, rows: Mapping[str, Columns]
) -> dict[str, Columns]:
    """Return the rows of each type, those of `mode: patch` with the stored properties that they have no column for.

    The branch of the load is read, and the merge that publishes it works by property, so that what others change
    meanwhile in these properties stays.
    """
    catalog, target = graph.schema.catalog, pipeline.publication
    completed = dict(rows)
    for mapping in (*pipeline.nodes.values(), *pipeline.edges.values()):
        if not mapping.is_patch or mapping.type_name not in rows:
            continue
        types: Mapping[str, NodeType | EdgeType] = catalog.edges if mapping.source is not None else catalog.nodes
        branch = target.branch if target.branch in graph.branches.list() else str(target.merge_into)
        columns, type_ = rows[mapping.type_name], types[mapping.type_name]
        options = {"graph": graph.uri, "type": str(type_.table_key), "branch": branch}
        completed[mapping.type_name] = replace(
            columns, data=_complete_patch(columns.data, catalog, type_, spark, options)
        )
    return completed


def _complete_patch(
    frame: Any, catalog: Catalog, type_: NodeType | EdgeType, spark: Any, options: Mapping[str, str]
) -> Any:
    from pyspark.sql import functions
    from pyspark.sql.types import StringType, StructField, StructType

    columns = set(frame.columns)
    # A vector follows its text: if that is given, it is made again.
    missing = [
        name
        for name, item in type_.properties.items()
        if name not in columns and (item.embed is None or item.embed.source not in columns)
    ]
    if not missing:
        return frame
    # By its id, which follows from the key as in a load: stored values may have another type, or fewer digits.
    schema = StructType([*frame.schema.fields, StructField(_ID, StringType())])
    rows = frame.mapInArrow(partial(_add_ids, catalog, type_), schema)
    register(spark)
    stored = spark.read.format("omnigraph").options(**options, columns=",".join(["id", *missing])).load()
    stored = stored.select(*(functions.col(name).alias(f"stored {name}") for name in ("id", *missing)))
    is_new, now_ms = stored["`stored id`"].isNull(), clock.now_us() // 1_000
    kept = []
    for name in missing:
        column, item = stored[f"`stored {name}`"], type_.properties[name]
        if item.default is not None:
            column = functions.when(
                is_new, _default_of(item, now_ms, stored.schema[f"stored {name}"].dataType)
            ).otherwise(column)
        kept.append(column.alias(name))
    completed = rows.join(stored, rows[f"`{_ID}`"] == stored["`stored id`"], "left")
    return completed.select(*(rows[f"`{name}`"] for name in frame.columns), *kept)


def _default_of(item: Property, now_ms: int, kind: Any) -> Any:
    """Return the default of a property that a new entity does not mention, as a Spark column."""
    from pyspark.sql import functions

    if item.default is not None and item.default.kind == "uuid":
        return functions.expr("uuid()")
    make = {Scalar.DATE: functions.date_from_unix_date, Scalar.DATETIME: functions.timestamp_millis}
    value = default_value(item, now_ms)
    columns = [functions.lit(element) for element in (value if item.type.is_list else [value])]
    columns = [make[item.type.scalar](column) if item.type.scalar in make else column for column in columns]
    return (functions.array(*columns) if item.type.is_list else columns[0]).cast(kind)


def _add_ids(
    catalog: Catalog, type_: NodeType | EdgeType, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Add the ids that a load would give to rows; null where a key does not fit, which the load reports."""
    mapper = ColumnMapper(catalog, type_, Columns(None), Findings())
    ends = {"src": "from", "dst": "to"} if isinstance(type_, EdgeType) else {}
    for batch in batches:
        named = {name: batch.column(ends.get(name, name)) for name in type_.key or ("id",)}
        yield batch.append_column(_ID, mapper.identify(pa.table(named)))
