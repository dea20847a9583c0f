"""Workers: who executes the tasks of an optimize.

The seam for executors. Workers write files that nothing names; all planning and publishing stays with `optimize`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from omnigraph.store import compact, index
from omnigraph.store.compact import Rewritten, Task
from omnigraph.store.dataset import Dataset
from omnigraph.store.index import Built, Segment


class Workers(Protocol):
    """Whoever executes tasks; one result for each, in their order."""

    def compact(self, dataset: Dataset, tasks: Sequence[Task]) -> list[Rewritten]:
        """Execute the tasks of a compaction of a published version."""
        ...

    def index(self, dataset: Dataset, wanted: Sequence[Segment]) -> list[Built]:
        """Build segments of a version, published or aside."""
        ...


class ThisProcess:
    """Executes one task after the other; Lance itself uses all cores for each."""

    def compact(self, dataset: Dataset, tasks: Sequence[Task]) -> list[Rewritten]:
        return [compact.execute(dataset, task) for task in tasks]

    def index(self, dataset: Dataset, wanted: Sequence[Segment]) -> list[Built]:
        return [index.build_segment(dataset, one) for one in wanted]
