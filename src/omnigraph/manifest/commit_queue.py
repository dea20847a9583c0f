"""Turns: the writers of one process publish to a branch one after the other, first come, first served.

One turn serves all handles of a graph in this process. Between processes there are claims; see `claims`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from omnigraph import clock
from omnigraph.errors import ConflictError
from omnigraph.ids import BranchId, OperationId
from omnigraph.limits import TURN_SECONDS_MAX
from omnigraph.manifest.claims import ClaimLine
from omnigraph.manifest.model import Snapshot


class BranchTurn:
    """The FIFO queue of this process's writers of a branch, and the process's claim among other processes."""

    def __init__(self, branch_id: BranchId | None = None) -> None:
        self.line = ClaimLine(branch_id)
        # The newest version that this process has published, through any handle.
        self.last_version = 0
        self._last_operation_id: OperationId | None = None
        self._mutex = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._is_taken = False

    @contextmanager
    def held(self) -> Iterator[BranchTurn]:
        """Hold the turn. Unlike a plain lock it is fair: a busy thread cannot overtake those that wait."""
        self._take()
        try:
            yield self
        finally:
            self._pass_on()

    def note_win(self, published: Snapshot, attempt_seconds: float) -> None:
        """Record a publish of this process."""
        self.last_version, self._last_operation_id = published.version, published.operation_id
        self.line.contention.note_win()
        self.line.contention.note_attempt(attempt_seconds)

    def note_head(self, head: Snapshot) -> bool:
        """Record a newer head; return True if another process published it."""
        is_foreign = head.operation_id != self._last_operation_id
        if is_foreign:
            self.line.contention.note_contention(clock.elapsed())
        return is_foreign

    def may_skip_probe(self, head: Snapshot) -> bool:
        """Return True if a cached head is most probably still the newest."""
        return head.operation_id == self._last_operation_id and self.line.contention.may_skip_probe(clock.elapsed())

    def _take(self) -> None:
        gate = threading.Lock()
        with self._mutex:
            if not self._is_taken:
                self._is_taken = True
                return
            gate.acquire()
            self._waiting.append(gate)
        try:
            if not gate.acquire(timeout=TURN_SECONDS_MAX):
                raise ConflictError(
                    f"other writers of this process held the branch for {TURN_SECONDS_MAX} seconds; nothing was"
                    " written, retry later"
                )
        except BaseException:
            # An interrupted thread leaves the queue, or passes on the turn if it got it at the same time.
            with self._mutex:
                if gate in self._waiting:
                    self._waiting.remove(gate)
                    raise
            self._pass_on()
            raise

    def _pass_on(self) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False


_turns: WeakValueDictionary[tuple[str, BranchId | None], BranchTurn] = WeakValueDictionary()
_turns_lock = threading.Lock()


def shared_turn(uri: str, branch_id: BranchId | None) -> BranchTurn:
    """Return the turn of a branch that all handles of a graph in this process share."""
    with _turns_lock:
        return _turns.setdefault((uri, branch_id), BranchTurn(branch_id))
