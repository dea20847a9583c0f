"""`python -m benchmarks.attackers URL ATTACK SECONDS`: hostile clients of a server, all from one address.

A process of its own that loads nothing but the standard library. It ends when the time is over.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

# Millions of rows in the order of two properties, and a text that is long to compile.
EXPENSIVE = (
    "query q() { match { $a: Person $b: Person } return { $a.name as a } order { $b.age asc, $a.name } limit 1 }"
)
LONG = "query q() { match { $p: Person " + "$p.age = 1 " * 20_000 + "} return { $p.name } }"
MOST = "all at once"
_HEAD = b"POST /graphs/graph/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


class Attacker:
    """Connections to one server, until a time."""

    def __init__(self, url: str, seconds: float) -> None:
        place = urlsplit(url)
        self._address = (place.hostname or "", place.port or 0)
        self._end = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._end

    def connect(self) -> socket.socket:
        return socket.create_connection(self._address, timeout=5)

    def send_headers_slowly(self) -> None:
        """Keep connections whose headers arrive byte by byte."""
        self._hold(100, b"GET /healthz HTTP/1.1\r\nX: ", b"y")

    def leave_connections_open(self) -> None:
        """Keep connections on which nothing is sent."""
        self._hold(200, b"", b"")

    def _hold(self, count: int, head: bytes, more: bytes) -> None:
        held: list[socket.socket] = []
        while not self.is_over:
            with suppress(OSError):
                while len(held) < count and not self.is_over:
                    held.append(self.connect())
                    held[-1].sendall(head)
            held = [one for one in held if _sends(one, more)]
            time.sleep(0.2)

    def send_large_bodies(self) -> None:
        """Send bodies beyond the bound, in chunks, so that their length is not known."""
        self._repeat(self._send_large_body, 4)

    def _send_large_body(self) -> None:
        with self.connect() as raw:
            raw.sendall(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(200):
                raw.sendall(b"100000\r\n" + b"x" * 0x100000 + b"\r\n")

    def send_garbage(self) -> None:
        """Send what is no request, again and again."""
        self._repeat(self._send_garbage, 4)

    def _send_garbage(self) -> None:
        with self.connect() as raw:
            raw.sendall(os.urandom(4_096))
            while raw.recv(65_536):
                pass

    def ask_expensive_queries(self) -> None:
        """Ask for much work, and hang up on some of it."""
        self._repeat(lambda: self._ask(EXPENSIVE), 16)

    def send_long_texts(self) -> None:
        """Send texts that take long to compile."""
        self._repeat(lambda: self._ask(LONG), 4)

    def _ask(self, query: str) -> None:
        # A name of its own, so that nothing is remembered.
        body = json.dumps({"query": f"{query} // {time.time_ns()}"}).encode()
        with self.connect() as raw:
            raw.settimeout(2)
            raw.sendall(_HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            while raw.recv(65_536):
                pass

    def _repeat(self, work: Callable[[], None], threads: int) -> None:
        def repeat() -> None:
            while not self.is_over:
                with suppress(OSError):
                    work()

        _run_together([repeat] * threads)


ATTACKS: dict[str, Callable[[Attacker], None]] = {
    "slow headers": Attacker.send_headers_slowly,
    "open connections": Attacker.leave_connections_open,
    "garbage": Attacker.send_garbage,
    "large bodies": Attacker.send_large_bodies,
    "expensive queries": Attacker.ask_expensive_queries,
    "long texts": Attacker.send_long_texts,
}


def _sends(raw: socket.socket, more: bytes) -> bool:
    try:
        raw.sendall(more)
    except OSError:
        raw.close()
        return False
    return True


def _run_together(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(url: str, attack: str, seconds: float) -> None:
    attacker = Attacker(url, seconds)
    chosen = list(ATTACKS.values()) if attack == MOST else [ATTACKS[attack]]
    _run_together([lambda work=work: work(attacker) for work in chosen])  # type: ignore[misc]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
