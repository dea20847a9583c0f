"""Fair slots: no actor takes all, the first request of another finds a slot, and what is given up is given back."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from omnigraph.errors import GraphError
from omnigraph.server.admission import FairSlots


def taken_at_once(slots: FairSlots, actor: str) -> int:
    """Take slots for an actor until it would have to wait."""
    count = 0
    while slots.take_now(actor):
        count += 1
    return count


@pytest.mark.parametrize(("places", "shares"), [(16, [8, 4, 2, 1, 1]), (4, [2, 1, 1]), (2, [1, 1]), (1, [1])])
def test_slots_are_halved_between_actors_that_come(places: int, shares: list[int]) -> None:
    slots = FairSlots(places)
    assert [taken_at_once(slots, f"actor {number}") for number in range(len(shares))] == shares
    assert not slots.take_now("one more")


def test_waiting_actor_with_fewest_slots_is_served_first() -> None:
    async def run() -> list[str]:
        slots, order = FairSlots(4), []
        assert taken_at_once(slots, "bob") == 2
        assert slots.take_now("eve")
        assert slots.take_now("zoe")

        async def wait(actor: str) -> None:
            await slots.take(actor)
            order.append(actor)

        waiting = [asyncio.create_task(wait(actor)) for actor in ("bob", "bob", "eve", "ada")]
        await asyncio.sleep(0)
        for actor in ("bob", "bob", "eve", "zoe"):
            slots.release(actor)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        return order

    order = asyncio.run(run())
    assert order[0] == "ada"
    # The last free slot is kept for who comes next.
    assert sorted(order) == ["ada", "bob", "eve"]


def test_waiting_has_bounds_of_number_and_time() -> None:
    async def run() -> None:
        slots = FairSlots(1, waiting_max=1, seconds_max=0.05)
        await slots.take("bob")
        waiting = asyncio.create_task(slots.take("bob"))
        await asyncio.sleep(0)
        for refused in (slots.take("bob"), waiting):
            with pytest.raises(GraphError) as caught:
                await refused
            assert caught.value.code == "request.too_many"
        slots.release("bob")
        assert slots.take_now("ada"), "who gave up is still served"

    asyncio.run(run())


@pytest.mark.slow
def test_slots_are_exact_whoever_gives_up() -> None:
    async def run(seed: int) -> None:
        dice, places = random.Random(seed), 5
        slots, held, waiting = FairSlots(places), Counter[str](), []
        for _ in range(400):
            actor = f"a{dice.randrange(4)}"
            match dice.randrange(4):
                case 0 | 1:
                    waiting.append((actor, asyncio.create_task(slots.take(actor))))
                case 2 if waiting:
                    waiting[dice.randrange(len(waiting))][1].cancel()
                case _ if held[actor]:
                    held[actor] -= 1
                    slots.release(actor)
            await asyncio.sleep(0)
            for owner, task in list(waiting):
                if task.done():
                    waiting.remove((owner, task))
                    held[owner] += not task.cancelled()
            assert held.total() <= places
        for _, task in waiting:
            task.cancel()
        await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)
        for actor in held.elements():
            slots.release(actor)
        assert [taken_at_once(slots, f"new {number}") for number in range(3)] == [3, 1, 1]

    for seed in range(20):
        asyncio.run(run(seed))
