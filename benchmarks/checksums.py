"""What checksums cost: loads and one-row commits with them and without them, in turns.

Without them a staged file is still seen to be whole, by its size and footer; its bytes are not read back.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from unittest.mock import patch

import omnigraph as og
from benchmarks.histories import PEOPLE, write_people
from benchmarks.topic import Table, Topic
from omnigraph import pipeline
from omnigraph.store.objects.backend import Inspected
from omnigraph.store.objects.local_objects import LocalObjects
from omnigraph.store.write.file_proof import FOOTER_BYTES

AIM = 1.05
INSERT = "query q($k: String) { insert Person {name: $k} }"
_numbers = count()


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    load_rows: int = 1_000_000
    loads: int = 7
    commits: int = 400


def run(scale: Scale | None = None) -> Topic:
    scale = scale or Scale()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        root = Path(folder)
        rows = (
            _row(f"load of {scale.load_rows:,} nodes", scale.loads, *_loads(root, scale)),
            _row("commit of one node", scale.commits, *_commits(root, scale)),
        )
    return Topic(
        "Checksums",
        "Every durable write is synced, as by default. Without checksums, files are held against their size and footer"
        f" only. Both take turns; the aim is a ratio of at most {AIM}.",
        tables=(Table("Medians on a disk.", ("What", "With", "Without", "Ratio", "Rounds"), rows),),
    )


def without_checksums() -> AbstractContextManager[object]:
    """Prove files by their size and footer alone."""
    return patch.object(LocalObjects, "inspect", _inspect_footer)


def _inspect_footer(self: LocalObjects, path: str) -> Inspected | None:
    with suppress(FileNotFoundError, NotADirectoryError), open(self._full(path), "rb", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - FOOTER_BYTES))
        return Inspected(size, file.read(FOOTER_BYTES), 0)
    return None


def _variants() -> Iterator[tuple[int, AbstractContextManager[object]]]:
    yield 0, nullcontext()
    yield 1, without_checksums()


def _loads(root: Path, scale: Scale) -> tuple[list[float], list[float]]:
    path = root / "person.parquet"
    write_people(path, scale.load_rows)

    def load() -> Callable[[], object]:
        place = root / f"load{next(_numbers)}"
        graph = og.init(place, PEOPLE)

        def work() -> None:
            pipeline.load(graph, nodes={"Person": path}, mode="append", engine="local")

        return work

    def clear() -> None:
        for place in root.glob("load*"):
            shutil.rmtree(place)

    return _in_turns(scale.loads, load, clear)


def _commits(root: Path, scale: Scale) -> tuple[list[float], list[float]]:
    graph = og.init(root / "commits", PEOPLE)

    def commit() -> Callable[[], object]:
        name = f"n{next(_numbers)}"
        return lambda: graph.mutate(INSERT, params={"k": name})

    return _in_turns(scale.commits, commit, lambda: None)


def _in_turns(
    rounds: int, prepare: Callable[[], Callable[[], object]], clear: Callable[[], object]
) -> tuple[list[float], list[float]]:
    """Return how many milliseconds some work takes with checksums and without; the first round warms up."""
    durations: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        for number, variant in _variants():
            work = prepare()
            with variant:
                start = time.perf_counter()
                work()
                durations[number].append((time.perf_counter() - start) * 1_000)
        clear()
    return durations[0][1:], durations[1][1:]


def _row(name: str, rounds: int, with_: list[float], without: list[float]) -> tuple[str, ...]:
    one, two = statistics.median(with_), statistics.median(without)
    return name, f"{one:.1f} ms", f"{two:.1f} ms", f"{one / two:.3f}", str(rounds)
