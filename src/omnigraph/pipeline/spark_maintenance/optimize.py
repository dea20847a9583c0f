"""Optimize with executors: they rewrite fragments and build parts of indexes, the driver publishes once.

Plans and publishes by `engine.maintain.optimize`; all that is decided here is where a task runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec

from omnigraph.engine.maintain.optimize import OptimizeReport, ThisProcess, Workers
from omnigraph.engine.maintain.optimize import optimize as run_optimize
from omnigraph.engine.session import GraphSession
from omnigraph.engine.tasks import Runner
from omnigraph.errors import PipelineUnavailable
from omnigraph.graph import Graph
from omnigraph.ids import new_ulid
from omnigraph.limits import MAINTAIN_LOCAL_BYTES_MAX, MAINTAIN_TASK_ROWS
from omnigraph.manifest.model import MAIN
from omnigraph.pipeline.bulk_load.job import Place, place_of
from omnigraph.pipeline.spark.executors import Engine, check_engine, executors
from omnigraph.store.index import index_build
from omnigraph.store.index.index_build import Built, Segment
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.write import compaction
from omnigraph.store.write.compaction import Rewritten, Task


def optimize(graph: Graph, branch: str = MAIN, *, engine: Engine = "auto", master: str | None = None) -> OptimizeReport:
    """Do what `Graph.optimize` does, with the same report; on Spark, tasks run on executors.

    By default, only what is large runs on Spark, and only where Spark is installed.
    """
    check_engine(engine)
    session, branch = graph.session, branch.strip()
    spread = Spread(session, branch, partial(executors, master))
    workers: dict[str, Workers] = {"auto": BySize(spread), "local": ThisProcess(), "spark": spread}
    if engine == "spark" or (engine == "auto" and master is not None):
        # Whoever asks for Spark hears at once when it does not start.
        spread.start()
        return run_optimize(session, branch, session.actor, spread)
    return run_optimize(session, branch, session.actor, workers[engine])


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a segment, and the state that it covers."""

    ref: DatasetRef
    segment: Segment


class Spread:
    """Workers elsewhere: each task is one of Spark's, and a large segment is built in parts."""

    def __init__(self, session: GraphSession, branch: str, start: Callable[[], Runner]) -> None:
        self._session = session
        self._branch = branch
        self._place = place_of(session.kernel.store.root.uri, new_ulid())
        self._start = start
        self._runner: Runner | None = None
        self._lock = threading.Lock()

    def start(self) -> Runner:
        """Return where tasks run; types are optimized side by side, and the first one starts it."""
        with self._lock:
            if self._runner is None:
                self._runner = self._start()
            return self._runner

    def compact(self, dataset: Dataset, tasks: Sequence[Task]) -> list[Rewritten]:
        if not tasks:
            return []
        self._finish_links()
        work = partial(rewrite_elsewhere, self._place, dataset.ref)
        return self.start().run("compacting", work, tasks, list(map(compaction.task_bytes, tasks)))

    def index(self, dataset: Dataset, wanted: Sequence[Segment]) -> list[Built]:
        # Parts of one segment can be merged because they have the same partitions.
        parts = [_parts(dataset, index_build.with_centres(dataset, one)) for one in wanted]
        flat = [_Part(dataset.ref, part) for own in parts for part in own]
        if not flat:
            return []
        self._finish_links()
        built = iter(self.start().run("indexing", partial(index_elsewhere, self._place), flat))
        segments = [[next(built) for _ in own] for own in parts]
        return [index_build.merge_segments(dataset, own) for own in segments]

    def _finish_links(self) -> None:
        # Tasks open versions by path alone, so what was just published must be in its place.
        self._session.kernel.finish_links(self._session.kernel.snapshot(self._branch))


class BySize:
    """Workers here for what is done before Spark would have started, and elsewhere for the rest."""

    def __init__(self, spread: Spread) -> None:
        self._spread = spread
        self._here = ThisProcess()

    def compact(self, dataset: Dataset, tasks: Sequence[Task]) -> list[Rewritten]:
        return self._workers(sum(map(compaction.task_bytes, tasks))).compact(dataset, tasks)

    def index(self, dataset: Dataset, wanted: Sequence[Segment]) -> list[Built]:
        covered = {fragment for one in wanted for fragment in one.fragments}
        size = sum(file.file_size_bytes or 0 for one in dataset.fragments if one.id in covered for file in one.files)
        return self._workers(size).index(dataset, wanted)

    def _workers(self, size: int) -> Workers:
        if size <= MAINTAIN_LOCAL_BYTES_MAX or find_spec("pyspark") is None:
            return self._here
        try:
            self._spread.start()
        except PipelineUnavailable:
            # Nobody asked for Spark, and this process can do it as well; it takes longer.
            return self._here
        return self._spread


def _parts(dataset: Dataset, segment: Segment) -> list[Segment]:
    """Return a segment in parts that tasks build side by side; no fragment is cut."""
    rows = {one.id: one.num_rows for one in dataset.fragments}
    runs: list[list[int]] = []
    held = MAINTAIN_TASK_ROWS
    for fragment in segment.fragments:
        if held + rows[fragment] > MAINTAIN_TASK_ROWS:
            runs.append([])
            held = 0
        runs[-1].append(fragment)
        held += rows[fragment]
    return [replace(segment, fragments=tuple(run)) for run in runs]


def rewrite_elsewhere(place: Place, ref: DatasetRef, task: Task) -> Rewritten:
    """Execute one task of a compaction; what a second attempt writes, nothing names."""
    return compaction.execute(place.open(ref), task)


def index_elsewhere(place: Place, part: _Part) -> Built:
    """Build a part of a segment of the driver's version; parts of several versions could not be merged."""
    return index_build.build_segment(place.store().open(part.ref), part.segment)
