"""What tests of many writers share: a stand-in for another process, a park for one, a clock that a test moves.

Knows only the kernel's public seams.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from omnigraph import clock
from omnigraph.ids import BranchId
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import PUBLISH_DEADLINE_SECONDS
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.plan import Effect, Plan
from omnigraph.manifest.requirements import Requirement
from omnigraph.store.objects.backend import NO_METER, Meter
from omnigraph.store.write.transaction import append
from tests.support.failpoint_actions import Park
from tests.support.kernel_fixtures import open_graph, rows_of

T = TypeVar("T")


def stranger(root: str, meter: Meter = NO_METER) -> Kernel:
    """Open the graph by another path: that handle shares no queue with the first, like one in another process."""
    alias = Path(root).with_name("alias.omni")
    if not alias.is_symlink():
        alias.symlink_to(root)
    return open_graph(str(alias), meter)


def ignore_claims(kernel: Kernel, branch_id: BranchId | None = None) -> Kernel:
    """Make a handle that never looks for claims of others: the rival that fairness cannot count on."""
    kernel.commit_loop.turn(branch_id).line.contention.must_look = lambda now: False  # type: ignore[method-assign]
    return kernel


def appending(kernel: Kernel, table_key: TypeKey, ids: Sequence[str], *requirements: Requirement) -> PrepareAppend:
    return PrepareAppend(kernel, table_key, ids, requirements)


class PrepareAppend:
    """A `prepare` that stages an append each time it is called, and counts how often that was."""

    def __init__(
        self, kernel: Kernel, table_key: TypeKey, ids: Sequence[str], requirements: tuple[Requirement, ...] = ()
    ) -> None:
        self.kernel = kernel
        self.table_key = table_key
        self.ids = ids
        self.requirements = requirements
        self.calls = 0
        self.interfere: Callable[[int], None] = lambda _: None

    def __call__(self, snapshot: Snapshot) -> Plan:
        self.calls += 1
        dataset = self.kernel.writable(snapshot, self.table_key)
        change = append(dataset, rows_of(dataset, self.ids))
        self.interfere(self.calls)
        return Plan("insert", (Effect(self.table_key, dataset, (change,)),), requirements=self.requirements)


class ParkFirst:
    """Holds the first passer-by and lets all others through."""

    def __init__(self) -> None:
        self.park = Park()
        self._passed = False
        self._lock = threading.Lock()

    def __call__(self, detail: str) -> None:
        with self._lock:
            is_first, self._passed = not self._passed, True
        if is_first:
            self.park(detail)


class MovableClock:
    """Elapsed time that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def pass_deadline(self) -> None:
        self.now += PUBLISH_DEADLINE_SECONDS + 1

    @contextmanager
    def installed(self) -> Iterator[MovableClock]:
        with clock.replaced(elapsed=lambda: self.now):
            yield self


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Run work beside the test; its result or error waits in the future."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised again where the test asks for the result
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def manifest_file(root: str, snapshot: Snapshot, version: int) -> Path:
    """Return the file that is one version of `__manifest`."""
    return Path(root) / snapshot.ref.at(version).manifest_path
