"""One load under its intent: stage everything, judge it, publish once, and leave nothing behind.

What a killed driver leaves is named by the intent, and removed by the next sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.embed.cache import compact_caches
from omnigraph.engine.embed.fetch import EmbedCounts, sum_counts
from omnigraph.engine.session import Core, View
from omnigraph.engine.tasks import Runner
from omnigraph.engine.write.committed_rows import CommittedRows
from omnigraph.engine.write.write_authorization import rights, unheard
from omnigraph.errors import DataError, Effect, JobExists, OmniGraphError, PipelineError, ReadSetChanged
from omnigraph.ids import OperationId
from omnigraph.limits import LOAD_ROUNDS_MAX, VIOLATIONS_MAX
from omnigraph.manifest import plan
from omnigraph.manifest.commit_attempt import is_kept_up
from omnigraph.manifest.intents import declared
from omnigraph.manifest.model import Commit, Snapshot
from omnigraph.manifest.plan import Plan
from omnigraph.manifest.requirements import SchemaIs
from omnigraph.pipeline.bulk_load.job import Job, place_of
from omnigraph.pipeline.bulk_load.key_files import Slice
from omnigraph.pipeline.bulk_load.key_hashes import hash_column
from omnigraph.pipeline.bulk_load.matching import MarkTask, mark_fragment
from omnigraph.pipeline.bulk_load.report import RejectedLine, write_rejected
from omnigraph.pipeline.bulk_load.set_checks import SetCheck
from omnigraph.pipeline.bulk_load.splits import Columns, Split, plan_columns
from omnigraph.pipeline.bulk_load.stage_split import StagedSplit, StageTask, Wanted, plan_embedding
from omnigraph.pipeline.bulk_load.staged_input import StagedInput
from omnigraph.rules.delta import Intent
from omnigraph.rules.violations import Findings, Violation
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.write import fragments

INTENTS: Final = {"append": Intent.INSERT, "merge": Intent.UPSERT, "overwrite": Intent.REPLACE}


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller wants of a load. With a `folder` for rejected lines they are left out, up to `errors_max`."""

    mode: str
    branch: str
    job_id: str
    digest: str
    actor: str | None
    errors_max: int
    folder: Path | None
    properties: Mapping[str, str] = field(default_factory=dict)
    embed: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be loaded: splits and DataFrames that may hold entities of some types.

    Those of the types that were `named` are touched even if there is nothing of them.
    """

    splits: Sequence[Split]
    frames: Mapping[str, Columns]
    table_keys: Sequence[str]
    named: Sequence[str]


@dataclass(frozen=True, slots=True)
class Done:
    """What a load published; without a commit when there was nothing to publish."""

    commit: Commit | None
    counts: Mapping[str, int]
    rejected: Sequence[RejectedLine]
    embedded: Mapping[str, EmbedCounts] = field(default_factory=dict)


class AlreadyApplied(JobExists):
    """The same job was applied by another process while this one was running, as `commit`."""

    commit: Commit


def find_applied(commits: Iterable[Commit], job_id: str, digest: str) -> Commit | None:
    """Return the commit by which a load was done before; refuse another load under its name."""
    applied = next((one for one in commits if one.kind == "load" and one.properties.get("job_id") == job_id), None)
    if applied is not None and applied.properties.get("input_digest") != digest:
        raise JobExists(
            f"commit {applied.commit_id} loaded other input, or in another mode, as job `{job_id}`; give this load a"
            " job id of its own",
            job_id=job_id,
            commit_id=applied.commit_id,
        )
    return applied


class Loading:
    """The work of one load."""

    def __init__(self, core: Core, view: View, runner: Runner, options: Options) -> None:
        self.core = core
        self.view = view
        self.runner = runner
        self.options = options
        self.input: StagedInput
        self.checked: SetCheck
        self.job: Job

    def run(self, work: Work) -> Done:
        """Do the work."""
        self.core.kernel.refuse_read_only()
        with declared(self.core.kernel.store, "load", self.view.snapshot, self.options.actor) as held:
            self.job = self.plan_job(held.operation_id, work.table_keys)
            held.staging(*self.job.claims)

            def stage() -> None:
                splits = [*work.splits, *self._frame_splits(work.frames)]
                tasks = [StageTask(split) for split in splits]
                self.input = StagedInput(self.job, self.runner, tasks, work.named)
                self.input.stage()

            done = self._settle(stage, may_be_empty=True)
            if self.job.embed is not None:
                compact_caches(self.core.kernel.store, self.job.embed.spaces)
            return done

    def publish(self, job: Job, named: Sequence[str], staged: Sequence[tuple[StageTask, StagedSplit]]) -> Done:
        """Judge and publish what tasks have staged for a planned job; the caller keeps its intent fresh."""
        self.job = job
        tasks, results = [task for task, _ in staged], [result for _, result in staged]

        def gather() -> None:
            self.input = StagedInput(job, self.runner, tasks, named, results)
            self._refuse_swept()
            self.input.gather()

        return self._settle(gather)

    def _settle(self, stage: Callable[[], None], *, may_be_empty: bool = False) -> Done:
        """Judge what was staged and publish it; with `may_be_empty`, nothing staged is no commit.

        A batch of a stream is committed even if it is empty, because the commit holds how far the stream has come.
        """
        keep: set[str] = set()
        commit: Commit | None = None
        try:
            stage()
            self._drop_superseded()
            # From here on, whatever interrupts us may come after the publish, which names these files.
            keep = self._files()
            if not (may_be_empty and self._is_nothing()):
                receipt = self.core.kernel.commit(self.options.branch, self._prepare)
                assert receipt is not None
                commit = receipt.commit
                assert commit is not None
                # To leave wrong entities out, some may have been staged again.
                keep = self._files()
        except OmniGraphError as error:
            keep = set() if error.effect is Effect.NONE else keep | self._files()
            raise
        except BaseException:
            if keep:
                keep |= self._files()
            raise
        finally:
            self.clean(keep)
        counts = {key: sum(self._rows(key)) for key in self.input.types}
        return Done(commit, counts, self._rejected_lines(), sum_counts(one.embedded for one in self.input.results))

    def _is_nothing(self) -> bool:
        """Whether there are no entities, and no type that is emptied by them."""
        if self.options.mode == "overwrite" and self.input.types:
            return False
        # What was refused is for the checks to tell.
        return not any(
            result.refused or result.broken or result.rejected or any(one.rows for one in result.types.values())
            for result in self.input.results
        )

    def _refuse_swept(self) -> None:
        """Refuse to publish files that a sweep took for a dead writer's."""
        objects = self.core.kernel.store.objects
        there = {one.path for ref in self.job.targets.values() for one in objects.list(f"{ref.directory}/data")}
        gone = [path for path in self._files() if not path.endswith("/") and path not in there]
        if gone:
            raise PipelineError(f"{len(gone)} staged files are gone, such as `{gone[0]}`; nothing was written, retry")

    def plan_job(self, operation_id: str, table_keys: Sequence[str]) -> Job:
        """Return what tasks have to know: where files will lie before any is written."""
        kernel, snapshot = self.core.kernel, self.view.snapshot
        kernel.finish_links(snapshot)
        refs = kernel.store.in_parallel([partial(self._target, key) for key in table_keys])
        targets = dict(zip(table_keys, refs, strict=True))
        is_rejecting = self.options.folder is not None
        return Job(
            place_of(kernel.store.root.uri, operation_id),
            operation_id,
            fragments.side_folder(next(iter(targets.values())), operation_id),
            rights(self.core, snapshot).seen.snapshot.state.schema.ir,
            snapshot.state.schema.ir_hash,
            snapshot.version,
            INTENTS[self.options.mode],
            "line",
            targets,
            self.options.errors_max + 1 if is_rejecting else VIOLATIONS_MAX,
            is_rejecting,
            plan_embedding(self.view, operation_id, self.runner) if self.options.embed else None,
        )

    def _frame_splits(self, frames: Mapping[str, Columns]) -> list[Split]:
        if not frames:
            return []
        # Only whoever has a DataFrame has Spark.
        from omnigraph.pipeline.bulk_load.splits import put_down

        files = {key: put_down(columns.data, self.job) for key, columns in frames.items()}
        return [split for key, paths in files.items() for split in plan_columns(key, replace(frames[key], data=paths))]

    def _target(self, table_key: str) -> DatasetRef:
        pin, owner = self.view.snapshot.state.pins[table_key], self.view.snapshot.state.branch_id
        if pin.owner == owner:
            return pin.ref
        return self.core.kernel.writable(self.view.snapshot, table_key).ref

    # -- judging -----------------------------------------------------------------------------------------------

    def _drop_superseded(self) -> None:
        """Where the last one of an id wins, stage splits anew without the earlier ones."""
        dropped: dict[int, dict[str, tuple[Slice, ...]]] = {}
        for part in self.input.find_superseded() if self.job.intent is Intent.UPSERT else ():
            for key, one in part.items():
                for split, (start, stop) in one.splits.items():
                    own = dropped.setdefault(split, {})
                    own[key] = (*own.get(key, ()), Slice(one.path, start, stop))
        if dropped:
            tasks = self.input.tasks
            self.input.stage_again({split: replace(tasks[split], dropped=own) for split, own in dropped.items()})

    def _judge(self, view: View) -> None:
        """Refuse an input in which something is wrong, or reject what is wrong in it."""
        if self.job.is_rejecting:
            self._reject_wrong(view)
            return
        refused = Findings(unit=self.job.unit)
        for violation in sorted(self._refused(), key=lambda one: one.line or 0):
            refused.add(violation)
        self._raise(refused)
        findings = Findings(unit=self.job.unit)
        for violation in self._broken():
            findings.add(violation)
        self._check(view, VIOLATIONS_MAX, findings)
        self._raise(findings)

    def _check(self, view: View, limit: int, findings: Findings) -> None:
        self.checked = SetCheck(self.input, CommittedRows(view), limit)
        self.checked.run(findings)

    def _refused(self) -> Iterable[Violation]:
        for split, result in enumerate(self.input.results):
            yield from (self.input.through(split, one) for one in result.refused)

    def _broken(self) -> list[Violation]:
        """Return broken row rules in the order in which every write tells them: by rule, type and line."""
        found = [
            (place, self.input.through(split, one))
            for split, result in enumerate(self.input.results)
            for place, one in result.broken
        ]
        found.sort(key=lambda one: (one[0], one[1].type_key or "", one[1].line or 0))
        return [one for _, one in found]

    def _raise(self, findings: Findings) -> None:
        """Raise what was found, each with its file where there are several."""
        try:
            findings.raise_if_any()
        except OmniGraphError as error:
            files = {task.split.file for task in self.input.tasks}
            violations = error.context["violations"]
            assert isinstance(violations, list)
            for one in violations if len(files) > 1 else ():
                if one.get("line") is not None:
                    one["file"], one["line"] = self.input.file_line(one["line"])
            first = violations[0]
            if "file" in first:
                error.message = f"`{first['file']}` line {first['line']}: {error.message.partition(': ')[2]}"
                error.args = (error.message,)
                error.context |= {"file": first["file"], "line": first["line"]}
            raise

    def _reject_wrong(self, view: View) -> None:
        """Reject what breaks set rules, until the rest breaks none."""
        for _ in range(LOAD_ROUNDS_MAX):
            self._refuse_too_many()
            findings = Findings(self.options.errors_max + 1, unit=self.job.unit)
            self._check(view, self.options.errors_max + 1, findings)
            if not findings.violations:
                return
            if any(one.line is None for one in findings.violations):
                # What breaks a rule without a line of the input cannot be left out of it.
                self._raise(findings)
            self._reject(findings.violations)
        raise DataError(
            f"after {LOAD_ROUNDS_MAX} rounds of rejecting entities others still break rules; correct the input",
            rule=findings.violations[0].rule,
        )

    def _reject(self, violations: Sequence[Violation]) -> None:
        known: dict[int, dict[int, Violation]] = {}
        for violation in violations:
            for line in self._lines_of(violation):
                split, own = self.input.split_of(line)
                known.setdefault(split, {}).setdefault(own, replace(violation, line=own))
        tasks = self.input.tasks
        again = {split: replace(tasks[split], known={**tasks[split].known, **new}) for split, new in known.items()}
        self.input.stage_again(again)

    def _lines_of(self, violation: Violation) -> list[int]:
        """Return the lines to leave out because of a violation: of a source with a wrong degree, all its edges."""
        assert violation.line is not None
        if violation.rule != "E10" or violation.type_key is None or violation.value is None:
            return [violation.line]
        source = hash_column(pa.array([violation.value]), self.input.job.operation_id)
        _, rows = self.checked.entries(violation.type_key, "src", source)
        # Those of one split come with the first of them; more than may be rejected need not be known.
        wanted = Wanted(np.sort(rows), ("id",), {"src": source}, self.options.errors_max + 1)
        _, lines = self.input.fetch({violation.type_key: wanted})[violation.type_key]
        return [int(line) for line in lines]

    def _refuse_too_many(self) -> None:
        rejected = self._rejected_lines()
        assert self.options.folder is not None
        write_rejected(self.options.folder, rejected[: self.options.errors_max])
        if len(rejected) > self.options.errors_max:
            first = rejected[0]
            raise DataError(
                f"more than {self.options.errors_max} entities are wrong, so nothing was loaded; the first is in"
                f" `{first.file}`, line {first.line}: {first.violation.message}. All that were found are in"
                f" `{self.options.folder}`; correct them, or allow more with `max_errors`",
                rule=first.violation.rule,
                line=first.line,
                rejected=len(rejected),
            )

    def _rejected_lines(self) -> list[RejectedLine]:
        return [
            RejectedLine(*self.input.file_line(one.violation.line or 1), one.violation, one.text)
            for one in self.input.rejected
        ]

    # -- publishing --------------------------------------------------------------------------------------------

    def _prepare(self, snapshot: Snapshot) -> Plan:
        schema = SchemaIs(self.job.schema_hash)
        schema.check(snapshot)
        applied = find_applied(snapshot.state.commits, self.options.job_id, self.options.digest)
        if applied is not None:
            error = AlreadyApplied(
                f"job `{self.options.job_id}` was applied meanwhile as commit {applied.commit_id}; nothing was written"
                " twice",
                job_id=self.options.job_id,
                commit_id=applied.commit_id,
            )
            error.commit = applied
            raise error
        self.core.kernel.finish_links(snapshot)
        may = rights(self.core, snapshot)
        may.check(key.partition(":")[2] for key in self.input.types)
        with unheard(may.hidden, self.core.actor):
            self._judge(self.core.whole_of(snapshot))
        effects = [self._effect(snapshot, key) for key in self.input.types]
        properties = {"mode": self.options.mode, "job_id": self.options.job_id, "input_digest": self.options.digest}
        return Plan(
            "load",
            tuple(effect for effect in effects if effect is not None),
            requirements=(schema,),
            actor=self.options.actor,
            properties=properties | dict(self.options.properties),
            operation_id=OperationId(self.job.operation_id),
        )

    def _effect(self, snapshot: Snapshot, table_key: str) -> plan.Effect | None:
        dataset = self.core.kernel.writable(snapshot, table_key)
        if dataset.ref.directory != self.job.targets[table_key].directory:
            raise ReadSetChanged(
                f"`{table_key}` was moved to `{dataset.ref.directory}` while rows were staged elsewhere; nothing was"
                " written, run it again",
                member=table_key,
            )
        if self.job.intent is Intent.REPLACE:
            self._require_unchanged(snapshot, dataset, table_key)
        staged = [
            text
            for result in self.input.results
            if table_key in result.types
            for text in result.types[table_key].fragments
        ]
        if self.job.intent is Intent.REPLACE:
            return plan.Effect(table_key, dataset, (fragments.replaced(dataset, staged),))
        if not staged:
            return None
        if self.job.intent is Intent.INSERT:
            return plan.Effect(table_key, dataset, (fragments.appended(dataset, staged),))
        marked = self._mark(dataset, table_key)
        return plan.Effect(table_key, dataset, (fragments.upserted(dataset, staged, marked),))

    def _require_unchanged(self, snapshot: Snapshot, dataset: Dataset, table_key: str) -> None:
        """Refuse to replace entities that came after the load had begun; upkeep brings none."""
        base = self.job.base_version
        if base is None or dataset.ref == self.job.targets[table_key] or is_kept_up(base, snapshot):
            return
        raise ReadSetChanged(
            f"`{table_key}` was changed on branch `{snapshot.branch}` while its replacement was being read; nothing was"
            " written. Run it again to replace what is there now",
            member=table_key,
            expected=self.job.targets[table_key].version,
            actual=dataset.ref.version,
        )

    def _mark(self, dataset: Dataset, table_key: str) -> list[fragments.Marked]:
        """Mark the committed rows that staged ones replace, one task for each fragment that has some."""
        tasks = [MarkTask(dataset.ref, one, hits) for one, hits in sorted(self.checked.hits(table_key).items())]
        return self.runner.run(f"marking {table_key.partition(':')[2]}", partial(mark_fragment, self.job.place), tasks)

    # -- files -------------------------------------------------------------------------------------------------

    def _rows(self, table_key: str) -> list[int]:
        return [result.types[table_key].rows for result in self.input.results if table_key in result.types]

    def _files(self) -> set[str]:
        """Return the files that the staged fragments consist of."""
        found: set[str] = set()
        for result in self.input.results:
            for key, part in result.types.items():
                found |= fragments.staged_files(self.core.kernel.store.open(self.job.targets[key]), part.fragments)
        return found

    def clean(self, keep: set[str]) -> None:
        """Remove what attempts that did not count left behind, and all files but data."""
        store = self.core.kernel.store
        fragments.remove_staged(store, self.job.targets.values(), self.job.operation_id, keep)
        store.objects.discard_prefix(self.job.side)
