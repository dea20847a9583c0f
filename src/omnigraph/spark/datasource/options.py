"""Options of the data source `omnigraph`, and its errors as Spark shows them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import add
from typing import Any, Final

import pyarrow as pa

from omnigraph import settings
from omnigraph.engine.export import column_type
from omnigraph.engine.past_schemas import NOW, Naming, check_names
from omnigraph.engine.revisions import AsOf
from omnigraph.engine.session import GraphSession, sweep_on_open
from omnigraph.errors import OmniGraphError, UsageError
from omnigraph.lang.catalog import PropertyType, Scalar, Type
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.lang.times import DAY_MS
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN
from omnigraph.rules.arrow_typing import Column
from omnigraph.rules.time_columns import to_timestamps
from omnigraph.store.objects.uri import Location
from omnigraph.store.store import Store

READ_OPTIONS: Final = (
    "graph",
    "path",
    "type",
    "branch",
    "at",
    "version",
    "names",
    "columns",
    "filter",
    "numpartitions",
    "actor",
)
WRITE_OPTIONS: Final = (
    "graph",
    "path",
    "type",
    "branch",
    "mode",
    "message",
    "actor",
    "stream",
    "checkpointlocation",
    "outputmode",
)

STREAM_OPTIONS: Final = (
    "graph",
    "path",
    "start",
    "branch",
    "type",
    "kinds",
    "types",
    "ops",
    "maxcommitspertrigger",
    "actor",
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a read or write, by lower-case name."""

    values: Mapping[str, str]

    @property
    def graph(self) -> str:
        uri = self.values.get("graph") or self.values.get("path")
        if not uri:
            raise UsageError(
                'no graph was given; add `.option("graph", URI)` with its path or address. A table of Spark\'s'
                " catalog keeps no options of a data source; use a temporary view instead"
            )
        return uri

    @property
    def type(self) -> str:
        return self.require(
            "type", 'add `.option("type", NAME)` with a node or edge type of the graph, or `start` for a stream'
        )

    @property
    def branch(self) -> str:
        return self.values.get("branch", MAIN).strip()

    @property
    def at(self) -> AsOf | None:
        """The state to read: a commit, tag, timestamp or manifest version; None is the newest."""
        at, version = self.values.get("at"), self.values.get("version")
        if at is not None and version is not None:
            raise UsageError("`at` and `version` exclude each other; use one of them")
        if version is not None:
            return self.integer("version")
        try:
            return datetime.fromisoformat(at) if at is not None else None
        except ValueError:
            return at

    @property
    def naming(self) -> Naming:
        """Whether a past state is read with current names or with its own."""
        return check_names(self.values.get("names", NOW))

    @property
    def message(self) -> str | None:
        return self.values.get("message")

    def require(self, name: str, hint: str) -> str:
        if not self.values.get(name):
            raise UsageError(f"the option `{name}` is missing; {hint}", option=name)
        return self.values[name]

    def integer(self, name: str, default: int = 0) -> int:
        try:
            return int(self.values.get(name, default))
        except ValueError:
            raise UsageError(f"`{name}` must be an integer, got `{self.values[name]}`", option=name) from None

    def name_list(self, name: str) -> list[str] | None:
        """Return a comma-separated list of names; None if the option is missing."""
        value = self.values.get(name)
        return None if value is None else [item.strip() for item in value.split(",") if item.strip()]

    def open(self) -> GraphSession:
        session = GraphSession(Kernel(Store(Location.parse(self.graph))), self.values.get("actor"))
        sweep_on_open(session.kernel)
        return session

    @contextmanager
    def opened(self) -> Iterator[GraphSession]:
        session = self.open()
        try:
            yield session
        finally:
            session.kernel.close()


