"""A server that is killed under a mixed load: what it acknowledged is there, and nothing is there by halves."""

from __future__ import annotations

from pathlib import Path
from threading import Semaphore

import pytest

from omnigraph import graph as graphs
from tests.support.mixed_calls import FIRST, KINDS, REVIEWED, Eager, Ledger, Seen, ask, judge, see
from tests.support.server_process import running

CLIENTS = 16
# All clients are one actor here, who would otherwise be held to fewer writes at a time.
ROOM = {"OMNIGRAPH_UNAUTHENTICATED": "1", "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": "64"}


def load_and_kill(uri: str, log: Path, ledger: Ledger) -> None:
    enough = [Semaphore(0) for _ in KINDS]
    with running("--store", uri, log=log, environment=ROOM) as server:
        kinds = [n % len(KINDS) for n in range(CLIENTS)]
        clients = [KINDS[kind](server, n, ledger, enough[kind]) for n, kind in enumerate(kinds)]
        for client in clients:
            client.start()
        # Every kind of work has got somewhere, and all clients are amid something.
        for kind in kinds:
            assert enough[kind].acquire(timeout=60)
        server.process.kill()
        for client in clients:
            client.join(60)
        assert not any(client.is_alive() for client in clients)


@pytest.mark.slow
def test_serve_killed_under_mixed_load_keeps_what_it_acknowledged(graph_uri: str, tmp_path: Path) -> None:
    ledger, log = Ledger(made={REVIEWED}), tmp_path / "log"
    with graphs.open(graph_uri) as graph:
        graph.branches.create(REVIEWED)
    load_and_kill(graph_uri, log, ledger)
    with running("--store", graph_uri, log=log, environment=ROOM) as server:
        branches = ask(server, "GET", "/branches", b"")[1]["branches"]
        seen = {branch: see(server, branch) for branch in branches}
        assert judge(ledger, seen) == []
        assert len(ledger.kept) >= 12
        assert Eager(server, CLIENTS, ledger, Semaphore(0)).insert(FIRST + 90_000_002), (
            "the next write needs nothing else"
        )
        server.process.kill()
        server.process.wait()
        # Whoever takes for done what nobody answered is found out.
        Eager(server, CLIENTS + 1, ledger, Semaphore(0)).run()
        assert len(judge(ledger, seen)) == 1
    with graphs.open(graph_uri) as graph:
        assert graph.maintenance.verify().is_sound


WHOLE = Seen({FIRST + 12: 2}, {FIRST + 12: 1})


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        ({"main": Seen({}, {}), "b": WHOLE}, "of main is lost"),
        ({"main": WHOLE}, "branch b is lost"),
        ({"main": Seen({FIRST + 12: 1}, {FIRST + 12: 1}), "b": WHOLE}, "has 1 people and 1 edges"),
        ({"main": Seen({FIRST + 12: 2}, {}), "b": WHOLE}, "has 2 people and 0 edges"),
        ({"main": WHOLE, "b": Seen({FIRST + 12: 2, FIRST + 26: 5}, WHOLE.bonds)}, "has 5 people and 0 edges"),
        ({"main": WHOLE, "b": Seen({FIRST + 12: 4}, WHOLE.bonds)}, "has 4 people"),
    ],
)
def test_judge_loss_or_half_is_told(seen: dict[str, Seen], fault: str) -> None:
    ledger = Ledger({("main", FIRST + 12), ("b", FIRST + 12)}, {"b"})
    assert judge(ledger, {"main": WHOLE, "b": WHOLE}) == []
    assert any(fault in one for one in judge(ledger, seen))
