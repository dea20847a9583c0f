"""The soak: writers, branches, merges, pinned readers, optimize and cleanup at once, with sudden deaths.

`OMNIGRAPH_SOAK_SECONDS` sets how long the long one takes, `OMNIGRAPH_SOAK_SEED` what it does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from random import Random
from signal import SIGKILL

import pytest

import omnigraph as og
from omnigraph import clock
from omnigraph.graph import Graph
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.model import MAIN
from tests.soak.diary import Diary, Ledger, Place
from tests.soak.judge import DISK_BYTES_MIN, DISK_FACTOR_MAX, disk_bytes, fresh_bytes, violations
from tests.soak.members import SCHEMA, SIDE, Brancher, Keeper, Member, Reader, Writer, delete_left, new_person
from tests.soak.worker import STOP, work
from tests.support.maintenance_fixtures import hours_later

pytestmark = pytest.mark.slow

# Members are forks of a process that has imported everything and used nothing.
FORKS = get_context("forkserver")
LOOK_SECONDS = 0.2


def create(root: Path) -> Graph:
    graph = og.init(root, SCHEMA)
    graph.ingest([{"type": "Person", "data": {"name": "root", "n": 0}}])
    graph.branches.create(SIDE)
    return graph


@dataclass
class Soak:
    """Processes that work on one graph until the time is over."""

    root: Path
    folder: Path
    random: Random
    started: int = 0
    killed: int = 0
    sizes: list[int] = field(default_factory=list)

    def start(self, role: str) -> ForkServerProcess:
        self.started += 1
        name = f"{role}-{self.started}"
        given = (role, str(self.root), str(self.folder), name, self.random.randrange(1 << 30))
        process = FORKS.Process(target=work, args=given, name=name)
        process.start()
        return process

    def run(
        self, roles: list[str], seconds: float, kills_per_second: float, is_enough: Callable[[], bool] = lambda: False
    ) -> None:
        """Keep one member of each role at work, as long as it takes; kill and replace some of them on the way."""
        FORKS.set_forkserver_preload(["tests.soak.preload"])
        members = [self.start(role) for role in roles]
        try:
            self._watch(members, seconds, kills_per_second, is_enough)
            (self.folder / STOP).touch()
            for process in members:
                process.join()
                # The last one to be killed may not have been replaced any more.
                assert process.exitcode in (0, -SIGKILL), f"{process.name} ended with {process.exitcode}"
        finally:
            for process in members:
                process.kill()

    def _watch(
        self,
        members: list[ForkServerProcess],
        seconds: float,
        kills_per_second: float,
        is_enough: Callable[[], bool],
    ) -> None:
        until = None
        while until is None or (clock.elapsed() < until and not is_enough()):
            members[0].join(LOOK_SECONDS)
            born = [one for one in members if (self.folder / f"{one.name}.diary").exists()]
            if until is None and len(born) == len(members):
                until = clock.elapsed() + seconds
            self.sizes.append(disk_bytes(str(self.root)))
            if until is not None and born and self.random.random() < kills_per_second * LOOK_SECONDS:
                self.random.choice(born).kill()
                self.killed += 1
            for place, process in enumerate(members):
                if not process.is_alive():
                    assert process.exitcode == -SIGKILL, f"{process.name} ended with {process.exitcode}"
                    members[place] = self.start(process.name.partition("-")[0])


def judge(soak: Soak, least: int) -> Ledger:
    """Hold everything that a soak promises against what it left."""
    ledger = Ledger.read(soak.folder)
    assert violations(str(soak.root), ledger) == []
    assert ledger.writes >= least, "hardly anything was written"
    with og.open(soak.root) as graph:
        delete_left(graph)
    # An hour later everything that has an age is old.
    with hours_later(1), og.open(soak.root) as graph:
        graph.maintenance.optimize()
        graph.maintenance.cleanup(keep=3, confirm=True)
    allowed = DISK_FACTOR_MAX * fresh_bytes(str(soak.root), soak.folder) + DISK_BYTES_MIN
    assert disk_bytes(str(soak.root)) <= allowed
    return ledger


@pytest.mark.timeout(240)
def test_soak_for_a_moment_loses_nothing(tmp_path: Path) -> None:
    create(tmp_path / "g.omni").close()
    soak = Soak(tmp_path / "g.omni", tmp_path, Random(1))

    def is_enough() -> bool:
        ledger = Ledger.read(soak.folder)
        return soak.killed >= 3 and ledger.writes >= 20 and {"optimized", "cleaned up"} <= ledger.counts.keys()

    soak.run(["writer", "writer", "brancher", "reader", "keeper"], 10, 0.8, is_enough)
    ledger = judge(soak, 5)
    assert soak.killed > 0, "nobody was killed"
    assert {"optimized", "cleaned up"} & ledger.counts.keys(), "nothing was kept in order"


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_soak_for_long_loses_nothing(tmp_path: Path) -> None:
    seconds = float(os.environ.get("OMNIGRAPH_SOAK_SECONDS", "1200"))
    seed = int(os.environ.get("OMNIGRAPH_SOAK_SEED", "1"))
    create(tmp_path / "g.omni").close()
    soak = Soak(tmp_path / "g.omni", tmp_path, Random(seed))
    soak.run(["writer", "writer", "writer", "brancher", "reader", "reader", "keeper"], seconds, kills_per_second=0.25)
    ledger = judge(soak, int(seconds))
    # Once old versions go as fast as new ones come, the graph grows with its content alone.
    half = len(soak.sizes) // 2
    print(ledger.counts, ledger.writes, soak.killed, max(soak.sizes[:half]), max(soak.sizes[half:]))
    assert max(soak.sizes[half:]) <= DISK_FACTOR_MAX * max(soak.sizes[:half]) + DISK_BYTES_MIN
    assert {"merged", "optimized", "cleaned up", "read"} <= ledger.counts.keys()


# -- the judge -------------------------------------------------------------------------------------------------


def members_of(graph: Graph, folder: Path, seed: int) -> list[Member]:
    random = Random(seed)
    diary = Diary(folder / "all.diary")
    return [
        Writer(graph, diary, random, "writer"),
        Brancher(graph, diary, random, "brancher"),
        Reader(graph, diary, random, 1_000),
        Keeper(graph, diary, random),
    ]


def test_judge_members_in_turn_pass(tmp_path: Path) -> None:
    graph = create(tmp_path / "g.omni")
    members = members_of(graph, tmp_path, 3)
    for _ in range(3):
        for member in members:
            member.step()
    graph.close()
    ledger = Ledger.read(tmp_path)
    assert violations(graph.uri, ledger) == []
    assert (ledger.writes > 0, ledger.counts["held"], ledger.counts["read"]) == (True, 1, 2)


def lose_write(graph: Graph, folder: Path) -> None:
    Diary(folder / "x.diary").acknowledged(Place("main", "never-written"), 3)


def tear_write(graph: Graph, folder: Path) -> None:
    Diary(folder / "x.diary").tries(Place("main", "torn"), 0)
    graph.ingest(new_person("torn", "root")[:1])


def invent_write(graph: Graph, folder: Path) -> None:
    graph.ingest(new_person("unknown", "root"))


def take_state_away(graph: Graph, folder: Path) -> None:
    """Clean up as if nothing had to stay for those who read."""
    reader = Reader(graph, Diary(folder / "x.diary"), Random(1), 1_000)
    reader.branches = (MAIN, MAIN)
    reader.step()
    graph.ingest(new_person("later", "root"))
    Diary(folder / "x.diary").acknowledged(Place("main", "later"), 0)
    with hours_later(1):
        og.open(graph.uri).maintenance.cleanup(keep=1, confirm=True)
    reader.graph = og.open(graph.uri)
    reader.step()


def swap_photo(graph: Graph, folder: Path) -> None:
    """Give a person the photo of another: what cleanup, merges or updates would do that mix rows up."""
    names = [f"extra-{number}" for number in range(60)]
    for name in names:
        Diary(folder / "x.diary").acknowledged(Place("main", name), 0)
    records = [record for name in names for record in new_person(name, "root")]
    persons = [record["data"] for record in records if "type" in record]
    with_photo = [data for data in persons if isinstance(data, dict) and "photo" in data]
    with_photo[0]["photo"], with_photo[1]["photo"] = with_photo[1]["photo"], with_photo[0]["photo"]
    graph.ingest(records)


def lose_text(graph: Graph, folder: Path) -> None:
    graph.mutate('query q() { update Person set { note: "other" } where n >= 0 }')


def move_vectors(graph: Graph, folder: Path) -> None:
    graph.mutate("query q() { update Person set { vec: [0.0, 0.0, 0.0, 0.0] } where n >= 0 }")


def lose_file(graph: Graph, folder: Path) -> None:
    for file in Path(graph.uri, graph.snapshot().state.pins[TypeKey("edge:Knows")].path, "data").iterdir():
        file.unlink()


@pytest.mark.parametrize(
    ("mutant", "complaint"),
    [
        (lose_write, "lost: "),
        (tear_write, "torn: "),
        (invent_write, "invented: "),
        (take_state_away, "a state of "),
        (swap_photo, "photo: "),
        (lose_text, "search: "),
        (move_vectors, "vector: "),
        (lose_file, "unreadable: "),
    ],
)
@pytest.mark.sampled(2)
def test_judge_catches_a_mutant(tmp_path: Path, mutant: Callable[[Graph, Path], None], complaint: str) -> None:
    graph = create(tmp_path / "g.omni")
    writer = Writer(graph, Diary(tmp_path / "w.diary"), Random(5), "writer")
    for _ in range(4):
        writer.step()
    assert MAIN in {place.branch for place in writer.alive}
    mutant(graph, tmp_path)
    graph.close()
    found = violations(graph.uri, Ledger.read(tmp_path))
    assert any(one.startswith(complaint) for one in found), found
