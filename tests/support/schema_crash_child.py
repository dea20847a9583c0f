"""Processes that die while they apply a schema: one child for each graph and moment given.

Run as `python -m tests.support.schema_crash_child SCHEMA [ROOT BRANCH POINT NUMBER]...`; prints an exit status a line.
It has loaded everything and used nothing, because a process that has used Lance cannot be forked safely.
"""

from __future__ import annotations

import os
import sys
import warnings

import omnigraph as og
from omnigraph import failpoints
from omnigraph.failpoints import Point
from omnigraph.graph import open as open_graph


def die(root: str, branch: str, schema: str, point: Point, number: int) -> None:
    """Apply the schema, and die when the point is passed for the given time."""
    passed = 0

    def count(_: str) -> None:
        nonlocal passed
        passed += 1
        if passed == number:
            failpoints.kill("")

    with failpoints.armed({point: count}):
        open_graph(root).schema.apply(schema, branch=branch)


def main(schema: str, *jobs: str) -> None:
    warnings.simplefilter("ignore")
    assert og.__version__
    for root, branch, point, number in zip(*(jobs[part::4] for part in range(4)), strict=True):
        pid = os.fork()
        if pid == 0:
            die(root, branch, schema, Point(point), int(number))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
