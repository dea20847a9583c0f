"""The transaction of a bulk load: declare an intent, stage, check, publish one commit, and clean up.

The intent names every file that tasks may write, so the next sweep removes what a killed driver leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.engine.embed.cache import EmbedCounts, compact_caches, sum_counts
from omnigraph.engine.input.frame_rows import FrameRows, RowOrigin
from omnigraph.engine.input.frames import frame_name
from omnigraph.engine.input.read_split import first_line
from omnigraph.engine.input.splits import Columns, Split, plan_columns, write_frame
from omnigraph.engine.key_buckets.files import FileSlice, mark_replaced
from omnigraph.engine.key_buckets.hashes import hash_column
from omnigraph.engine.load.job import UNIT, InputSchema, Job, LoadOptions, RejectedLine, write_rejected
from omnigraph.engine.load.set_checks import SetCheck
from omnigraph.engine.load.stage_split import RowRequest, StagedSplit, StageTask, plan_embedding
from omnigraph.engine.load.staged_input import KeyMatcher, StagedInput
from omnigraph.engine.session import GraphSession, View
from omnigraph.engine.tasks import Runner, graph_access
from omnigraph.engine.write.committed_rows import CommittedRows
from omnigraph.engine.write.staging import require_same_types
from omnigraph.engine.write.write_authorization import (
    mask_hidden_type_errors,
    redact_findings,
    redact_violation,
    write_permissions,
)
from omnigraph.errors import DataError, Effect, JobExists, OmniGraphError, PipelineError, ReadSetChanged
from omnigraph.ids import OperationId
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import LOAD_ROUNDS_MAX, VIOLATIONS_MAX
from omnigraph.manifest import plan
from omnigraph.manifest.commit_loop import has_only_upkeep
from omnigraph.manifest.intents import declared
from omnigraph.manifest.model import MAIN_NAMES, Commit, Snapshot
from omnigraph.manifest.plan import Plan
from omnigraph.manifest.requirements import SchemaIs
from omnigraph.rules.delta import Findings, Intent, Violation
from omnigraph.rules.validate import merge_by_line
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.write import fragments

# Properties of the commit that are known when everything is staged, and what is rejected.
LateProperties = Callable[[Sequence[RejectedLine]], Mapping[str, str]]


def no_late_properties(rejected: Sequence[RejectedLine]) -> Mapping[str, str]:
    """Return no further properties, whatever is rejected."""
    return {}


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The input of a load: splits of files, and DataFrames by type.

    `table_keys` are the types that it may hold. Types that the caller `named` are loaded even if it has no row of them.
    """

    splits: Sequence[Split]
    frames: Mapping[TypeKey, Columns]
    table_keys: Sequence[TypeKey]
    named: Sequence[TypeKey]
    schema: InputSchema


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """What a load published; no commit if there was nothing to publish."""

    commit: Commit | None
    counts: Mapping[TypeKey, int]
    rejected: Sequence[RejectedLine]
    embedded: Mapping[str, EmbedCounts] = field(default_factory=dict)


class AlreadyApplied(JobExists):
    """Another process applied the same job, as `commit`, while this one was running."""

    commit: Commit


def find_applied(session: GraphSession, commits: Iterable[Commit], options: LoadOptions) -> Commit | None:
    """Return the commit that applied a job before; raise `JobExists` if it loaded other input.

    Comparing digests would let an actor confirm a guess of the input. So the job of another actor is only compared for
    actors who may read all types where it was applied; for others the job id counts as used for any input.
    """
    job_id = options.job_id
    loads = (commit for commit in commits if commit.kind == "load")
    applied = next((commit for commit in loads if commit.properties.get("job_id") == job_id), None)
    if applied is None:
        return None
    is_comparable = applied.actor == session.actor or session.reads_all_types(MAIN_NAMES, session.names_of(applied))
    if not is_comparable:
        raise JobExists(
            f"another actor used the job id `{job_id}` on this branch; nothing was written. Use another job id",
            job_id=job_id,
        )
    if applied.properties.get("input_digest") != options.digest:
        raise JobExists(
            f"commit {applied.commit_id} loaded other input, or in another mode, as job `{job_id}`; use another job id",
            job_id=job_id,
            commit_id=applied.commit_id,
        )
    return applied


