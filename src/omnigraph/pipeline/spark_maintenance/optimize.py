"""Optimize on Spark: executors rewrite fragments and build parts of indexes; the driver publishes once.

`engine.maintain.optimize` plans and publishes; this module only distributes the work.
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
from omnigraph.graph import Graph, session_of
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
    """Optimize a branch like `graph.maintenance.optimize`, on Spark if it is large.

    With `engine="auto"`, only large tasks run on Spark, and only if it is installed.
    """
    check_engine(engine)
    session, branch = session_of(graph), branch.strip()
    spread = SparkWorkers(session, branch, partial(start_executors, master))
    workers: dict[str, Workers] = {"auto": AutoWorkers(spread), "local": ThisProcess(), "spark": spread}
    if engine == "spark" or (engine == "auto" and master is not None):
        # Fail early if Spark was requested and does not start.
        spread.start()
        return run_optimize(session, branch, spread)
    return run_optimize(session, branch, workers[engine])


@dataclass(frozen=True, slots=True)
class _SegmentPart:
    """A part of an index segment, and the dataset version that it covers."""

    ref: DatasetRef
    segment: Segment


class SparkWorkers:
    """Runs tasks on executors; a large index segment is built in parts."""

    def __init__(self, session: GraphSession, branch: str, start: Callable[[], Runner]) -> None:
        self._session = session
        self._branch = branch
        self._access = graph_access(session.kernel.store.root.uri, new_ulid())
        self._start = start
        self._runner: Runner | None = None
        self._lock = threading.Lock()

    def start(self) -> Runner:
        """Return the executors; types are optimized concurrently, and the first one starts them."""
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

    def index(self, dataset: Dataset, segments: Sequence[Segment]) -> list[Built]:
        # Parts with the same IVF centroids can be merged into one segment.
        parts = [_split_segment(dataset, index_build.with_centres(dataset, segment)) for segment in segments]
        flat = [_SegmentPart(dataset.ref, part) for parts_of_segment in parts for part in parts_of_segment]
        if not flat:
            return []
        self._finish_links()
        built = iter(self.start().run("indexing", partial(build_segment_part, self._access), flat))
        by_segment = [[next(built) for _ in segment_parts] for segment_parts in parts]
        return [index_build.merge_segments(dataset, built_parts) for built_parts in by_segment]

    def _finish_links(self) -> None:
        # Tasks open versions by path, so links of recent commits must be finished first.
        self._session.kernel.finish_links(self._session.kernel.snapshot(self._branch))


class AutoWorkers:
    """Runs small tasks in this process, which takes less time than starting Spark, and large ones on Spark."""

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
            # Spark was not requested, and this process can do it too, only slower.
            return self._here
        return self._spread


def _split_segment(dataset: Dataset, segment: Segment) -> list[Segment]:
    """Split a segment into parts of whole fragments that tasks build in parallel."""
    rows = {fragment.id: fragment.num_rows for fragment in dataset.fragments}
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
    """Execute one compaction task; files of a failed attempt stay unreferenced."""
    return compaction.execute(access.open(ref), task)


def build_segment_part(access: GraphAccess, part: _SegmentPart) -> Built:
    """Build a part of a segment on the version of the driver; parts of different versions cannot be merged."""
    return index_build.build_segment(access.store().open(part.ref), part.segment)
