"""How often a write is prepared: compiled and authorized once, and again only if the head has moved."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine.load import load
from omnigraph.engine.session import GraphSession
from omnigraph.engine.write import mutate, write_authorization
from omnigraph.graph import Graph
from tests.support.policy_recorder import Recorder

SCHEMA = "node Person { name: String @key }"
ADD = "query add($name: String) { insert Person { name: $name } }"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count compilations and evaluations of write permissions."""
    counter: Counter[str] = Counter()
    compile_source, permissions = GraphSession.compile, write_authorization.write_permissions

    def count_compile(*arguments: object) -> object:
        counter["compile"] += 1
        return compile_source(*arguments)  # type: ignore[arg-type]

    def count_permissions(*arguments: object) -> object:
        counter["permissions"] += 1
        return permissions(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(GraphSession, "compile", count_compile)
    for module in (write_authorization, mutate, load):
        monkeypatch.setattr(module, "write_permissions", count_permissions)
    return counter


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def graph(tmp_path: Path, recorder: Recorder) -> Graph:
    og.init(tmp_path / "g.omni", SCHEMA).close()
    return og.open(tmp_path / "g.omni", actor="ada", policy=recorder)


def test_uncontended_mutation_compiles_and_authorizes_once(
    graph: Graph, recorder: Recorder, calls: Counter[str]
) -> None:
    graph.mutate(ADD, params={"name": "ann"})
    assert calls == {"compile": 1, "permissions": 1}
    assert [action for action, *_ in recorder.asked] == ["change"]
    # Once for the types that the write may touch, and once more for whether its receipt may show the branch.
    assert sorted(action for action, *_ in recorder.asked_types) == ["change", "read", "read"]
    assert len(set(recorder.asked_types)) == 3


def test_uncontended_ingest_authorizes_once(graph: Graph, recorder: Recorder, calls: Counter[str]) -> None:
    graph.ingest([{"type": "Person", "data": {"name": "ann"}}])
    assert calls == {"permissions": 1}
    # Once for the types that the write may touch, and once more for whether its receipt may show the branch.
    assert sorted(action for action, *_ in recorder.asked_types) == ["change", "read", "read"]
    assert len(set(recorder.asked_types)) == 3


def test_mutation_after_a_foreign_commit_is_prepared_again(graph: Graph, calls: Counter[str]) -> None:
    graph.mutate(ADD, params={"name": "ann"})
    og.open(graph.uri).mutate(ADD, params={"name": "bob"})
    calls.clear()
    graph.mutate(ADD, params={"name": "cid"})
    assert calls == {"compile": 2, "permissions": 2}


def test_mutation_after_a_foreign_schema_change_is_compiled_for_it(graph: Graph) -> None:
    graph.mutate(ADD, params={"name": "ann"})
    og.open(graph.uri).schema.apply(SCHEMA.replace("}", "  age: I32? }"))
    graph.mutate(ADD, params={"name": "bob"})
    rows = graph.query("query q() { match { $p: Person } return { $p.name as n, $p.age as a } }").rows()
    assert sorted(row["n"] for row in rows) == ["ann", "bob"]
