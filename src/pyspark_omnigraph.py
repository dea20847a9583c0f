"""The data source `omnigraph`, under a name by which Spark finds it without being told.

Spark imports this module to look up any format, so it loads nothing of ours until it is used.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """Types of a graph as DataFrames, and its change feed as a stream; see `omnigraph.pipeline`."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        from omnigraph.pipeline.source import pinned
        from omnigraph.pipeline.sourceerrors import coded

        with coded():
            # A DataFrame is planned anew whenever it is used, and must show one state of the graph each time.
            self._pinned = pinned(options)

    @classmethod
    def name(cls) -> str:
        return "omnigraph"

    def schema(self) -> Any:
        from omnigraph.pipeline import source, stream
        from omnigraph.pipeline.sourceerrors import coded

        with coded():
            if stream.is_stream(self.options):
                return stream.schema_of(self.options)
            return source.schema_of(self.options, self._pinned)

    def reader(self, schema: Any) -> Any:
        from omnigraph.pipeline.source import Reader
        from omnigraph.pipeline.sourceerrors import coded

        with coded():
            return Reader(self.options, self._pinned, schema)

    def streamReader(self, schema: Any) -> Any:
        from omnigraph.pipeline.sourceerrors import coded
        from omnigraph.pipeline.stream import StreamReader

        with coded():
            return StreamReader(self.options, schema)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from omnigraph.pipeline.sink import Writer
        from omnigraph.pipeline.sourceerrors import coded

        with coded():
            return Writer(self.options, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from omnigraph.pipeline.sink import StreamWriter
        from omnigraph.pipeline.sourceerrors import coded

        with coded():
            return StreamWriter(self.options, overwrite)
