"""The data source `omnigraph`, under a name by which Spark discovers it.

Spark imports this module to look up any format, so it loads nothing of the package until it is used.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """Types of a graph as DataFrames, and its change feed as a stream; see `omnigraph.pipeline`."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        from omnigraph.pipeline.datasource.options import spark_errors
        from omnigraph.pipeline.datasource.tables import pin_snapshot

        with spark_errors():
            # A DataFrame is planned again whenever it is used, and must show one state of the graph each time.
            self._pinned = pin_snapshot(options)

    @classmethod
    def name(cls) -> str:
        return "omnigraph"

    def schema(self) -> Any:
        from omnigraph.pipeline.datasource import stream, tables
        from omnigraph.pipeline.datasource.options import spark_errors

        with spark_errors():
            if stream.is_stream(self.options):
                return stream.schema_of(self.options)
            return tables.schema_of(self.options, self._pinned)

    def reader(self, schema: Any) -> Any:
        from omnigraph.pipeline.datasource.options import spark_errors
        from omnigraph.pipeline.datasource.tables import Reader

        with spark_errors():
            return Reader(self.options, self._pinned, schema)

    def streamReader(self, schema: Any) -> Any:
        from omnigraph.pipeline.datasource.options import spark_errors
        from omnigraph.pipeline.datasource.stream import StreamReader

        with spark_errors():
            return StreamReader(self.options, schema)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from omnigraph.pipeline.datasource.options import spark_errors
        from omnigraph.pipeline.datasource.tables import Writer

        with spark_errors():
            return Writer(self.options, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from omnigraph.pipeline.datasource.options import spark_errors
        from omnigraph.pipeline.datasource.tables import StreamWriter

        with spark_errors():
            return StreamWriter(self.options, overwrite)
