"""How fast loads are: on Spark and in threads, against the work that must be done anyway, other databases, bare Spark.

Every case runs in a process of its own, one after the other, a tenth first; memory is that of all it started, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.reads.engines import OURS
from benchmarks.reads.processes import ROOT, python_of
from benchmarks.topic import Table, Topic
from omnigraph.rules.arrow_typing import pc

NODES, EDGES = 2_000_000, 4_000_000
GROUP_ROWS = 250_000
_LOOK_SECONDS = 0.2
CASES = (
    ("ours", 1),
    ("ours", 2),
    ("threads", 2),
    ("bare", 1),
    ("plain", 2),
    ("kuzu", 2),
    ("ladybug", 2),
)
NAMES = {
    "ours": "`load` on Spark",
    "threads": "`load` in threads",
    "bare": "one process: decode, row rules, write",
    "plain": "Spark: parse and write Parquet",
    "kuzu": "Kuzu `COPY`",
    "ladybug": "Ladybug `COPY`",
}
PEERS = ("kuzu", "ladybug")


@dataclass(frozen=True, slots=True)
class Run:
    """One load as it went; `start` is the time that Spark took to start, apart."""

    case: str
    format: str
    cores: int
    rows: int
    bytes: int
    seconds: float
    start: float | None
    peak_bytes: int

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


def run() -> Topic:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        root = Path(folder)
        small, large = root / "small", root / "large"
        make_data(small, NODES // 10, EDGES // 10)
        make_data(large, NODES, EDGES)
        runs: list[Run] = []
        for case, cores in CASES:
            if case not in PEERS or python_of(case) is not None:
                runs += _measure(case, cores, (small, large), root / "home")
    busy = f" On average {os.getloadavg()[2]:.0f} processes wanted to run, those of other work on the machine included."
    return Topic("Loads", _ABOUT + busy, tables=(_speed_table(runs), _growth_table(runs)))


_ABOUT = (
    f"Loads of {NODES:,} nodes and {EDGES:,} edges into an empty graph, one run of each in turn, after one of a tenth."
    " Ours checks every rule and ends with one commit that survives a power cut. The files are in the page cache; the"
    " time that Spark and its workers take to start is listed separately; memory is the peak of a process and all it"
    " started, shared pages counted once."
)


# -- data ------------------------------------------------------------------------------------------------------


def make_data(folder: Path, nodes: int, edges: int) -> None:
    """Write the same graph as Parquet and as NDJSON, nodes first."""
    folder.mkdir()
    draw = np.random.default_rng(7)
    numbers = pc.cast(pa.array(np.arange(nodes)), pa.string())
    names = pc.binary_join_element_wise("person-", numbers, "")
    ages = pa.array(draw.integers(0, 100, nodes).astype(np.int32))
    scores = pa.array(draw.integers(0, 1_000, nodes) / 8)
    emails = pc.binary_join_element_wise(names, "@example.org", "")
    people = pa.table({"name": names, "email": emails, "age": ages, "score": scores})
    ends = [names.take(pa.array(draw.integers(0, nodes, edges))) for _ in range(2)]
    weights = pa.array(draw.integers(0, 100, edges).astype(np.int32))
    knows = pa.table({"src": ends[0], "dst": ends[1], "weight": weights})
    pq.write_table(people, folder / "person.parquet", row_group_size=GROUP_ROWS)
    pq.write_table(knows, folder / "knows.parquet", row_group_size=GROUP_ROWS)
    with (folder / "graph.ndjson").open("wb") as file:
        for part in _lines(people, '{"type":"Person","data":{"name":"', '","email":"', '","age":', ',"score":', "}}\n"):
            file.write(part)
        for part in _lines(knows, '{"edge":"Knows","from":"', '","to":"', '","data":{"weight":', "}}\n"):
            file.write(part)
    (folder / "rows.json").write_text(json.dumps(nodes + edges))


def _lines(table: pa.Table, *between: str) -> Iterator[bytes]:
    """Yield rows as text, with the given texts before, between and after their columns."""
    for batch in table.to_batches(max_chunksize=GROUP_ROWS):
        parts: list[object] = [between[0]]
        for column, after in zip(batch.columns, between[1:], strict=True):
            parts += [pc.cast(column, pa.string()), after]
        yield "".join(pc.binary_join_element_wise(*parts, "").to_pylist()).encode()


# -- measuring -------------------------------------------------------------------------------------------------


def _measure(case: str, cores: int, folders: Sequence[Path], home: Path) -> list[Run]:
    """Load all inputs in one new process."""
    formats = ("Parquet",) if case in PEERS else ("NDJSON", "Parquet")
    inputs = [(format_, data) for data in folders for format_ in formats]
    python = python_of(case if case in PEERS else OURS)
    assert python is not None
    words = [case, str(cores), str(home), *(f"{format_}:{data}" for format_, data in inputs)]
    command = [python, "-m", "benchmarks.loadcase", *words]
    process = subprocess.Popen(command, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, text=True)
    said, peaks = listen(process)
    assert process.returncode == 0, f"{case} ended with {process.returncode}"
    start = next((one["start"] for one in said if "start" in one), None)
    times = [(one["seconds"], peak) for one, peak in zip(said, peaks, strict=True) if "seconds" in one]
    runs = []
    for (format_, data), (seconds, peak) in zip(inputs, times, strict=True):
        names = ("graph.ndjson",) if format_ == "NDJSON" else ("person.parquet", "knows.parquet")
        size = sum((data / name).stat().st_size for name in names)
        rows = int((data / "rows.json").read_text())
        runs.append(Run(case, format_, cores, rows, size, seconds, start, peak))
        print(f"load: {runs[-1]}", flush=True)
    return runs


def listen(process: subprocess.Popen[str]) -> tuple[list[dict[str, float]], list[int]]:
    """Return what a process says, line by line, and for each line the most memory since the one before."""
    said: list[dict[str, float]] = []
    peaks: list[int] = []
    seen = [0]

    def listen() -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                said.append(json.loads(line))
                peaks.append(seen[0])
                seen[0] = 0
        process.wait()

    listener = threading.Thread(target=listen)
    listener.start()
    while listener.is_alive():
        seen[0] = max(seen[0], _tree_bytes(process.pid))
        listener.join(_LOOK_SECONDS)
    return said, peaks


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONWARNINGS": "ignore", "LANCE_LOG": "error"}


def _tree_bytes(pid: int) -> int:
    """Return the memory of a process and all below it, each shared page split among those that share it."""
    total = 0
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        total += next(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += sum(map(_tree_bytes, map(int, (task / "children").read_text().split())))
    except (OSError, StopIteration):
        pass
    return total


# -- tables ----------------------------------------------------------------------------------------------------


def _speed_table(runs: list[Run]) -> Table:
    whole = [one for one in runs if one.rows == NODES + EDGES]
    base = {one.format: one.rate for one in whole if (one.case, one.cores) == ("ours", 2)}
    rows = tuple(
        (
            NAMES[one.case],
            one.format,
            str(one.cores),
            f"{one.seconds:.1f} s",
            f"{one.rate:,.0f}",
            f"{one.bytes / 1e6 / one.seconds:.0f}",
            f"{base[one.format] / one.rate:.2f}",
            f"{one.peak_bytes / 1e6:,.0f} MB",
            f"{one.start:.1f} s" if one.start is not None else "",
        )
        for one in whole
    )
    about = (
        "![Rows per second of each load with two cores](../pictures/loads.svg)\n\n"
        "The ratio is the rate of our load on Spark with two cores by that of the line: above 1 ours is faster."
        " Plain Spark runs in a session of ours, whose JVM compiles for a quick start; its own JSON reader would gain"
        " from the other compiler."
    )
    head = ("What", "From", "Cores", "Time", "Rows / s", "MB / s", "Ratio", "Peak memory", "Spark start")
    return Table(about, head, rows)


def _growth_table(runs: list[Run]) -> Table:
    large = {(one.case, one.cores, one.format): one for one in runs if one.rows == NODES + EDGES}
    rows = tuple(
        (
            NAMES[one.case],
            one.format,
            str(one.cores),
            f"{one.rate:,.0f}",
            f"{whole.seconds / one.seconds:.1f}",
            f"{whole.peak_bytes / one.peak_bytes:.1f}",
        )
        for one in runs
        if one.rows != NODES + EDGES
        for whole in (large[one.case, one.cores, one.format],)
    )
    about = "From a tenth of the rows to all of them: at ten times the time it grows with its input."
    return Table(about, ("What", "From", "Cores", "Rows / s of a tenth", "Time", "Peak memory"), rows)
