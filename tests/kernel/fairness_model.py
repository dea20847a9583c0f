"""A discrete-event model of writers that race to publish, with the product's own rules about claims.

Requests take time, clocks are wrong by years, a listing dates claims as storage does, to the second. What is modelled
is the order of requests; who looks, claims, waits and expires is decided by `Contention` and `ClaimQueue` themselves.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from random import Random

from omnigraph.limits import CLAIM_HOLD_SECONDS_MIN, CLAIM_SECONDS_MAX
from omnigraph.manifest.locks import Claim, ClaimQueue, Contention, QueueWait

Steps = Generator[float, None, None]


@dataclass
class Storage:
    """What all processes share; `second_us` is how finely it dates objects."""

    version: int = 0
    claims: dict[str, int] = field(default_factory=dict)
    second_us: int = 1_000_000

    def listing(self) -> list[Claim]:
        return [Claim(written_us, name) for name, written_us in self.claims.items()]


@dataclass
class Rounds:
    """How many requests follow each other: to stage, to read what others did, to prepare on it, to publish."""

    stage: int = 1
    catch_up: int = 6
    prepare: int = 0
    publish: int = 5
    is_costly: bool = False


class World:
    """The clock, and every process as a generator of the times it waits."""

    def __init__(self, seed: int, latency: float = 0.03) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self.latency = latency
        self.storage = Storage()
        # Requests about claims, and the probes of those that wait.
        self.requests: Counter[str] = Counter()
        self._due: list[tuple[float, int, Steps]] = []
        self._count = 0

    def start(self, steps: Steps, at: float = 0.0) -> None:
        self._count += 1
        heapq.heappush(self._due, (at, self._count, steps))

    def run(self, seconds: float) -> None:
        while self._due and self._due[0][0] <= seconds:
            self.now, _, steps = heapq.heappop(self._due)
            try:
                self.start(steps, self.now + next(steps))
            except StopIteration:
                continue

    def round(self) -> float:
        return self.latency * self.random.uniform(0.8, 1.3)


class Process:
    """One process that writes to the branch; `skew` is how wrong its clock is."""

    def __init__(
        self,
        world: World,
        rounds: Rounds,
        skew: float = 0.0,
        slowness: float = 1.0,
        contention: Callable[[], Contention] = Contention,
        queue: Callable[[str, float], ClaimQueue] = ClaimQueue,
        wait: Callable[[Contention, int, float], QueueWait] = QueueWait,
    ) -> None:
        self.world, self.rounds, self.skew, self.slowness = world, rounds, skew, slowness
        self.contention = contention()
        self.new_queue, self.new_wait = queue, wait
        self.durations: list[float] = []
        self.published_at: list[float] = []
        self.attempts = 0
        self.dies_holding_a_claim = False
        self._queue: ClaimQueue | None = None
        self._first_at: float | None = None
        self._known = 0
        self._caught_up = 0

    def clock(self) -> float:
        return self.world.now + self.skew

    def writes(self, commits_max: int = 10**9, begin: float = 0.0) -> Steps:
        yield begin
        for _ in range(commits_max):
            begun = self.world.now
            if (yield from self._commit()) == "dead":
                return
            self.durations.append(self.world.now - begun)
            self.published_at.append(self.world.now)

    def _requests(self, count: int) -> Steps:
        for _ in range(count):
            yield self.world.round() * self.slowness

    def _commit(self) -> Generator[float, None, str]:
        storage, contention, rounds = self.world.storage, self.contention, self.rounds
        lost, begun = 0, self.clock()
        joins_at_once = contention.joins_at_once(self.clock())
        must_look, base = contention.must_look(self.clock()), self._known
        skips_probe = contention.may_skip_probe(self.clock())
        yield from self._requests(rounds.stage)
        yield from self._requests(rounds.prepare)
        head = base if skips_probe else storage.version
        if joins_at_once:
            yield from self._join(self.clock() - begun)
        elif must_look:
            self.world.requests["list"] += 1
            has_others = bool(storage.claims)
            contention.note_look(has_others, self.clock())
            if has_others:
                yield from self._join(self.clock() - begun)
        while True:
            if self._queue is not None and self.dies_holding_a_claim:
                return "dead"
            yield from self._wait()
            tried_at = self.clock()
            if head != base or lost or self._queue is not None:
                yield from self._requests(1)
                base = head = storage.version
                yield from self._requests(0 if base == self._caught_up else rounds.catch_up - 1)
                if lost:
                    yield from self._requests(rounds.prepare)
            self.attempts += 1
            yield from self._requests(rounds.publish)
            if storage.version == base:
                storage.version = self._known = base + 1
                contention.note_win()
                contention.note_attempt(self.clock() - tried_at)
                self._leave()
                yield from self._requests(1)
                return "published"
            lost += 1
            contention.note_attempt(self.clock() - tried_at)
            contention.note_contention(self.clock())
            if self._queue is None and contention.must_claim(lost, rounds.is_costly):
                yield from self._join(self.clock() - tried_at)

    def _join(self, attempt_seconds: float) -> Steps:
        yield from self._requests(1)
        self.world.requests["put"] += 1
        storage = self.world.storage
        hold = min(max(self.contention.hold_seconds(attempt_seconds), CLAIM_HOLD_SECONDS_MIN), CLAIM_SECONDS_MAX)
        # Names begin with the wrong clock of their process, to show that names decide nothing but ties.
        name = f"{self.clock() + 10**10:024.6f}{self.world.random.random():.6f}-{round(hold * 1_000)}"
        storage.claims[name] = int(self.world.now * 1_000_000) // storage.second_us * storage.second_us
        self._queue, self._first_at = self.new_queue(name, self.clock()), None
        self.contention.note_contention(self.clock())

    def _wait(self) -> Steps:
        if self._queue is None or self._first_at is not None:
            return
        begun, version = self.clock(), self._known
        ahead = yield from self._count_ahead()
        queue_wait = self.new_wait(self.contention, ahead, self.clock())
        while queue_wait.ahead and self.clock() - begun < CLAIM_SECONDS_MAX:
            yield queue_wait.pause_seconds(self.clock())
            is_moved = queue_wait.is_next and (yield from self._has_moved(version))
            if is_moved:
                version = self.world.storage.version
                queue_wait.note_move()
            if queue_wait.must_list(self.clock()):
                ahead = yield from self._count_ahead()
                queue_wait.note_listing(ahead, self.clock())
            if is_moved:
                # What was published is read while the queue is listed.
                yield from self._requests(self.rounds.catch_up - 2)
                self._caught_up = version
        self._first_at = self.clock()

    def _has_moved(self, version: int) -> Generator[float, None, bool]:
        yield from self._requests(1)
        self.world.requests["probe"] += 1
        return self.world.storage.version > version

    def _count_ahead(self) -> Generator[float, None, int]:
        assert self._queue is not None
        yield from self._requests(1)
        self.world.requests["list"] += 1
        listing = self.world.storage.listing()
        self.contention.note_look(any(claim.name != self._queue.name for claim in listing), self.clock())
        return len(self._queue.ahead(listing, self.clock()))

    def _leave(self) -> None:
        queue, self._queue = self._queue, None
        for name in [queue.name, *queue.expired] if queue is not None else ():
            self.world.storage.claims.pop(name, None)
