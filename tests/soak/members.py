"""The members of a soak: writers, branchers, readers and keepers; each does one small thing at a time.

What a member is told about the graph is what any user of it is told.
"""

from __future__ import annotations

import traceback
from random import Random
from typing import Protocol

from omnigraph import clock
from omnigraph.errors import ConflictError, OmniGraphError, ReadSetChanged
from omnigraph.graph import Graph
from omnigraph.manifest.model import MAIN
from tests.soak.content import HITS, nearest_names, order_errors, person_data, person_vector, photo_errors
from tests.soak.diary import Diary, Place

SCHEMA = """
node Person { name: String @key  n: I32?  note: String? @index  vec: Vector(4)? @index  photo: Blob? }
edge Knows: Person -> Person
"""
SIDE = "side"
MERGES_MAX = 10
PAUSE_SECONDS = 0.6
ALL = "query q() { match { $p: Person } return { $p.name as name, $p.n as n } }"
COUNT = "query q() { match { $p: Person } return { count($p) as n } }"
WALK = "query q() { match { $p: Person  $p knows $q } return { count($q) as n } }"


class Member(Protocol):
    """Somebody who works on the graph."""

    def step(self) -> None: ...


def new_person(name: str, known: str) -> list[dict[str, object]]:
    """Return a person and an edge that comes and goes with it."""
    person: dict[str, object] = {"type": "Person", "data": person_data(name)}
    return [person, {"edge": "Knows", "from": name, "to": known, "data": {"id": f"k-{name}"}}]


class Writer:
    """Inserts, updates and deletes entities of its own."""

    def __init__(self, graph: Graph, diary: Diary, random: Random, name: str) -> None:
        self.graph, self.diary, self.random, self.name = graph, diary, random, name
        self.made = 0
        self.pause_seconds = 0.0
        self.alive: dict[Place, int] = {}

    def step(self) -> None:
        # Whoever writes without a pause keeps every optimize of other processes from being published.
        clock.pause(self.random.random() * self.pause_seconds)
        branch = self.random.choice((MAIN, MAIN, SIDE))
        own = [one for one in self.alive if one.branch == branch]
        if not own or self.random.random() < 0.6:
            self.made += 1
            place = Place(branch, f"{self.name}-{self.made}")
            self.diary.tries(place, 0)
            self.graph.ingest(new_person(place.name, "root"), mode="append", branch=branch)
            self.diary.acknowledged(place, 0)
            self.alive[place] = 0
            return
        place = self.random.choice(own)
        if self.random.random() < 0.7:
            value = self.alive[place] + 1
            self.diary.tries(place, value)
            change = f'query q() {{ update Person set {{ n: {value} }} where name = "{place.name}" }}'
            self.graph.mutate(change, branch=branch)
            self.diary.acknowledged(place, value)
            self.alive[place] = value
        else:
            # Whatever becomes of it, nothing more is done to it.
            del self.alive[place]
            self.diary.tries(place, None)
            self.graph.mutate(f'query q() {{ delete Person where name = "{place.name}" }}', branch=branch)
            self.diary.acknowledged(place, None)


def delete_left(graph: Graph) -> None:
    """Delete the branches that killed branchers were working on: content like any other, until somebody says no."""
    for name in graph.branches.list():
        if name not in (MAIN, SIDE):
            graph.branches.delete(name)


class Brancher:
    """Makes a branch, writes to it, and merges it or throws it away; begins with what its killed predecessor left.

    A branch protects the state that it began at, so branches that nobody deletes would make the graph grow.
    """

    def __init__(self, graph: Graph, diary: Diary, random: Random, name: str) -> None:
        self.graph, self.diary, self.random, self.name = graph, diary, random, name
        self.made = 0

    def step(self) -> None:
        delete_left(self.graph)
        self.made += 1
        branch = f"{self.name}/{self.made}"
        self.graph.branches.create(branch)
        places = [Place(MAIN, f"{self.name}-{self.made}-{number}") for number in range(3)]
        try:
            for place in places:
                self.graph.ingest(new_person(place.name, "root"), mode="append", branch=branch)
            if self.random.random() < 0.7:
                for place in places:
                    self.diary.tries(place, 0)
                self._merge(branch)
                for place in places:
                    self.diary.acknowledged(place, 0)
                self.diary.counts("merged")
        finally:
            self.graph.branches.delete(branch)

    def _merge(self, branch: str) -> None:
        """Merge, and try again when a writer of main was faster, as the error says."""
        for _ in range(MERGES_MAX):
            try:
                self.graph.branches.merge(branch)
            except ReadSetChanged:
                continue
            return
        raise ConflictError("writers were always faster")


