"""The queue of the writers of a branch: order, hand-over, bounds, and callers that leave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from omnigraph.errors import ConflictError
from omnigraph.manifest import group_queue
from omnigraph.manifest.group_queue import QueuedWriter, Standing, WriterQueue
from tests.support.grouped_writes import wait_until

Queue = WriterQueue[str, str]
Queued = QueuedWriter[str, str]


@contextmanager
def waiting(queue: Queue, *writers: Queued) -> Iterator[list[Future[bool]]]:
    """Let writers enter a queue that is led, in their order."""
    with ThreadPoolExecutor(len(writers)) as pool:
        futures = []
        for number, writer in enumerate(writers, 1):
            futures.append(pool.submit(queue.enter, writer))
            wait_until(lambda count=number: len(queue._waiting) == count)  # type: ignore[misc]
        yield futures


def led_queue() -> Queue:
    queue = Queue()
    assert queue.enter(Queued("first"))
    return queue


def test_writer_alone_leads_at_once_and_hands_over_to_none() -> None:
    queue = led_queue()
    queue.hand_over()
    assert queue.enter(Queued("second"))


def test_heir_takes_along_those_behind_it_in_order() -> None:
    queue, writers = led_queue(), [Queued(name) for name in "abc"]
    with waiting(queue, *writers) as futures:
        queue.hand_over()
        assert futures[0].result(10) is True
        group = queue.gather(writers[0])
        assert [writer.work for writer in group] == ["a", "b", "c"]
        for writer in group:
            writer.settle(writer.work.upper())
        assert [future.result(10) for future in futures[1:]] == [False, False]
        assert [writer.result() for writer in writers] == ["A", "B", "C"]


def test_group_ends_before_a_writer_that_goes_alone() -> None:
    queue = led_queue()
    writers = [Queued("a"), Queued("b"), Queued("c", goes_alone=True), Queued("d")]
    with waiting(queue, *writers) as futures:
        queue.hand_over()
        assert [writer.work for writer in queue.gather(writers[0])] == ["a", "b"]
        queue.hand_over()
        assert futures[2].result(10) is True
        assert queue.gather(writers[2]) == [writers[2]]
        queue.hand_over()
        assert futures[3].result(10) is True
        writers[1].settle()


def test_group_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_queue, "GROUP_COMMITS_MAX", 2)
    queue, writers = led_queue(), [Queued(name) for name in "abc"]
    with waiting(queue, *writers):
        queue.hand_over()
        group = queue.gather(writers[0])
        assert [writer.work for writer in group] == ["a", "b"]
        for writer in writers:
            writer.settle()


def test_writers_put_back_come_before_all_others() -> None:
    queue, writers = led_queue(), [Queued(name) for name in "abc"]
    with waiting(queue, *writers) as futures:
        queue.hand_over()
        group = queue.gather(writers[0])
        late = Queued("late")
        with waiting_behind(queue, late) as behind:
            queue.put_back(group[1:])
            queue.hand_over()
            assert futures[1].result(10) is True
            assert [writer.work for writer in queue.gather(writers[1])] == ["b", "c", "late"]
            for writer in (writers[2], late):
                writer.settle()
            assert behind.result(10) is False


@contextmanager
def waiting_behind(queue: Queue, writer: Queued) -> Iterator[Future[bool]]:
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(queue.enter, writer)
        wait_until(lambda: writer in queue._waiting)
        yield future


def test_full_queue_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_queue, "GROUP_QUEUE_MAX", 1)
    queue, first = led_queue(), Queued("a")
    with waiting(queue, first):
        with pytest.raises(ConflictError) as busy:
            queue.enter(Queued("b"))
        assert busy.value.retryable
        first.settle()


def test_writer_that_waited_too_long_leaves_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_queue, "TURN_SECONDS_MAX", 0.01)
    queue = led_queue()
    with pytest.raises(ConflictError, match="nothing was written"):
        queue.enter(Queued("a"))
    queue.hand_over()
    assert queue.enter(Queued("b"))


def interrupted(queue: Queue, writer: Queued, monkeypatch: pytest.MonkeyPatch, at: threading.Event) -> None:
    """Interrupt a writer while it waits, once it is told to."""

    def wait(seconds: float | None) -> bool:
        assert at.wait(10)
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        queue.enter(writer)


def test_interrupted_writer_is_not_promoted(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, at = led_queue(), threading.Event()
    at.set()
    interrupted(queue, Queued("a"), monkeypatch, at)
    queue.hand_over()
    assert queue.enter(Queued("b"))


def test_interrupted_heir_hands_the_lead_on(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, at, writer = led_queue(), threading.Event(), Queued("a")
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(interrupted, queue, writer, monkeypatch, at)
        wait_until(lambda: writer in queue._waiting)
        queue.hand_over()
        assert writer.standing is Standing.LEADS
        at.set()
        future.result(10)
    assert queue.enter(Queued("b"))


def test_interrupted_member_is_not_published_and_not_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, at, heir, writer = led_queue(), threading.Event(), Queued("a"), Queued("b")
    with waiting(queue, heir), ThreadPoolExecutor(1) as pool:
        future = pool.submit(interrupted, queue, writer, monkeypatch, at)
        wait_until(lambda: writer in queue._waiting)
        queue.hand_over()
        group = queue.gather(heir)
        assert group == [heir, writer]
        at.set()
        future.result(10)
        assert writer.publication.close() is None
        queue.put_back([writer])
        assert not queue._waiting
        heir.settle()
