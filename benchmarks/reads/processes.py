"""Engine processes: found, built, started and talked to over pipes.

Knows no line; each engine runs under the environment that holds it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.reads.engines import OURS, THREADS

ROOT = Path(__file__).parent.parent.parent
# What the process of an engine runs.
WORKER = "benchmarks.reads.worker"
_PEER_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
_THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LANCE_CPU_THREADS", "RAYON_NUM_THREADS")


def python_of(name: str) -> str | None:
    """Return the interpreter that can run an engine, or None if it is not installed."""
    if name == OURS:
        return sys.executable
    if _PEER_PYTHON.exists():
        probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
        if subprocess.run([_PEER_PYTHON, "-c", probe], capture_output=True).returncode == 0:
            return str(_PEER_PYTHON)
    return sys.executable if find_spec(name) is not None else None


def available(names: Sequence[str]) -> list[str]:
    """Return the engines of a list that can run here."""
    return [name for name in names if python_of(name) is not None]


def build(name: str, data: Path, home: Path) -> None:
    """Build the database of an engine; a peer's is kept, ours is made anew because its code may have changed."""
    if home.exists():
        if name != OURS:
            return
        shutil.rmtree(home)
    making = home.with_name(home.name + ".making")
    shutil.rmtree(making, ignore_errors=True)
    command = [_python(name), "-m", WORKER, "build", name, str(data), str(making)]
    subprocess.run(command, cwd=ROOT, env=_environment(), check=True)
    os.rename(making, home)


class Worker:
    """One engine process."""

    def __init__(self, name: str, home: Path, module: str = WORKER) -> None:
        command = [_python(name), "-m", module, "serve", name, str(home)]
        self.name = name
        self._started = time.perf_counter()
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.opening: dict[str, float] = self._hear()

    def ask(self, do: str, line: str = "", params: Sequence[Any] = ()) -> dict[str, Any]:
        """Send one request and return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, "line": line, "params": list(params)}) + "\n")
        self._process.stdin.flush()
        return self._hear()

    def age_ms(self) -> float:
        """Return the time since the process was started."""
        return (time.perf_counter() - self._started) * 1_000

    def stop(self) -> None:
        self._process.communicate()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process of {self.name} ended with {self._process.wait()}")
        return dict(json.loads(answer))


@contextmanager
def serving(homes: dict[str, Path], module: str = WORKER) -> Iterator[dict[str, Worker]]:
    """Keep one process per engine open for a while."""
    workers: dict[str, Worker] = {}
    try:
        for name, home in homes.items():
            workers[name] = Worker(name, home, module)
        yield workers
    finally:
        for worker in workers.values():
            worker.stop()


def forget_pages(home: Path) -> None:
    """Ask the system to drop the files of a database from its page cache."""
    for file in home.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def _python(name: str) -> str:
    found = python_of(name)
    assert found is not None, f"{name} was asked for but is not installed"
    return found


def _environment() -> dict[str, str]:
    quiet = {"LANCE_LOG": "error", "LANCEDB_LOG": "error", "PYTHONWARNINGS": "ignore"}
    return os.environ | dict.fromkeys(_THREAD_SETTINGS, str(THREADS)) | quiet
