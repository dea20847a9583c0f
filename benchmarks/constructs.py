"""What single constructs of the language cost: expressions, aggregates, stages, unions and paths, beside the peers."""

from __future__ import annotations

import os

from benchmarks.paths import PEER as PATHS_PEER
from benchmarks.paths import run_paths
from benchmarks.reads.compare import compare, prepare
from benchmarks.reads.construct_lines import CONSTRUCTS
from benchmarks.reads.data import QUARTER
from benchmarks.reads.draws import Deck
from benchmarks.reads.engines import OURS, THREADS
from benchmarks.reads.processes import available, serving
from benchmarks.reads.tables import short_table, warm_table
from benchmarks.reads.topic import CACHE, missing_peers
from benchmarks.topic import Table, Topic

# LanceDB has no language of its own.
PEERS = ("kuzu", "ladybug", "duckdb")


def run() -> Topic:
    peers = available(PEERS)
    data, homes = prepare(QUARTER, [OURS, *peers], CACHE)
    timings = {}
    with serving(homes) as workers:
        for timing in compare(CONSTRUCTS, Deck.read(data), workers):
            print(f"constructs: {timing.line.title}", flush=True)
            timings[timing.line.title] = timing
    return Topic(
        "Constructs",
        _about() + _other_load() + missing_peers(available((*PEERS, PATHS_PEER)), (*PEERS, PATHS_PEER)),
        tables=(warm_table(peers, timings), short_table(timings), *_paths()),
    )


def _paths() -> tuple[Table, ...]:
    return (run_paths(CACHE),) if available([PATHS_PEER]) else ()


def _other_load() -> str:
    """Return a sentence about other work on the machine, if there was much of it."""
    load, cores = os.getloadavg()[1], os.cpu_count() or 1
    if load < 2 * cores:
        return ""
    return (
        f" The machine did other work at the same time (a load of {load:.0f} on {cores} cores): all times are longer"
        " than on a machine at rest, and the ratios less certain."
    )


def _about() -> str:
    return (
        "A question for each construct that people from Cypher and SQL use most, on a quarter of the graph of"
        f" [Reads](#reads) ({QUARTER.people:,} people, about {QUARTER.follows:,} follows, {QUARTER.posts:,} posts) and"
        f" by the same rules: {THREADS} threads each, complete and equal results before anything is timed, the same"
        " calls in shuffled order round by round. Each peer is asked in the fastest form that we know: the newest post"
        " of each author by `arg_max` in DuckDB and by a second match in Kuzu and Ladybug, reachability by their"
        " shortest-path form, lists sorted because `collect` sorts. An empty cell means that the peer has no such"
        " construct."
    )
