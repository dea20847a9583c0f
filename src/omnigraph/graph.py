"""The graph: what users import. Every surface calls these methods and decides nothing that they do not.

import omnigraph as og
graph = og.init("graph.omni", schema="schema.pg")
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from omnigraph.engine.core import Core, Enforce, allow_all
from omnigraph.ids import new_ulid
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.source import Source
from omnigraph.manifest.init import init as init_graph
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.store.meter import NO_METER, Meter
from omnigraph.store.store import Store
from omnigraph.store.uri import Location


def init(uri: str | Path, schema: str | Path, *, actor: str | None = None, force: bool = False) -> Graph:
    """Create a graph and open it. `schema` is the text of a schema, or the path of a `.pg` file."""
    from omnigraph.files import read_source

    is_path = isinstance(schema, Path) or ("{" not in schema and schema.strip().endswith(".pg"))
    source = read_source(Path(schema), "S1") if is_path else Source("schema.pg", str(schema))
    store = Store(Location.parse(str(uri)))
    init_graph(store, compile_schema(source, domain=new_ulid()), actor=actor, force=force)
    return Graph(Kernel(store), actor=actor)


def open(  # noqa: A001 - `og.open` reads as it should
    uri: str | Path,
    *,
    read_only: bool = False,
    actor: str | None = None,
    policy: Enforce = allow_all,
    meter: Meter = NO_METER,
) -> Graph:
    """Open a graph; a missing one is an error that says how to create it."""
    kernel = Kernel(Store(Location.parse(str(uri)), meter), read_only=read_only)
    kernel.snapshot()
    return Graph(kernel, actor=actor, policy=policy)


class Graph:
    """One opened graph."""

    def __init__(self, kernel: Kernel, *, actor: str | None = None, policy: Enforce = allow_all) -> None:
        self.core = Core(kernel, actor, policy)

    @property
    def uri(self) -> str:
        return self.core.kernel.store.root.uri

    def snapshot(self, branch: str = MAIN) -> Snapshot:
        """Return the newest state of a branch."""
        return self.core.kernel.snapshot(branch)

    def close(self) -> None:
        """Finish work in the background."""
        self.core.kernel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
