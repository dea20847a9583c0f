"""Writes that are published together: they wait in the queue of a branch in a known order, and are let go at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import pytest

import omnigraph as og
from omnigraph.graph import session_of
from omnigraph.manifest import group_commit
from omnigraph.manifest.group_commit import Groupable, Write, Writer, Writers
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, Commit
from omnigraph.manifest.plan import CommitPolicy

T = TypeVar("T")
WAIT_SECONDS = 60


def queue_of(kernel: Kernel, branch: str = MAIN) -> Writers:
    return kernel.commit_loop._queues.get_or_create(branch, Writers)


@contextmanager
def held(kernel: Kernel, branch: str = MAIN) -> Iterator[Writers]:
    """Lead the queue of a branch without writing anything, so that writers gather behind."""
    queue = queue_of(kernel, branch)
    nothing: Any = Write(lambda _: None, CommitPolicy.GROUP, Groupable(None, None))  # type: ignore[arg-type]
    assert queue.enter(Writer(nothing)), "somebody else leads"
    # Groups are formed of those that wait, and of no one who may come yet.
    queue._last_size = 1
    try:
        yield queue
    finally:
        queue.hand_over()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.001)


def write_together(graph: og.Graph, writes: Sequence[Callable[[], T]], branch: str = MAIN) -> list[T | BaseException]:
    """Run writes of a branch, which queue up in this order; return what each returned or raised."""
    return write_together_on(session_of(graph).kernel, writes, branch)


def write_together_on(kernel: Kernel, writes: Sequence[Callable[[], T]], branch: str = MAIN) -> list[T | BaseException]:
    """Run writes through a kernel, which queue up in this order; return what each returned or raised."""
    # However busy the machine is, they are one group.
    with pytest.MonkeyPatch.context() as unhurried, ThreadPoolExecutor(max(1, len(writes))) as pool:
        unhurried.setattr(group_commit, "GROUP_SECONDS_MAX", WAIT_SECONDS)
        futures: list[Future[T]] = []
        with held(kernel, branch) as queue:
            queued = 0
            for write in writes:
                futures.append(pool.submit(write))
                wait_until(partial(_has_queued, queue, futures[-1], queued + 1))
                # One that is refused before it queues up meets none of the others.
                queued += not futures[-1].done()
        return [future.exception() or future.result() for future in futures]


def _has_queued(queue: Writers, future: Future[T], count: int) -> bool:
    return future.done() or len(queue._waiting) == count


def groups_of(graph: og.Graph, branch: str = MAIN) -> list[list[Commit]]:
    """Return the commits of a branch, oldest first, in the groups that they were published in."""
    commits = list(reversed(list(session_of(graph).kernel.history(branch))))
    versions: dict[tuple[object, int], list[Commit]] = {}
    for commit in commits:
        versions.setdefault((commit.branch, commit.manifest_version), []).append(commit)
    return list(versions.values())
