"""The operations of a graph that take an engine: in this process, or on Spark if they are large."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import getdoc, signature
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from omnigraph.docstrings import complete_docs, merge_docstrings
from omnigraph.engine.branches import Branches
from omnigraph.engine.infer.api import InferredSchema
from omnigraph.engine.infer.api import infer_schema as infer
from omnigraph.engine.input.splits import Path as Source
from omnigraph.engine.maintain.maintenance import Maintenance
from omnigraph.engine.schema import Schema
from omnigraph.engine.tasks import Progress, reporting_to
from omnigraph.graph import Graph
from omnigraph.spark.executors import ENGINE_DOCS, Engine, RunnerChoice

_P = ParamSpec("_P")
_R = TypeVar("_R", covariant=True)


class OnEngine(Protocol[_P, _R]):
    """A method of an open graph as a function that takes the graph, and where to run."""

    @overload
    def __call__(self, graph: Graph, *arguments: _P.args, **options: _P.kwargs) -> _R: ...
    # A type cannot add keywords to those of another function, so only these are checked where one of them is used.
    @overload
    def __call__(
        self,
        graph: Graph,
        *arguments: Any,
        engine: Engine = ...,
        spark: Any = ...,
        master: str | None = ...,
        progress: Progress | None = ...,
        **options: Any,
    ) -> _R: ...


def on_engine(name: str, method: Callable[Concatenate[Any, _P], _R], find: str) -> OnEngine[_P, _R]:
    """Return a method of `Graph`, or of a part of it, as a function that takes an engine; `find` is its path."""

    def run(
        graph: Graph,
        *arguments: Any,
        engine: Engine = "auto",
        spark: Any = None,
        master: str | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> _R:
        there = graph.on(engine, spark=spark, master=master, progress=progress)
        result: _R = attrgetter(find)(there)(*arguments, **options)
        return result

    run.__name__ = run.__qualname__ = name
    graph, *places = [
        item
        for item in signature(run).parameters.values()
        if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)
    ]
    _, *options = signature(method).parameters.values()
    parameters = [graph, *options, *places]
    run.__signature__ = signature(method).replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__doc__ = merge_docstrings(getdoc(method) or "", ENGINE_DOCS, [item.name for item in parameters])
    return cast(OnEngine[_P, _R], run)


load = on_engine("load", Graph.load, "load")
merge = on_engine("merge", Branches.merge, "branches.merge")
embed = on_engine("embed", Graph.embed, "embed")
optimize = on_engine("optimize", Maintenance.optimize, "maintenance.optimize")
apply_schema = on_engine("apply_schema", Schema.apply, "schema.apply")
verify = on_engine("verify", Maintenance.verify, "maintenance.verify")


@complete_docs(ENGINE_DOCS)
def infer_schema(
    data: Source | Sequence[Source] = (),
    *,
    nodes: Mapping[str, Any] | None = None,
    edges: Mapping[str, Any] | None = None,
    delimiter: str | None = None,
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
        delimiter: What separates the fields of CSV files; by default a comma, or a tab in `.tsv`.

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
    with reporting_to(progress):
        return infer(RunnerChoice(engine, master, spark), data, nodes=nodes, edges=edges, delimiter=delimiter)
