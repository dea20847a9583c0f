"""The queue of the writers of one branch in this process: who waits, who leads, and which of them form a group.

The first writer leads. While it is busy, others wait, each on an event of its own; when it is done, it hands the lead
to the first who waits, the heir, and the heir takes along those behind it. So an answered writer never queues up before
an unanswered one, and a writer that is alone leads at once.
"""

from __future__ import annotations

import threading
from collections import deque
from contextvars import Context, copy_context
from copy import copy
from enum import Enum, auto
from typing import Generic, TypeVar

from omnigraph.errors import ConflictError, OmniGraphError
from omnigraph.limits import GROUP_COMMITS_MAX, GROUP_GATHER_SECONDS, GROUP_QUEUE_MAX, TURN_SECONDS_MAX
from omnigraph.manifest.publish import Publication, current

W = TypeVar("W")
R = TypeVar("R")


class Standing(Enum):
    """Where a writer stands: in the queue, at its head, in a group that is being published, or answered."""

    WAITS = auto()
    LEADS = auto()
    GROUPED = auto()
    ANSWERED = auto()


class QueuedWriter(Generic[W, R]):
    """One write in the queue, with the context of its caller, in which it is prepared, and the answer it waits for."""

    def __init__(self, work: W, *, goes_alone: bool = False) -> None:
        self.work = work
        self.context: Context = copy_context()
        self.publication: Publication = current()
        self.standing = Standing.WAITS
        # Set for a write that no group can take; it is published by itself.
        self.goes_alone = goes_alone
        # Its caller was interrupted, and no thread waits for the answer.
        self.is_abandoned = False
        self.answer: R | None = None
        self.error: BaseException | None = None
        self._changed = threading.Event()

    def settle(self, answer: R | None = None, error: BaseException | None = None) -> None:
        """Answer the writer, which may be waiting in another thread."""
        self.answer, self.error, self.standing = answer, error, Standing.ANSWERED
        self._changed.set()

    @property
    def is_answered(self) -> bool:
        return self.standing is Standing.ANSWERED

    def result(self) -> R | None:
        """Return the answer, or raise the error; each writer raises an exception of its own."""
        if self.error is not None:
            raise copy(self.error) if isinstance(self.error, OmniGraphError) else self.error
        return self.answer

    def promote(self) -> None:
        """Give the writer the lead."""
        self.standing = Standing.LEADS
        self._changed.set()

    def wait_as(self, standing: Standing) -> None:
        """Let the writer wait, in the queue or in a group, until it is promoted or answered."""
        self._changed.clear()
        self.standing = standing

    def wait(self, seconds: float | None) -> bool:
        """Wait for the lead or the answer; False when neither came in time."""
        return self._changed.wait(seconds)


class WriterQueue(Generic[W, R]):
    """The writers of one branch, first come, first served; one of them leads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._arrived = threading.Condition(self._mutex)
        self._waiting: deque[QueuedWriter[W, R]] = deque()
        self._is_led = False
        self._last_size = 1

    def enter(self, writer: QueuedWriter[W, R]) -> bool:
        """Join the queue and wait; True with the lead, which `hand_over` gives back, False with an answer."""
        with self._mutex:
            if not self._is_led:
                self._is_led = True
                writer.standing = Standing.LEADS
                return True
            if len(self._waiting) >= GROUP_QUEUE_MAX:
                raise ConflictError(
                    f"{GROUP_QUEUE_MAX} writes of this process are waiting for the branch already; nothing was written,"
                    " retry later"
                )
            self._waiting.append(writer)
            self._arrived.notify()
        return self.wait(writer)

    def wait(self, writer: QueuedWriter[W, R]) -> bool:
        """Wait; True with the lead, False with an answer. A caller that is interrupted leaves the queue."""
        try:
            self._wait(writer)
        except BaseException:
            self._leave(writer)
            raise
        return writer.standing is Standing.LEADS

    def _wait(self, writer: QueuedWriter[W, R]) -> None:
        if writer.wait(TURN_SECONDS_MAX):
            return
        with self._mutex:
            if writer.standing is Standing.WAITS:
                raise ConflictError(
                    f"other writers of this process held the branch for {TURN_SECONDS_MAX} seconds; nothing was"
                    " written, retry later"
                )
        # Its group is being published, which has deadlines of its own.
        writer.wait(None)

    def _leave(self, writer: QueuedWriter[W, R]) -> None:
        """Take out a writer that does not wait any more: out of the queue, or out of its group unless that is late."""
        with self._mutex:
            if writer in self._waiting:
                self._waiting.remove(writer)
                return
            writer.is_abandoned = True
        if writer.standing is Standing.LEADS:
            self.hand_over()
        else:
            writer.publication.close()

    def gather(self, leader: QueuedWriter[W, R]) -> list[QueuedWriter[W, R]]:
        """Return the leader and those behind it that are published together with it, in their order."""
        group = [leader]
        with self._mutex:
            if self._last_size > 1 and not leader.goes_alone:
                # The writers that were just answered are about to come back: a moment later the group is larger.
                expected = min(self._last_size, GROUP_COMMITS_MAX) - 1
                self._arrived.wait_for(lambda: len(self._waiting) >= expected, GROUP_GATHER_SECONDS)
            while self._waiting and len(group) < GROUP_COMMITS_MAX and not leader.goes_alone:
                if self._waiting[0].goes_alone:
                    break
                writer = self._waiting.popleft()
                group.append(writer)
            self._last_size = len(group)
            if len(group) > 1:
                for writer in group:
                    writer.wait_as(Standing.GROUPED)
        return group

    def put_back(self, writers: list[QueuedWriter[W, R]]) -> None:
        """Let writers wait again, before all others, in their order."""
        with self._mutex:
            for writer in reversed(writers):
                if not writer.is_abandoned:
                    writer.wait_as(Standing.WAITS)
                    self._waiting.appendleft(writer)

    def hand_over(self) -> None:
        """Give the lead to the first who waits, if there is one."""
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().promote()
            else:
                self._is_led = False
