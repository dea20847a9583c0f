"""Optimize beside writers that never rest: what they did while it worked is carried over, and nothing is done twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.errors import ReadSetChanged
from omnigraph.failpoints import Point
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.store.index.index_build import coverage
from omnigraph.store.write import compaction
from tests.support.forked_python import ForkedPython
from tests.support.maintenance_fixtures import elsewhere

pytestmark = pytest.mark.slow

SCHEMA = "node Person { name: String @key  city: String? @index }"
PERSON = TypeKey("node:Person")
ALL = "query q() { match { $p: Person } return { $p.name as name, $p.city as city } }"
BY_NAME = "query q($k: String) { match { $p: Person {name: $k} } return { $p.city as city } }"
BY_CITY = "query q($k: String) { match { $p: Person {city: $k} } return { $p.name as name } }"

# Writes whatever it is told, one mutation a line, and answers when it is acknowledged.
WRITER = """
import sys, omnigraph as og
from omnigraph.graph import session_of
with og.open(sys.argv[1]) as graph:
    # It overtakes as often as the test wants, whatever others ask for.
    session_of(graph).kernel.commit_loop.turn(None).line.contention.must_look = lambda now: False
    print("ready", flush=True)
    for line in sys.stdin:
        graph.mutate(line)
        print("done", flush=True)
