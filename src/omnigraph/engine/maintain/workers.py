"""Workers: who executes the tasks of an optimize, and the chain of staged changes that they work on.

The seam for executors. Workers write files that nothing names; all planning and publishing stays with `optimize`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from omnigraph.manifest.plan import Effect
from omnigraph.store import compact, index
from omnigraph.store.change import Change
from omnigraph.store.compact import Rewritten, Task
from omnigraph.store.dataset import Dataset
from omnigraph.store.index import Built, Segment
from omnigraph.store.store import Staged


class Chain:
    """Changes of one dataset, each staged on top of the one before; none of them is visible."""

    def __init__(self, base: Dataset) -> None:
        self.base = base
        self.changes: list[Change] = []
        self.staged: Staged | None = None

    @property
    def dataset(self) -> Dataset:
        return self.staged.dataset if self.staged else self.base

    def add(self, change: Change | None) -> None:
        if change is not None:
            self.staged = self.base.store.commit(self.base, [change], {}, self.staged)
            self.changes.append(change)

    def effect(self, table_key: str) -> Effect | None:
        return Effect(table_key, self.base, (), self.staged) if self.staged else None


class Workers(Protocol):
    """Whoever executes tasks; one result for each, in their order."""

    def compact(self, dataset: Dataset, tasks: Sequence[Task]) -> list[Rewritten]:
        """Execute the tasks of a compaction of a published version."""
        ...

    def index(self, chain: Chain, wanted: Sequence[Segment]) -> list[Built]:
        """Build segments over the newest state of a chain."""
        ...


class ThisProcess:
    """Executes one task after the other; Lance itself uses all cores for each."""

    def compact(self, dataset: Dataset, tasks: Sequence[Task]) -> list[Rewritten]:
        return [compact.execute(dataset, task) for task in tasks]

    def index(self, chain: Chain, wanted: Sequence[Segment]) -> list[Built]:
        return [index.build_segment(chain.dataset, one) for one in wanted]
