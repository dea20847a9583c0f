"""How fast a graph is cloned and backed up: against a plain copy of its files, and by what changed since.

Clone, update and copy take turns, so that they meet the same machine; the copy is synced, as the clone is.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from unittest.mock import patch

import omnigraph as og
from benchmarks.histories import PEOPLE, without_syncs, write_people
from benchmarks.topic import Table, Topic
from omnigraph import pipeline
from tests.support.s3_server import S3Server

_numbers = count()


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    rows: int = 2_000_000
    s3_rows: int = 100_000
    commits: int = 200
    rounds: int = 5


def run(scale: Scale | None = None) -> Topic:
    scale = scale or Scale()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        root = Path(folder)
        source = _make(root / "source", scale.rows, scale.commits)
        rows = _on_disk(root, source, scale.rounds)
        with S3Server() as server, patch.dict("os.environ", server.environment()):
            small = _make(root / "small", scale.s3_rows, scale.commits)
            rows += _to_s3(server, root, small, scale.rounds)
    return Topic(
        "Clones",
        f"A graph of {scale.rows:,} nodes ({scale.s3_rows:,} for S3) in one load and {scale.commits} commits after it."
        " A clone is verified at its end. The S3 server is a test double on loopback, one request at a time, so that"
        " its lines tell how requests add up and not how fast S3 is.",
        tables=(Table("Medians, in turns.", ("What", "Files", "Bytes", "Took", "MB a second", "Ratio"), tuple(rows)),),
    )


def _make(place: Path, rows: int, commits: int) -> og.Graph:
    graph, path = og.init(place, PEOPLE), place.with_suffix(".parquet")
    write_people(path, rows)
    with without_syncs():
        pipeline.load(graph, nodes={"Person": path}, mode="append", engine="local")
        for _ in range(commits):
            _insert(graph)
    return graph


def _insert(graph: og.Graph) -> None:
    graph.mutate("query q($k: String) { insert Person {name: $k} }", params={"k": f"n{next(_numbers)}"})


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _copy(source: Path, target: Path) -> None:
    """Copy all files, and have them on the disk."""
    shutil.copytree(source, target)
    for path in target.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _on_disk(root: Path, source: og.Graph, rounds: int) -> list[tuple[str, ...]]:
    copies, clones, updates, restores = list[float](), list[float](), list[float](), list[float]()
    for turn in range(rounds):
        copy, target = root / f"copy{turn}", root / f"clone{turn}"
        copies.append(_seconds(lambda: _copy(Path(source.uri), copy)))  # noqa: B023 - called at once
        clones.append(_seconds(lambda: source.clone(target)))  # noqa: B023
        report = source.clone(target, update=True)
        _insert(source)
        updates.append(_seconds(lambda: source.clone(target, update=True)))  # noqa: B023
        restored = root / f"restored{turn}"
        with og.open(target) as backup:
            restores.append(_seconds(lambda: backup.clone(restored)))  # noqa: B023
        for place in (copy, target, restored):
            shutil.rmtree(place)
    size = (report.files, report.bytes)
    floor = statistics.median(copies)
    return [
        _row("plain copy of all files, disk", *size, copies, None),
        _row("clone, disk to disk", *size, clones, floor),
        _row("`clone --update` after one commit", *size, updates, floor),
        _row("restore: clone of the backup", *size, restores, floor),
    ]


def _to_s3(server: S3Server, root: Path, source: og.Graph, rounds: int) -> list[tuple[str, ...]]:
    clones, updates, restores = list[float](), list[float](), list[float]()
    for turn in range(rounds):
        target, back = server.uri(f"clone{turn}"), root / f"back{turn}"
        clones.append(_seconds(lambda: source.clone(target)))  # noqa: B023 - called at once
        report = source.clone(target, update=True)
        _insert(source)
        updates.append(_seconds(lambda: source.clone(target, update=True)))  # noqa: B023
        with og.open(target) as backup:
            restores.append(_seconds(lambda: backup.clone(back)))  # noqa: B023
        shutil.rmtree(back)
    size = (report.files, report.bytes)
    floor = statistics.median(clones)
    return [
        _row("clone, disk to S3", *size, clones, None),
        _row("`clone --update` after one commit, to S3", *size, updates, floor),
        _row("restore: clone of the backup, S3 to disk", *size, restores, floor),
    ]


def _row(name: str, files: int, size: int, seconds: list[float], floor: float | None) -> tuple[str, ...]:
    median = statistics.median(seconds)
    ratio = "" if floor is None else f"{median / floor:.2f}"
    return name, f"{files:,}", f"{size / 1e6:.0f} MB", f"{median:.2f} s", f"{size / 1e6 / median:.0f}", ratio
