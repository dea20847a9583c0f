"""An input that tasks have staged: data fragments, and the hashes of keys by bucket.

The driver holds neither rows nor hashes, only where they are, and fetches the few rows that may break a rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.engine.embed.cache import add_retry_counts, sum_counts
from omnigraph.engine.key_buckets.files import FileSlice, KeySegment, mark_replaced
from omnigraph.engine.key_buckets.hashes import Candidates, hash_column
from omnigraph.engine.load.job import Job, LoadOptions, Replaced
from omnigraph.engine.load.kept_rows import EmbedJob, RowOutcome
from omnigraph.engine.load.key_matcher import KeyMatcher
from omnigraph.engine.load.line_numbers import LineNumbers
from omnigraph.engine.load.plan_input import LoadPlan
from omnigraph.engine.load.set_checks import SetCheck
from omnigraph.engine.load.stage_split import (
    FetchTask,
    RowRequest,
    StagedSplit,
    StagedType,
    StageTask,
    fetch_rows,
    stage_split,
)
from omnigraph.engine.session import GraphSession, View
from omnigraph.engine.tasks import Runner, graph_access
from omnigraph.engine.write.committed_rows import CommittedRows
from omnigraph.errors import Effect, OmniGraphError, PipelineError, ReadSetChanged
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.manifest import plan
from omnigraph.rules.arrow_typing import Numbers
from omnigraph.rules.delta import Changes, Committed, Intent, Violation
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.store import Store
from omnigraph.store.write import fragments

# Rows of each type with their global line numbers.
FetchedRows: TypeAlias = Mapping[TypeKey, tuple[pa.Table, Numbers]]


@dataclass(frozen=True, slots=True)
class StagedRows:
    """All staged rows of one type, numbered across splits; `bounds` has the number of each split's first row."""

    type: Type
    bounds: Numbers
    parts: Sequence[StagedType | None]

    @property
    def segments(self) -> list[KeySegment]:
        return [
            replace(segment, first=segment.first + first) for first, part in self._parts() for segment in part.segments
        ]

    def duplicates(self, name: str) -> list[Candidates]:
        """Return the rows that repeat a key within their segment."""
        return [
            rows.shift(first) for first, part in self._parts() for key_name, rows in part.duplicates if key_name == name
        ]

    def incomparable(self, name: str) -> list[Numbers]:
        """Return the rows whose values the uniqueness rule refuses to compare."""
        return [
            rows + first for first, part in self._parts() for key_name, rows in part.incomparable if key_name == name
        ]

    def by_split(self, rows: Numbers) -> list[tuple[int, Numbers]]:
        """Group rows by split, as numbers within the split."""
        splits = np.searchsorted(self.bounds, rows, side="right") - 1
        return [(int(split), rows[splits == split] - self.bounds[split]) for split in np.unique(splits)]

    def _parts(self) -> Iterator[tuple[int, StagedType]]:
        return ((int(first), part) for first, part in zip(self.bounds, self.parts, strict=True) if part)


