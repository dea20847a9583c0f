"""Crashes in S3: a real process dies at every request that changes the bucket, those of Lance included."""

from __future__ import annotations

import pytest

from tests.support.crash_campaign import Zygote
from tests.support.crash_s3 import Side, campaign
from tests.support.crash_scenarios import SCENARIOS
from tests.support.examples import spread
from tests.support.s3_server import S3Server

pytestmark = pytest.mark.s3
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
