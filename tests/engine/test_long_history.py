"""What long histories with many branches cost: as many requests and rows as with few branches, in bounded memory.

Counts, never seconds. A sample in the default run; 10,000 commits on 2,000 branches with `make test-long`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from unittest.mock import patch

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.limits import COMMIT_LOG_CHUNK_VERSIONS, COMMIT_LOG_SCANS_MAX
from omnigraph.manifest import history
from omnigraph.manifest.history import CommitSource
from omnigraph.store.objects.backend import Meter, own_requests

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7_200)]

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key }
edge Knows: Person -> Person
"""
EARLY = "early"
# Of all branches: every so many has a commit of its own, is merged into main, or begins at the branch before it.
_COMMITTED, _MERGED, _NESTED = 2, 6, 7


def build_history(root: str, commits: int, branches: int, kept: int) -> None:
    """Make a graph with so many commits, and branches that begin all along its history; delete all but some of these.

    Graphs that differ in the number of kept branches have the same number of merges.
    """
    with patch.dict(os.environ, OMNIGRAPH_DURABILITY="process"), og.init(root, schema=SCHEMA) as graph:
        _put(graph, "first")
        graph.branches.create(EARLY)
        _put(graph, "on early", EARLY)
        made, branched = 3, 1
        while made < commits:
            # Spread evenly, so that branches begin at commits of every age.
            if branched < branches and branched * commits <= made * branches:
                made += _add_branch(graph, branched, is_kept=branched < kept)
                branched += 1
            else:
                _put(graph, f"p{made}")
                made += 1


def _add_branch(graph: og.Graph, number: int, *, is_kept: bool) -> int:
    """Make a branch, and what belongs to it; return the number of commits."""
    name, previous = f"b{number}", f"b{number - 1}"
    graph.branches.create(name, previous if is_kept and number > 1 and number % _NESTED == 0 else "main")
    commits = 0
    if number % _COMMITTED == 0:
        _put(graph, f"of {name}", name)
        commits = 1
        if number % _MERGED == 0:
            graph.branches.merge(name)
            commits = 2
    if not is_kept:
        graph.branches.delete(name)
    return commits


def _put(graph: og.Graph, name: str, branch: str = "main") -> None:
    graph.ingest([{"type": "Person", "data": {"name": name}}], mode="append", branch=branch)


MEGABYTES_MAX = 500


@dataclass(frozen=True)
class World:
    """The same number of commits with few branches and with many."""

    commits: int
    few: int
    many: int
    few_root: str
    many_root: str

    @property
    def parts(self) -> int:
        """In how many parts the commit log is read."""
        return (self.commits // COMMIT_LOG_CHUNK_VERSIONS + 1).bit_length()


@pytest.fixture(
    scope="module", params=[(170, 4, 30), pytest.param((10_000, 10, 2_000), marks=pytest.mark.long)], ids=str
)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    commits, few, many = request.param
    folder = tmp_path_factory.mktemp("world")
    roots = [str(folder / name) for name in ("few.omni", "many.omni")]
    for root, branches in zip(roots, (few, many), strict=True):
        build_history(root, commits, many, branches)
    return World(commits, few, many, *roots)


def count_costs(root: str, work: Callable[[Graph], object]) -> Counter[str]:
    """Return what a cold handle asks of storage for some work, and how many rows of the commit log it reads."""
    log: list[tuple[str, str]] = []
    decode, rows = history._decode, Counter[str]()

    def counting(table: object) -> object:
        found = decode(table)  # type: ignore[arg-type]
        rows["rows"] += len(found)
        return found

    with og.open(root, meter=Meter(log)) as graph, pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "_decode", counting)
        log.clear()
        work(graph)
    return Counter(operation for operation, _ in log) + rows


