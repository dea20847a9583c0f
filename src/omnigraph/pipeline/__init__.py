"""Bulk load, export, DataFrames, streams, queries, analytics and maintenance, in threads or on Spark.

The only importer of `pyspark`, and of that only where Spark is used: everything that runs in threads works without it.
May import the facade and everything below it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.engine.infer.api import InferredSchema
    from omnigraph.engine.input.splits import Columns
    from omnigraph.engine.load.job import LoadReport
    from omnigraph.pipeline import algo
    from omnigraph.pipeline.declared.check import CheckReport, check
    from omnigraph.pipeline.declared.config import PipelineDeclaration, read_pipelines
    from omnigraph.pipeline.declared.run import retry_rejected, run
    from omnigraph.pipeline.declared.runs import RunPlan, RunRecord, RunReport, list_runs, plan_run
    from omnigraph.pipeline.diff import diff
    from omnigraph.pipeline.export import ExportReport, export
    from omnigraph.pipeline.operations import apply_schema, embed, infer_schema, load, merge, optimize, verify
    from omnigraph.pipeline.query import query
    from omnigraph.pipeline.scheduler.runner import ScheduleEvent, schedule
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

# Names are imported when they are used: a server needs the declarations of pipelines, and no more of this package.
_NAMES_OF = {
    "engine.infer.api": ("InferredSchema",),
    "engine.input.splits": ("Columns",),
    "engine.load.job": ("LoadReport",),
    "pipeline.declared.check": ("CheckReport", "check"),
    "pipeline.declared.config": ("PipelineDeclaration", "read_pipelines"),
    "pipeline.declared.run": ("retry_rejected", "run"),
    "pipeline.declared.runs": ("RunPlan", "RunRecord", "RunReport", "list_runs", "plan_run"),
    "pipeline.diff": ("diff",),
    "pipeline.export": ("ExportReport", "export"),
    "pipeline.operations": ("apply_schema", "embed", "infer_schema", "load", "merge", "optimize", "verify"),
    "pipeline.query": ("query",),
    "pipeline.scheduler.runner": ("ScheduleEvent", "schedule"),
    "spark.session": ("register", "session"),
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}


def __getattr__(name: str) -> object:
    if name == "algo":
        return import_module("omnigraph.pipeline.algo")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'omnigraph.pipeline' has no attribute {name!r}")
    return getattr(import_module(f"omnigraph.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)


class _Package(ModuleType):
    """This package: a function such as `query` keeps its name when the module of the same name is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _MODULE_OF and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
