"""Crashes in S3: a real process dies at every request that changes the bucket, those of Lance included."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from typing import Literal

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from tests.support.crash_campaign import Campaign, Zygote
from tests.support.crash_scenarios import SCENARIOS
from tests.support.examples import spread
from tests.support.s3_server import BUCKET, DROP_BEFORE, Fault, Request, S3Server

pytestmark = pytest.mark.s3

DEATH_SECONDS_MAX = 30

Side = Literal["before", "after"]


class S3Place:
    """A graph in the bucket, and what the bucket held before the work."""

    def __init__(self, server: S3Server) -> None:
        self.root = server.uri("graph.omni")
        self._template: dict[str, bytes] = {}

    def save(self) -> None:
        backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        self._template = {name: key.value for name, key in backend.get_bucket(BUCKET).keys.items()}

    def restore(self) -> None:
        backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        for name in list(backend.get_bucket(BUCKET).keys):
            backend.delete_object(BUCKET, name)
        for name, value in self._template.items():
            backend.put_object(BUCKET, name, value)


class _Victim:
    """A child that a request of its own is going to kill."""

    def __init__(self, when: Side) -> None:
        self._when = when
        self._pid = 0
        self._started = threading.Event()
        self.is_over = False

    def started(self, pid: int) -> None:
        self._pid = pid
        self._started.set()

    def kill(self, _: Request) -> Fault | None:
        """Return when the child is dead; a request that comes after its time belongs to somebody else."""
        if self.is_over:
            return None
        assert self._started.wait(DEATH_SECONDS_MAX)
        death = os.pidfd_open(self._pid)
        try:
            signal.pidfd_send_signal(death, signal.SIGKILL)
            assert select.select([death], [], [], DEATH_SECONDS_MAX)[0], "the child outlived SIGKILL"
        finally:
            os.close(death)
        return DROP_BEFORE if self._when == "before" else None


class S3Campaign(Campaign):
    """A campaign whose moments are the requests that change the bucket."""

    server: S3Server

    def prepare(self) -> None:
        """Also count the requests that change something."""
        super().prepare()
        self.place.restore()
        self.server.forget()
        self._ask("run", mutant=self.mutant)
        self.requests = self.server.mutations

    def kill_at_request(self, number: int, when: Side) -> None:
        """Die at that request, let what is on its way arrive, and judge."""
        self.place.restore()
        victim = _Victim(when)
        self.server.on_mutation(number, when, victim.kill)
        before = set(threading.enumerate())
        answer = self.zygote.ask("run", self.request(mutant=self.mutant), victim.started)
        victim.is_over = True
        _settle(before)
        self.judge(answer, f"{when} request #{number}")


def _settle(before: set[threading.Thread]) -> None:
    """Wait for requests that the dead child had sent already; all its connections are closed, so there is an end.

    Threads from before it lived serve others, in this very process too, who may keep their connections open for ever.
    """
    until = time.monotonic() + DEATH_SECONDS_MAX
    # Also a thread that is about to start, which cannot be joined yet.
    while any("process_request_thread" in thread.name for thread in set(threading.enumerate()) - before):
        assert time.monotonic() < until, "a request of the dead child does not end"
        time.sleep(0.002)


def campaign(zygote: Zygote, scenario: str, server: S3Server) -> S3Campaign:
    """Return a prepared campaign."""
    made = S3Campaign(zygote, scenario, S3Place(server), server.environment())
    made.server = server
    made.prepare()
    return made


ONE_SIDED = ("insert_one", "branch_create", "branch_delete", "tag_create")
# Of one piece of work; the long campaign dies at all of them.
REQUESTS_MAX = 2


def crash_at_requests(zygote: Zygote, name: str, *sides: Side, most: int | None = None) -> int:
    with S3Server() as server:
        one = campaign(zygote, name, server)
        for number in spread(one.requests, most):
            for side in sides:
                one.kill_at_request(number, side)
        if sides == ("before",):
            one.kill_at_request(one.requests, "after")
    print(f"{name}: {one.states} crash states, {len(one.violations)} violations")
    assert one.violations == []
    return one.states


# What a request leaves is what the next one finds, so one side reaches every state but that of the last answer.
@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_SIDED)
@pytest.mark.sampled(2)
def test_crash_before_any_request_leaves_before_or_after(zygote: Zygote, name: str) -> None:
    assert crash_at_requests(zygote, name, "before", most=REQUESTS_MAX) >= 3


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_crash_on_both_sides_of_any_request_leaves_before_or_after(zygote: Zygote, name: str) -> None:
    crash_at_requests(zygote, name, "before", "after")
