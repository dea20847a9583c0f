"""One engine in a process of its own, that answers requests in JSON lines and times itself.

`python -m benchmarks.reads.worker build|serve ENGINE …`; runs under any environment that holds the engine.
"""

from __future__ import annotations

import gc
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.reads.construct_lines import ANY_LINE
from benchmarks.reads.engines import Ask, Engine, load_maker
from benchmarks.reads.lines import Line


def main(words: list[str]) -> None:
    verb, name, *rest = words
    started = time.perf_counter()
    maker = load_maker(name)
    imported = time.perf_counter()
    if verb == "build":
        maker.build(Path(rest[0]), Path(rest[1]))
        return
    engine = maker.open_engine(Path(rest[0]))
    opened = time.perf_counter()
    serve_requests(Session(engine), import_ms=(imported - started) * 1_000, open_ms=(opened - imported) * 1_000)


def serve_requests(session: Session, **opening: float) -> None:
    """Say what the start took, then answer the requests of standard input until it ends."""
    _say(opening)
    for request in sys.stdin:
        _say(session.answer(json.loads(request)))


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class Session:
    """One opened engine and the lines it has been prepared for."""

    def __init__(self, engine: Engine, lines: Mapping[str, Line] = ANY_LINE) -> None:
        self._engine = engine
        self._lines = lines
        self._asks: dict[str, Ask | None] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        work: Callable[[dict[str, Any]], dict[str, Any]] = getattr(self, request["do"])
        return work(request)

    def _ask(self, line: Line) -> Ask | None:
        if line.name not in self._asks:
            self._asks[line.name] = self._engine.ask(line)
        return self._asks[line.name]

    def check(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return what tells complete results apart: a digest for each, and for searches the keys they found."""
        line = self._lines[request["line"]]
        ask = self._ask(line)
        if ask is None:
            return {"digests": None}
        try:
            answers = [_rows(ask(params)) for params in request["params"]]
        except Exception as error:  # noqa: BLE001 - an engine that cannot is a result, whatever it raises
            return {"digests": None, "failure": f"{type(error).__name__}: {error}"}
        if line.is_search:
            return {"digests": [], "keys": [[row[0] for row in rows] for rows in answers]}
        return {"digests": [digest(rows, line.is_ordered) for rows in answers], "rows": [len(one) for one in answers]}

    def time(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return how long each call took, fetching its result included."""
        ask = self._ask(self._lines[request["line"]])
        assert ask is not None
        durations = []
        before = _bytes_read()
        gc.collect()
        gc.disable()
        for params in request["params"]:
            start = time.perf_counter()
            ask(params)
            durations.append((time.perf_counter() - start) * 1_000)
        gc.enable()
        return {"ms": durations, "bytes_read": _bytes_read() - before}

    def profile(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the storage requests of one run; ours only."""
        engine: Any = self._engine
        return {"requests": engine.requests(self._lines[request["line"]], request["params"][0])}

    def plan(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return what it costs to make a plan at first sight, and to find it again; ours only."""
        engine: Any = self._engine
        return dict(engine.planning_ms(self._lines[request["line"]], request["params"][0]))

    def memory(self, request: dict[str, Any]) -> dict[str, Any]:
        # What `getrusage` tells survives an exec, so it would include the driver that forked this process.
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return {"peak_bytes": int(status["VmHWM"].split()[0]) * 1024}


def _bytes_read() -> int:
    """Return what this process has asked the file system for so far, whether or not it was in memory."""
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["rchar"])


def _rows(answer: Any) -> list[tuple[Any, ...]]:
    if isinstance(answer, list):
        return [tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in answer]
    columns = [column.to_pylist() for column in answer.columns]
    return list(zip(*columns, strict=True))


def digest(rows: Iterable[tuple[Any, ...]], is_ordered: bool) -> str:
    """Return a digest of rows that does not depend on their order unless the question asks for one.

    >>> digest([(1, 0.30000000001), (2,)], False) == digest([(2,), (1, 0.3)], False)
    True
    >>> digest([(1,), (2,)], True) == digest([(2,), (1,)], True)
    False
    """
    texts = [repr(tuple(round(one, 6) if isinstance(one, float) else one for one in row)) for row in rows]
    return hashlib.sha256("\n".join(texts if is_ordered else sorted(texts)).encode()).hexdigest()


if __name__ == "__main__":
    main(sys.argv[1:])
