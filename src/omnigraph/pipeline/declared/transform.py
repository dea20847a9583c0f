"""Runs the SQL of a pipeline over its sources, maps views to the types of the graph, and completes patches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

from omnigraph.errors import UsageError
from omnigraph.graph import Graph
from omnigraph.lang.catalog import FLOATS, INTEGERS, Catalog, EdgeType, NodeType, PropertyType, Scalar
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.pipeline.bulk_load.splits import Columns
from omnigraph.pipeline.declared.config import PipelineDeclaration, TypeMapping
from omnigraph.pipeline.declared.sources import require_distinct_columns
from omnigraph.pipeline.spark.session import first_line, register

_LINE: Final = re.compile(r"\bline ([0-9]+)")


def run_statement(spark: Any, view: str, statement: str) -> Any:
    """Return the result of a transform, which sees sources and earlier transforms. Spark only analyses it."""
    part = f"transforms.{view}"
    try:
        # Only a query can be in brackets: Spark would run other statements at once, and validating changes nothing.
        frame = spark.sql(f"SELECT * FROM (\n{statement.rstrip().removesuffix(';')}\n)")
        _ = frame.columns
    except Exception as error:
        reason = _LINE.sub(lambda match: f"line {int(match[1]) - 1}", first_line(error))
        hint = "; a transform sees sources and earlier transforms" if "TABLE_OR_VIEW_NOT_FOUND" in reason else ""
        raise UsageError(f"transform `{view}` is not a valid query: {reason}{hint}", part=part) from error
    require_distinct_columns(frame, f"transform `{view}`", part)
    return frame


@dataclass(frozen=True, slots=True)
class Deletion:
    """The rows by which entities of a type are deleted: a frame with their key columns, or with their `id`.

    With `is_snapshot`, these are the ones that stay, and all others are deleted.
    """

    type: NodeType | EdgeType
    rows: Any
    is_snapshot: bool


def map_deletions(pipeline: PipelineDeclaration, frames: Mapping[str, Any], catalog: Catalog) -> list[Deletion]:
    """Return what the rows that `delete_when` marks, or that a snapshot no longer has, delete; edges come first."""
    deletions = []
    types: list[tuple[TypeMapping, NodeType | EdgeType]] = [
        *((item, catalog.edges[name]) for name, item in pipeline.edges.items()),
        *((item, catalog.nodes[name]) for name, item in pipeline.nodes.items()),
    ]
    for mapping, type_ in types:
        if not mapping.is_deleting:
            continue
        frame = _newest_rows(frames[mapping.from_view], mapping, type_)
        rows = frame if mapping.is_snapshot else frame.filter(_is_marked(mapping))
        identity = _identity(rows, mapping, type_)
        complete = reduce(lambda first, second: first & second, (column.isNotNull() for column in identity.values()))
        named = [column.alias(name) for name, column in identity.items()]
        deletions.append(Deletion(type_, rows.filter(complete).select(*named).distinct(), mapping.is_snapshot))
    return deletions


def _identity(frame: Any, mapping: TypeMapping, type_: NodeType | EdgeType) -> dict[str, Any]:
    """Return the columns by which a row is known: an id, the key, or for edges without both the ends."""
    from pyspark.sql import functions

    columns = _columns_by_property(frame, mapping, type_)
    ends = {"src": mapping.source, "dst": mapping.target} if isinstance(type_, EdgeType) else {}
    names = {**columns, **{name: column for name, column in ends.items() if column is not None}}
    if "id" in columns and not type_.key:
        return {"id": functions.col(f"`{columns['id']}`").cast("string")}
    if type_.key:
        return {name: functions.col(f"`{names[name]}`") for name in type_.key}
    return {"id": _edge_id(functions.col(f"`{mapping.source}`"), functions.col(f"`{mapping.target}`"))}


def _newest_rows(frame: Any, mapping: TypeMapping, type_: NodeType | EdgeType) -> Any:
    """Return the newest row of each entity by `order_by`, or all rows without it."""
    from pyspark.sql import functions

    if mapping.order_by is None:
        return frame
    row = functions.struct(*(functions.col(f"`{name}`") for name in frame.columns))
    # Of rows with the same value, one is chosen by its content, so that every run chooses the same.
    order = functions.struct(functions.col(f"`{mapping.order_by}`"), functions.xxhash64(row))
    newest = functions.max_by(row, order).alias("row")
    return frame.groupBy(*_identity(frame, mapping, type_).values()).agg(newest).select("row.*")


def _is_marked(mapping: TypeMapping) -> Any:
    from pyspark.sql import functions

    column = functions.col(f"`{mapping.delete_when}`")
    marked = column.cast("string").isin(*mapping.delete_values) if mapping.delete_values else column
    return functions.coalesce(marked, functions.lit(False))


def map_types(
    pipeline: PipelineDeclaration, frames: Mapping[str, Any], catalog: Catalog
) -> tuple[dict[str, Columns], dict[str, Columns]]:
    """Return the rows of every node type and edge type, with their columns checked against the schema."""
    nodes, edges = {}, {}
    for name, item in pipeline.nodes.items():
        with _about(f"nodes.{name}"):
            nodes[name] = _map(frames[item.from_view], item, catalog.nodes, "node")
    for name, item in pipeline.edges.items():
        with _about(f"edges.{name}"):
            edges[name] = _map(frames[item.from_view], item, catalog.edges, "edge")
            _check_ends(frames[item.from_view], item, catalog)
    return nodes, edges


@contextmanager
def _about(part: str) -> Iterator[None]:
    """Say in errors which part of the declaration they are about."""
    try:
        yield
    except UsageError as error:
        error.context["part"] = part
        raise


def _check_ends(frame: Any, mapping: TypeMapping, catalog: Catalog) -> None:
    """Refuse ends that cannot be the key or the id of a node."""
    type_ = catalog.edges[mapping.type_name]
    for column, end in ((mapping.source, type_.source), (mapping.target, type_.target)):
        node = catalog.nodes.get(end)
        key = node.properties[node.key[0]] if node is not None and len(node.key) == 1 else None
        column_type = frame.schema[str(column)].dataType.typeName()
        if column_type in _TEXT or column_type == "void" or (key is not None and column_type in _accepted(key.type)):
            continue
        expected = f"the key `{end}.{key.name}` is {key.type}" if key is not None else f"the id of a `{end}` is String"
        raise UsageError(
            f"column `{column}` of `{mapping.from_view}` is a {column_type}, and {expected}; cast it in a transform",
            column=column,
        )


def _map(frame: Any, mapping: TypeMapping, types: Mapping[str, Any], kind: str) -> Columns:
    from pyspark.sql import functions

    type_ = types.get(mapping.type_name)
    if type_ is None:
        hint = did_you_mean(mapping.type_name, types) or f"the schema has {', '.join(sorted(types)) or 'none'}"
        raise UsageError(f"there is no {kind} type `{mapping.type_name}`; {hint}", type=mapping.type_name)
    columns = _columns_by_property(frame, mapping, type_)
    _check_properties(frame, mapping, type_, columns)
    frame = _newest_rows(frame, mapping, type_)
    if mapping.delete_when is not None:
        frame = frame.filter(~_is_marked(mapping))
    chosen = [functions.col(f"`{column}`").alias(name) for name, column in columns.items()]
    if kind == "node":
        return Columns(frame.select(*chosen))
    ends = [
        functions.col(f"`{column}`").alias(name) for column, name in ((mapping.source, "from"), (mapping.target, "to"))
    ]
    if mapping.mode == "merge" and "id" not in columns and not type_.key:
        # Rows that are read again must find their edges, so an edge is known by its ends.
        chosen.append(_edge_id(*ends).alias("id"))
    chosen += ends
    return Columns(frame.select(*chosen), "from", "to")


def _edge_id(source: Any, target: Any) -> Any:
    """Return the id of an edge that is known by its ends."""
    from pyspark.sql import functions

    ends = functions.struct(source.alias("from"), target.alias("to"))
    return functions.sha2(functions.to_json(ends), 256)


def _columns_by_property(frame: Any, mapping: TypeMapping, type_: NodeType | EdgeType) -> dict[str, str]:
    """Return the column of each property: as declared, or else those of the same name."""
    ends = [end for end in (mapping.source, mapping.target) if end is not None]
    marks = [name for name in (mapping.delete_when, mapping.order_by) if name is not None]
    for column in (*mapping.columns.values(), *ends, *marks):
        if column not in frame.columns:
            hint = did_you_mean(column, frame.columns) or f"it has {', '.join(frame.columns)}"
            raise UsageError(f"`{mapping.from_view}` has no column `{column}`; {hint}", column=column)
    names = {"id", *type_.properties}
    if not mapping.columns:
        if isinstance(type_, EdgeType):
            # One view often makes nodes and edges, so an edge takes what it has a property for.
            return {name: name for name in frame.columns if name in names and name not in ends}
        columns = {name: name for name in frame.columns if name not in marks or name in names}
        unknown = [name for name in columns if name not in names]
    else:
        unknown = [name for name in mapping.columns if name not in names]
        columns = dict(mapping.columns)
    if unknown:
        hint = did_you_mean(unknown[0], names) or f"it has {', '.join(type_.properties)}"
        advice = "" if mapping.columns else "; name the columns to load in `columns`, or select them in a transform"
        raise UsageError(f"`{mapping.type_name}` has no property `{unknown[0]}`; {hint}{advice}", property=unknown[0])
    return columns


def _check_properties(frame: Any, mapping: TypeMapping, type_: NodeType | EdgeType, columns: Mapping[str, str]) -> None:
    """Refuse a mapping that no row could satisfy: no column for a required property, or one of another type."""
    missing = [
        name
        for name, item in type_.properties.items()
        if name not in columns
        and not item.type.nullable
        and item.embed is None
        and item.default is None
        # Entities that are there already have the others.
        and (not mapping.is_patch or name in type_.key)
    ]
    if missing:
        reason = "the key" if missing[0] in type_.key else "a property that is not nullable"
        raise UsageError(
            f"`{mapping.from_view}` has no column for `{mapping.type_name}.{missing[0]}`, {reason}; add it to"
            " `columns`",
            property=missing[0],
        )
    if isinstance(type_, NodeType) and mapping.mode == "merge" and not type_.key and "id" not in columns:
        raise UsageError(
            f"`{mapping.type_name}` has no key, so merging needs a column `id`; add it to `columns`, or use another"
            " `mode`",
            type=mapping.type_name,
        )
    mark = mapping.delete_when
    if mark is not None and not mapping.delete_values and frame.schema[mark].dataType.typeName() != "boolean":
        raise UsageError(
            f"`delete_when` names the column `{mark}`, which is not a boolean; name the values that mark a deleted row,"
            f" as in `delete_when: {{ {mark}: [d, delete] }}`, or cast it",
            column=mark,
        )
    for name, column in columns.items():
        item = type_.properties.get(name)
        column_type = frame.schema[column].dataType.typeName()
        element = _element(frame.schema[column].dataType) if item is not None and item.type.is_list else None
        is_accepted = item is None or column_type in _accepted(item.type)
        if item is not None and element is not None:
            is_accepted = element in _accepted(replace(item.type, is_list=False))
            column_type = f"{column_type} of {element}"
        if item is not None and not is_accepted:
            raise UsageError(
                f"column `{column}` of `{mapping.from_view}` is a {column_type}, and `{mapping.type_name}.{name}` is"
                f" {item.type}; cast it in a transform",
                column=column,
                property=name,
            )


_NUMBERS: Sequence[str] = ("byte", "short", "integer", "long", "decimal", "float", "double")
_TEXT: Sequence[str] = ("string", "varchar", "char")


def _element(kind: Any) -> str | None:
    return str(kind.elementType.typeName()) if kind.typeName() == "array" else None


def _accepted(type_: PropertyType) -> frozenset[str]:
    """Return the Spark types whose values a property may take; a value itself may still not fit."""
    return frozenset({"void", *_accepted_names(type_)})


def _accepted_names(type_: PropertyType) -> Iterator[str]:
    scalar = type_.scalar
    if type_.is_list or scalar is Scalar.VECTOR:
        yield "array"
    elif scalar in INTEGERS or scalar in FLOATS:
        # A number of another type is taken if it loses nothing: 3.0 is an integer, and 3.5 a violation of its row.
        yield from _NUMBERS
    elif scalar is Scalar.BOOL:
        yield "boolean"
    elif scalar is Scalar.DATE:
        yield from ("date", "string")
    elif scalar is Scalar.DATETIME:
        yield from ("timestamp", "timestamp_ntz", "date", "string")
    elif scalar is Scalar.BLOB:
        yield from ("binary", "string")
    else:
        yield from _TEXT


# -- patches ---------------------------------------------------------------------------------------------------


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
        completed[mapping.type_name] = replace(columns, data=_complete_patch(columns.data, type_, spark, options))
    return completed


def _complete_patch(frame: Any, type_: NodeType | EdgeType, spark: Any, options: Mapping[str, str]) -> Any:
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
