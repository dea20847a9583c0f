"""Writers that are killed: a process that forks a child for each write and lets it die at a given point.

Run as `python -m tests.engine.write.write_crash_child`: a JSON request a line comes in, a status a line goes out.
It has loaded everything and used nothing, because a process that has used Lance cannot be forked safely.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from contextlib import suppress
from dataclasses import asdict
from typing import Self

import omnigraph.graph
from omnigraph import failpoints
from omnigraph.errors import OmniGraphError
from omnigraph.failpoints import Point
from tests.engine.write.write_model_actions import Action, perform
from tests.support.forked_python import ForkedPython


class Killer:
    """The other end: asks for writes that die."""

    def __enter__(self) -> Self:
        self._process = ForkedPython(
            [sys.executable, "-m", "tests.engine.write.write_crash_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, root: str, action: Action, point: Point) -> int:
        """Have a write done in a process that dies at a point; return its exit status, 0 when it never came there."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"root": root, "point": point.value, "action": asdict(action)}) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def write(root: str, point: str, action: dict[str, object]) -> None:
    with failpoints.armed({Point(point): failpoints.kill}), suppress(OmniGraphError):
        graph = omnigraph.graph.open(root)
        perform(graph, Action(**action))  # type: ignore[arg-type]  # an action that came as JSON
        graph.close()


def main() -> None:
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            write(**json.loads(line))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
