"""Steady writers in processes of their own, for tests and benchmarks of fairness."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from subprocess import PIPE

from tests.support.forked_python import ForkedPython
from tests.support.kernel_fixtures import PERSON


class SteadyWriters:
    """Processes that write one-row commits until they are stopped."""

    def __init__(self, processes: Sequence[ForkedPython]) -> None:
        self._processes = processes
        self.commits: list[int] = []

    def go(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()

    def stop(self) -> None:
        """End all of them, and take down how many commits each has made."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            assert process.stdout is not None
            self.commits.append(int(process.stdout.readline().split()[0]))
            assert process.wait(60) == 0


@contextmanager
def steady_writers(
    uri: str, count: int, types: Sequence[str] = (PERSON,), role: str = "write"
) -> Iterator[SteadyWriters]:
    """Start writers that wait for `go`, and stop them at the end; `deaf` ones ignore claims."""
    command = [sys.executable, "-m", "tests.support.fairness_worker", uri]
    processes = [
        ForkedPython([*command, f"w{number}", types[number % len(types)], role], stdin=PIPE, stdout=PIPE, text=True)
        for number in range(count)
    ]
    writers = SteadyWriters(processes)
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield writers
        writers.stop()
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
