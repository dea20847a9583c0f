"""The public entry point of an inference: from files and frames to a first `.pg` source and how to load them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from omnigraph.engine.arguments import check_type
from omnigraph.engine.infer.profile import TEXTS, ColumnProfile, TableProfile
from omnigraph.engine.infer.relations import (
    Relater,
    Relations,
    is_type_name,
    name_properties,
    name_property,
    name_type,
)
from omnigraph.engine.infer.scan import Scan
from omnigraph.engine.input.frames import as_frame
from omnigraph.engine.input.splits import (
    Columns,
    detect_format,
    find_files,
    is_frame,
    parse_columns,
    plan_ndjson,
)
from omnigraph.engine.input.splits import Path as Source
from omnigraph.engine.input.spool import Spool
from omnigraph.engine.runners import Runners
from omnigraph.errors import UsageError
from omnigraph.lang import diagnostic
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.format import format_source
from omnigraph.limits import VECTOR_DIMENSION_MAX

_ENUM_VALUE: Final = re.compile(r"[A-Za-z0-9_-]+")
# A text is an enum if it has few values that come back often.
_ENUM_ROWS_MIN: Final = 20
_ENUM_ROWS_PER_VALUE: Final = 5


@dataclass(frozen=True, slots=True)
class Table:
    """A table as a type: its profile, and the property of each column."""

    key: TypeKey
    profile: TableProfile
    properties: Mapping[str, str]


def render_schema(tables: Sequence[Table], relations: Relations, header: Sequence[str]) -> str:
    lines = [f"// {_one_line(text)}" for text in header]
    for table in tables:
        lines += ["", *_render_type(table, relations)]
    return format_source(diagnostic.Source("inferred.pg", "\n".join(lines)), "pg")


def _render_type(table: Table, relations: Relations) -> Iterator[str]:
    key, edge = table.key, relations.edges.get(table.key)
    for note in relations.notes.get(key, ()):
        yield f"// {_one_line(note)}"
    if edge is not None:
        ends = f"{edge.ends[0].name} -> {edge.ends[1].name}"
        for column in edge.columns:
            yield f"// {_one_line(column)}: {_evidence(table.profile, column)}"
        members = list(_render_properties(table, (), skipped=edge.columns))
        yield f"edge {key.name}: {ends}" + (" {" if members else "")
        yield from [*members, "}"] if members else []
        return
    if key not in relations.keys:
        return
    yield f"node {key.name} {{"
    yield from _render_properties(table, relations.keys[key], skipped=())
    yield "}"


def _render_properties(table: Table, key: Sequence[str], *, skipped: Sequence[str]) -> Iterator[str]:
    for column, profile in table.profile.columns.items():
        name = table.properties.get(column, "")
        if column in skipped or not column:
            continue
        is_key = tuple(key) == (column,)
        evidence = _evidence(table.profile, column, is_key=is_key)
        is_text = profile.type == TEXTS
        if name == "id" and not (is_key and is_text):
            yield f"// id: {evidence}; the ids of the graph"
            continue
        if profile.type is not None and profile.type.scalar is None:
            yield f"// left out: `{_one_line(column)}` has {profile.type.reason}; {evidence}"
            continue
        written = write_type(profile, is_nullable=table.profile.nulls(column) > 0, is_key=column in key)
        was = f"column `{_one_line(column)}`, " if name != column else ""
        yield f"{name}: {written}{' @key' if is_key else ''} // {was}{evidence}"
    if len(key) > 1:
        yield f"@key({', '.join(table.properties[column] for column in key)})"


def write_type(profile: ColumnProfile, *, is_nullable: bool, is_key: bool) -> str:
    """Return the type of a property; a column without any value is a text that may be null."""
    mark = "?" if is_nullable else ""
    if profile.type is None or profile.type.scalar is None:
        return "String?"
    if profile.is_vector and profile.lengths is not None and profile.lengths[0] <= VECTOR_DIMENSION_MAX:
        return f"Vector({profile.lengths[0]}){mark}"
    name = profile.type.scalar.value
    if profile.type.is_list:
        return f"[{name}]{mark}"
    if not is_key and profile.type == TEXTS and _is_enum(profile):
        return f"enum({', '.join(sorted(profile.words or ()))}){mark}"
    return f"{name}{mark}"


def _is_enum(profile: ColumnProfile) -> bool:
    words = profile.words
    if words is None or len(words) < 2 or not all(map(_ENUM_VALUE.fullmatch, words)):
        return False
    return profile.values >= max(_ENUM_ROWS_MIN, _ENUM_ROWS_PER_VALUE * len(words))


def _evidence(profile: TableProfile, column: str, *, is_key: bool = False) -> str:
    """Return the counts of a column; the values of a key were all compared, so their number is exact."""
    values = profile.columns[column]
    rows, nulls = f"{profile.rows:,} row{'s' if profile.rows != 1 else ''}", f"{profile.nulls(column):,} null"
    if values.type is None or not values.type.is_plain:
        return f"{rows}, {nulls}"
    about = "" if values.sketch.is_exact or is_key else "about "
    distinct = profile.rows if is_key else min(values.sketch.distinct, values.values)
    return f"{rows}, {about}{distinct:,} distinct, {nulls}"


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


@dataclass(frozen=True, slots=True)
class InferredSchema:
    """A first schema for an input, and how to load the input into a graph that has it.

    `source` is the text of the schema; `data`, `nodes` and `edges` are the arguments of `pipeline.load`.
    """

    source: str
    engine: str
    data: tuple[Source, ...] = ()
    nodes: Mapping[str, Columns] = field(default_factory=dict)
    edges: Mapping[str, Columns] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.source

    def load_arguments(self) -> dict[str, Any]:
        """Return the input as keyword arguments: `pipeline.load(graph, **inferred.load_arguments())`.

        Returns:
            `data`, `nodes` and `edges`, with the columns of renamed properties and of endpoints.

        Example:
            >>> import pyarrow as pa
            >>> from omnigraph.engine.runners import ThisProcess
            >>> inferred = infer_schema(ThisProcess(), nodes={"Person": pa.table({"Full Name": ["Ada"]})})
            >>> inferred.load_arguments()["nodes"]["Person"].properties
            {'Full Name': 'full_name'}
        """
        return {"data": self.data, "nodes": dict(self.nodes), "edges": dict(self.edges)}


@dataclass(frozen=True, slots=True)
class _Input:
    """The sources by table; `guessed` tables may be nodes or edges."""

    ndjson: tuple[Source, ...]
    tables: Mapping[TypeKey, Columns]
    guessed: frozenset[TypeKey]


def infer_schema(
    runners: Runners,
    data: Source | Sequence[Source] = (),
    *,
    nodes: Mapping[str, Any] | None = None,
    edges: Mapping[str, Any] | None = None,
    delimiter: str | None = None,
) -> InferredSchema:
    """Write a first schema for an input: types, nullability, enums, keys and edges, each with its evidence.

    Args:
        data: NDJSON files, whose lines name their types, and Parquet or CSV files, each a table that is called like its
            file: a node type, or an edge type if two of its columns hold keys of node types.
        nodes: By node type: Parquet or CSV files, or frames (Spark, pandas, polars, Arrow tables and readers).
        edges: The same by edge type; `"FILE:from_column->to_column"` names the columns of the endpoints.
        delimiter: What separates the fields of CSV files; by default a comma, or a tab in `.tsv`.

    Returns:
        The schema, which compiles, and the arguments of `pipeline.load` for the same input.

    Raises:
        UsageError: An argument or a file cannot be used, or there is nothing to infer from.
        DataError: A file is malformed.

    Example:
        >>> import pyarrow as pa
        >>> from omnigraph import pipeline
        >>> people = pa.table({"name": ["Ada", "Bob"], "age": [36, None]})
        >>> print(pipeline.infer_schema(nodes={"Person": people}).source.partition("\\n\\n")[2], end="")
        node Person {
          name: String @key // 2 rows, 2 distinct, 0 null
          age: I64? // 2 rows, 1 distinct, 1 null
        }
    """
    check_type("nodes", nodes, Mapping | None)
    check_type("edges", edges, Mapping | None)
    inputs = _list_inputs(data, nodes or {}, edges or {})
    if delimiter is not None:
        inputs = replace(
            inputs,
            tables={
                key: item if is_frame(item.data) else replace(item, delimiter=item.delimiter or delimiter)
                for key, item in inputs.tables.items()
            },
        )
    with Spool() as spool:
        frames = {key: columns.data for key, columns in inputs.tables.items() if is_frame(columns.data)}
        splits = plan_ndjson(inputs.ndjson)
        for key, columns in inputs.tables.items():
            # Of the mapping, only how the file is read: what the columns are called is to be found.
            table = Columns(columns.data, delimiter=columns.delimiter)
            splits += spool.plan_table(key, table) if key not in frames else []
        runner = runners.by_input(sum(split.size for split in splits), frames.values(), "use a file")
        scan = Scan(runner, splits, frames)
        profiles = _check_names(scan.profile_tables(), inputs.tables)
        ends = {
            key: (c.source, c.target)
            for key, c in inputs.tables.items()
            if c.source is not None and c.target is not None
        }
        relations = Relater(scan, profiles, inputs.guessed, ends).relate()
    return _describe(scan.runner.engine, inputs, profiles, relations)


def _list_inputs(data: Source | Sequence[Source], nodes: Mapping[str, Any], edges: Mapping[str, Any]) -> _Input:
    sources: list[Any] = list(data) if isinstance(data, list | tuple) else [data]
    ndjson: list[Source] = []
    guessed: dict[TypeKey, list[Source]] = {}
    for source in sources:
        formats = {detect_format(file)[0] for file in find_files(source)}
        if "ndjson" in formats:
            ndjson.append(source)
        else:
            guessed.setdefault(TypeKey.of("node", name_type(os.fspath(source))), []).append(source)
    tables = {key: Columns(paths[0] if len(paths) == 1 else paths) for key, paths in guessed.items()}
    for kind, named in (("node", nodes), ("edge", edges)):
        for name, source in named.items():
            _require_type_name(str(name))
            tables[TypeKey.of(kind, str(name))] = parse_columns(as_frame(source))
    if not ndjson and not tables:
        raise UsageError("there is nothing to infer a schema from; give files or frames")
    return _Input(tuple(ndjson), tables, frozenset(guessed) - {TypeKey.of("node", str(name)) for name in nodes})


def _require_type_name(name: str) -> None:
    if not is_type_name(name):
        raise UsageError(f"`{name}` is not a type name; type names begin with an upper-case letter", type=name)


def _check_names(
    profiles: Mapping[TypeKey, TableProfile], tables: Mapping[TypeKey, Columns]
) -> dict[TypeKey, TableProfile]:
    """Return the profiles in the order of their types; names of NDJSON cannot be mapped, so they have to be legal."""
    for key, profile in profiles.items():
        if key in tables:
            continue
        _require_type_name(key.name)
        for name in profile.columns:
            if name_property(name) != name:
                raise UsageError(
                    f"`{name}` of `{key.name}` is not a property name; call it `{name_property(name)}` in the file,"
                    " or convert the file to Parquet, whose columns can be mapped",
                    type=key.name,
                    property=name,
                )
    return {key: profiles[key] for key in sorted(profiles, key=lambda key: (key.kind == "edge", key.name))}


def _describe(
    engine: str, inputs: _Input, profiles: Mapping[TypeKey, TableProfile], relations: Relations
) -> InferredSchema:
    """Name the properties, write the schema, and say how the input is loaded."""
    tables: list[Table] = []
    nodes: dict[str, Columns] = {}
    edges: dict[str, Columns] = {}
    for key, profile in profiles.items():
        edge = relations.edges.get(key)
        skipped = edge.columns if edge is not None else ()
        columns = [name for name in profile.columns if name not in skipped]
        keeps_id = (
            all(_is_identity(profile, name) for name in columns if name_property(name) == "id")
            or key not in inputs.tables
        )
        properties = name_properties(columns, is_edge=edge is not None, keeps_id=keeps_id)
        tables.append(Table(key, profile, properties))
        if key in inputs.tables and (edge is not None or key in relations.keys):
            renamed = {column: name for column, name in properties.items() if column != name}
            source, target = skipped if skipped else (None, None)
            loaded = replace(inputs.tables[key], source=source, target=target, properties=renamed)
            (edges if edge is not None else nodes)[key.name] = loaded
    tables.sort(key=lambda table: (table.key in relations.edges or table.key.kind == "edge", table.key.name))
    header = [*_header(inputs, nodes, edges)]
    return InferredSchema(render_schema(tables, relations, header), engine, inputs.ndjson, nodes, edges)


def _is_identity(profile: TableProfile, name: str) -> bool:
    return profile.nulls(name) == 0 and not profile.columns[name].sketch.has_duplicates


def _header(inputs: _Input, nodes: Mapping[str, Columns], edges: Mapping[str, Columns]) -> list[str]:
    """Return the comment at the top: what to check, and the command that loads the files, if one can."""
    lines = ["A first schema, inferred from data. Check names, keys and enums before you use it."]
    words = [word for path in inputs.ndjson for word in ("--data", str(path))]
    delimiters = {columns.delimiter or "," for tables in (nodes, edges) for columns in tables.values()}
    for option, tables in (("--node", nodes), ("--edge", edges)):
        for name, columns in tables.items():
            if columns.properties or len(delimiters) > 1 or not isinstance(columns.data, str | os.PathLike):
                return [
                    *lines,
                    "Load it with `pipeline.load(graph, **inferred.load_arguments())`, which maps the columns.",
                ]
            ends = f":{columns.source}->{columns.target}" if columns.source else ""
            words += [option, f"{name}={columns.data}{ends}"]
    for delimiter in delimiters - {","}:
        words += ["--delimiter", "tab" if delimiter == "\t" else delimiter]
    return [*lines, f"Load: omnigraph load GRAPH {shlex.join(words)}"]
