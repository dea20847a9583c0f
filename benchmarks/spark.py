"""What Spark costs over the least that has to be done: a sum over the data source, and a merge on executors.

CPU seconds of whole processes, with everything that they start: they say what a cluster pays, whatever else it does.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import omnigraph as og
from benchmarks import branches
from benchmarks.histories import PEOPLE, write_people
from benchmarks.load import listen
from benchmarks.reads.processes import ROOT
from benchmarks.topic import Table, Topic

SUMMED_ROWS = (250_000, 2_500_000)
MERGED_ROWS, MERGED_CHANGES = 25_000_000, 250_000
PART_ROWS = 5_000_000
ROUNDS = 3
SUM_AIM_SECONDS, MERGE_AIM_SECONDS = 3, 10


def run() -> Topic:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        tables = (_sum_table(Path(folder)), _merge_table(Path(folder)))
    return Topic("Spark", _ABOUT, tables=tables)


_ABOUT = (
    "CPU seconds of a process from its start, with all that it starts: the JVM, and the Python of planning and of"
    " tasks. The JVM finds the archive of classes that an earlier session has left."
)


def _sum_table(root: Path) -> Table:
    rows = []
    for number in SUMMED_ROWS:
        folder = root / str(number)
        folder.mkdir()
        write_people(folder / "people.parquet", number)
        with og.init(folder / "people.omni", schema=PEOPLE) as graph:
            graph.load(nodes={"Person": folder / "people.parquet"}, mode="append")
        taken: dict[str, list[float]] = {"start": [], "sum_parquet": [], "sum_graph": []}
        # The first round leaves the archive of classes.
        for place in range(ROUNDS + 1):
            for case, seconds in taken.items():
                measured, _ = _measure(case, str(folder))
                seconds += [measured] if place else []
        start, plain, ours = (statistics.median(seconds) for seconds in taken.values())
        rows.append((f"{number:,}", *(f"{each:.1f} s" for each in (start, plain, ours)), f"{ours - plain:+.1f} s"))
    about = f"A session that sums one column; the aim is {SUM_AIM_SECONDS} s over Parquet. Medians of {ROUNDS} rounds."
    return Table(about, ("Rows", "Session alone", "Parquet", "Data source", "Over Parquet"), tuple(rows))


def _merge_table(root: Path) -> Table:
    with branches.make_graph(root / "merge.omni", 1) as graph:
        for first in range(0, MERGED_ROWS, PART_ROWS):
            branches.append_rows(graph, np.arange(first, first + PART_ROWS))
    rows = []
    for case, name in (("merge_local", "in process"), ("merge_spark", "on Spark, from its start")):
        with og.open(root / "merge.omni") as graph:
            branch = branches.diverge(graph, MERGED_ROWS, MERGED_CHANGES)
        seconds, peak_bytes = _measure(case, str(root), branch)
        rows.append((name, f"{seconds:.1f} s", f"{peak_bytes / 1e6:,.0f} MB"))
    about = (
        f"A merge of {MERGED_CHANGES:,} changed entities into {MERGED_ROWS:,}, of which as many others changed as well;"
        f" the aim is {MERGE_AIM_SECONDS} CPU seconds. Memory is that of all processes together."
    )
    return Table(about, ("Where", "CPU", "Peak memory"), tuple(rows))


def _measure(case: str, *words: str) -> tuple[float, int]:
    """Run a case; return its CPU seconds, and the most memory that it and all it started had."""
    command = [sys.executable, "-m", "benchmarks.sparkcase", case, *words]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    [said], [peak] = listen(process)
    assert process.returncode == 0, f"{case} ended with {process.returncode}"
    return said["seconds"], peak
