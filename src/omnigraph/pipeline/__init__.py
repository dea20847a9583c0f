"""The Spark pipeline: load, export, DataFrames, streams, queries and maintenance; the only importer of `pyspark`.

May import the facade and everything below it.
"""

from omnigraph.pipeline import algo
from omnigraph.pipeline.diff import diff
from omnigraph.pipeline.embed import embed
from omnigraph.pipeline.export import ExportReport, export
from omnigraph.pipeline.load import load
from omnigraph.pipeline.maintain import optimize
from omnigraph.pipeline.maintain_verify import verify
from omnigraph.pipeline.merge_ranges import merge
from omnigraph.pipeline.query import query
from omnigraph.pipeline.report import LoadReport
from omnigraph.pipeline.session import register
from omnigraph.pipeline.sources import Columns

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
