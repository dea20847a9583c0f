"""Which files of an incremental source were read: the next run opens only those that are new or have changed.

The ledger of a run lists the files that its sources had, by path, size and time of change, with the columns that were
found in them. It is an object beside the graph that the commit of the load names. A ledger that is gone costs time
alone: all files are read again, and the watermark still decides which of their rows are new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from omnigraph.engine.input.splits import File
from omnigraph.errors import UsageError
from omnigraph.pipelines.declaration.config import SourceDeclaration
from omnigraph.pipelines.frame_columns import names_of

_FORMATS: Final = frozenset({"csv", "json", "parquet", "orc", "avro", "text", "xml"})


@dataclass(frozen=True, slots=True)
class FileLedger:
    """The files of a source by path, with size and time of change, and the columns of its rows as Spark's JSON."""

    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    schema: str = ""

    @classmethod
    def of(cls, files: Sequence[File], schema: str) -> FileLedger:
        return cls({file.name: (file.size, file.modified_ns) for file in files}, schema)

    def find_new(self, files: Sequence[File]) -> list[File]:
        """Return the files that were not there, or have changed since."""
        return [file for file in files if self.files.get(file.name) != (file.size, file.modified_ns)]


def has_ledger(source: SourceDeclaration) -> bool:
    """Return True if the files of a source are read once; a lookback may need the rows of older ones."""
    is_file = source.format in _FORMATS and source.path is not None
    return is_file and source.incremental is not None and source.lookback in (None, "0")


def add_known_columns(frame: Any, source: SourceDeclaration, ledger: FileLedger | None) -> Any:
    """Add the columns that earlier files had and new ones do not: a transform may name them.

    Raises:
        UsageError: New files of CSV have other columns than the earlier ones.
    """
    if ledger is None or not ledger.schema:
        return frame
    from pyspark.sql import functions
    from pyspark.sql.types import StructType

    known = StructType.fromJson(orjson.loads(ledger.schema))
    if source.format == "csv" and "schema" in source.options:
        # The declaration says which columns there are, and each file was held against it.
        return frame
    if source.format == "csv" and names_of(frame) != known.names:
        raise UsageError(
            f"new files of source `{source.name}` have the columns {', '.join(names_of(frame))}, and the earlier ones"
            f" {', '.join(known.names)}; correct them, or read them as a source of their own",
            part=f"sources.{source.name}",
        )
    missing = [item for item in known if item.name not in frame.columns]
    return frame.withColumns({item.name: functions.lit(None).cast(item.dataType) for item in missing})


def make_empty(spark: Any, ledger: FileLedger) -> Any:
    """Return a frame with the columns that earlier files had, and no rows."""
    from pyspark.sql.types import StructType

    return spark.createDataFrame([], StructType.fromJson(orjson.loads(ledger.schema)))
