"""The data source `omnigraph`, under a name by which Spark discovers it.

Spark imports this module to look up any format, so it loads nothing of the package until it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark.sql.datasource import DataSource


def _show_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    """Show errors as the user of Spark is to see them; the processes that Spark runs this in need no pandas."""

    @wraps(method)
    def run(*arguments: Any, **options: Any) -> Any:
        from omnigraph.arrow_import import postpone_pandas

        postpone_pandas()
        from omnigraph.spark.datasource.options import spark_errors

        with spark_errors():
            return method(*arguments, **options)

    return run


class DefaultSource(DataSource):
    """Types of a graph as DataFrames, and its change feed as a stream; see `omnigraph.pipeline`."""

    @_show_errors
    def __init__(self, options: Any) -> None:
        super().__init__(options)
        from omnigraph.spark.datasource.tables import pin_snapshot

        # A DataFrame is planned again whenever it is used, and must show one state of the graph each time.
        self._pinned = pin_snapshot(options)

    @classmethod
    def name(cls) -> str:
        return "omnigraph"

    @_show_errors
    def schema(self) -> Any:
        from omnigraph.spark.datasource import stream, tables

        if stream.is_stream(self.options):
            return stream.schema_of(self.options)
        return tables.schema_of(self.options, self._pinned)

    @_show_errors
    def reader(self, schema: Any) -> Any:
        from omnigraph.spark.datasource.tables import Reader

        return Reader(self.options, self._pinned, schema)

    @_show_errors
    def streamReader(self, schema: Any) -> Any:
        from omnigraph.spark.datasource.stream import StreamReader

        return StreamReader(self.options, schema)

    @_show_errors
    def writer(self, schema: Any, overwrite: bool) -> Any:
        from omnigraph.spark.datasource.tables import Writer

        return Writer(self.options, overwrite)

    @_show_errors
    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from omnigraph.spark.datasource.tables import StreamWriter

        return StreamWriter(self.options, overwrite)