class Reader:
    """Holds on to a state for a while and reads it again and again; what it is not told stays the same."""

    def __init__(self, graph: Graph, diary: Diary, random: Random, hold_seconds: float) -> None:
        self.graph, self.diary, self.random, self.hold_seconds = graph, diary, random, hold_seconds
        self.branches = (MAIN, SIDE)
        self.held: tuple[str, float, tuple[object, ...]] | None = None

    def step(self) -> None:
        if self.held is None or clock.elapsed() - self.held[1] > self.hold_seconds:
            # Noted before it is looked up, so that it was surely the newest after this moment.
            since = clock.elapsed()
            commit_id = str(self.graph.snapshot(self.random.choice(self.branches)).head)
            self.held = (commit_id, since, self._look(commit_id))
            self.diary.counts("held")
            self._look_back()
            return
        commit_id, since, seen = self.held
        try:
            again = self._look(commit_id)
        except OmniGraphError as error:
            age = clock.elapsed() - since
            if age <= self.hold_seconds:
                self.diary.complains(f"a state of {age:.1f} s ago cannot be read: {error.code} {error.message}")
            self.held = None
            return
        if again != seen:
            self.diary.complains(f"commit {commit_id} reads as {again} after {seen}")
        self.diary.counts("read")

    def _look(self, commit_id: str) -> tuple[object, ...]:
        """Ask by scan, walk, text and vector, and read photos; complain about what is wrong in itself."""
        persons, walked, hits = (self.graph.query(text, at=commit_id).rows()[0]["n"] for text in (COUNT, WALK, HITS))
        if hits != walked:
            self.diary.complains(f"a search at {commit_id} finds {hits} persons, and {walked} have a text")
        vector = person_vector(commit_id)
        nearest = nearest_names(self.graph, vector, 3, at=commit_id)
        for problem in order_errors(nearest, vector) + photo_errors(self.graph, nearest, at=commit_id):
            self.diary.complains(f"at {commit_id}: {problem}")
        return (persons, walked, hits, *nearest)

    def _look_back(self) -> None:
        """Read some older state: it is whole, or it is said to be removed."""
        commit = self.random.choice(self.graph.commits())
        try:
            self._look(commit.commit_id)
            self.diary.counts("looked back")
        except OmniGraphError as error:
            if error.code != "graph.version_reclaimed":
                self.diary.complains(f"an old state answers {error.code}: {error.message}")
            self.diary.counts("reclaimed")


class Keeper:
    """Optimizes and cleans up."""

    def __init__(self, graph: Graph, diary: Diary, random: Random) -> None:
        self.graph, self.diary, self.random = graph, diary, random

    def step(self) -> None:
        if self.random.random() < 0.5:
            report = self.graph.maintenance.optimize(self.random.choice((MAIN, SIDE)))
            self.diary.counts("optimized" if report.commit else "nothing to optimize")
            return
        cleaned = self.graph.maintenance.cleanup(keep=3, confirm=True)
        for one in cleaned.datasets:
            if one.error is not None:
                self.diary.complains(f"cleanup of {one.type_key}: {one.error}")
        self.diary.counts("cleaned up" if any(one.versions_removed for one in cleaned.datasets) else "nothing to clean")


def careful_step(member: Member, diary: Diary) -> None:
    """Let a member do one thing; losing to somebody faster is life, any other error is a complaint."""
    try:
        member.step()
    except ConflictError:
        diary.counts("conflict")
    except Exception:  # noqa: BLE001 - whatever it is, it is worth a complaint
        trace = " | ".join(line.strip() for line in traceback.format_exc().splitlines()[-24:])
        diary.complains(f"{type(member).__name__}: {trace}")


def member_of(role: str, graph: Graph, diary: Diary, random: Random, name: str, hold_seconds: float) -> Member:
    match role:
        case "writer":
            writer = Writer(graph, diary, random, name)
            writer.pause_seconds = PAUSE_SECONDS
            return writer
        case "brancher":
            return Brancher(graph, diary, random, name)
        case "reader":
            return Reader(graph, diary, random, hold_seconds)
        case _:
            return Keeper(graph, diary, random)
