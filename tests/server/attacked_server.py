"""A server in a process of its own whose bounds are small, so that attacks on it are over soon; see `test_attacks`."""

from __future__ import annotations

import sys
from pathlib import Path

from omnigraph.server import admission, run
from omnigraph.server.auth import Tokens
from omnigraph.server.http.listener import HostBounds
from omnigraph.server.observability import log_to_stderr
from omnigraph.server.registry import GraphConfig, open_registry
from omnigraph.server.responses import MinimumRate

THREADS = 4
BOUNDS = HostBounds(
    connections_max=24,
    connections_per_peer_max=12,
    spare_connections=4,
    header_seconds=1.5,
    idle_seconds=20,
    linger_seconds=0.5,
    linger_bytes_max=1_000_000,
    stall_seconds=1,
)
TOKENS = {"ada": "token-of-ada", "bob": "token-of-bob"}


def main(uri: str) -> None:
    # A minute is too long for a test.
    vars(admission)["SERVER_BODY_SECONDS_MAX"] = 1
    house = open_registry([GraphConfig("g", uri, Path(uri).with_name("policy.yaml"))], Tokens.of(TOKENS))
    service = run.open_service(house)
    service.minimum_rate = MinimumRate(stall_seconds=1, bytes_per_second_min=256 * 1024)
    listening = run.bind("127.0.0.1:0")
    log_to_stderr()
    server = run.Server(service, lambda address: print(address, flush=True), BOUNDS)
    server.run([listening])
    service.close()


if __name__ == "__main__":
    main(sys.argv[1])
