"""Spark: bulk load, export, DataFrames, streams, queries, analytics and maintenance; the only importer of `pyspark`.

May import the facade and everything below it.
"""

from omnigraph.pipeline import algo
from omnigraph.pipeline.bulk_load.api import load
from omnigraph.pipeline.bulk_load.report import LoadReport
from omnigraph.pipeline.bulk_load.splits import Columns
from omnigraph.pipeline.diff import diff
from omnigraph.pipeline.embed import embed
from omnigraph.pipeline.export import ExportReport, export
from omnigraph.pipeline.maintenance import optimize, verify
from omnigraph.pipeline.query import query
from omnigraph.pipeline.range_merge.merge import merge
from omnigraph.pipeline.spark.session import register

__all__ = [
    "Columns",
    "ExportReport",
    "LoadReport",
    "algo",
    "diff",
    "embed",
    "export",
    "load",
    "merge",
    "optimize",
    "query",
    "register",
    "verify",
]
