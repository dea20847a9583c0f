"""The topic of the page: reads on a social graph, against graph, relational and search engines."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.reads.cold import Cold, measure_cold
from benchmarks.reads.data import FULL, TENTH
from benchmarks.reads.draws import Deck
from benchmarks.reads.engines import OURS, PEERS, THREADS
from benchmarks.reads.lines import BY_NAME, LINES
from benchmarks.reads.processes import available
from benchmarks.reads.tables import make_tables
from benchmarks.reads.warm import Warm, measure_warm
from benchmarks.topic import Topic

# Data and the peers' databases are kept here from run to run, because building them takes longer than measuring.
CACHE = Path(os.environ.get("OMNIGRAPH_BENCH_CACHE", Path(tempfile.gettempdir()) / "omnigraph-bench"))
_COLD_LINES = ("point", "scan", "hop2", "hop2_all", "anti", "group", "bm25", "vector")


def run() -> Topic:
    names = [OURS, *available(PEERS)]
    if missing := missing_peers(names, PEERS):
        print(missing, flush=True)
    small = measure_warm(TENTH, LINES, names, CACHE)
    large = measure_warm(FULL, [line for line in LINES if not line.is_heavy], names, CACHE)
    cold = _measure_cold(names, large)
    return Topic("Reads", _about(names), tables=make_tables(names, small, large, cold))


def _measure_cold(names: Sequence[str], warm: Warm) -> list[Cold]:
    data, homes = CACHE / FULL.name, {name: CACHE / f"{FULL.name}-{name}" for name in names}
    able = {timing.line.name: list(timing.rounds) for timing in warm.timings}
    lines = [BY_NAME[name] for name in _COLD_LINES if OURS in able[name]]
    return measure_cold(lines, Deck.read(data), able, homes)


def missing_peers(names: Sequence[str], peers: Sequence[str]) -> str:
    """Return a sentence about the peers that are not among the engines measured, if there are any."""
    missing = [name for name in peers if name not in names]
    return f" Not installed here, so not measured: {', '.join(missing)}; `make bench` brings them." if missing else ""


def _about(names: Sequence[str]) -> str:
    return (
        f"A seeded social graph: {FULL.people:,} people, about {FULL.follows:,} follows with power-law degrees,"
        f" {FULL.posts:,} posts with text and vectors of 64 numbers. Every engine runs in a process of its own with"
        f" {THREADS} threads, gets the same calls with the same parameters in shuffled order round by round, and times"
        " itself, fetching the result as Arrow included (the point lookup: as rows). A ratio is peer over ours, the"
        " median over rounds: above 1 we are faster. Before anything is timed the complete results of all engines are"
        " compared, and they are equal on every line but the searches. Kuzu, Ladybug and DuckDB have a pool of 6 GB and"
        " prepared statements where they offer them; reachability uses their shortest-path form; DuckDB has dense"
        " integer ends sorted by source. LanceDB is compared in search only. Kuzu and Ladybug scan vectors, as DuckDB"
        " does: Kuzu's vector index takes too long to build, Ladybug's extensions are downloads."
        f"{missing_peers(names, PEERS)}"
    )
