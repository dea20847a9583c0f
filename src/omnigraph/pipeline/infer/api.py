"""The public entry point of an inference: from files and frames to a first schema and the arguments to load them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory
from typing import Any

from omnigraph import settings
from omnigraph.docstrings import complete_docs
from omnigraph.engine.arguments import check_type
from omnigraph.engine.tasks import Progress, Runner, Threads, reporting_to
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import LOAD_LOCAL_BYTES_MAX
from omnigraph.pipeline.bulk_load.splits import (
    Columns,
    Split,
    detect_format,
    find_files,
    is_frame,
    parse_columns,
    plan_columns,
    plan_ndjson,
    write_arrow,
)
from omnigraph.pipeline.bulk_load.splits import Path as Source
from omnigraph.pipeline.infer.names import is_type_name, name_properties, name_property, name_type
from omnigraph.pipeline.infer.profile import TableProfile
from omnigraph.pipeline.infer.relations import Relater, Relations
from omnigraph.pipeline.infer.render import Table, render_schema
from omnigraph.pipeline.infer.scan import Scan
from omnigraph.pipeline.spark.executors import ENGINE_DOCS, Engine, Executors, RunnerChoice


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
            >>> inferred = infer_schema(nodes={"Person": pa.table({"Full Name": ["Ada"]})})
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


@complete_docs(ENGINE_DOCS)
def infer_schema(
    data: Source | Sequence[Source] = (),
    *,
    nodes: Mapping[str, Any] | None = None,
    edges: Mapping[str, Any] | None = None,
    engine: Engine = "auto",
    spark: Any = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> InferredSchema:
    """Write a first schema for an input: types, nullability, enums, keys and edges, each with its evidence.

    Args:
        data: NDJSON files, whose lines name their types, and Parquet or CSV files, each a table that is called like its
            file: a node type, or an edge type if two of its columns hold keys of node types.
        nodes: By node type: Parquet or CSV files, or frames (Spark, pandas, polars, Arrow tables and readers).
        edges: The same by edge type; `"FILE:from_column->to_column"` names the columns of the endpoints.

    Returns:
        The schema, which compiles, and the arguments of `pipeline.load` for the same input.

    Raises:
        UsageError: An argument or a file cannot be used, or there is nothing to infer from.
        DataError: A file is malformed.

    Example:
        >>> import pyarrow as pa
        >>> people = pa.table({"name": ["Ada", "Bob"], "age": [36, None]})
        >>> print(infer_schema(nodes={"Person": people}).source.partition("\\n\\n")[2], end="")
        node Person {
          name: String @key // 2 rows, 2 distinct, 0 null
          age: I64? // 2 rows, 1 distinct, 1 null
        }
    """
    check_type("nodes", nodes, Mapping | None)
    check_type("edges", edges, Mapping | None)
    choice = RunnerChoice(engine, master, spark, is_flexible=False)
    inputs = _list_inputs(data, nodes or {}, edges or {})
    with reporting_to(progress), TemporaryDirectory(prefix="omnigraph-infer-") as folder:
        written = {
            key: parse_columns(write_arrow(columns, folder, str(index)))
            for index, (key, columns) in enumerate(inputs.tables.items())
        }
        frames = {key: columns.data for key, columns in written.items() if is_frame(columns.data)}
        splits: list[Split] = plan_ndjson(inputs.ndjson)
        for key, columns in written.items():
            splits += plan_columns(key, Columns(columns.data)) if key not in frames else []
        scan = Scan(_choose_runner(choice, sum(split.size for split in splits), frames), splits, frames)
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
            if not is_type_name(str(name)):
                raise UsageError(
                    f"`{name}` is not a type name; type names begin with an upper-case letter", type=str(name)
                )
            tables[TypeKey.of(kind, str(name))] = parse_columns(source)
    if not ndjson and not tables:
        raise UsageError("there is nothing to infer a schema from; give files or frames")
    return _Input(tuple(ndjson), tables, frozenset(guessed) - {TypeKey.of("node", str(name)) for name in nodes})


def _choose_runner(choice: RunnerChoice, size: int, frames: Mapping[TypeKey, Any]) -> Runner:
    for frame in frames.values():
        if choice.engine == "local":
            raise UsageError("a DataFrame needs Spark; omit `engine`, or use a file", engine=choice.engine)
        return Executors(frame.sparkSession)
    return choice.by_size(
        size, LOAD_LOCAL_BYTES_MAX, Threads(settings.read_integer("OMNIGRAPH_LOAD_CONCURRENCY", least=1))
    )


def _check_names(
    profiles: Mapping[TypeKey, TableProfile], tables: Mapping[TypeKey, Columns]
) -> dict[TypeKey, TableProfile]:
    """Return the profiles in the order of their types; names of NDJSON cannot be mapped, so they have to be legal."""
    for key, profile in profiles.items():
        if key in tables:
            continue
        if not is_type_name(key.name):
            raise UsageError(
                f"`{key.name}` is not a type name; type names begin with an upper-case letter", type=key.name
            )
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
    for option, tables in (("--node", nodes), ("--edge", edges)):
        for name, columns in tables.items():
            if columns.properties or not isinstance(columns.data, str | os.PathLike):
                return [
                    *lines,
                    "Load it with `pipeline.load(graph, **inferred.load_arguments())`, which maps the columns.",
                ]
            ends = f":{columns.source}->{columns.target}" if columns.source else ""
            words += [option, f"{name}={columns.data}{ends}"]
    return [*lines, f"Load: omnigraph load GRAPH {shlex.join(words)}"]
