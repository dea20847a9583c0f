"""Completes rows of `mode: patch` with the stored properties that they have no column for.

The branch of the load is read, and the merge that publishes it works by property, so that what others change meanwhile
in these properties stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from omnigraph.graph import Graph
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.pipeline.bulk_load.splits import Columns
from omnigraph.pipeline.declared.config import PipelineDeclaration
from omnigraph.pipeline.spark.session import register


def complete_rows(
    graph: Graph, pipeline: PipelineDeclaration, spark: Any, rows: Mapping[str, Columns]
) -> dict[str, Columns]:
    """Return the rows of each type, those of a patch with all properties of their entity."""
    catalog, target = graph.schema.catalog, pipeline.publication
    completed = dict(rows)
    for mapping in (*pipeline.nodes.values(), *pipeline.edges.values()):
        if not mapping.is_patch or mapping.type_name not in rows:
            continue
        types: Mapping[str, NodeType | EdgeType] = catalog.edges if mapping.source is not None else catalog.nodes
        branch = target.branch if target.branch in graph.branches.list() else str(target.merge_into)
        columns, type_ = rows[mapping.type_name], types[mapping.type_name]
        options = {"graph": graph.uri, "type": str(type_.table_key), "branch": branch}
        completed[mapping.type_name] = replace(columns, data=_complete(columns.data, type_, spark, options))
    return completed


def _complete(frame: Any, type_: NodeType | EdgeType, spark: Any, options: Mapping[str, str]) -> Any:
    from pyspark.sql import functions

    columns = set(frame.columns)
    # A vector follows its text: if that is given, it is made again.
    missing = [
        name
        for name, item in type_.properties.items()
        if name not in columns and (item.embed is None or item.embed.source not in columns)
    ]
    if not missing:
        return frame
    ends = {"src": "from", "dst": "to"}
    identity = {name: ends.get(name, name) for name in type_.key} or {"id": "id"}
    register(spark)
    names = [*identity, *missing]
    stored = spark.read.format("omnigraph").options(**options, columns=",".join(names)).load()
    stored = stored.select(*(functions.col(f"`{name}`").alias(f"stored {name}") for name in names))
    matches = [frame[f"`{column}`"].eqNullSafe(stored[f"`stored {name}`"]) for name, column in identity.items()]
    kept = [functions.col(f"`stored {name}`").alias(name) for name in missing]
    return frame.join(stored, matches, "left").select(*(frame[f"`{name}`"] for name in frame.columns), *kept)
