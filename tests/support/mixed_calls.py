"""A mixed load of clients on a server that dies under it, and what has to be true of the graph afterwards.

A batch is numbered, and the last digit of its number is how many people it has: what is whole can be told from what is
read alone. Each batch has one edge besides, which bears the same number.
"""

from __future__ import annotations

import http.client
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from tests.support.server_process import Running

G: Final = "/graphs/graph"
FIRST: Final = 10_000_000
REVIEWED: Final = "reviewed"
PAIR: Final = """query pair($a: String, $b: String, $n: I32) {
  insert Person { name: $a, age: $n }
  insert Person { name: $b, age: $n }
  insert Knows { from: $a, to: $b, since: $n }
}"""
COUNTS: Final = f"""
query people() {{ match {{ $p: Person $p.age >= {FIRST} }} return {{ $p.age as number, count($p) as n }} }}
query bonds() {{
  match {{ $p: Person $p.age >= {FIRST} $p knows $q }} return {{ $p.age as number, count($q) as n }}
}}
"""


def ask(server: Running, method: str, path: str, body: object, media: str = "application/json") -> tuple[int, Any]:
    """Send one request and return its status and what it says."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    try:
        sent = body if isinstance(body, bytes) else orjson.dumps(body)
        connection.request(method, f"{G}{path}", sent, {"Content-Type": media})
        answer = connection.getresponse()
        return answer.status, orjson.loads(answer.read())
    finally:
        connection.close()


@dataclass
class Ledger:
    """What was acknowledged: batches by their branch, and branches; and what a reader saw that cannot be."""

    kept: set[tuple[str, int]] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Seen:
    """How many people and edges of each batch a branch has."""

    people: Mapping[int, int]
    bonds: Mapping[int, int]


def see(server: Running, branch: str) -> Seen:
    """Read the batches of a branch."""
    found = []
    for name in ("people", "bonds"):
        status, told = ask(server, "POST", "/query", {"query": COUNTS, "name": name, "branch": branch})
        assert status == 200, told
        found.append({row["number"]: row["n"] for row in told["rows"]})
    return Seen(*found)


def judge(ledger: Ledger, seen: Mapping[str, Seen]) -> list[str]:
    """Return what was lost of what was acknowledged, and what is there by halves, acknowledged or not."""
    faults = list(ledger.faults)
    faults += [f"branch {one} is lost" for one in sorted(ledger.made - seen.keys())]
    for branch, number in sorted(ledger.kept):
        if branch in seen and number not in seen[branch].people:
            faults.append(f"batch {number} of {branch} is lost")
    for branch, one in seen.items():
        for number in sorted(one.people.keys() | one.bonds.keys()):
            counts = one.people.get(number, 0), one.bonds.get(number, 0)
            if counts != (number % 10, 1):
                faults.append(f"batch {number} of {branch} has {counts[0]} people and {counts[1]} edges")
    return faults


class Client(threading.Thread, ABC):
    """Does one kind of work until the server is gone; `enough` is released for every piece that was acknowledged."""

    def __init__(self, server: Running, number: int, ledger: Ledger, enough: threading.Semaphore) -> None:
        super().__init__()
        self.server = server
        self.place = FIRST // 10 + number * 1_000
        self.ledger = ledger
        self.enough = enough

    def run(self) -> None:
        try:
            while True:
                self.place += 1
                self.work()
        except (OSError, http.client.HTTPException):
            # The server is dead; whatever was under way is not acknowledged.
            return

    @abstractmethod
    def work(self) -> None:
        """Do one piece, and acknowledge it once the server has."""

    def number(self, people: int) -> int:
        return self.place * 10 + people

    def acknowledge(self, branch: str, number: int) -> None:
        self.ledger.kept.add((branch, number))
        self.enough.release()

    def load(self, branch: str, number: int) -> bool:
        people = [{"type": "Person", "data": {"name": f"{number}-{n}", "age": number}} for n in range(number % 10)]
        bond = {"edge": "Knows", "from": f"{number}-0", "to": f"{number}-1", "data": {"since": number}}
        lines = b"\n".join(orjson.dumps(one) for one in (*people, bond))
        path = f"/load/ndjson?mode=append&branch={branch}"
        status, _ = ask(self.server, "POST", path, lines, "application/x-ndjson")
        return status == 200


class Mutator(Client):
    """Inserts two people and what binds them."""

    def work(self) -> None:
        number = self.number(2)
        if self.insert(number):
            self.acknowledge("main", number)

    def insert(self, number: int) -> bool:
        params = {"a": f"{number}-0", "b": f"{number}-1", "n": number}
        return ask(self.server, "POST", "/mutate", {"query": PAIR, "params": params})[0] == 200


class Eager(Mutator):
    """The mutant: takes a write for done before anybody said so."""

    def work(self) -> None:
        number = self.number(2)
        self.acknowledge("main", number)
        self.insert(number)


class Loader(Client):
    """Loads six people at once."""

    def work(self) -> None:
        number = self.number(6)
        if self.load("main", number):
            self.acknowledge("main", number)


class Brancher(Client):
    """Makes a branch, loads three people there, and merges it into the branch that all reviews go to.

    A merge that loses to a faster writer is refused; on this branch that is another merge, so one always gets on.
    """

    def work(self) -> None:
        number = self.number(3)
        branch = f"b{number}"
        if ask(self.server, "POST", "/branches", {"name": branch, "from": REVIEWED})[0] != 200:
            return
        self.ledger.made.add(branch)
        if not self.load(branch, number):
            return
        self.ledger.kept.add((branch, number))
        while ask(self.server, "POST", "/branches/merge", {"source": branch, "target": REVIEWED})[0] != 200:
            pass
        self.acknowledge(REVIEWED, number)


class Reader(Client):
    """Looks for batches that are there by halves."""

    def work(self) -> None:
        status, told = ask(self.server, "POST", "/query", {"query": COUNTS, "name": "people"})
        if status != 200:
            return
        halves = [row for row in told["rows"] if row["number"] % 10 != row["n"]]
        self.ledger.faults += [f"a reader saw {row['n']} people of batch {row['number']}" for row in halves]
        self.enough.release()


KINDS: Final = (Mutator, Loader, Brancher, Reader)