def parse_options(options: Mapping[str, str], allowed: tuple[str, ...]) -> SourceOptions:
    """Parse the options of a read or write; an unknown option is an error."""
    values = {name.lower(): value for name, value in options.items()}
    if "provider" in values:
        raise UsageError(
            "`CREATE TABLE … USING omnigraph` would make a table that cannot be read: Spark's catalog keeps no options"
            " of a data source. Write `CREATE TEMPORARY VIEW … USING omnigraph OPTIONS (…)`",
            option="provider",
        )
    for name in values:
        if name not in allowed:
            hint = did_you_mean(name, allowed) or f"expected one of {', '.join(allowed)}"
            raise UsageError(f"unknown option `{name}`; {hint}", option=name)
    return SourceOptions(values)


# Seconds of a duration, with its fraction, of any number.
_EXACT: Final = "decimal(20,6)"
# Spark's switch, read in the failing process, that omits the traceback from the error message.
_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
_HIDDEN_BY_OMNIGRAPH: Final = "omnigraph"


@contextmanager
def spark_errors(*, is_planning: bool = True) -> Iterator[None]:
    """Show errors to the user of Spark as `code: message`; tracebacks are hidden while planning, unless configured.

    A planning process runs data sources only. A worker also runs user functions, which keep their tracebacks.
    """
    if os.environ.get(_HIDE_TRACEBACK) == _HIDDEN_BY_OMNIGRAPH:
        del os.environ[_HIDE_TRACEBACK]
    try:
        yield
    except OmniGraphError as error:
        error.args = (f"{error.code}: {error.message}",)
        if is_planning and settings.read("OMNIGRAPH_SPARK_TRACEBACK") != "on":
            os.environ.setdefault(_HIDE_TRACEBACK, _HIDDEN_BY_OMNIGRAPH)
        raise


def spark_fields(type_: Type, columns: Sequence[str]) -> list[dict[str, object]]:
    """Return columns as fields of a Spark schema in JSON; metadata has the type of each in the graph."""
    fields: list[dict[str, object]] = []
    for name in columns:
        kind = column_type(type_, name)
        metadata: dict[str, object] = {"omnigraph.type": str(kind)}
        if name in type_.key:
            metadata["omnigraph.key"] = True
        fields.append(spark_field(name, _spark_type(kind), nullable=kind.nullable, metadata=metadata))
    return fields


def spark_field(name: str, type_: object, *, nullable: bool, metadata: dict[str, object]) -> dict[str, object]:
    return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata}


def _spark_type(type_: PropertyType) -> object:
    word = type_.scalar.facts.spark
    return {"type": "array", "elementType": word, "containsNull": type_.is_list} if type_.is_array else word


def spark_data_type(scalar: Scalar) -> Any:
    """Return the type of Spark that has the values of a type."""
    from pyspark.sql.types import StructField

    field = StructField.fromJson({"name": "", "type": scalar.facts.spark, "nullable": True, "metadata": {}})
    return field.dataType


def time_column(stored: Any, scalar: Scalar) -> Any:
    """Return a column of the integers that dates and times are stored as, as those of Spark."""
    from pyspark.sql import functions

    if scalar is Scalar.DATE:
        return functions.date_from_unix_date(stored)
    if scalar is Scalar.DATETIME:
        return functions.timestamp_millis(stored.cast("long"))
    days = functions.floor(stored / DAY_MS)
    seconds = (stored - days * DAY_MS).cast("decimal(11,0)") / 1_000
    return functions.make_dt_interval(days.cast("int"), secs=seconds.cast("decimal(18,6)"))


def stored_duration(duration: Any) -> Any:
    """Return a column of durations of Spark as milliseconds."""
    from pyspark.sql import functions

    units = {"DAY": DAY_MS, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1_000}
    parts = [functions.extract(functions.lit(unit), duration).cast(_EXACT) * size for unit, size in units.items()]
    return reduce(add, parts).cast("long")


def to_spark_column(column: Column, target: pa.DataType) -> Column:
    """Convert a stored column to `target`, the Arrow type that Spark uses for it.

    >>> to_spark_column(pa.array([2**64 - 1], pa.uint64()), pa.decimal128(20, 0)).to_pylist()
    [Decimal('18446744073709551615')]
    """
    return to_timestamps(column).cast(target)
