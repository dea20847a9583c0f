"""Fair slots: who may use the threads of a server, when more is asked of it than it has.

Slots are shared as switches share their buffers (dynamic thresholds of Choudhury and Hahne): an actor may take another
slot while it holds fewer than are free. One actor alone gets half of them, two get three quarters, and the first
request of the next actor finds a slot at once. Who has to wait is served by fewest held slots, then by arrival.
Belongs to the event loop; not for threads.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from itertools import count

from omnigraph.errors import GraphError
from omnigraph.limits import SERVER_QUEUE_MAX, SERVER_QUEUE_SECONDS_MAX


class FairSlots:
    """A number of slots, and the callers that wait for one."""

    def __init__(
        self, slots: int, *, waiting_max: int = SERVER_QUEUE_MAX, seconds_max: float = SERVER_QUEUE_SECONDS_MAX
    ) -> None:
        self._free = slots
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[tuple[int, asyncio.Future[None]]]] = OrderedDict()
        self._arrivals = count()
        self._waiting_max = waiting_max
        self._seconds_max = seconds_max

    async def take(self, actor: str) -> None:
        """Wait for a slot; refused when the actor has too many requests waiting, or waits for too long."""
        if self.take_now(actor):
            return
        queue = self._waiting.setdefault(actor, deque())
        if len(queue) >= self._waiting_max:
            raise _too_many(f"{self._waiting_max} requests of this actor wait already")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append((next(self._arrivals), turn))
        self._serve_waiting()
        try:
            async with asyncio.timeout(self._seconds_max):
                await turn
        except BaseException as error:
            self._forget(actor, turn)
            if isinstance(error, TimeoutError):
                raise _too_many(f"this request got no turn within {self._seconds_max:g} seconds") from None
            raise

    def take_now(self, actor: str) -> bool:
        """Take a slot if the actor may have one without waiting."""
        if actor in self._waiting or not self._may_take(actor):
            return False
        self._grant(actor)
        return True

    def give_back(self, actor: str) -> None:
        """Return a slot, and let the next caller have it."""
        self._free += 1
        self._held[actor] -= 1
        if not self._held[actor]:
            del self._held[actor]
        self._serve_waiting()

    def _may_take(self, actor: str) -> bool:
        return self._held[actor] < self._free

    def _grant(self, actor: str) -> None:
        self._free -= 1
        self._held[actor] += 1

    def _serve_waiting(self) -> None:
        while self._free:
            eligible = [one for one in self._waiting if self._may_take(one)]
            if not eligible:
                return
            actor = min(eligible, key=lambda one: (self._held[one], self._waiting[one][0][0]))
            _, turn = self._pop(actor)
            if not turn.done():
                self._grant(actor)
                turn.set_result(None)

    def _pop(self, actor: str) -> tuple[int, asyncio.Future[None]]:
        first = self._waiting[actor].popleft()
        if not self._waiting[actor]:
            del self._waiting[actor]
        return first

    def _forget(self, actor: str, turn: asyncio.Future[None]) -> None:
        """Take a caller that gave up out of its queue, or return the slot that it was just granted."""
        if turn.done() and not turn.cancelled():
            self.give_back(actor)
            return
        queue = self._waiting.get(actor)
        if queue is not None:
            kept = deque(one for one in queue if one[1] is not turn)
            if kept:
                self._waiting[actor] = kept
            else:
                del self._waiting[actor]


def _too_many(reason: str) -> GraphError:
    return GraphError(
        f"{reason}; nothing was done, send it again when some have ended", code="request.too_many", resource="requests"
    )
