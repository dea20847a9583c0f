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
from omnigraph.engine.session import Core
from omnigraph.engine.tasks import Runner
from omnigraph.errors import PipelineUnavailable
from omnigraph.graph import Graph
from omnigraph.ids import new_ulid
from omnigraph.limits import MAINTAIN_LOCAL_BYTES_MAX, MAINTAIN_TASK_ROWS
from omnigraph.manifest.model import MAIN
from omnigraph.pipeline.bulk_load.job import GraphAccess, graph_access
from omnigraph.pipeline.spark.executors import Engine, check_engine, start_executors
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
    core, branch = graph.core, branch.strip()
    spread = SparkWorkers(core, branch, partial(start_executors, master))
    workers: dict[str, Workers] = {"auto": AutoWorkers(spread), "local": ThisProcess(), "spark": spread}
    if engine == "spark" or (engine == "auto" and master is not None):
        # Whoever asks for Spark hears at once when it does not start.
        spread.start()
        return run_optimize(core, branch, core.actor, spread)
    return run_optimize(core, branch, core.actor, workers[engine])


@dataclass(frozen=True, slots=True)
class _SegmentPart:
    """A part of a segment, and the state that it covers."""

    ref: DatasetRef
    segment: Segment


class SparkWorkers:
    """Workers elsewhere: each task is one of Spark's, and a large segment is built in parts."""

    def __init__(self, core: Core, branch: str, start: Callable[[], Runner]) -> None:
        self._core = core
        self._branch = branch
        self._access = graph_access(core.kernel.store.root.uri, new_ulid())
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
        work = partial(rewrite_fragments, self._access, dataset.ref)
        return self.start().run("compacting", work, tasks, list(map(compaction.task_bytes, tasks)))

    def index(self, dataset: Dataset, segments_: Sequence[Segment]) -> list[Built]:
        # Parts of one segment can be merged because they have the same partitions.
        parts = [_split_segment(dataset, index_build.with_centres(dataset, segment)) for segment in segments_]
        flat = [_SegmentPart(dataset.ref, part) for parts_of_segment in parts for part in parts_of_segment]
        if not flat:
            return []
        self._finish_links()
        built = iter(self.start().run("indexing", partial(build_segment_part, self._access), flat))
        segments = [[next(built) for _ in parts_of_segment] for parts_of_segment in parts]
        return [index_build.merge_segments(dataset, parts_of_segment) for parts_of_segment in segments]

    def _finish_links(self) -> None:
        # Tasks open versions by path alone, so what was just published must be in its place.
        self._core.kernel.finish_links(self._core.kernel.snapshot(self._branch))


class AutoWorkers:
    """Workers here for what is done before Spark would have started, and elsewhere for the rest."""

    def __init__(self, spread: SparkWorkers) -> None:
        self._spread = spread
        self._here = ThisProcess()

    def compact(self, dataset: Dataset, tasks: Sequence[Task]) -> list[Rewritten]:
        return self._workers(sum(map(compaction.task_bytes, tasks))).compact(dataset, tasks)

    def index(self, dataset: Dataset, segments: Sequence[Segment]) -> list[Built]:
        covered = {fragment for segment in segments for fragment in segment.fragments}
        size = sum(
            file.file_size_bytes or 0
            for segment in dataset.fragments
            if segment.id in covered
            for file in segment.files
        )
        return self._workers(size).index(dataset, segments)

    def _workers(self, size: int) -> Workers:
        if size <= MAINTAIN_LOCAL_BYTES_MAX or find_spec("pyspark") is None:
            return self._here
        try:
            self._spread.start()
        except PipelineUnavailable:
            # Nobody asked for Spark, and this process can do it as well; it takes longer.
            return self._here
        return self._spread


def _split_segment(dataset: Dataset, segment: Segment) -> list[Segment]:
    """Return a segment in parts that tasks build side by side; no fragment is cut."""
    rows = {fragment_.id: fragment_.num_rows for fragment_ in dataset.fragments}
    runs: list[list[int]] = []
    held = MAINTAIN_TASK_ROWS
    for fragment in segment.fragments:
        if held + rows[fragment] > MAINTAIN_TASK_ROWS:
            runs.append([])
            held = 0
        runs[-1].append(fragment)
        held += rows[fragment]
    return [replace(segment, fragments=tuple(run)) for run in runs]


def rewrite_fragments(access: GraphAccess, ref: DatasetRef, task: Task) -> Rewritten:
    """Execute one task of a compaction; what a second attempt writes, nothing names."""
    return compaction.execute(access.open(ref), task)


def build_segment_part(access: GraphAccess, part: _SegmentPart) -> Built:
    """Build a part of a segment of the driver's version; parts of several versions could not be merged."""
    return index_build.build_segment(access.store().open(part.ref), part.segment)
