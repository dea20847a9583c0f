"""Spark: bulk load, export, DataFrames, streams, queries, analytics and maintenance; the only importer of `pyspark`.

May import the facade and everything below it.
"""

from omnigraph.pipeline import algo
from omnigraph.pipeline.bulk_load.api import load
from omnigraph.pipeline.bulk_load.job import LoadReport
from omnigraph.pipeline.bulk_load.splits import Columns
from omnigraph.pipeline.declared.check import CheckReport, check
from omnigraph.pipeline.declared.config import PipelineDeclaration, read_pipelines
from omnigraph.pipeline.declared.run import run
from omnigraph.pipeline.declared.runs import RunPlan, RunRecord, RunReport, list_runs, plan_run
from omnigraph.pipeline.diff import diff
from omnigraph.pipeline.export import ExportReport, export
from omnigraph.pipeline.infer.api import InferredSchema, infer_schema
from omnigraph.pipeline.maintenance import apply_schema, embed, optimize, verify
from omnigraph.pipeline.query import query
from omnigraph.pipeline.range_merge.merge import merge
from omnigraph.pipeline.scheduler.runner import ScheduleEvent, schedule
from omnigraph.pipeline.spark.session import register, session

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
    "run",
    "schedule",
    "session",
    "verify",
]