"""


@dataclass
class Writer:
    """Appends, updates and deletes in turn, and knows what must come of it."""

    mutate: Callable[[str], object]
    expected: dict[str, str] = field(default_factory=lambda: {f"p{number}": "X" for number in range(40)})
    rounds: int = 0

    def write(self) -> None:
        number = self.rounds
        self.rounds += 1
        self.mutate(f'query q() {{ insert Person {{name: "new{number}", city: "New"}} }}')
        self.mutate(f'query q() {{ update Person set {{ city: "Y" }} where name = "p{number}" }}')
        self.mutate(f'query q() {{ delete Person where name = "p{number + 20}" }}')
        self.expected |= {f"new{number}": "New", f"p{number}": "Y"}
        del self.expected[f"p{number + 20}"]


@contextmanager
def another_process(graph: Graph) -> Iterator[Callable[[str], object]]:
    command = [sys.executable, "-c", WRITER, graph.uri]
    with ForkedPython(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

        def mutate(text: str) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{text}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"

        yield mutate
        process.stdin.close()


@contextmanager
def this_process(graph: Graph) -> Iterator[Callable[[str], object]]:
    with og.open(graph.uri) as other:
        yield other.mutate


def first_writes(writer: Writer, detail: str, writes_max: int) -> Callable[[str], None]:
    """Return an action that writes when it is passed, but not because of its own writes."""
    is_writing = False

    def action(passed: str) -> None:
        nonlocal is_writing
        if not is_writing and passed.startswith(detail) and writer.rounds < writes_max:
            is_writing = True
            writer.write()
            is_writing = False

    return action


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    for first in range(0, 40, 5):
        graph.ingest([{"type": "Person", "data": {"name": f"p{first + one}", "city": "X"}} for one in range(5)])
    return graph


def differences(graph: Graph, expected: dict[str, str]) -> list[str]:
    """Return where a graph is not what it must be, however it is asked."""
    found = []
    held = [(str(row["name"]), str(row["city"])) for row in graph.query(ALL).rows()]
    if sorted(held) != sorted(expected.items()):
        found.append(f"scan: {sorted(set(held) ^ set(expected.items()))}")
    dataset = session_of(graph).kernel.dataset(graph.snapshot(), PERSON)
    for name in [*(f"p{number}" for number in range(40)), *expected]:
        # Asked of Lance, so that nothing but its index answers.
        rows = [row["city"] for row in dataset.read(["city"], f"name = '{name}'").to_pylist()]
        if rows != ([expected[name]] if name in expected else []):
            found.append(f"lookup: {name} is {rows}")
    for city in ("X", "Y", "New"):
        names = sorted(str(row["name"]) for row in graph.query(BY_CITY, params={"k": city}).rows())
        if names != sorted(name for name, own in expected.items() if own == city):
            found.append(f"index: {city} has {names}")
    return found


def counted(graph: Graph, counts: list[str]) -> Callable[[str], None]:
    return lambda detail: counts.append(detail.split()[0])


def test_optimize_overtaken_by_a_process_each_time_publishes_once(graph: Graph) -> None:
    compacted: list[str] = []
    with another_process(graph) as mutate:
        writer = Writer(mutate)
        actions = {
            Point.COMMIT_PREPARED: first_writes(writer, "", 4),
            Point.DURABLE_AFTER: counted(graph, compacted),
        }
        with failpoints.armed(actions):
            report = graph.maintenance.optimize()
    assert writer.rounds == 4
    assert [one.committed for one in report.types] == [True]
    assert compacted.count("compact") == 1
    graph = og.open(graph.uri)
    assert [one.kind for one in graph.commits()[:2]] == ["optimize", "mutation"]
    assert differences(graph, writer.expected) == []
    assert graph.maintenance.verify().is_sound


@pytest.mark.parametrize("moment", ["compact", "aside", "index"])
def test_optimize_overtaken_in_the_same_process_while_it_works_publishes(graph: Graph, moment: str) -> None:
    with this_process(graph) as mutate:
        writer = Writer(mutate)
        with failpoints.armed({Point.DURABLE_BEFORE: first_writes(writer, moment, 3)}):
            report = graph.maintenance.optimize()
    assert writer.rounds >= 1
    assert [one.committed for one in report.types] == [True]
    assert differences(graph, writer.expected) == []
    dataset = session_of(graph).kernel.dataset(graph.snapshot(), PERSON)
    (whole,) = [one.id for one in dataset.fragments if one.num_rows > 20]
    # What was rewritten is covered; only what came later is not.
    assert all(whole in one.indexed for one in coverage(dataset).values())
    assert len(coverage(dataset)) == 5
    graph.maintenance.optimize()
    assert all(
        not one.uncovered for one in coverage(session_of(graph).kernel.dataset(graph.snapshot(), PERSON)).values()
    )
    assert differences(graph, writer.expected) == []
    assert graph.maintenance.verify().is_sound


@pytest.mark.parametrize("upkeep", ["optimize", "ensure_indices"])
def test_change_overtaken_by_upkeep_elsewhere_is_written(graph: Graph, upkeep: str) -> None:
    other = elsewhere(graph)
    done: list[str] = []

    def keep_up(_: str) -> None:
        if not done:
            done.append(upkeep)
            getattr(graph.maintenance, upkeep)()

    with failpoints.armed({Point.COMMIT_PREPARED: keep_up}):
        other.mutate('query q() { update Person set { city: "Y" } where name = "p1" }')
    assert [one.kind for one in other.commits()[:2]] == ["mutation", upkeep]
    assert differences(other, {f"p{number}": "Y" if number == 1 else "X" for number in range(40)}) == []


def test_change_overtaken_by_upkeep_and_a_write_is_refused(graph: Graph) -> None:
    other = elsewhere(graph)
    done: list[str] = []

    def write(_: str) -> None:
        if not done:
            done.append("once")
            graph.maintenance.optimize()
            graph.ingest([{"type": "Person", "data": {"name": "late", "city": "X"}}])

    with failpoints.armed({Point.COMMIT_PREPARED: write}), pytest.raises(ReadSetChanged):
        other.mutate('query q() { update Person set { city: "Y" } where name = "p1" }')


def test_optimize_that_forgets_what_was_deleted_meanwhile_is_caught(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_gone_since", lambda base, onto, fragments: np.array([], np.int64))
    with this_process(graph) as mutate:
        writer = Writer(mutate)
        with failpoints.armed({Point.DURABLE_BEFORE: first_writes(writer, "index", 1)}):
            graph.maintenance.optimize()
    assert any(one.startswith("scan: [('p0', 'X'), ('p20', 'X')]") for one in differences(graph, writer.expected))


def test_optimize_overtaken_by_a_replacement_of_all_rows_begins_again(graph: Graph) -> None:
    replaced: list[str] = []

    def replace(detail: str) -> None:
        if detail.startswith("index") and not replaced:
            replaced.append(detail)
            graph.ingest([{"type": "Person", "data": {"name": "only", "city": "X"}}], mode="overwrite")
            graph.ingest([{"type": "Person", "data": {"name": "second", "city": "X"}}], mode="append")

    with failpoints.armed({Point.DURABLE_BEFORE: replace}):
        report = graph.maintenance.optimize()
    assert [one.committed for one in report.types] == [True]
    assert differences(graph, {"only": "X", "second": "X"}) == []
    assert session_of(graph).kernel.dataset(graph.snapshot(), PERSON).fragment_rows == [2]


def test_optimize_overtaken_by_writers_that_fold_tails_loses_no_row(graph: Graph) -> None:
    expected = {f"p{number}": "X" for number in range(40)}
    with this_process(graph) as mutate:

        def write(detail: str) -> None:
            if detail.startswith("aside") and len(expected) == 40:
                for number in range(40):
                    expected[f"new{number}"] = "New"
                    mutate(f'query q() {{ insert Person {{name: "new{number}", city: "New"}} }}')

        with failpoints.armed({Point.DURABLE_BEFORE: write}):
            report = graph.maintenance.optimize()
    assert [one.committed for one in report.types] == [True]
    assert differences(graph, expected) == []
    assert graph.maintenance.verify().is_sound
