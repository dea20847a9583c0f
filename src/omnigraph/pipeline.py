"""What runs in this process or on Spark: `from omnigraph import pipeline`, then `pipeline.load(graph, …)`.

Names are imported when they are used: a server needs the declarations of pipelines, and no more.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import Parameter, getdoc, signature
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, get_type_hints, overload

if TYPE_CHECKING:
    from omnigraph.engine.branches import Branches
    from omnigraph.engine.export_files import ExportReport
    from omnigraph.engine.infer.api import InferredSchema
    from omnigraph.engine.infer.api import infer_schema as infer
    from omnigraph.engine.input.splits import Columns
    from omnigraph.engine.load.report import LoadReport
    from omnigraph.engine.maintain.maintenance import Maintenance
    from omnigraph.engine.schema import Schema
    from omnigraph.engine.tasks import Progress
    from omnigraph.graph import Graph
    from omnigraph.pipelines.check import CheckReport, check
    from omnigraph.pipelines.declaration.config import PipelineDeclaration, read_pipelines
    from omnigraph.pipelines.history import RunPlan, RunRecord, RunReport, list_runs, plan_run
    from omnigraph.pipelines.run import retry_rejected, run
    from omnigraph.pipelines.scheduler.runner import ScheduleEvent, schedule
    from omnigraph.spark import algo
    from omnigraph.spark.diff import diff
    from omnigraph.spark.executors import Engine
    from omnigraph.spark.query import query
    from omnigraph.spark.session import register, session

__all__ = [
    "CheckReport",
    "Columns",
    "ExportReport",
    "InferredSchema",
    "LoadReport",
    "PipelineDeclaration",
    "RunPlan",
    "RunRecord",
    "RunReport",
    "ScheduleEvent",
    "algo",
    "apply_schema",
    "check",
    "diff",
    "embed",
    "export",
    "infer_schema",
    "list_runs",
    "load",
    "merge",
    "optimize",
    "plan_run",
    "query",
    "read_pipelines",
    "register",
    "retry_rejected",
    "run",
    "schedule",
    "session",
    "verify",
]

_NAMES_OF = {
    "engine.export_files": ("ExportReport",),
    "engine.infer.api": ("InferredSchema",),
    "engine.input.splits": ("Columns",),
    "engine.load.report": ("LoadReport",),
    "pipelines.check": ("CheckReport", "check"),
    "pipelines.declaration.config": ("PipelineDeclaration", "read_pipelines"),
    "pipelines.history": ("RunPlan", "RunRecord", "RunReport", "list_runs", "plan_run"),
    "pipelines.run": ("retry_rejected", "run"),
    "pipelines.scheduler.runner": ("ScheduleEvent", "schedule"),
    "spark.diff": ("diff",),
    "spark.query": ("query",),
    "spark.session": ("register", "session"),
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}
# Where an open graph, or a part of it, has the method of each function.
_METHODS = {
    "apply_schema": "schema.apply",
    "embed": "embed",
    "export": "export_files",
    "load": "load",
    "merge": "branches.merge",
    "optimize": "maintenance.optimize",
    "verify": "maintenance.verify",
}


def __getattr__(name: str) -> object:
    if name == "algo":
        value: object = import_module("omnigraph.spark.algo")
    elif name == "infer_schema":
        value = _infer_schema()
    elif name in _METHODS:
        value = _on_graph(name, _METHODS[name])
    elif name in _MODULE_OF:
        value = getattr(import_module(f"omnigraph.{_MODULE_OF[name]}"), name)
    else:
        raise AttributeError(f"module 'omnigraph.pipeline' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)


def _on_graph(name: str, path: str) -> Callable[..., object]:
    """Return a method of `Graph`, or of a part of it, as a function of the graph."""
    from omnigraph.graph import Graph

    def call(choice: dict[str, Any], graph: Graph, *arguments: Any, **options: Any) -> object:
        result: object = attrgetter(path)(graph.on(**choice))(*arguments, **options)
        return result

    part, _, method = path.rpartition(".")
    graph = Parameter("graph", Parameter.POSITIONAL_OR_KEYWORD, annotation="Graph")
    return _on_engine(name, getattr(get_type_hints(Graph)[part] if part else Graph, method), call, graph)


def _infer_schema() -> Callable[..., object]:
    from omnigraph.engine.infer.api import infer_schema
    from omnigraph.engine.tasks import reporting_to
    from omnigraph.spark.executors import RunnerChoice

    def call(choice: dict[str, Any], *arguments: Any, **options: Any) -> object:
        with reporting_to(choice.pop("progress")):
            return infer_schema(RunnerChoice(**choice), *arguments, **options)

    return _on_engine("infer_schema", infer_schema, call)


def _on_engine(
    name: str, method: Callable[..., object], call: Callable[..., object], *subject: Parameter
) -> Callable[..., object]:
    """Return what `call` does as a function with the arguments of `method`, but for its first, and where to run."""
    from omnigraph.docstrings import merge_docstrings
    from omnigraph.spark.executors import ENGINE_DOCS

    def run(
        *arguments: Any,
        engine: Engine = "auto",
        spark: Any = None,
        master: str | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> object:
        choice = {"engine": engine, "spark": spark, "master": master, "progress": progress}
        return call(choice, *arguments, **options)

    _, *options = signature(method).parameters.values()
    choices = [item for item in signature(run).parameters.values() if item.kind is item.KEYWORD_ONLY]
    parameters = [*subject, *options, *choices]
    run.__name__ = run.__qualname__ = name
    run.__signature__ = signature(method).replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__doc__ = merge_docstrings(getdoc(method) or "", ENGINE_DOCS, [item.name for item in parameters])
    return run


if TYPE_CHECKING:
    P = ParamSpec("P")
    R_co = TypeVar("R_co", covariant=True)

    class OnEngine(Protocol[P, R_co]):
        """A function that takes where to run, beside its own arguments."""

        @overload
        def __call__(self, *arguments: P.args, **options: P.kwargs) -> R_co: ...
        # A type cannot add keywords to those of another function, so beside them the arguments are not checked.
        @overload
        def __call__(
            self,
            *arguments: Any,
            engine: Engine = ...,
            spark: Any = ...,
            master: str | None = ...,
            progress: Progress | None = ...,
            **options: Any,
        ) -> R_co: ...

    def of_graph(method: Callable[Concatenate[Any, P], R_co]) -> OnEngine[Concatenate[Graph, P], R_co]: ...
    def anywhere(function: Callable[Concatenate[Any, P], R_co]) -> OnEngine[P, R_co]: ...

    apply_schema = of_graph(Schema.apply)
    embed = of_graph(Graph.embed)
    export = of_graph(Graph.export_files)
    infer_schema = anywhere(infer)
    load = of_graph(Graph.load)
    merge = of_graph(Branches.merge)
    optimize = of_graph(Maintenance.optimize)
    verify = of_graph(Maintenance.verify)
