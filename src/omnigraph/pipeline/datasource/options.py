"""Options of the data source `omnigraph`, and its errors as Spark shows them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa

from omnigraph import settings
from omnigraph.engine.past_schemas import NOW, Naming, check_names
from omnigraph.engine.revisions import AsOf
from omnigraph.errors import OmniGraphError, UsageError
from omnigraph.graph import Graph
from omnigraph.graph import open as open_graph
from omnigraph.lang.catalog import Catalog, PropertyType, Scalar, Type
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.manifest.model import MAIN
from omnigraph.rules.arrow_typing import Column
from omnigraph.rules.coerce import list_column

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

    def open(self) -> Graph:
        return open_graph(self.graph, actor=self.values.get("actor"))


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


# In the notation of Spark schemas. Spark has no unsigned integers, no vectors, and no timestamps in milliseconds.
SPARK_TYPES: Final = {
    Scalar.STRING: "string",
    Scalar.BLOB: "binary",
    Scalar.BOOL: "boolean",
    Scalar.I32: "integer",
    Scalar.I64: "long",
    Scalar.U32: "long",
    Scalar.U64: "decimal(20,0)",
    Scalar.F32: "float",
    Scalar.F64: "double",
    Scalar.DATE: "date",
    Scalar.DATETIME: "timestamp",
    Scalar.VECTOR: "float",
}
_MILLISECONDS: Final = pa.timestamp("ms", "UTC")
_MICROSECONDS: Final = pa.timestamp("us", "UTC")


def find_type(catalog: Catalog, name: str) -> Type:
    """Return the type of a name such as `Person`, or `node:Person`."""
    kind, _, bare = name.strip().rpartition(":")
    matches: list[Type] = []
    if kind in ("", "node") and bare in catalog.nodes:
        matches.append(catalog.nodes[bare])
    if kind in ("", "edge") and (edge := catalog.edge_by_word(bare)) is not None:
        matches.append(edge)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"`{name}` is a node type and an edge type; write `node:{name}` or `edge:{name}`", type=name)
    type_names = [*catalog.nodes, *catalog.edges]
    hint = did_you_mean(bare, type_names) or f"the graph has {', '.join(sorted(type_names)) or 'none'}"
    raise UsageError(f"there is no type `{name}`; {hint}", type=name)


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


def column_type(type_: Type, name: str) -> PropertyType:
    """Return the type of a column: of a property, or of ids and endpoints, which are strings."""
    return type_.properties[name].type if name in type_.properties else PropertyType(Scalar.STRING)


def spark_field(name: str, type_: object, *, nullable: bool, metadata: dict[str, object]) -> dict[str, object]:
    return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata}


def _spark_type(type_: PropertyType) -> object:
    word = SPARK_TYPES[type_.scalar]
    is_vector = type_.scalar is Scalar.VECTOR
    return {"type": "array", "elementType": word, "containsNull": not is_vector} if is_vector or type_.is_list else word


def to_spark_column(column: Column, type_: PropertyType, target: pa.DataType) -> Column:
    """Convert a stored column to `target`, the Arrow type that Spark uses for it.

    >>> to_spark_column(pa.array([2**64 - 1], pa.uint64()), PropertyType(Scalar.U64), pa.decimal128(20, 0)).to_pylist()
    [Decimal('18446744073709551615')]
    """
    if type_.scalar is not Scalar.DATETIME:
        return column.cast(target)
    if type_.is_list:
        items = to_spark_column(column.values, PropertyType(Scalar.DATETIME), _MICROSECONDS)
        return list_column(column.offsets, items, column.is_null()).cast(target)
    return column.view(_MILLISECONDS).cast(target)
