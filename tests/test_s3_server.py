"""The S3 test server does what its users rely on: atomic conditions, a log, overlap, faults, hooks, a clean end."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from tests.support.s3_server import DROP_AFTER, DROP_BEFORE, ERROR_500, THROTTLE_503, Fault, Request, S3Server, delay

pytestmark = pytest.mark.s3


def send(server: S3Server, method: str, key: str, body: bytes | None = None, condition: str = "") -> int:
    """Make one plain request, without a client that repeats it; return the status, or 0 if there was no answer."""
    # Moto checks that a request is signed, but not the signature.
    headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request"}
    headers |= {"If-None-Match": condition} if condition else {}
    request = urllib.request.Request(f"{server.endpoint}/graphs/{key}", body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except (urllib.error.URLError, ConnectionError):
        return 0


def has(server: S3Server, key: str) -> bool:
    server.fault = None
    return send(server, "HEAD", key) == 200


def test_server_fresh_start_is_empty() -> None:
    with S3Server() as server:
        assert send(server, "PUT", "a", b"x") == 200
        assert has(server, "a")
    with S3Server() as server:
        assert not has(server, "a")


def test_server_end_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with S3Server() as server:
        send(server, "PUT", "a", b"x")
        assert set(threading.enumerate()) - before
    # Threads of other tests may end meanwhile.
    assert set(threading.enumerate()) <= before


def test_server_end_cuts_delays_short() -> None:
    with ThreadPoolExecutor(1) as pool, S3Server() as server:
        arrived = threading.Event()

        def hold(_: Request) -> Fault | None:
            arrived.set()
            return delay(3600)

        server.fault = hold
        pool.submit(send, server, "GET", "a")
        assert arrived.wait(60)


def test_requests_log_tells_what_was_asked() -> None:
    with S3Server() as server:
        send(server, "PUT", "d/a", b"x", condition="*")
        send(server, "GET", "?list-type=2&prefix=d")
        [first, second] = server.requests
        assert (first.method, first.key, first.query, first.condition) == ("PUT", "d/a", "", "*")
        assert (second.method, second.key, second.query) == ("GET", "", "list-type=2&prefix=d")
        assert first.at_seconds <= second.at_seconds
        assert (first.is_mutating, second.is_mutating, server.mutations) == (True, False, 1)
        server.forget()
        assert (server.requests, server.mutations) == ([], 0)


def test_conditional_put_race_has_one_winner() -> None:
    with S3Server() as server, ThreadPoolExecutor(8) as pool:
        for number in range(20):
            key = f"k{number}"
            statuses = list(pool.map(lambda _, key=key: send(server, "PUT", key, b"x", "*"), range(8)))
            assert sorted(statuses) == [200] + [412] * 7


def test_latency_of_concurrent_requests_overlaps() -> None:
    with S3Server(latency_seconds=0.2) as server, ThreadPoolExecutor(8) as pool:
        start = time.monotonic()
        list(pool.map(lambda number: send(server, "PUT", str(number), b"x"), range(8)))
        together = time.monotonic() - start
        start = time.monotonic()
        for _ in range(3):
            send(server, "GET", "0")
        in_sequence = time.monotonic() - start
    assert 0.2 <= together < 8 * 0.2
    assert in_sequence >= 3 * 0.2


@pytest.mark.parametrize(
    ("fault", "status", "is_applied"),
    [
        (ERROR_500, 500, False),
        (THROTTLE_503, 503, False),
        (DROP_BEFORE, 0, False),
        (DROP_AFTER, 0, True),
        (delay(0.05), 200, True),
    ],
    ids=lambda value: value.kind if isinstance(value, Fault) else None,
)
def test_fault_befalls_the_request(fault: Fault, status: int, is_applied: bool) -> None:
    with S3Server() as server:
        server.fault = lambda request: fault if request.method == "PUT" else None
        assert send(server, "PUT", "a", b"x" * 100_000) == status
        assert server.mutations == is_applied
        assert has(server, "a") is is_applied


def test_on_mutation_counts_from_now_and_runs_once() -> None:
    seen: list[str] = []

    def remember(request: Request) -> None:
        seen.append(request.key)

    with S3Server() as server:
        send(server, "PUT", "zero", b"")
        server.on_mutation(2, "before", remember)
        server.on_mutation(2, "after", remember)
        for key in ("one", "two", "three"):
            send(server, "GET", key)
            send(server, "PUT", key, b"")
    assert seen == ["two", "two"]


def stored_keys() -> list[str]:
    """Look into the bucket without a request, as hooks must."""
    return list(s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets["graphs"].keys)


def test_on_mutation_before_and_after_see_the_two_states() -> None:
    seen: list[list[str]] = []

    def look(_: Request) -> None:
        seen.append(stored_keys())

    with S3Server() as server:
        server.on_mutation(1, "before", look)
        server.on_mutation(1, "after", look)
        send(server, "PUT", "a", b"x")
    assert seen == [[], ["a"]]


def test_on_mutation_returned_fault_befalls_the_request() -> None:
    with S3Server() as server:
        server.on_mutation(1, "before", lambda _: DROP_BEFORE)
        server.on_mutation(2, "after", lambda _: DROP_AFTER)
        assert [send(server, "PUT", key, b"x") for key in ("a", "b", "c")] == [0, 0, 200]
        assert [has(server, key) for key in ("a", "b", "c")] == [False, True, True]


def test_environment_leads_a_client_here() -> None:
    with S3Server() as server:
        values = server.environment()
        assert values["AWS_ENDPOINT_URL"] == values["AWS_ENDPOINT_URL_S3"] == server.endpoint
        assert server.uri("g") == "s3://graphs/g"
