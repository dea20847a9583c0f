"""A steady writer as a process of its own: `python -m tests.support.fairness_worker URI NAME TYPE ROLE`.

Says `ready`, waits for a line, writes one-row commits until its input ends, then prints how many it made, and the
longest that one took in seconds.
"""

from __future__ import annotations

import select
import sys
import time

from omnigraph.errors import ConflictError
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.kernel import Kernel
from tests.support.fleet_operations import ignore_claims
from tests.support.kernel_fixtures import insert, open_graph


def write_until_input_ends(kernel: Kernel, name: str, table_key: TypeKey) -> tuple[int, float]:
    commits, longest = 0, 0.0
    while not select.select([sys.stdin], [], [], 0)[0]:
        begun = time.monotonic()
        try:
            insert(kernel, {table_key: [f"{name}-{commits:05d}"]})
        except ConflictError:
            continue
        commits += 1
        longest = max(longest, time.monotonic() - begun)
    return commits, longest


def main(uri: str, name: str, table_key: str, role: str) -> None:
    kernel = open_graph(uri)
    kernel.snapshot()
    if role == "deaf":
        ignore_claims(kernel)
    print("ready", flush=True)
    sys.stdin.readline()
    commits, longest = write_until_input_ends(kernel, name, TypeKey(table_key))
    kernel.close()
    print(commits, f"{longest:.3f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
