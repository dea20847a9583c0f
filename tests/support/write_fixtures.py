"""What the tests of writes share: fixture F as a graph, short ways to write to it, and a proof that nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.diagnostic import LanguageError
from tests.support.case_file import CASES
from tests.support.graph_template import build_graph, copy_graph

FIXTURE = CASES / "fixtures" / "F.pg"
DATA = CASES / "fixtures" / "F.ndjson"


def fixture(root: Path | str) -> Graph:
    """Return fixture F with its data."""
    return copy_graph(root, FIXTURE.read_text(encoding="utf-8"), DATA.read_bytes())


def create(root: Path | str, schema: str, *lines: str) -> Graph:
    """Return a graph of a schema, with some lines of data."""
    make = build_graph if "://" in str(root) else copy_graph
    return make(root, schema, "\n".join(lines).encode())


def run(graph: Graph, body: str, params: str = "", **values: object) -> Any:
    """Run the statements of a mutation."""
    return graph.mutate(f"query q({params}) {{ {body} }}", params=values)


def load(graph: Graph, *lines: str, mode: Any = "append", dialect: Any = "strict") -> Any:
    return graph.ingest("\n".join(lines).encode(), mode=mode, dialect=dialect)


def rows(graph: Graph, table_key: str, branch: str = "main") -> dict[str, dict[str, Any]]:
    """Return `{id: row}` of a type, blobs as bytes."""
    dataset = session_of(graph).view(branch).dataset(TypeKey(table_key))
    table = dataset.lance.to_table(blob_handling="all_binary")
    found = {str(row["id"]): row for row in table.to_pylist()}
    assert len(found) == table.num_rows, "one id twice"
    return found


def state(graph: Graph) -> object:
    """Return all that a reader could tell apart: the catalog, and where every dataset is, by path as well."""
    snapshot = graph.snapshot()
    store = session_of(graph).kernel.store
    heads = {key: store.open_latest(pin.path, pin.fork).version for key, pin in snapshot.state.pins.items()}
    return snapshot.version, snapshot.head, snapshot.state, heads, len(graph.commits())


@contextmanager
def unchanged(graph: Graph) -> Any:
    """Hold a block to leaving the graph as it was."""
    before = state(graph)
    yield
    assert state(graph) == before


def refused(graph: Graph, code: str, action: Callable[[], object]) -> OmniGraphError:
    """Run something that must fail with a code of the specification, and change nothing."""
    with unchanged(graph), pytest.raises(OmniGraphError) as caught:
        action()
    error = caught.value
    if isinstance(error, LanguageError):
        assert [one.code for one in error.diagnostics] == [code]
    else:
        assert error.context.get("rule") == code, error.message
        assert error.effect == "none"
    return error
