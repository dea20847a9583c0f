"""An input that is staged: what a load asks of it, whether its rows are in memory or in files of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from omnigraph.engine.load.job import RowJob
from omnigraph.engine.load.kept_rows import RowOutcome
from omnigraph.engine.load.line_numbers import LineNumbers
from omnigraph.engine.session import View
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.plan import Effect
from omnigraph.rules.delta import Changes, Committed, Violation


class StagedInput(Protocol):
    """The rows of an input that are loaded, and what is wrong with the others. All lines are global."""

    @property
    def job(self) -> RowJob: ...

    @property
    def lines(self) -> LineNumbers: ...

    @property
    def counts(self) -> Mapping[TypeKey, int]:
        """The number of entities of each type, also of those that the caller named and the input has no row of."""
        ...

    @property
    def outcome(self) -> RowOutcome:
        """What was found in the rows, what a quarantine has left out so far, and the vectors that were made."""
        ...

    def reject(self, violations: Mapping[int, Violation]) -> None:
        """Leave out some lines, for the violations that name them."""
        ...

    def compare(self, view: View, violations_max: int) -> None:
        """Compare the input with what is committed; what follows is about this view."""
        ...

    def rule_input(self, rule: str) -> tuple[Changes, Committed] | None:
        """Return the rows that may break a set rule, and the committed ones that it sees; None if no row may."""
        ...

    def lines_of_source(self, table_key: TypeKey, source: str) -> list[int]:
        """Return the lines of all edges of a source."""
        ...

    def effects(self) -> tuple[Effect, ...]:
        """Return the staged changes of each type."""
        ...

    def publishing(self) -> AbstractContextManager[None]:
        """Hold while a commit may name the staged files."""
        ...
