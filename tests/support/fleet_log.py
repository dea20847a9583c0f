"""Request logs of a test server, made comparable and readable.

Names and versions are left out, so that a golden list holds for any graph.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from urllib.parse import parse_qs

from omnigraph.manifest.kernel import Kernel
from tests.support.s3_server import Request, S3Server

_TYPE = re.compile(r"(nodes|edges)/[0-9a-f]{16}-[0-9a-f]{16}")
_TREE = re.compile(r"/tree/[^/]+")


def shape(request: Request) -> str:
    """Return what a request does, without the names of this very run.

    >>> shape(Request("PUT", "g/nodes/0000000000000002-0000000000000008/data/01ab.lance", "", "", 0.0))
    'PUT nodes/data'
    >>> shape(Request("PUT", "g/__manifest/tree/01M7/_versions/184.manifest", "", "*", 0.0))
    'PUT-NEW __manifest/tree/_versions'
    """
    key, method = request.key, request.method
    if method == "GET" and "list-type" in request.query:
        key, method = parse_qs(request.query)["prefix"][0], "LIST"
    if method == "POST":
        return "DELETE"
    key = _TREE.sub("/tree", _TYPE.sub(r"\1", key)).partition("/")[2]
    folder, _, name = key.rstrip("/").rpartition("/") if method != "LIST" else (key.rstrip("/"), "", "")
    staged = " (staged)" if ".manifest-" in name else ""
    return f"{method}{'-NEW' if request.condition == '*' else ''} {folder}{staged}"


def requests_of(server: S3Server, kernel: Kernel, work: Callable[[], object]) -> list[Request]:
    """Return every request that some work leads to, those in the background included."""
    kernel.close()
    server.forget()
    work()
    kernel.close()
    return list(server.requests)


def assert_commit_requests(found: Sequence[Request], golden: Sequence[str]) -> None:
    """Compare the log of a commit with the golden one; at times the look for claims takes the place of the probe."""
    looking = list(golden)
    if any(shape(one).startswith("LIST __claims/") for one in found):
        looking[looking.index("HEAD __manifest/_versions")] = "LIST __claims/main"
    assert_requests(found, looking)


def assert_requests(found: Sequence[Request], golden: Sequence[str]) -> None:
    """Compare a log with the golden one, whatever the order of requests that run side by side; show both."""
    if Counter(map(shape, found)) != Counter(golden):
        start = found[0].at_seconds if found else 0.0
        lines = [f"{one.at_seconds - start:7.3f} {shape(one):40} {one.key}" for one in found]
        extra = Counter(map(shape, found)) - Counter(golden)
        missing = Counter(golden) - Counter(map(shape, found))
        listing = "\n".join(lines)
        raise AssertionError(
            f"{len(found)} requests instead of {len(golden)}; more: {dict(extra)}, fewer: {dict(missing)}\n{listing}"
        )


def assert_in_sequence(server: S3Server, work: Callable[[int], object], wanted: int, rounds: int = 5) -> None:
    """Check how many requests are waited for one after another, in the best of several rounds if need be.

    Told from when requests came in, not from how long the work took: what a busy machine adds between them is no wait.
    """
    latency_before, server.latency_seconds = server.latency_seconds, 0.15
    counts: list[int] = []
    try:
        while len(counts) < rounds and min(counts, default=wanted + 1) > wanted:
            server.forget()
            work(len(counts))
            # A request that had no answer yet when the work was done was not waited for.
            answered_by = time.monotonic() - server.latency_seconds
            counts.append(_waves([one.at_seconds for one in server.requests if one.at_seconds <= answered_by]))
    finally:
        server.latency_seconds = latency_before
    assert min(counts) == wanted, counts


def _waves(arrivals: Sequence[float], latency: float = 0.15) -> int:
    """Return how many times a request came in that may have waited for the answer to an earlier one.

    >>> _waves([0.0, 0.1, 0.16, 0.4, 0.5])
    3
    """
    count, answered = 0, float("-inf")
    for arrival in sorted(arrivals):
        if arrival >= answered:
            count, answered = count + 1, arrival + latency
    return count
