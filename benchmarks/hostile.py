"""What a well-behaved client notices while another address attacks the server, beside a control server at rest."""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.attackers import ATTACKS, MOST
from benchmarks.callers import PEOPLE, POINT
from benchmarks.surfaces import make_graph, serving
from benchmarks.topic import Table, Topic

SECONDS = float(os.environ.get("BENCH_HOSTILE_SECONDS", "7"))
# Attackers are 127.0.0.1; the server tells callers without a token apart by their addresses.
BYSTANDER = "127.0.0.2"
_PAUSE_SECONDS = 0.01
_NOTHING = "nothing"


def run() -> Topic:
    with tempfile.TemporaryDirectory() as folder:
        uri = str(Path(folder) / "g.omni")
        make_graph(uri)
        with serving(uri) as (attacked, _), serving(uri) as (control, _):
            rows = tuple(_row(attack, attacked, control) for attack in (_NOTHING, *ATTACKS, MOST))
    return Topic(
        "Hostile load",
        "Two servers of one graph on loopback. One is attacked from one address; a bystander at another asks both the"
        f" same point query, in turns, on a new connection each time, for {SECONDS:g} seconds a line. Attackers,"
        f" bystander and both servers share {os.cpu_count()} cores, so the control server shows what the machine alone"
        " costs.",
        tables=(
            Table(
                "The load is that of the machine over the last minute, at the end of the line.",
                ("Attack", "Attacked, p50", "p99", "Control, p50", "p99", "Ratio of p50", "Calls", "Failed", "Load"),
                rows,
            ),
        ),
    )


def _row(attack: str, attacked: str, control: str) -> tuple[str, ...]:
    took: dict[str, list[float]] = {attacked: [], control: []}
    failed = 0
    with _attacking(attack, attacked):
        time.sleep(0.5)
        end, turn = time.monotonic() + SECONDS, 0
        while time.monotonic() < end:
            turn += 1
            for url in (attacked, control):
                seconds, is_answered = _ask(url, f"p{turn % PEOPLE}")
                took[url].append(seconds)
                failed += not is_answered
            time.sleep(_PAUSE_SECONDS)
    ours, other = (statistics.median(took[url]) for url in (attacked, control))
    cells = [cell for url in (attacked, control) for cell in _cells(took[url])]
    return (attack, *cells, f"{ours / other:.1f}×", str(turn), str(failed), f"{os.getloadavg()[0]:.1f}")


def _cells(took: list[float]) -> tuple[str, str]:
    p99 = statistics.quantiles(took, n=100, method="inclusive")[98] if len(took) > 1 else took[0]
    return f"{statistics.median(took) * 1_000:.2f} ms", f"{p99 * 1_000:.1f} ms"


def _ask(url: str, name: str) -> tuple[float, bool]:
    """Ask for one person on a new connection; return how long it took, and whether the answer was right."""
    body = json.dumps({"query": POINT, "params": {"name": name}}).encode()
    start = time.perf_counter()
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60, source_address=(BYSTANDER, 0))
    try:
        connection.request("POST", "/graphs/graph/query", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        rows = json.loads(answer.read()).get("rows", [])
        is_answered = answer.status == 200 and rows == [{"age": int(name[1:]) % 90}]
    except (OSError, http.client.HTTPException, ValueError):
        is_answered = False
    finally:
        connection.close()
    return time.perf_counter() - start, is_answered


@contextmanager
def _attacking(attack: str, url: str) -> Iterator[None]:
    if attack == _NOTHING:
        yield
        return
    words = [sys.executable, "-m", "benchmarks.attackers", url, attack, str(SECONDS + 60)]
    with subprocess.Popen(words) as process:
        try:
            yield
        finally:
            process.kill()
