"""The graph behind a case: a real one, in a directory of its own, driven through the facade alone.

`tests.support.case_runner` decides which cases need one; `tests.support.case_expectations` judges what it answers.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import omnigraph as og
from omnigraph.engine.query.embedders import Embedder, MockEmbedder
from tests.support.case_expectations import CaseFailure
from tests.support.case_file import CASES, Step


@dataclass(frozen=True, slots=True)
class Ran:
    """What a step did to the graph: a table, counts, exported lines, and how many commits it made."""

    table: pa.Table | None = None
    rows: list[list[Any]] | None = None
    affected: tuple[int, int] | None = None
    lines: list[str] | None = None
    commits: int = 0


@dataclass
class Engine:
    """One graph, and what setup steps have said about the next query."""

    directory: Path
    graph: og.Graph | None = None
    params: dict[str, Any] = field(default_factory=dict)
    embedder: Embedder | None = None

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Engine]:
        """Give a case its directory; what it writes need not survive a power cut."""
        with (
            tempfile.TemporaryDirectory(prefix="omnigraph-case-") as directory,
            patch.dict(os.environ, {"OMNIGRAPH_DURABILITY": "process"}),
        ):
            engine = cls(Path(directory))
            try:
                yield engine
            finally:
                if engine.graph is not None:
                    engine.graph.close()

    def use_fixture(self, name: str) -> None:
        shutil.copytree(_fixture(name), self.directory / "graph.omni", copy_function=shutil.copyfile)
        self.graph = og.open(self.directory / "graph.omni")

    def use_schema(self, text: str) -> None:
        self.graph = og.init(self.directory / "graph.omni", text)

    def run(self, step: Step) -> Ran:
        """Run one step; what it refuses is raised."""
        graph = self._opened()
        before = len(graph.commits())
        match step.verb:
            case "query":
                result = graph.query(step.body, self._params(), name=step.option("name"), embedder=self.embedder)
                rows = [list(row.values()) for row in result.to_json_rows()]
                return Ran(table=result.to_arrow(), rows=rows)
            case "mutate":
                receipt = graph.mutate(step.body, self._params(), name=step.option("name"))
                affected = (receipt.affected_nodes, receipt.affected_edges)
                return Ran(affected=affected, commits=len(graph.commits()) - before)
            case "load":
                graph.ingest(_records(step), mode=step.option("mode"), dialect=step.option("dialect"))  # type: ignore[arg-type]
                return Ran(commits=len(graph.commits()) - before)
            case "export":
                wanted = step.option("type")
                text = b"".join(graph.export(types=[wanted] if wanted else None)).decode()
                return Ran(lines=text.splitlines())
            case "migrate":
                graph.schema.apply(step.body, allow_data_loss=step.arguments == "allow-data-loss")
                return Ran(commits=len(graph.commits()) - before)
        return self._set_up(step)

    def _set_up(self, step: Step) -> Ran:
        graph = self._opened()
        if step.verb == "params":
            self.params = json.loads(step.body)
        elif step.verb == "index":
            graph.maintenance.ensure_indices()
        elif step.verb == "embedder":
            self.embedder = MockEmbedder(step.option("model") or "mock")
        elif step.verb == "branch":
            graph.branches.create(step.arguments)
        else:
            raise CaseFailure(f"`-- {step.verb}` does nothing to a graph", step.line)
        return Ran()

    def _params(self) -> dict[str, Any]:
        given, self.params = self.params, {}
        return given

    def _opened(self) -> og.Graph:
        if self.graph is None:
            raise CaseFailure("the step needs `-- fixture` or `-- schema` before it")
        return self.graph


@cache
def _fixture(name: str) -> Path:
    """Write the graph of a fixture once a process; cases work on copies of it."""
    directory = Path(tempfile.mkdtemp(prefix="omnigraph-fixture-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    with og.init(directory / "graph.omni", CASES / "fixtures" / f"{name}.pg") as graph:
        graph.ingest(CASES / "fixtures" / f"{name}.ndjson", mode="append")
    return directory / "graph.omni"


def _records(step: Step) -> bytes:
    repeat = int(step.option("repeat") or 1)
    if step.option("repeat") is None:
        return step.body.encode()
    return "\n".join(step.body.replace("{n}", str(number)) for number in range(1, repeat + 1)).encode()
