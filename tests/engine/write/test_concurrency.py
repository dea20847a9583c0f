"""Writers side by side: one winner per id, nobody lost, and no write on a state that is gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.errors import DataError, KeyConflict, OmniGraphError, PreconditionFailed, ReadSetChanged
from omnigraph.failpoints import Point
from omnigraph.graph import Graph, session_of
from tests.support.kernel_fixtures import check_invariants
from tests.support.maintenance_fixtures import elsewhere
from tests.support.write_fixtures import create, fixture, load, rows, run

pytestmark = pytest.mark.slow

SCHEMA = "node N { k: String @key  v: I32?  u: String? @unique } node Note { text: String } edge E: N -> N @card(0..1)"
THREADS = 16


def at_once(actions: Sequence[Callable[[], object]]) -> list[OmniGraphError | None]:
    """Run all actions in threads of their own; return how each failed, or None."""

    def attempt(action: Callable[[], object]) -> OmniGraphError | None:
        try:
            action()
        except OmniGraphError as error:
            return error
        return None

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(attempt, actions))


def other(graph: Graph) -> Graph:
    """Return a second handle of the same graph in the same process."""
    return og.open(graph.uri)


def once(action: Callable[[], object]) -> Callable[[str], None]:
    """Return a failpoint that does something the first time somebody comes by."""
    left = [action]

    def act(_: str) -> None:
        if left:
            left.pop()()

    return act


def test_strict_inserts_of_one_id_have_one_winner(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", SCHEMA)
    lines = [f'{{"type":"Note","data":{{"id":"same","text":"{number}"}}}}' for number in range(THREADS)]
    outcomes = at_once([partial(load, graph, line) for line in lines])
    losers = [one for one in outcomes if one is not None]
    assert len(losers) == THREADS - 1
    assert all(isinstance(one, KeyConflict) for one in losers)
    assert len(rows(graph, "node:Note")) == 1
    check_invariants(session_of(graph).kernel)


def test_disjoint_inserts_all_survive(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", SCHEMA)
    handles = [graph, other(graph)]
    actions = [
        partial(run, handles[number % 2], f'insert N {{k: "k{number}"}} insert N {{k: "j{number}"}}')
        for number in range(THREADS)
    ]
    assert at_once(actions) == [None] * THREADS
    assert len(rows(graph, "node:N")) == 2 * THREADS
    check_invariants(session_of(graph).kernel)


def test_upserts_of_one_key_serialise_without_conflict(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", SCHEMA)
    actions = [partial(run, graph, f'insert N {{k: "a" v: {number}}}') for number in range(THREADS)]
    assert at_once(actions) == [None] * THREADS
    assert len(rows(graph, "node:N")) == 1
    assert len(graph.commits()) == THREADS + 1


def test_unique_values_and_cardinality_hold_under_races(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", SCHEMA, '{"type":"N","data":{"k":"a"}}')
    handles = [graph, other(graph)]
    claims = [partial(run, handles[number % 2], f'insert N {{k: "k{number}" u: "one"}}') for number in range(8)]
    edges = [partial(run, handles[number % 2], 'insert E {from: "a" to: "a"}') for number in range(8)]
    outcomes = at_once(claims + edges)
    codes = [one.context["rule"] for one in outcomes if one is not None]
    assert (codes.count("E5"), codes.count("E10"), len(codes)) == (7, 7, 14)
    assert len(rows(graph, "edge:E")) == 1


CHANGES = ('update Vessel set {teu: 1} where imo = "V1"', 'delete Vessel where imo = "V3"')


@pytest.mark.parametrize("body", CHANGES)
def test_stale_update_is_a_conflict_and_changes_nothing(tmp_path: Path, body: str) -> None:
    graph = fixture(tmp_path / "g")
    race = once(partial(run, elsewhere(graph), 'update Vessel set {teu: 2} where imo = "V2"'))
    with failpoints.armed({Point.COMMIT_PREPARED: race}), pytest.raises(ReadSetChanged) as caught:
        run(graph, body)
    assert caught.value.context["member"] == "graph_head:main"
    vessels = rows(graph, "node:Vessel")
    assert vessels["V2"]["teu"] == 2
    assert vessels["V1"]["teu"] != 1
    assert "V3" in vessels
    assert run(graph, body).affected_nodes == 1


@pytest.mark.parametrize("body", CHANGES)
def test_update_that_lost_to_a_change_of_another_type_is_done_again(tmp_path: Path, body: str) -> None:
    graph = fixture(tmp_path / "g")
    race = once(partial(run, elsewhere(graph), 'insert Port {code: "R" country: "NL"}'))
    with failpoints.armed({Point.COMMIT_PREPARED: race}):
        assert run(graph, body).affected_nodes == 1
    vessels = rows(graph, "node:Vessel")
    assert "R" in rows(graph, "node:Port")
    assert vessels["V1"]["teu"] == 1 or "V3" not in vessels
    check_invariants(session_of(graph).kernel)


@pytest.mark.parametrize("body", CHANGES)
def test_update_with_a_condition_that_lost_to_any_change_is_refused(tmp_path: Path, body: str) -> None:
    graph = fixture(tmp_path / "g")
    expected = graph.snapshot().head
    race = once(partial(run, elsewhere(graph), 'insert Port {code: "R" country: "NL"}'))
    with failpoints.armed({Point.COMMIT_PREPARED: race}), pytest.raises(PreconditionFailed):
        graph.mutate(f"query q() {{ {body} }}", if_commit=expected)


def test_delete_that_lost_to_an_edge_it_would_have_taken_along_is_refused(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", SCHEMA, '{"type":"N","data":{"k":"a"}}', '{"type":"N","data":{"k":"b"}}')
    race = once(partial(run, elsewhere(graph), 'insert E {from: "a" to: "b"}'))
    with failpoints.armed({Point.COMMIT_PREPARED: race}), pytest.raises(ReadSetChanged):
        run(graph, 'delete N where k = "b"')
    assert len(rows(graph, "edge:E")) == 1
    check_invariants(session_of(graph).kernel)


def test_stale_overwrite_is_a_conflict(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", SCHEMA)
    race = once(partial(run, elsewhere(graph), 'insert N {k: "theirs"}'))
    with failpoints.armed({Point.COMMIT_PREPARED: race}), pytest.raises(ReadSetChanged):
        load(graph, '{"type":"N","data":{"k":"ours"}}', mode="overwrite")
    assert set(rows(graph, "node:N")) == {"theirs"}


def test_insert_that_loses_is_checked_again_and_reuses_its_files(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", SCHEMA)
    race = once(partial(run, elsewhere(graph), 'insert N {k: "theirs"}'))
    with failpoints.armed({Point.COMMIT_PREPARED: race}):
        run(graph, 'insert N {k: "ours"}')
    assert set(rows(graph, "node:N")) == {"ours", "theirs"}
    files = list((tmp_path / "g" / "nodes").glob("*/data/*.lance"))
    assert len(files) == 2, "the rows were written once"
    check_invariants(session_of(graph).kernel)


def test_insert_that_loses_to_its_own_value_is_refused(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", SCHEMA)
    race = once(partial(run, elsewhere(graph), 'insert N {k: "theirs" u: "x"}'))
    with failpoints.armed({Point.COMMIT_PREPARED: race}), pytest.raises(DataError) as caught:
        run(graph, 'insert N {k: "ours" u: "x"}')
    assert caught.value.context["rule"] == "E5"
    assert set(rows(graph, "node:N")) == {"theirs"}


def test_schema_that_changes_under_an_ingest_is_a_conflict(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", SCHEMA)
    changed = SCHEMA.replace("v: I32?", "v: I32?  w: I32?")
    race = once(lambda: elsewhere(graph).schema.apply(changed))
    with failpoints.armed({Point.COMMIT_PREPARED: race}), pytest.raises(ReadSetChanged) as caught:
        load(graph, '{"type":"N","data":{"k":"ours"}}')
    assert caught.value.context["member"] == "schema_ir_hash"
    assert rows(graph, "node:N") == {}