def require_not_applied(session: GraphSession, commits: Iterable[Commit], options: LoadOptions) -> None:
    """Raise `AlreadyApplied` if one of the commits applied the same job."""
    applied = find_applied(session, commits, options)
    if applied is not None:
        error = AlreadyApplied(
            f"job `{options.job_id}` was applied meanwhile as commit {applied.commit_id}; nothing was written twice",
            job_id=options.job_id,
            commit_id=applied.commit_id,
        )
        error.commit = applied
        raise error


@dataclass
class LoadTransaction:
    """One load of one input on one branch."""

    session: GraphSession
    view: View
    runner: Runner
    options: LoadOptions
    late_properties: LateProperties = no_late_properties
    job: Job = field(init=False)
    input: StagedInput = field(init=False)
    keys: KeyMatcher = field(init=False)
    set_check: SetCheck = field(init=False)
    # Types that the actor may change but not read, on the newest snapshot.
    _unreadable: frozenset[str] = frozenset()
    _rejected: Sequence[RejectedLine] = ()

    def run(self, load_plan: LoadPlan) -> LoadOutcome:
        """Stage, check and publish an input."""
        self.session.kernel.reject_read_only()
        with declared(self.session.kernel.store, "load", self.view.snapshot, self.session.actor) as intent:
            self.job = self.plan_job(intent.operation_id, load_plan.table_keys, load_plan.schema)
            intent.staging(*self.job.claims)
            with self._cleanup():
                splits = [*load_plan.splits, *self._frame_splits(load_plan.frames)]
                self._use_input([StageTask(split) for split in splits], load_plan.named)
                self.input.stage()
                self._drop_superseded()
                commit = None if self._is_empty() else self._commit()
            if self.job.embed is not None:
                compact_caches(self.session.kernel.store, self.job.embed.spaces)
            return self._outcome(commit)

    def publish(
        self, job: Job, named: Sequence[TypeKey], staged: Sequence[tuple[StageTask, StagedSplit]]
    ) -> LoadOutcome:
        """Check and publish what tasks have staged for a planned job; the caller sends the heartbeats of its intent.

        An empty input is committed as well, because the commit of a stream's batch records the stream's progress.
        """
        self.job = job
        with self._cleanup():
            self._use_input([task for task, _ in staged], named)
            self.input.results = [result for _, result in staged]
            self._require_staged_files()
            self.input.number_rows()
            self._drop_superseded()
            commit = self._commit()
        return self._outcome(commit)

    def _use_input(self, tasks: list[StageTask], named: Sequence[TypeKey]) -> None:
        self.input = StagedInput(self.job, self.runner, tasks, named)
        self.keys = KeyMatcher(self.input)

    @contextmanager
    def _cleanup(self) -> Iterator[None]:
        """Remove temporary files at the end, and staged data unless it is, or may have been, published."""
        self._published: set[str] = set()
        try:
            yield
        except OmniGraphError as error:
            self._published = set() if error.effect is Effect.NONE else self._published | self._staged_files()
            raise
        except BaseException:
            if self._published:
                self._published |= self._staged_files()
            raise
        finally:
            self.clean(self._published)

    def _commit(self) -> Commit:
        # An interrupt from here on may come after the publish, which names these files.
        self._published = self._staged_files()
        receipt = self.session.kernel.commit(self.options.branch, self._prepare)
        assert receipt is not None
        assert receipt.commit is not None
        # Splits with rejected entities were staged again meanwhile.
        self._published = self._staged_files()
        return receipt.commit

    def _outcome(self, commit: Commit | None) -> LoadOutcome:
        embedded = sum_counts(result.embedded for result in self.input.results)
        return LoadOutcome(commit, self._counts(), self._rejected, embedded)

    def _counts(self) -> dict[TypeKey, int]:
        results = self.input.results
        return {
            key: sum(result.types[key].rows for result in results if key in result.types) for key in self.input.types
        }

    def _is_empty(self) -> bool:
        """Return True if there is nothing to publish: no entity, no violation, and no type that is emptied."""
        if self.options.commits_empty or (self.options.mode == "overwrite" and self.input.types):
            return False
        return not any(
            result.malformed
            or result.row_violations
            or result.rejected
            or any(staged.rows for staged in result.types.values())
            for result in self.input.results
        )

    def _require_staged_files(self) -> None:
        """Refuse to publish if a sweep considered this load dead and removed its files."""
        objects = self.session.kernel.store.objects
        existing = {file.path for ref in self.job.targets.values() for file in objects.list(f"{ref.directory}/data")}
        missing = [path for path in self._staged_files() if not path.endswith("/") and path not in existing]
        if missing:
            raise PipelineError(
                f"{len(missing)} staged files are gone, such as `{missing[0]}`; nothing was written, retry"
            )

    # -- planning ----------------------------------------------------------------------------------------------

    def plan_job(self, operation_id: str, table_keys: Sequence[TypeKey], schema: InputSchema) -> Job:
        """Decide where files will be written, before any task runs."""
        kernel, snapshot = self.session.kernel, self.view.snapshot
        kernel.finish_links(snapshot)
        refs = kernel.store.in_parallel([partial(self._target, key) for key in table_keys])
        targets = dict(zip(table_keys, refs, strict=True))
        return Job(
            options=self.options,
            access=graph_access(kernel.store.root.uri, operation_id),
            scratch=fragments.side_folder(next(iter(targets.values())), operation_id),
            schema=schema,
            base_version=snapshot.version,
            targets=targets,
            embed=plan_embedding(self.view, operation_id, self.runner) if self.options.embed else None,
        )

    def _target(self, table_key: TypeKey) -> DatasetRef:
        pin, owner = self.view.snapshot.state.pins[table_key], self.view.snapshot.state.branch_id
        if pin.owner == owner:
            return pin.ref
        return self.session.kernel.writable(self.view.snapshot, table_key).ref

    def _frame_splits(self, frames: Mapping[TypeKey, Columns]) -> list[Split]:
        files = {
            key: write_frame(self.runner, columns.data, self.job.access, self.job.scratch, key.name)
            for key, columns in frames.items()
        }
        # Messages name the frame: its files are gone when they are read.
        return [
            replace(split, name=frame_name(key.name))
            for key, paths in files.items()
            for split in plan_columns(key, replace(frames[key], data=paths))
        ]

    # -- checking ----------------------------------------------------------------------------------------------

    def _drop_superseded(self) -> None:
        """Where one row of an id wins, stage splits again without the others."""
        by_split: dict[int, dict[TypeKey, tuple[FileSlice, ...]]] = {}
        for part in self.keys.find_superseded():
            for key, superseded in part.items():
                for split, rows in superseded.items():
                    slices = by_split.setdefault(split, {})
                    slices[key] = (*slices.get(key, ()), rows)
        if by_split:
            tasks = self.input.tasks
            self.input.stage_again(
                {split: replace(tasks[split], superseded=slices) for split, slices in by_split.items()}
            )

    def _validate(self, view: View) -> None:
        """Raise the violations of an input against a view, or reject the entities that cause them."""
        if self.job.is_rejecting:
            self._reject_invalid(view)
            return
        lines, results = self.input.lines, enumerate(self.input.results)
        malformed = [lines.globalize(split, violation) for split, result in results for violation in result.malformed]
        findings = _findings_of(self._row_violations())
        self._check_sets(view, VIOLATIONS_MAX, findings, has_all_rows=not malformed)
        self._raise(_findings_of(merge_by_line(malformed, findings.violations)) if malformed else findings)

    def _check_sets(self, view: View, limit: int, findings: Findings, *, has_all_rows: bool = True) -> None:
        self.set_check = SetCheck(self.input, self.keys, CommittedRows(view), limit, has_all_rows=has_all_rows)
        self.set_check.run(findings)

    def _row_violations(self) -> list[Violation]:
        """Return the violations of row rules in the order of every write: by rule, type and line."""
        lines = self.input.lines
        violations = [
            (rule, lines.globalize(split, violation))
            for split, result in enumerate(self.input.results)
            for rule, violation in result.row_violations
        ]
        violations.sort(key=lambda item: (item[0], item[1].type_key or "", item[1].line or 0))
        return [violation for _, violation in violations]

    def _raise(self, findings: Findings) -> None:
        """Raise the findings, with file names if the input has several files."""
        findings = redact_findings(findings, self._unreadable)
        findings.locate = self.input.lines.locate
        try:
            findings.raise_if_any()
        except OmniGraphError as error:
            self._name_origins(error, findings)
            raise

    def _name_origins(self, error: OmniGraphError, findings: Findings) -> None:
        """Replace the lines of rows that were staged from a frame by where these rows come from."""
        rows = FrameRows()
        origins = [self._find_origin(rows, violation.line) for violation in findings.violations]
        violations = error.context["violations"]
        assert isinstance(violations, list)
        for violation, origin in zip(violations, origins, strict=True):
            if origin is not None:
                violation.pop("file", None)
                violation |= {name: value for name, value in origin.to_json().items() if value is not None}
                violation["line"] = origin.line
        if origins[0] is not None:
            error.message = f"{origins[0]}: {error.message.partition(': ')[2]}"
            error.args = (error.message,)
            error.context.pop("file", None)
            error.context |= origins[0].to_json()

    def _find_origin(self, rows: FrameRows, line: int | None) -> RowOrigin | None:
        """Return where the row of a global line comes from; None if it is a line of a file."""
        if line is None:
            return None
        index, split_line = self.input.lines.in_split(line)
        split = self.input.tasks[index].split
        if split.table_key is None:
            return None
        return rows.find(split, split_line - first_line(split), self.job.catalog.type_of(split.table_key))

    def _reject_invalid(self, view: View) -> None:
        """Reject entities that break set rules until the rest breaks none: removing a node may orphan its edges."""
        for _ in range(LOAD_ROUNDS_MAX):
            self._require_few_rejected()
            findings = Findings(self.options.errors_max + 1, unit=UNIT)
            self._check_sets(view, self.options.errors_max + 1, findings)
            if not findings.violations:
                return
            if any(violation.line is None for violation in findings.violations):
                # A violation without a line is caused by committed rows, and no line can be left out to avoid it.
                self._raise(findings)
            self._reject(findings.violations)
        raise DataError(
            f"entities still break rules after {LOAD_ROUNDS_MAX} rounds of rejecting invalid ones; correct the input",
            rule=findings.violations[0].rule,
        )

    def _reject(self, violations: Sequence[Violation]) -> None:
        by_split: dict[int, dict[int, Violation]] = {}
        for violation in violations:
            redacted = redact_violation(violation, self._unreadable)
            for line in self._lines_of(violation):
                split, split_line = self.input.lines.in_split(line)
                by_split.setdefault(split, {}).setdefault(split_line, replace(redacted, line=split_line))
        tasks = self.input.tasks
        self.input.stage_again(
            {
                split: replace(tasks[split], violations={**tasks[split].violations, **new})
                for split, new in by_split.items()
            }
        )

    def _lines_of(self, violation: Violation) -> list[int]:
        """Return the lines to reject for a violation: all edges of a source that breaks a cardinality (E10)."""
        assert violation.line is not None
        if violation.rule != "E10" or violation.type_key is None or violation.value is None:
            return [violation.line]
        source = hash_column(pa.array([violation.value]), self.job.operation_id)
        _, rows = self.set_check.look_up(violation.type_key, "src", source)
        # A segment has each source once; `where` adds its other edges in the split, up to what may be rejected.
        request = RowRequest(np.sort(rows), ("id",), {"src": source}, self.options.errors_max + 1)
        _, lines = self.input.fetch({violation.type_key: request})[violation.type_key]
        return [int(line) for line in lines]

    def _require_few_rejected(self) -> None:
        rejected = self._rejected_lines()
        assert self.options.report_folder is not None
        write_rejected(self.options.report_folder, rejected[: self.options.errors_max])
        if len(rejected) > self.options.errors_max:
            first = rejected[0]
            raise DataError(
                f"more than {self.options.errors_max} entities are invalid, so nothing was loaded; the first is in"
                f" `{first.file}`, line {first.line}: {first.violation.message}. All invalid entities so far are in"
                f" `{self.options.report_folder}`; correct them, or allow more with `max_errors`",
                rule=first.violation.rule,
                line=first.line,
                rejected=len(rejected),
            )

    def _rejected_lines(self) -> list[RejectedLine]:
        lines = self.input.lines
        rejected = [
            (lines.globalize(split, entity.violation), entity.text)
            for split, result in enumerate(self.input.results)
            for entity in result.rejected
        ]
        rows = FrameRows()
        return [
            RejectedLine(
                *lines.in_file(violation.line or 1),
                violation,
                text,
                self._type_key_of(violation.line or 1),
                self._find_origin(rows, violation.line),
            )
            for violation, text in rejected
        ]

    def _type_key_of(self, line: int) -> TypeKey | None:
        return self.input.tasks[self.input.lines.in_split(line)[0]].split.table_key

    # -- publishing --------------------------------------------------------------------------------------------

    def _prepare(self, snapshot: Snapshot) -> Plan:
        """Check the input against the newest snapshot and plan the commit; runs again after a lost race."""
        schema = self._check_schema(snapshot)
        require_not_applied(self.session, snapshot.state.commits, self.options)
        self.session.kernel.finish_links(snapshot)
        may = write_permissions(self.session, snapshot)
        may.check(key.name for key in self.input.types)
        self._unreadable = may.unreadable
        with mask_hidden_type_errors(may.hidden, self.session.actor):
            self._validate(self.session.full_view_of(snapshot))
        effects = [self._effect(snapshot, key) for key in self.input.types]
        properties = {"mode": self.options.mode, "job_id": self.options.job_id, "input_digest": self.options.digest}
        # Kept, because the files that rows of frames are read from are gone when the load has ended.
        self._rejected = rejected = self._rejected_lines()
        if self.options.properties:
            counts = {str(key): count for key, count in self._counts().items()}
            properties["counts"] = orjson.dumps(counts, option=orjson.OPT_SORT_KEYS).decode()
            properties["rejected"] = str(len(rejected))
        return Plan(
            "load",
            tuple(effect for effect in effects if effect is not None),
            requirements=(schema,),
            actor=self.session.actor,
            properties=properties | dict(self.options.properties) | dict(self.late_properties(rejected)),
            operation_id=OperationId(self.job.operation_id),
        )

    def _check_schema(self, snapshot: Snapshot) -> SchemaIs:
        """Raise if the schema of what is loaded has changed; return the requirement that it stays as it is now."""
        if self.job.intent is Intent.REPLACE:
            # Edges of any type may end at the nodes that it replaces, also of one that came meanwhile.
            SchemaIs(self.job.schema.full_hash).check(snapshot)
        elif snapshot.state.schema.ir_hash != self.job.schema.full_hash:
            catalog = self.session.full_view_of(snapshot).catalog
            require_same_types(self.job.schema.catalog, catalog, self.input.types)
        return SchemaIs(snapshot.state.schema.ir_hash)

    def _effect(self, snapshot: Snapshot, table_key: TypeKey) -> plan.Effect | None:
        dataset = self.session.kernel.writable(snapshot, table_key)
        if dataset.ref.directory != self.job.targets[table_key].directory:
            raise ReadSetChanged(
                f"`{table_key}` was moved to `{dataset.ref.directory}` while rows were staged elsewhere; nothing was"
                " written, retry",
                member=table_key,
            )
        staged = [
            fragment
            for result in self.input.results
            if table_key in result.types
            for fragment in result.types[table_key].fragments
        ]
        if self.job.intent is Intent.REPLACE:
            self._require_unchanged(snapshot, dataset, table_key)
            return plan.Effect(table_key, dataset, (fragments.replaced(dataset, staged),))
        if not staged:
            return None
        if self.job.intent is Intent.INSERT:
            return plan.Effect(table_key, dataset, (fragments.appended(dataset, staged),))
        replaced = [(dataset.ref, part[table_key].addresses) for part in self.set_check.replaced if table_key in part]
        stage = f"marking {table_key.name}"
        marked = mark_replaced(self.runner, self.job.access, stage, replaced).get(dataset.ref, [])
        return plan.Effect(table_key, dataset, (fragments.upserted(dataset, staged, marked),))

    def _require_unchanged(self, snapshot: Snapshot, dataset: Dataset, table_key: TypeKey) -> None:
        """Refuse to overwrite entities that were written after the load began; maintenance writes none."""
        base = self.job.base_version
        if base is None or dataset.ref == self.job.targets[table_key] or has_only_upkeep(base, snapshot):
            return
        raise ReadSetChanged(
            f"`{table_key}` was changed on branch `{snapshot.branch}` while its replacement was being read; nothing was"
            " written. Retry to replace its new content",
            member=table_key,
            expected=self.job.targets[table_key].version,
            actual=dataset.ref.version,
        )

    # -- files -------------------------------------------------------------------------------------------------

    def _staged_files(self) -> set[str]:
        files: set[str] = set()
        for result in self.input.results:
            for key, part in result.types.items():
                files |= fragments.staged_files(self.session.kernel.store.open(self.job.targets[key]), part.fragments)
        return files

    def clean(self, keep: set[str]) -> None:
        """Remove staged files that are not in `keep`, such as those of failed attempts, and all temporary files."""
        store = self.session.kernel.store
        fragments.remove_staged(store, self.job.targets.values(), self.job.operation_id, keep)
        store.objects.discard_prefix(self.job.scratch)


def _findings_of(violations: Iterable[Violation]) -> Findings:
    findings = Findings(unit=UNIT)
    for violation in violations:
        findings.add(violation)
    return findings
