"""Options of the data source `omnigraph`: read once, checked, and refused with a hint when unknown.

Plain values; what they mean is decided by those who read and write.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from omnigraph import settings
from omnigraph.engine.past_names import NOW, Naming, check_names
from omnigraph.engine.session import AsOf
from omnigraph.errors import OmniGraphError, UsageError
from omnigraph.graph import Graph
from omnigraph.graph import open as open_graph
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.manifest.model import MAIN

READ: Final = ("graph", "path", "type", "branch", "at", "version", "names", "columns", "filter", "actor")
WRITE: Final = ("graph", "path", "type", "branch", "mode", "actor", "stream", "checkpointlocation", "outputmode")

STREAM: Final = ("graph", "path", "start", "branch", "type", "kinds", "types", "ops", "maxcommitspertrigger", "actor")


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """What a caller of Spark gave, by names in lower case."""

    values: Mapping[str, str]

    @property
    def graph(self) -> str:
        found = self.values.get("graph") or self.values.get("path")
        if not found:
            raise UsageError(
                'no graph was given; add `.option("graph", URI)` with its path or `s3://` address. A table of Spark\'s'
                " catalog keeps no options of a data source; use a temporary view instead"
            )
        return found

    @property
    def type(self) -> str:
        return self.needed(
            "type", 'add `.option("type", NAME)` with a node or edge type of the graph, or `start` for a stream'
        )

    @property
    def branch(self) -> str:
        return self.values.get("branch", MAIN).strip()

    @property
    def at(self) -> AsOf | None:
        """The state to read: a commit, a tag, a point in time, or a manifest version; None is the newest."""
        at, version = self.values.get("at"), self.values.get("version")
        if at is not None and version is not None:
            raise UsageError("`at` and `version` both say what to read; use one of them")
        if version is not None:
            return self.number("version")
        try:
            return datetime.fromisoformat(at) if at is not None else None
        except ValueError:
            return at

    @property
    def naming(self) -> Naming:
        """Whether a state of the past is read with the names of today or with its own."""
        return check_names(self.values.get("names", NOW))

    def needed(self, name: str, hint: str) -> str:
        """Return an option that has no default."""
        if not self.values.get(name):
            raise UsageError(f"the option `{name}` is missing; {hint}", option=name)
        return self.values[name]

    def number(self, name: str, default: int = 0) -> int:
        """Return an option that is a whole number."""
        try:
            return int(self.values.get(name, default))
        except ValueError:
            raise UsageError(f"`{name}` takes a whole number, not `{self.values[name]}`", option=name) from None

    def names(self, name: str) -> list[str] | None:
        """Return an option that lists names with commas between them; None when it was not given."""
        given = self.values.get(name)
        return None if given is None else [one.strip() for one in given.split(",") if one.strip()]

    def open(self) -> Graph:
        """Open the graph."""
        return open_graph(self.graph, actor=self.values.get("actor"))


def given_options(options: Mapping[str, str], known: tuple[str, ...]) -> GivenOptions:
    """Return the options of a read or write; one that it does not know is refused."""
    values = {name.lower(): value for name, value in options.items()}
    if "provider" in values:
        raise UsageError(
            "`CREATE TABLE … USING omnigraph` would make a table that cannot be read: Spark's catalog keeps no options"
            " of a data source. Write `CREATE TEMPORARY VIEW … USING omnigraph OPTIONS (…)`",
            option="provider",
        )
    for name in values:
        if name not in known:
            hint = did_you_mean(name, known) or f"it takes {', '.join(known)}"
            raise UsageError(f"there is no option `{name}` here; {hint}", option=name)
    return GivenOptions(values)


# Spark's own switch, read in the process that failed: it sends the message alone, without the calls that led to it.
_HIDE: Final = "SPARK_HIDE_TRACEBACK"
_HIDDEN_BY_US: Final = "omnigraph"


@contextmanager
def coded(*, is_planning: bool = True) -> Iterator[None]:
    """Let errors reach the user of Spark as `code: message`; with their traceback only in tasks, or by setting.

    A process that plans serves data sources alone. One that runs tasks serves the user's own functions as well, which
    keep their tracebacks.
    """
    if os.environ.get(_HIDE) == _HIDDEN_BY_US:
        del os.environ[_HIDE]
    try:
        yield
    except OmniGraphError as error:
        error.args = (f"{error.code}: {error.message}",)
        if is_planning and settings.read("OMNIGRAPH_SPARK_TRACEBACK") != "on":
            os.environ.setdefault(_HIDE, _HIDDEN_BY_US)
        raise