@dataclass
class InBuckets:
    """A `StagedInput` of files. A split that holds wrong or superseded rows is staged again without them."""

    job: Job
    runner: Runner
    store: Store
    # Types that the caller named; they count as loaded even if the input has no row of them.
    named: Sequence[TypeKey] = ()
    tasks: list[StageTask] = field(default_factory=list)
    results: list[StagedSplit] = field(default_factory=list)
    types: Mapping[TypeKey, StagedRows] = field(default_factory=dict)
    # Paths that a commit names, or may name.
    _published: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.keys = KeyMatcher(self)

    def stage(self, tasks: list[StageTask]) -> None:
        """Run a task for each split."""
        self.tasks = [replace(task, superseded=None) for task in tasks] if self.job.is_rejecting else tasks
        self.results = self._run("reading", self.tasks)
        self.number_rows()
        self.drop_superseded()

    def take_over(self, staged: Sequence[tuple[StageTask, StagedSplit]]) -> None:
        """Use what tasks have staged elsewhere."""
        self.tasks = [task for task, _ in staged]
        self.results = [result for _, result in staged]
        self._require_staged_files()
        self.number_rows()
        self.drop_superseded()

    def reject(self, violations: Mapping[int, Violation]) -> None:
        by_split: dict[int, dict[int, Violation]] = {}
        for line, violation in violations.items():
            split, split_line = self.lines.in_split(line)
            by_split.setdefault(split, {})[split_line] = replace(violation, line=split_line)
        self._stage_again(
            {
                split: replace(self.tasks[split], violations={**self.tasks[split].violations, **new})
                for split, new in by_split.items()
            }
        )

    def drop_superseded(self) -> None:
        """Where one row of an id wins, stage splits again without the others, and without rows that are invalid."""
        by_split: dict[int, dict[TypeKey, tuple[FileSlice, ...]]] = {
            split: {}
            for split, result in enumerate(self.results)
            if self.job.is_rejecting and any(self._has_winners(item.type_key) for _, item in result.row_violations)
        }
        for part in self.keys.find_superseded():
            for key, superseded in part.items():
                for split, rows in superseded.items():
                    slices = by_split.setdefault(split, {})
                    slices[key] = (*slices.get(key, ()), rows)
        self.tasks = [replace(task, superseded={}) for task in self.tasks]
        if by_split:
            self._stage_again({split: replace(self.tasks[split], superseded=rows) for split, rows in by_split.items()})

    def _has_winners(self, table_key: TypeKey | None) -> bool:
        return table_key is not None and self.job.winner(self.job.catalog.type_of(table_key)) != "error"

    def _stage_again(self, changed: Mapping[int, StageTask]) -> None:
        """Stage some splits again; files of their first attempt are removed by the cleanup of the load."""
        for split, result in zip(changed, self._run("reading again", list(changed.values())), strict=True):
            result.embedded = add_retry_counts(self.results[split].embedded, result.embedded)
            self.tasks[split] = changed[split]
            self.results[split] = result
        self.number_rows()

    def _run(self, stage: str, tasks: list[StageTask]) -> list[StagedSplit]:
        return self.runner.run(stage, partial(stage_split, self.job), tasks, [task.split.size for task in tasks])

    def number_rows(self) -> None:
        """Number the rows of each type across all splits."""
        types: dict[TypeKey, StagedRows] = {}
        for key in sorted({*self.named, *(key for result in self.results for key in result.types)}):
            parts = [result.types.get(key) for result in self.results]
            counts = [part.rows if part else 0 for part in parts]
            bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            types[key] = StagedRows(self.job.catalog.type_of(key), bounds[:-1], parts)
        self.types = types

    # -- what was found in the rows ----------------------------------------------------------------------------

    @property
    def lines(self) -> LineNumbers:
        return LineNumbers([task.split for task in self.tasks], [result.lines for result in self.results])

    @property
    def counts(self) -> dict[TypeKey, int]:
        return {key: sum(part.rows for part in rows.parts if part) for key, rows in self.types.items()}

    @property
    def outcome(self) -> RowOutcome:
        outcome = RowOutcome(embedded=sum_counts(result.embedded for result in self.results))
        globalize = self.lines.globalize
        for split, result in enumerate(self.results):
            outcome.lines += result.lines
            outcome.malformed += [globalize(split, violation) for violation in result.malformed]
            outcome.row_violations += [(rule, globalize(split, violation)) for rule, violation in result.row_violations]
            outcome.rejected += [
                replace(entity, violation=globalize(split, entity.violation)) for entity in result.rejected
            ]
        return outcome

    # -- set rules ---------------------------------------------------------------------------------------------

    def compare(self, view: View, violations_max: int) -> None:
        self._check = SetCheck(self, self.keys, CommittedRows(view), violations_max)
        self._check.find_candidates()

    def rule_input(self, rule: str) -> tuple[Changes, Committed] | None:
        return self._check.rule_input(rule)

    def lines_of_source(self, table_key: TypeKey, source: str) -> list[int]:
        hashes = hash_column(pa.array([source]), self.job.operation_id)
        _, rows = self._check.look_up(table_key, "src", hashes)
        # A segment has each source once; `where` adds its other edges in the split, up to what may be rejected.
        request = RowRequest(np.sort(rows), ("id",), {"src": hashes}, self.job.options.errors_max + 1)
        _, lines = self.fetch({table_key: request})[table_key]
        return [int(line) for line in lines]

    def fetch(self, requests: Mapping[TypeKey, RowRequest]) -> FetchedRows:
        """Read the requested rows again, in order, with their global line numbers."""
        by_split: dict[int, dict[TypeKey, RowRequest]] = {}
        for key, request in requests.items():
            for split, rows in self.types[key].by_split(request.rows):
                by_split.setdefault(split, {})[key] = replace(request, rows=rows)
        fetches = [FetchTask(self.tasks[split], split_requests) for split, split_requests in sorted(by_split.items())]
        answers = self.runner.run("reading again", partial(fetch_rows, self.job), fetches)
        fetched: dict[TypeKey, list[tuple[pa.Table, Numbers]]] = {}
        line_numbers = self.lines
        for split, answer in zip(sorted(by_split), answers, strict=True):
            for key, (stream, lines) in answer.items():
                table = pa.ipc.open_stream(stream).read_all()
                fetched.setdefault(key, []).append((table, lines + line_numbers.offset(split)))
        return {
            key: (pa.concat_tables([table for table, _ in parts]), np.concatenate([lines for _, lines in parts]))
            for key, parts in fetched.items()
        }

    # -- effects and files -------------------------------------------------------------------------------------

    def effects(self) -> tuple[plan.Effect, ...]:
        view = self._check.committed.view
        effects = [self._effect(view, key) for key in self.types]
        return tuple(effect for effect in effects if effect is not None)

    def _effect(self, view: View, table_key: TypeKey) -> plan.Effect | None:
        dataset = view.kernel.writable(view.snapshot, table_key)
        if dataset.ref.directory != self.job.targets[table_key].directory:
            raise ReadSetChanged(
                f"`{table_key}` was moved to `{dataset.ref.directory}` while rows were staged elsewhere; nothing was"
                " written, retry",
                member=table_key,
            )
        staged = [text for part in self.types[table_key].parts if part for text in part.fragments]
        if self.job.intent is Intent.REPLACE:
            return plan.Effect(table_key, dataset, (fragments.replaced(dataset, staged),))
        if not staged:
            return None
        if self.job.intent is Intent.INSERT:
            return plan.Effect(table_key, dataset, (fragments.appended(dataset, staged),))
        replaced = [(dataset.ref, part[table_key].addresses) for part in self._check.replaced if table_key in part]
        stage = f"marking {table_key.name}"
        marked = mark_replaced(self.runner, self.job.access, stage, replaced).get(dataset.ref, [])
        return plan.Effect(table_key, dataset, (fragments.upserted(dataset, staged, marked),))

    @contextmanager
    def cleaning_up(self) -> Iterator[None]:
        """Remove temporary files at the end, and staged data unless it is, or may have been, published."""
        try:
            yield
        except OmniGraphError as error:
            self._published = set() if error.effect is Effect.NONE else self._published | self.staged_files()
            raise
        except BaseException:
            if self._published:
                self._published |= self.staged_files()
            raise
        finally:
            # Also those of failed attempts.
            fragments.remove_staged(self.store, self.job.targets.values(), self.job.operation_id, self._published)
            self.store.objects.discard_prefix(self.job.scratch)

    @contextmanager
    def publishing(self) -> Iterator[None]:
        # An interrupt from here on may come after the publish, which names these files.
        self._published = self.staged_files()
        yield
        # Splits with rejected entities were staged again meanwhile.
        self._published = self.staged_files()

    def _require_staged_files(self) -> None:
        """Refuse to publish if a sweep considered this load dead and removed its files."""
        objects = self.store.objects
        existing = {file.path for ref in self.job.targets.values() for file in objects.list(f"{ref.directory}/data")}
        missing = [path for path in self.staged_files() if not path.endswith("/") and path not in existing]
        if missing:
            raise PipelineError(
                f"{len(missing)} staged files are gone, such as `{missing[0]}`; nothing was written, retry"
            )

    def staged_files(self) -> set[str]:
        files: set[str] = set()
        for result in self.results:
            for key, part in result.types.items():
                files |= fragments.staged_files(self.store.open(self.job.targets[key]), part.fragments)
        return files


def plan_job(
    session: GraphSession,
    view: View,
    options: LoadOptions,
    plan: LoadPlan,
    operation_id: str,
    embed: EmbedJob | None = None,
) -> Job:
    """Decide where files will be written, before any task runs."""
    kernel, snapshot = session.kernel, view.snapshot
    kernel.finish_links(snapshot)
    refs = kernel.store.in_parallel([partial(_target, view, key) for key in plan.table_keys])
    targets = dict(zip(plan.table_keys, refs, strict=True))
    return Job(
        options=options,
        schema=plan.schema,
        unit=plan.unit,
        blob_rules=session.external_blobs,
        embed=embed,
        access=graph_access(kernel.store.root.uri, operation_id),
        scratch=fragments.side_folder(next(iter(targets.values())), operation_id),
        replaced=Replaced.of(snapshot, plan.table_keys),
        targets=targets,
    )


def _target(view: View, table_key: TypeKey) -> DatasetRef:
    pin = view.snapshot.state.pins[table_key]
    is_own = pin.owner == view.snapshot.state.branch_id
    return pin.ref if is_own else view.kernel.writable(view.snapshot, table_key).ref
