"""A server in a process of its own, started by its command, for tests that stop or kill it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.forked_python import ForkedPython


@dataclass(frozen=True)
class Running:
    """A process that listens at an address."""

    process: subprocess.Popen[Any]
    host: str
    port: int


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.2)


@contextmanager
def running(
    *arguments: str, log: Path, environment: Mapping[str, str] | None = None, python: str = sys.executable
) -> Iterator[Running]:
    """Run `omnigraph serve` until the block ends; its log goes to a file."""
    command = [python, "-m", "omnigraph", "serve", "--bind", "127.0.0.1:0", *arguments]
    with log.open("a") as errors:
        # Another Python has to be started.
        start = ForkedPython if python == sys.executable else subprocess.Popen
        process = start(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **(environment or {})}
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("OMNIGRAPH_LISTEN_ADDR="), (line, log.read_text())
        host, _, port = line.strip().partition("=")[2].rpartition(":")
        yield Running(process, host, int(port))
    finally:
        process.kill()
        process.wait()
        process.communicate()
