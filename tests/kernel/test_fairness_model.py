"""What the rules about claims promise, in a model of many processes: nobody starves, nobody is blocked for long.

Each promise comes with mutants of the rules that must break it.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from omnigraph.limits import CLAIM_LOOK_COMMITS, CLAIM_POLL_SECONDS, CLAIM_SECONDS_MAX
from omnigraph.manifest.locks import Claim, ClaimQueue, Contention, QueueWait
from tests.kernel.fairness_model import Process, Rounds, World

pytestmark = pytest.mark.slow

SECONDS = 200
YEAR = 365 * 86_400.0
INSERT = Rounds()
MERGE = Rounds(prepare=26, is_costly=True)
SEEDS = [
    1,
    2,
    pytest.param(3, marks=pytest.mark.long),
    *(pytest.param(n, marks=pytest.mark.long) for n in range(4, 40)),
]


class NeverLooks(Contention):
    def must_look(self, now: float) -> bool:
        return False


class NeverClaims(Contention):
    def must_claim(self, lost: int, is_costly: bool) -> bool:
        return False


class OrderedByName(ClaimQueue):
    def ahead(self, listing: Iterable[Claim], now: float) -> list[Claim]:
        claims = sorted(listing, key=lambda claim: claim.name)
        names = [claim.name for claim in claims]
        return claims[: names.index(self.name)] if self.name in names else claims


class NeverExpires(ClaimQueue):
    def _held_too_long(self, first: Claim, now: float) -> bool:
        return False

    def ahead(self, listing: Iterable[Claim], now: float) -> list[Claim]:
        ahead = super().ahead(listing, now)
        return ahead or [claim for claim in sorted(listing) if claim.name in self.expired]


def shares(seed: int, count: int, **rules: object) -> list[float]:
    world = World(seed)
    processes = [Process(world, INSERT, skew=(n - count / 2) * YEAR, **rules) for n in range(count)]  # type: ignore[arg-type]
    for process in processes:
        world.start(process.writes(begin=world.random.uniform(0, 0.3)))
    world.run(SECONDS)
    counts = [len(process.durations) for process in processes]
    assert 0 <= world.storage.version - sum(counts) <= count, "a commit was lost or counted twice"
    return [one / sum(counts) for one in counts]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("count", "least"), [(2, 1 / 3), (3, 1 / 5), (8, 1 / 20)])
def test_steady_writers_each_get_their_share(seed: int, count: int, least: float) -> None:
    assert min(shares(seed, count)) >= least


@pytest.mark.parametrize("count", [2, 8])
@pytest.mark.parametrize("mutant", [{"contention": NeverLooks}, {"contention": NeverClaims}])
def test_mutant_rules_let_a_steady_writer_starve(mutant: dict[str, object], count: int) -> None:
    assert min(shares(1, count, **mutant)) < (1 / 3 if count == 2 else 1 / 20)


def longest_wait_of_newcomer(**rules: object) -> float:
    """Return how long a process waits whose clock is ahead of those of others that write all the time."""
    world = World(5)
    for number in range(4):
        world.start(Process(world, INSERT, skew=-number * YEAR, **rules).writes())  # type: ignore[arg-type]
    newcomer = Process(world, INSERT, skew=YEAR, **rules)  # type: ignore[arg-type]
    world.start(newcomer.writes(begin=5.0))
    world.run(SECONDS)
    return max([*newcomer.durations, 0.0 if newcomer.durations else SECONDS])


def test_order_of_claims_is_by_storage_time_whatever_the_clocks() -> None:
    assert longest_wait_of_newcomer() < 10
    assert longest_wait_of_newcomer(queue=OrderedByName) > 30


def beside_writers(seed: int, writers: int, work: Rounds, **rules: object) -> tuple[float, float]:
    """Return how long work takes on an idle graph, and beside steady writers of other processes."""
    alone = World(seed)
    idle = Process(alone, work)
    alone.start(idle.writes(commits_max=1))
    alone.run(SECONDS)
    world = World(seed)
    for number in range(writers):
        world.start(Process(world, INSERT, skew=number * YEAR, **rules).writes())  # type: ignore[arg-type]
    process = Process(world, work, **rules)  # type: ignore[arg-type]
    world.start(process.writes(commits_max=1, begin=10.0))
    world.run(SECONDS)
    return idle.durations[0], max([*process.durations, 0.0 if process.durations else SECONDS])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("writers", [1, 3, 7])
def test_merge_beside_steady_writers_ends_within_ten_times_its_idle_time(seed: int, writers: int) -> None:
    idle, beside = beside_writers(seed, writers, MERGE)
    assert beside <= 10 * idle


def test_merge_beside_writers_that_ignore_claims_never_ends() -> None:
    idle, beside = beside_writers(1, 3, MERGE, contention=NeverLooks)
    assert beside > 10 * idle


@pytest.mark.parametrize("slowness", [3, 10])
def test_process_that_is_far_slower_than_others_gets_its_turn(slowness: int) -> None:
    world = World(7)
    fast = [Process(world, INSERT) for _ in range(2)]
    slow = Process(world, INSERT, slowness=slowness)
    for process in (*fast, slow):
        world.start(process.writes())
    world.run(SECONDS)
    counts = [len(one.durations) for one in (*fast, slow)]
    assert counts[2] >= sum(counts) / 20


def longest_gap_after_a_death(dead: int, **rules: object) -> float:
    """Return how long no commit was made after processes died with a claim in the queue."""
    world = World(11)
    live = [Process(world, INSERT, skew=n * YEAR, **rules) for n in range(3)]  # type: ignore[arg-type]
    dying = [Process(world, INSERT, **rules) for _ in range(dead)]  # type: ignore[arg-type]
    for process in (*live, *dying):
        world.start(process.writes())
    for process in dying:
        process.dies_holding_a_claim = True
    world.run(SECONDS)
    moments = sorted(moment for process in live for moment in process.published_at)
    return max(after - before for before, after in zip(moments, [*moments[1:], SECONDS], strict=True))


@pytest.mark.parametrize("dead", [1, 3])
def test_claim_of_a_dead_process_blocks_others_until_its_deadline_only(dead: int) -> None:
    assert longest_gap_after_a_death(dead) < 2 * CLAIM_SECONDS_MAX / 3


def test_claims_that_never_expire_block_everybody() -> None:
    # Even then writers go ahead after the longest that a claim may count, because the publish decides, not the claim.
    assert longest_gap_after_a_death(1, queue=NeverExpires) >= 2 * CLAIM_SECONDS_MAX / 3


class EagerWait(QueueWait):
    """Asks all the time, as the next in line once did."""

    def pause_seconds(self, now: float) -> float:
        return CLAIM_POLL_SECONDS

    def must_list(self, now: float) -> bool:
        return True


def requests_of_a_commit(count: int, **rules: object) -> tuple[float, float, int]:
    """Return the listings and probes of those that wait, per commit of steady writers, and how many commits there are.

    One listing tells a claimant its place, another that its turn has come.
    """
    world = World(3)
    for number in range(count):
        world.start(Process(world, INSERT, **rules).writes(begin=number / 10))  # type: ignore[arg-type]
    world.run(SECONDS)
    commits = world.storage.version
    return world.requests["list"] / commits, world.requests["probe"] / commits, commits


def test_lone_writer_claims_nothing_and_looks_seldom() -> None:
    listings, probes, _ = requests_of_a_commit(1)
    assert (listings <= 1 / CLAIM_LOOK_COMMITS + 0.01, probes) == (True, 0)


@pytest.mark.parametrize(("count", "listings_max"), [(2, 3), (4, 6), (8, 7)])
def test_claimants_ask_a_few_times_per_turn(count: int, listings_max: float) -> None:
    listings, probes, commits = requests_of_a_commit(count)
    assert listings <= listings_max
    assert probes <= 4
    eager_listings, _, eager_commits = requests_of_a_commit(count, wait=EagerWait)
    assert eager_listings > listings_max
    # Asking seldom costs little throughput.
    assert commits >= 0.8 * eager_commits
