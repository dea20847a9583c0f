"""Files that were exchanged: rows that are more or fewer than their version says are refused by code."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import Effect, OmniGraphError
from omnigraph.graph import Graph
from omnigraph.lang.catalog import TypeKey
from omnigraph.pipeline import load

SCHEMA = "node P { name: String @key  n: I32? }\nedge K: P -> P"
QUERIES = (
    "match { $p: P } return { $p.name }",
    "match { $p: P $p.n > 3 } return { $p.name }",
    "match { $p: P $p k $q } return { $p.name, $q.n }",
)


@pytest.mark.slow
def test_deletion_file_with_another_count_is_corruption(tmp_path: Path) -> None:
    root = tmp_path / "g.omni"
    graph = og.init(root, SCHEMA)
    graph.ingest([{"type": "P", "data": {"name": f"a{n}", "n": n}} for n in range(30)])
    graph.ingest([{"edge": "K", "from": "a1", "to": "a2"}])
    graph.mutate('query q() { delete P where name = "a3" }')
    (first,) = root.glob("nodes/*/_deletions/*")
    graph.mutate("query q() { delete P where n > 20 }")
    (second,) = set(root.glob("nodes/*/_deletions/*")) - {first}
    graph.close()
    second.write_bytes(first.read_bytes())
    for query in QUERIES:
        with pytest.raises(OmniGraphError, match="was exchanged or damaged") as caught:
            og.open(root).query(f"query q() {{ {query} }}")
        assert caught.value.code == "graph.corrupt"
    assert not og.open(root).maintenance.verify().is_sound
    assert not og.open(root).maintenance.verify(data=True).is_sound


@pytest.mark.slow
@pytest.mark.parametrize("has_left_the_window", [False, True])
def test_verify_sees_a_deletion_file_with_as_many_other_rows(
    tmp_path: Path, has_left_the_window: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "g.omni"
    monkeypatch.setattr("omnigraph.manifest.publish.COMMIT_WINDOW_ROWS", 1)
    graph = og.init(root, SCHEMA)
    graph.ingest([{"type": "P", "data": {"name": f"a{n}", "n": n}} for n in range(30)])
    graph.branches.create("other")
    graph.mutate('query q() { delete P where name = "a3" }', branch="other")
    (other,) = root.glob("nodes/**/_deletions/*")
    graph.mutate('query q() { delete P where name = "a4" }')
    (main,) = set(root.glob("nodes/**/_deletions/*")) - {other}
    for number in range(4 if has_left_the_window else 0):
        graph.ingest([{"edge": "K", "from": "a1", "to": "a2", "data": {"id": f"e{number}"}}])
    graph.close()
    assert og.open(root).maintenance.verify().is_sound
    main.write_bytes(other.read_bytes())
    findings = og.open(root).maintenance.verify().findings
    assert [(one.severity, one.branch, one.type_key) for one in findings] == [("error", "main", "node:P")]
    assert "not those that were written" in findings[0].message


# -- writes ----------------------------------------------------------------------------------------------------


def exchange_deletions(root: Path, many: int) -> None:
    """Make a graph, on main and on a branch, whose newest deletions of P on main are those of an older version."""
    graph = og.init(root, SCHEMA)
    graph.ingest([{"type": "P", "data": {"name": f"a{n}", "n": n}} for n in range(many)])
    graph.ingest([{"edge": "K", "from": "a1", "to": "a2"}])
    graph.branches.create("before")
    graph.mutate('query q() { insert P { name: "side" n: 1 } }', branch="before")
    graph.mutate("query q() { delete P where n < 1 }")
    (first,) = root.glob("nodes/*/_deletions/*")
    graph.mutate(f"query q() {{ delete P where n > {many // 8} }}")
    (second,) = set(root.glob("nodes/*/_deletions/*")) - {first}
    graph.branches.create("after")
    graph.mutate('query q() { insert P { name: "own" n: 1 } }', branch="after")
    graph.close()
    # Larger sets are stored in another form.
    assert second.suffix == (".arrow" if many == 30 else ".bin")
    second.write_bytes(first.read_bytes() if second.suffix == first.suffix else second.read_bytes()[:8] + bytes(16))


def write_csv(graph: Graph) -> str:
    file = Path(graph.uri).with_name("p.csv")
    file.write_text("name,n\na2,9\n")
    return str(file)


WRITES: dict[str, Callable[[Graph], object]] = {
    "insert": lambda graph: graph.mutate('query q() { insert P { name: "new" } }'),
    "update": lambda graph: graph.mutate('query q() { update P set { n: 7 } where name = "a1" }'),
    "delete": lambda graph: graph.mutate('query q() { delete P where name = "a1" }'),
    "edge": lambda graph: graph.ingest([{"edge": "K", "from": "a1", "to": "a2"}]),
    "ingest": lambda graph: graph.ingest([{"type": "P", "data": {"name": "a2", "n": 9}}], mode="merge"),
    "load": lambda graph: load(graph, nodes={"P": write_csv(graph)}, mode="merge", engine="local"),
    "merge into": lambda graph: graph.branches.merge("before"),
    "merge from": lambda graph: graph.branches.merge("after", into="before"),
}


@pytest.fixture(scope="module", params=[30, pytest.param(8_000, marks=pytest.mark.slow)])
def exchanged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("exchanged") / "g.omni"
    exchange_deletions(root, request.param)
    return root


@pytest.mark.parametrize("name", sorted(WRITES))
def test_write_on_exchanged_deletions_is_refused_and_changes_nothing(exchanged: Path, name: str) -> None:
    graph = og.open(exchanged)
    heads = [graph.snapshot(branch).ref for branch in ("main", "before", "after")]
    with pytest.raises(OmniGraphError, match="was exchanged or damaged") as caught:
        WRITES[name](graph)
    assert (caught.value.code, caught.value.effect) == ("graph.corrupt", Effect.NONE)
    assert [graph.snapshot(branch).ref for branch in ("main", "before", "after")] == heads


def test_optimize_leaves_out_a_type_with_exchanged_deletions(exchanged: Path, tmp_path: Path) -> None:
    shutil.copytree(exchanged, tmp_path / "g.omni")
    graph = og.open(tmp_path / "g.omni")
    pin = graph.snapshot().state.pins[TypeKey("node:P")]
    rows = {row.type_key: row for row in graph.maintenance.optimize().types}
    row = rows[pin.table_key]
    assert (row.skipped, "was exchanged or damaged" in (row.error or "")) == ("unreadable", True)
    assert graph.snapshot().state.pins[pin.table_key] == pin


def test_write_elsewhere_in_a_graph_with_exchanged_deletions_goes_on(exchanged: Path) -> None:
    graph = og.open(exchanged)
    graph.mutate('query q() { insert P { name: "more" } }', branch="before")
    graph.branches.create("again", "before")
    graph.branches.delete("again")
