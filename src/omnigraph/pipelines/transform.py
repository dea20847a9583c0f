"""Runs the SQL of a pipeline over its sources, and maps views to the types of the graph."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from omnigraph.engine.input.frame_rows import ORIGIN
from omnigraph.engine.input.splits import Columns
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import NUMBERS, Catalog, EdgeType, NodeType, PropertyType, Type
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.lang.scalars import Family
from omnigraph.pipelines.declaration.config import PipelineDeclaration, TypeMapping
from omnigraph.pipelines.declaration.sql_text import add_column, find_views
from omnigraph.pipelines.frame_columns import (
    NUMBER,
    NUMBER_TYPES,
    TEXT_TYPES,
    TIME_TYPES,
    all_present,
    column_of,
    find_family,
    names_of,
    require_distinct_columns,
    suggest_column,
    type_of,
)
from omnigraph.pipelines.row_operations import classify_rows, keep_known_rows
from omnigraph.spark.datasource.options import spark_data_type
from omnigraph.spark.session import first_line

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


def run_traced_statement(spark: Any, view: str, statement: str, frames: Mapping[str, Any]) -> Any:
    """Return the result of a transform, with the origin of its rows if each of them comes from one row of a source."""
    plain = run_statement(spark, view, statement)
    if getattr(spark, "_jsparkSession", None) is None:
        # Spark Connect resolves the names of views when a frame is used, by which time they have no origin any more.
        return plain
    traced = [name for name in find_views(statement, frames) if ORIGIN in frames[name].columns]
    candidates = (statement, add_column(statement, f"`{ORIGIN}`"))
    try:
        for name in traced:
            frames[name].createOrReplaceTempView(name)
        for candidate in candidates if traced else ():
            if candidate is None:
                continue
            # Spark refuses what would not be the same rows, such as an aggregate; then the origin is unknown.
            with suppress(Exception):
                frame = spark.sql(candidate.rstrip().removesuffix(";"))
                if frame.columns == [*plain.columns, ORIGIN] or set(frame.columns) == {*plain.columns, ORIGIN}:
                    return frame.select(*map(column_of, plain.columns), column_of(ORIGIN))
    finally:
        for name in traced:
            frames[name].drop(ORIGIN).createOrReplaceTempView(name)
    return plain


@dataclass(frozen=True, slots=True)
class Deletion:
    """The rows by which entities of a type are deleted: a frame with their key columns, or with their `id`.

    With `is_snapshot`, these are the ones that stay, and all others are deleted.
    """

    type: Type
    rows: Any
    is_snapshot: bool


def map_deletions(pipeline: PipelineDeclaration, frames: Mapping[str, Any], catalog: Catalog) -> list[Deletion]:
    """Return what the rows that `delete_when` marks, or that a snapshot no longer has, delete; edges come first."""
    deletions = []
    for mapping in (*pipeline.edges.values(), *pipeline.nodes.values()):
        if not mapping.is_deleting:
            continue
        type_ = catalog.type_of(mapping.table_key)
        frame = _newest_rows(keep_known_rows(frames[mapping.from_view], mapping), mapping, type_)
        identity = _identity(frame, mapping, type_)
        named = [column.alias(name) for name, column in identity.items()]
        if mapping.is_snapshot:
            # The load reports rows without a key.
            rows = frame.filter(all_present(identity.values())).select(*named)
        else:
            rows = frame.filter(_is_marked(frame, mapping)).select(*named)
            if mapping.order_by is None:
                # An entity that is deleted and comes again stays, with its edges.
                rows = rows.subtract(frame.filter(~_is_marked(frame, mapping)).select(*named))
        deletions.append(Deletion(type_, rows.distinct(), mapping.is_snapshot))
    return deletions


def _identity(frame: Any, mapping: TypeMapping, type_: Type) -> dict[str, Any]:
    """Return the columns by which a row is known: the key, an id, or for edges without both the ends."""
    columns = _columns_by_property(frame, mapping, type_)
    ends = {"src": mapping.source, "dst": mapping.target} if isinstance(type_, EdgeType) else {}
    names = {**columns, **{name: column for name, column in ends.items() if column is not None}}
    if type_.key:
        return {name: column_of(names[name]) for name in type_.key}
    return {"id": _entity_id(mapping, columns)}


def _entity_id(mapping: TypeMapping, columns: Mapping[str, str]) -> Any:
    """Return the id of an entity without a key; null if the row has none, and for edges not both ends."""
    from pyspark.sql import functions

    ids = [column_of(columns["id"]).cast("string")] if "id" in columns else []
    ends = [column_of(name) for name in (mapping.source, mapping.target) if name is not None]
    if ends:
        ids.append(functions.when(ends[0].isNotNull() & ends[1].isNotNull(), _edge_id(*ends)))
    return functions.coalesce(*ids)


def _newest_rows(frame: Any, mapping: TypeMapping, type_: Type) -> Any:
    """Return the newest row of each entity by `order_by`, or all rows without it."""
    from pyspark.sql import functions

    if mapping.order_by is None:
        return frame
    marks = (mapping.source, mapping.target, mapping.delete_when, mapping.order_by)
    used = {*_columns_by_property(frame, mapping, type_).values(), *marks}
    columns = [column_of(name) for name in frame.columns if name in used]
    row = functions.struct(*columns, *_origin_of(frame))
    # Of rows with the same value, one is chosen by its content, so that every run chooses the same.
    content = functions.xxhash64(functions.struct(*columns))
    newest = functions.max_by(row, functions.struct(_order(frame, mapping), content)).alias("row")
    identity = _identity(frame, mapping, type_)
    # Rows without a key are several entities, which the load reports one by one.
    apart = functions.when(~all_present(identity.values()), content)
    return frame.groupBy(*identity.values(), apart).agg(newest).select("row.*")


def _order(frame: Any, mapping: TypeMapping) -> Any:
    """Return the column that orders the rows of an entity; numbers that are read as text would not be in order."""
    from pyspark.sql import functions

    name = str(mapping.order_by)
    column, kind = column_of(name), type_of(frame, name)
    if kind in ("float", "double"):
        return functions.when(~functions.isnan(column), column)
    if kind not in TEXT_TYPES:
        return column
    message = f"`order_by: {name}` has numbers that are read as text, and as text 10 is below 9; cast it in a transform"
    return functions.when(~column.rlike(NUMBER), column).when(
        column.isNotNull(), functions.raise_error(functions.lit(message))
    )


def _is_marked(frame: Any, mapping: TypeMapping) -> Any:
    return classify_rows(frame, mapping).eqNullSafe("delete")


def map_types(
    pipeline: PipelineDeclaration, frames: Mapping[str, Any], catalog: Catalog
) -> tuple[dict[str, Columns], dict[str, Columns]]:
    """Return the rows of every node type and edge type, with their columns checked against the schema."""
    rows: dict[str, dict[str, Columns]] = {"node": {}, "edge": {}}
    for mapping in pipeline.mappings:
        try:
            rows[mapping.kind][mapping.type_name] = _map(frames[mapping.from_view], mapping, catalog)
        except UsageError as error:
            error.context["part"] = f"{mapping.kind}s.{mapping.type_name}"
            raise
    return rows["node"], rows["edge"]


def _check_ends(frame: Any, mapping: TypeMapping, type_: EdgeType, catalog: Catalog) -> None:
    """Refuse ends that cannot be the key or the id of a node."""
    for column, end in ((mapping.source, type_.source), (mapping.target, type_.target)):
        node = catalog.nodes.get(end)
        key = node.properties[node.key[0]] if node is not None and len(node.key) == 1 else None
        column_type = type_of(frame, str(column))
        if column_type in (*TEXT_TYPES, "void", *(_accepted_types(key.type) if key is not None else ())):
            continue
        expected = f"the key `{end}.{key.name}` is {key.type}" if key is not None else f"the id of a `{end}` is String"
        raise UsageError(
            f"column `{column}` of `{mapping.from_view}` is a {column_type}, and {expected}; cast it in a transform",
            column=column,
        )


def _map(frame: Any, mapping: TypeMapping, catalog: Catalog) -> Columns:
    types: Mapping[str, Type] = catalog.nodes if mapping.kind == "node" else catalog.edges
    type_ = types.get(mapping.type_name)
    if type_ is None:
        hint = did_you_mean(mapping.type_name, types) or f"the schema has {', '.join(sorted(types)) or 'none'}"
        raise UsageError(f"there is no {mapping.kind} type `{mapping.type_name}`; {hint}", type=mapping.type_name)
    columns = _columns_by_property(frame, mapping, type_)
    _check_properties(frame, mapping, type_, columns)
    if isinstance(type_, EdgeType):
        _check_ends(frame, mapping, type_, catalog)
    frame = _newest_rows(keep_known_rows(frame, mapping), mapping, type_)
    if mapping.delete_when is not None:
        frame = frame.filter(~_is_marked(frame, mapping))
    is_known_by_id = mapping.mode == "merge" and not type_.key
    names = [name for name in columns if name != "id" or not is_known_by_id]
    chosen = [column_of(columns[name]).alias(name) for name in names]
    if mapping.kind == "edge":
        chosen += [column_of(str(mapping.source)).alias("from"), column_of(str(mapping.target)).alias("to")]
    chosen += _origin_of(frame)
    if is_known_by_id:
        # Rows that are read again must find their entities, so an edge without an id is known by its ends.
        rows = frame.select(_entity_id(mapping, columns).alias("id"), *chosen)
        frame = _require_one_row_each(rows, mapping, has_ids="id" in columns)
    else:
        frame = frame.select(*chosen)
    ends = ("from", "to") if mapping.kind == "edge" else (None, None)
    return Columns(frame, ends[0], ends[1], view=mapping.from_view)


def _origin_of(frame: Any) -> list[Any]:
    return [column_of(ORIGIN)] if ORIGIN in frame.columns else []


def _require_one_row_each(frame: Any, mapping: TypeMapping, *, has_ids: bool) -> Any:
    """Refuse different rows of one entity, of which a load would keep any; equal rows are one.

    The load itself does so for keys.
    """
    from pyspark.sql import functions

    names = [name for name in names_of(frame) if name != "id"]
    origin = [functions.min(ORIGIN).alias(ORIGIN)] if ORIGIN in frame.columns else []
    id_, lit = functions.col("id"), functions.lit
    if mapping.source is None:
        missing = f"a row of `{mapping.from_view}` has no `id`, by which a `{mapping.type_name}` is known"
        frame = frame.withColumn("id", functions.coalesce(id_, functions.raise_error(lit(missing))))
    if mapping.order_by is not None and names:
        return frame
    if not names:
        return frame.groupBy("id").agg(*origin) if origin else frame.distinct()
    known_by = ["` with the id `", "id"] if has_ids else ["` from `", "row.from", "` to `", "row.to"]
    parts = [lit(part) if "`" in part else functions.col(part).cast("string") for part in known_by]
    subject = [lit(f"different rows of `{mapping.from_view}` are the same `{mapping.type_name}"), *parts]
    advice = "choose the newest one with `order_by`" + ("" if has_ids else ", or give each an `id`")
    row = functions.struct(*map(column_of, names))
    # An edge without an end has no id; the load reports each of them.
    apart = functions.when(id_.isNull(), functions.xxhash64(row))
    ends = [functions.min(row).alias("row"), functions.max(row).alias("other"), *origin]
    rows = frame.groupBy("id", apart).agg(*ends)
    different = functions.raise_error(functions.concat(*subject, lit(f"`; {advice}")))
    agreed = functions.when(functions.col("row").eqNullSafe(functions.col("other")), functions.col("row"))
    kept = _origin_of(rows)
    return rows.select("id", agreed.otherwise(different).alias("row"), *kept).select("id", "row.*", *kept)


def _edge_id(source: Any, target: Any) -> Any:
    """Return the id of an edge that is known by its ends."""
    from pyspark.sql import functions

    ends = functions.struct(source.alias("from"), target.alias("to"))
    # The same in a session of any time zone.
    return functions.sha2(functions.to_json(ends, {"timeZone": "UTC"}), 256)


def _columns_by_property(frame: Any, mapping: TypeMapping, type_: Type) -> dict[str, str]:
    """Return the column of each property: as declared, or else those of the same name."""
    ends = [end for end in (mapping.source, mapping.target) if end is not None]
    marks = [name for name in (mapping.delete_when, mapping.order_by) if name is not None]
    for column in (*mapping.columns.values(), *ends, *marks):
        if column not in frame.columns:
            message = f"`{mapping.from_view}` has no column `{column}`; {suggest_column(column, frame)}"
            raise UsageError(message, column=column)
    names = {"id", *type_.properties}
    if not mapping.columns:
        if isinstance(type_, EdgeType):
            # One view often makes nodes and edges, so an edge takes what it has a property for.
            return {name: name for name in names_of(frame) if name in names and name not in ends}
        columns = {name: name for name in names_of(frame) if name not in marks or name in names}
        unknown = [name for name in columns if name not in names]
    else:
        unknown = [name for name in mapping.columns if name not in names]
        columns = dict(mapping.columns)
    if unknown:
        hint = did_you_mean(unknown[0], names) or f"it has {', '.join(type_.properties)}"
        advice = "" if mapping.columns else "; name the columns to load in `columns`, or select them in a transform"
        raise UsageError(f"`{mapping.type_name}` has no property `{unknown[0]}`; {hint}{advice}", property=unknown[0])
    return columns


def _check_properties(frame: Any, mapping: TypeMapping, type_: Type, columns: Mapping[str, str]) -> None:
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
    order = mapping.order_by
    if order is not None and find_family(frame, order) is None:
        kind = type_of(frame, order)
        raise UsageError(
            f"`order_by` names the column `{order}`, a {kind}; name a number, a time or a text that grows",
            column=order,
        )
    if mapping.delete_when is not None:
        _check_mark(frame, mapping)
    for name, column in columns.items():
        item = type_.properties.get(name)
        if item is None:
            continue
        column_type = type_of(frame, column)
        is_accepted = column_type in ("void", *_accepted_types(item.type))
        if item.type.is_list and column_type == "array":
            element = frame.schema[column].dataType.elementType.typeName()
            is_accepted = element in _accepted_types(replace(item.type, is_list=False))
            column_type = f"array of {element}"
        if not is_accepted:
            raise UsageError(
                f"column `{column}` of `{mapping.from_view}` is a {column_type}, and `{mapping.type_name}.{name}` is"
                f" {item.type}; cast it in a transform",
                column=column,
                property=name,
            )


def _check_mark(frame: Any, mapping: TypeMapping) -> None:
    """Refuse a `delete_when` that could mark no row: without values no boolean, or with values of another type."""
    mark = str(mapping.delete_when)
    kind = type_of(frame, mark)
    if not mapping.delete_values and kind != "boolean":
        raise UsageError(
            f"`delete_when` names the column `{mark}`, which is not a boolean; name the values that mark a deleted row,"
            f" as in `delete_when: {{ {mark}: [d, delete] }}`, or cast it",
            column=mark,
        )
    declared = {"delete_when": mapping.delete_values, "upsert_when": mapping.upsert_values or ()}
    declared["ignore_when"] = mapping.ignore_values
    wrong = [(name, value) for name, values in declared.items() for value in values if not _is_value_of(kind, value)]
    if wrong:
        raise UsageError(
            f"`{wrong[0][1]}` of `{wrong[0][0]}` is no value of the column `{mark}`, a {kind}; write it as the column"
            " has it, or cast the column in a transform",
            column=mark,
        )


def _is_value_of(kind: str, text: str) -> bool:
    if kind in NUMBER_TYPES:
        return re.fullmatch(NUMBER, text) is not None
    if kind == "boolean":
        return text in ("true", "false")
    return kind in (*TEXT_TYPES, *TIME_TYPES)


def _accepted_types(type_: PropertyType) -> Sequence[str]:
    """Return the Spark types whose values a property may take, besides `void`; a value itself may still not fit."""
    if type_.is_array:
        return ("array",)
    if type_.scalar in NUMBERS:
        # A number of another type is accepted if it loses nothing: 3.0 is an integer, and 3.5 a violation of its row.
        return NUMBER_TYPES
    if type_.is_text:
        return TEXT_TYPES
    name = str(spark_data_type(type_.scalar).typeName())
    names = TIME_TYPES if name == "timestamp" else (name,)
    return names if type_.scalar.facts.family is Family.TRUTH else (*names, "string")