def questions(root: str) -> dict[str, Callable[[Graph], object]]:
    with og.open(root) as graph:
        oldest, newest = graph.commits()[-1].commit_id, graph.commits("b2")[0].commit_id
        last = max((name for name in graph.branches.list() if name[0] == "b"), key=lambda name: int(name[1:]))
    return {
        "page": lambda graph: graph.commits(limit=50),
        "page of a branch": lambda graph: graph.commits("b2", limit=50),
        "whole list": lambda graph: graph.commits(),
        "oldest commit": lambda graph: graph.commit(oldest),
        "commit of a branch": lambda graph: graph.commit(newest),
        "merge of the oldest branch": lambda graph: graph.branches.merge(EARLY, dry_run=True),
        "merge of the newest branch": lambda graph: graph.branches.merge(last, dry_run=True),
        "page of the feed": lambda graph: graph.changes(start="beginning", commits_max=10),
    }


def test_history_costs_at_most_twice_as_much_with_many_branches(world: World) -> None:
    few, many = questions(world.few_root), questions(world.many_root)
    for name in few:
        one, two = count_costs(world.few_root, few[name]), count_costs(world.many_root, many[name])
        assert two["open"] <= one["open"] + 2, (name, one, two)
        # Rows of the log are not requests, and are read again only where a scan for some of them meets others.
        assert two["rows"] <= 2 * max(one["rows"], 64), (name, one, two)
        assert two.total() - two["rows"] <= 2 * (one.total() - one["rows"]), (name, one, two)


def test_history_scans_the_log_a_bounded_number_of_times(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = questions(world.many_root)["whole list"]
    # Each part of the log, each twice as long as the one before it, and once more for what was merged into that part.
    assert count_costs(world.many_root, whole)["scan"] <= min(2 * world.parts + 1, COMMIT_LOG_SCANS_MAX + 1)
    if world.commits < 1_000:
        monkeypatch.setattr("omnigraph.manifest.history.COMMIT_LOG_IDS_MAX", 1)
        assert count_costs(world.many_root, whole)["scan"] > 2 * world.parts + 1


def test_history_is_the_same_however_it_is_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    if world.commits > 1_000:
        pytest.skip("the sample shows it")
    expected = og.open(world.many_root).commits()
    for ids, scans in ((1, 1_000), (2, 3), (1_000, 0)):
        monkeypatch.setattr("omnigraph.manifest.history.COMMIT_LOG_IDS_MAX", ids)
        monkeypatch.setattr("omnigraph.manifest.history.COMMIT_LOG_SCANS_MAX", scans)
        assert og.open(world.many_root).commits() == expected
    monkeypatch.setattr(CommitSource, "_log_to_scan", lambda self: None)
    assert og.open(world.many_root).commits() == expected


def count_cleanup(root: str, keep: int) -> int:
    with og.open(root) as graph, own_requests() as own:
        graph.maintenance.cleanup(keep=keep, dry_run=True)
    return sum(own.snapshot().values())


def test_cleanup_asks_for_a_few_requests_per_branch_and_kept_version(world: World) -> None:
    few, many = count_cleanup(world.few_root, 1), count_cleanup(world.many_root, 1)
    assert many - few <= 10 * (world.many - world.few)
    assert count_cleanup(world.few_root, world.commits) - few <= 4 * world.commits


_PEAK = """
import resource, sys
import omnigraph as og
graph = og.open(sys.argv[1])
begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
match sys.argv[2]:
    case "cleanup": graph.maintenance.cleanup(keep=int(sys.argv[3]), dry_run=True)
    case "verify": assert graph.maintenance.verify().is_sound
    case "verify --data": assert graph.maintenance.verify(data=True).is_sound
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begun) // 1_024)
"""


@pytest.mark.long
@pytest.mark.parametrize("work", ["cleanup", "verify", "verify --data"])
def test_maintenance_of_a_long_history_stays_in_bounded_memory(world: World, work: str) -> None:
    for root in (world.few_root, world.many_root):
        command = [sys.executable, "-c", _PEAK, root, work, str(world.commits)]
        finished = subprocess.run(command, capture_output=True, text=True, check=True)
        assert int(finished.stdout) <= MEGABYTES_MAX, (work, root)
