"""`python -m benchmarks.callers URL CALL CLIENTS SECONDS`: plain HTTP clients that call a server again and again.

A process of its own that loads nothing but the standard library, so that what is measured is the server. Prints how
long each call took, in seconds, as a JSON list, and how many were refused.
"""

from __future__ import annotations

import http.client
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

PEOPLE = 2_000
POINT = "query point($name: String) { match { $p: Person { name: $name } } return { $p.age as age } }"
TWO_HOPS = """query near($name: String) {
  match { $p: Person { name: $name } $p knows $q $q knows $r }
  return { $r.name as name }
}"""
ADD = "query add($name: String) { insert Person { name: $name, age: 1 } }"
CALLS = {"point query": ("query", POINT), "2-hop query": ("query", TWO_HOPS), "one-row mutate": ("mutate", ADD)}


@dataclass
class Caller:
    """One connection, which is kept."""

    url: str
    took: list[float] = field(default_factory=list)
    refused: int = 0

    def __post_init__(self) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, name: str, params: dict[str, str]) -> None:
        """Make one call and note how long it took."""
        route, query = CALLS[name]
        body = json.dumps({"query": query, "params": params}).encode()
        start = time.perf_counter()
        self.connection.request("POST", f"/graphs/graph/{route}", body, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        answer.read()
        self.took.append(time.perf_counter() - start)
        self.refused += answer.status != 200


def params_of(name: str) -> Iterator[dict[str, str]]:
    """Yield the parameters of call after call: people in turn, or names that nobody has."""
    turn = 0
    while True:
        turn += 1
        is_new = CALLS[name][0] == "mutate"
        yield {"name": f"{time.time_ns()}-{threading.get_ident()}-{turn}" if is_new else f"p{turn % PEOPLE}"}


def _work(caller: Caller, names: list[str], end: float) -> None:
    streams = {name: params_of(name) for name in names}
    while True:
        for name in names:
            if time.perf_counter() >= end:
                return
            caller.call(name, next(streams[name]))


def main(url: str, name: str, clients: int, seconds: float) -> None:
    names = list(CALLS) if name == "all" else [name]
    callers = [Caller(url) for _ in range(clients)]
    for caller in callers:
        caller.call(names[0], next(params_of(names[0])))
        caller.took.clear()
    end = time.perf_counter() + seconds
    threads = [threading.Thread(target=_work, args=(caller, names, end)) for caller in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = [each for caller in callers for each in caller.took]
    print(json.dumps({"took": took, "refused": sum(caller.refused for caller in callers)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
