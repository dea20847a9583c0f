"""Paths by weight and by hops beside SciPy, on the same graphs, round by round; a table of `benchmarks.constructs`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import omnigraph as og
from benchmarks.path_worker import PATH_LINES
from benchmarks.reads.compare import Timing, compare
from benchmarks.reads.engines import OURS
from benchmarks.reads.lines import Draw, Line
from benchmarks.reads.processes import serving
from benchmarks.reads.tables import render_ms, render_ratio
from benchmarks.topic import Table
from omnigraph import pipeline

PEER = "scipy"
AIM = 5.0
SCHEMA = """
node Place { code: String @key  number: I64 }
edge Road: Place -> Place { fee: F64 }
"""
_SEED = 11
# Fees are multiples of this, so that their sums are exact in whatever order they are made.
_FEE_UNIT = 1 / 1_024
_FEES = 1 << 20

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shape:
    """A seeded graph: each place has roads to places anywhere, or to those beside it in a grid and back."""

    name: str
    size: int
    degree: int | None

    def ends(self, random: np.random.Generator) -> Integers:
        if self.degree is not None:
            return random.integers(self.size, size=(2, self.size * self.degree))
        side = int(self.size**0.5)
        grid = np.arange(side * side).reshape(side, side)
        across, down = (grid[:, :-1].ravel(), grid[:, 1:].ravel()), (grid[:-1].ravel(), grid[1:].ravel())
        there = np.concatenate([across, down], axis=1)
        return np.concatenate([there, there[::-1]], axis=1)


RANDOM = Shape("random", 20_000, 10)
GRID = Shape("grid", 141 * 141, None)
SHAPES = (RANDOM, GRID)
_STEPS = "few nodes are reached at each of"
# Where the time goes of a line that has been beyond the aim: from its profile.
_REASONS: Mapping[tuple[str, str], str] = {
    ("lightest", "grid"): f"{_STEPS} about 280 steps of the search, and an array step costs 70 µs however few they are;"
    " then as many as the path has hops, twice",
    ("lightest_to_all", "grid"): f"{_STEPS} about 500 steps of the search, and an array step costs 70 µs however few"
    " they are; then one for each of 230 levels of the tree of paths",
    ("fewest_hops", "grid"): "an array step for each hop, three times (the distances, the way back, the order of ties),"
    " each with a fixed cost of 30 µs and more, where the wave has a hundred nodes",
}


@dataclass(frozen=True, slots=True)
class Places:
    """What parameters are drawn from: codes of places."""

    size: int

    def draw(self, line: Line, count: int) -> list[dict[str, Any]]:
        names = ("start", "end")[: 2 if line.draw is Draw.PAIR else 1]
        random = np.random.default_rng(_SEED)
        drawn = [random.choice(self.size, 2, replace=False) for _ in range(count)]
        return [{name: f"p{place}" for name, place in zip(names, places, strict=False)} for places in drawn]


def run_paths(cache: Path, shapes: Sequence[Shape] = SHAPES) -> Table:
    """Measure every line on every shape of graph."""
    rows = []
    for shape in shapes:
        homes = prepare_paths(shape, cache)
        with serving(homes, "benchmarks.path_worker") as workers:
            for timing in compare(PATH_LINES, Places(shape.size), workers):
                print(f"paths, {shape.name}: {timing.line.title}", flush=True)
                rows.append(_row(shape, timing))
    return Table(_about(shapes), ("Line", "Graph", "Ours", "SciPy", "Ours / SciPy", "Aim", "Why"), tuple(rows))


def prepare_paths(shape: Shape, cache: Path) -> dict[str, Path]:
    """Write the roads for SciPy unless they are there, and our graph of them anew; return where they are."""
    cache.mkdir(parents=True, exist_ok=True)
    file, home = cache / f"paths-{shape.name}.npz", cache / f"paths-{shape.name}-{OURS}"
    roads = make_roads(shape)
    making = file.with_name(f"making-{file.name}")
    np.savez(making, allow_pickle=False, size=np.int64(shape.size), **roads)
    os.replace(making, file)
    shutil.rmtree(home, ignore_errors=True)
    with og.init(home, schema=SCHEMA) as graph:
        places, ways = _tables(shape, roads)
        pipeline.load(graph, nodes={"Place": places}, edges={"Road": ways}, mode="append")
        graph.maintenance.ensure_indices()
    return {OURS: home, PEER: file}


def make_roads(shape: Shape) -> dict[str, NDArray[Any]]:
    """Return the roads, one at most from a place to another and none back to itself, with their fees."""
    random = np.random.default_rng(_SEED)
    start, end = shape.ends(random)
    pairs = np.unique((start * shape.size + end)[start != end])
    fees = random.integers(1, _FEES, size=len(pairs)) * _FEE_UNIT
    return {"start": pairs // shape.size, "end": pairs % shape.size, "fee": fees}


def _tables(shape: Shape, roads: Mapping[str, NDArray[Any]]) -> tuple[pa.Table, pa.Table]:
    codes = pa.array([f"p{number}" for number in range(shape.size)])
    places = pa.table({"code": codes, "number": np.arange(shape.size)})
    ends = {name: codes.take(pa.array(roads[column])) for name, column in (("from", "start"), ("to", "end"))}
    return places, pa.table({**ends, "fee": roads["fee"]})


def _row(shape: Shape, timing: Timing) -> tuple[str, ...]:
    if timing.failures or PEER not in timing.rounds:
        return (timing.line.title, shape.name, *("",) * 4, str(dict(timing.failures)))
    ratio = 1 / timing.ratios()[PEER]
    why = _REASONS.get((timing.line.name, shape.name), "") if ratio > AIM else ""
    cells = (render_ms(timing.median(OURS)), render_ms(timing.median(PEER)), render_ratio(ratio), f"{AIM:g}×")
    return (timing.line.title, shape.name, *cells, why)


def _about(shapes: Sequence[Shape]) -> str:
    sizes = {shape.name: f"{shape.size:,} places and {len(make_roads(shape)['fee']):,} roads" for shape in shapes}
    graphs = "; ".join(f"{name}: {size}" for name, size in sizes.items())
    return (
        "Paths by weight and by hops beside `scipy.sparse.csgraph`, in two processes, with equal costs before anything"
        " is timed and the same calls in shuffled order round by round. SciPy is given its CSR matrix ready in memory"
        " and the numbers of places, and answers with costs and hops; ours compiles, looks places up by key and orders"
        " ties by id. SciPy's searches are `dijkstra`, `yen` and `breadth_first_order`, which do not stop at an end."
        " In the random graph roads lead anywhere, in the grid to the four places beside one, so that paths are long."
        f" {graphs[0].upper()}{graphs[1:]}. The aim is at most {AIM:g} times SciPy's time."
    )
