"""The transaction of a load: check what is staged, publish one commit, and check again after a lost race."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from omnigraph.engine.embed.cache import EmbedCounts
from omnigraph.engine.load.job import LoadOptions
from omnigraph.engine.load.quarantine import lines_to_reject, name_origins, rejected_lines, require_few_rejected
from omnigraph.engine.load.report import RejectedLine
from omnigraph.engine.load.staged_input import StagedInput
from omnigraph.engine.session import GraphSession, View
from omnigraph.engine.write.hidden_type_errors import mask_hidden_type_errors, redact_findings
from omnigraph.engine.write.staging import require_same_types
from omnigraph.engine.write.write_authorization import WritePermissions, renew_permissions
from omnigraph.errors import DataError, JobExists, OmniGraphError
from omnigraph.ids import OperationId
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import LOAD_ROUNDS_MAX, VIOLATIONS_MAX
from omnigraph.manifest.model import MAIN_NAMES, Commit, Snapshot
from omnigraph.manifest.plan import UNNAMED, Plan
from omnigraph.manifest.requirements import SchemaIs
from omnigraph.rules.delta import Findings, Violation
from omnigraph.rules.validate import SET_RULES, SET_RULES_OF_ROWS_ALONE, UnlessReplaced, merge_by_line

# Properties of the commit that are known when everything is staged, and what is rejected.
LateProperties = Callable[[Sequence[RejectedLine]], Mapping[str, str]]


def no_late_properties(rejected: Sequence[RejectedLine]) -> Mapping[str, str]:
    """Return no further properties, whatever is rejected."""
    return {}


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
    if not options.is_repeatable:
        return None
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
    options: LoadOptions
    permissions: WritePermissions
    late_properties: LateProperties = no_late_properties
    input: StagedInput = field(init=False)
    # Types that the actor may change but not read, on the newest snapshot.
    _unreadable: frozenset[str] = frozenset()
    _rejected: Sequence[RejectedLine] = ()

    def publish(self, staged: StagedInput, operation_id: OperationId = UNNAMED) -> LoadOutcome:
        """Check a staged input, and publish it as one commit unless it is empty."""
        self.input = staged
        self.operation_id = operation_id
        commit: Commit | None = None
        if not self._is_empty():
            with staged.publishing():
                receipt = self.session.kernel.commit(self.options.branch, self._prepare)
            assert receipt is not None
            commit = receipt.commit
        return LoadOutcome(commit, staged.counts, self._rejected, staged.outcome.embedded)

    def check(self, staged: StagedInput, snapshot: Snapshot) -> None:
        """Raise what is wrong with an input on a snapshot, or reject the entities that are."""
        self.input = staged
        self.permissions = may = renew_permissions(self.session, self.permissions, snapshot)
        may.check(key.name for key in staged.counts)
        self._unreadable = may.unreadable
        with mask_hidden_type_errors(may.hidden, self.session.actor):
            self._validate(self.session.full_view_of(snapshot))

    def _is_empty(self) -> bool:
        """Return True if there is nothing to publish: no entity, no violation, and no type that is emptied."""
        staged = self.input
        if self.options.commits_empty or (self.options.mode == "overwrite" and staged.counts):
            return False
        outcome = staged.outcome
        return not (any(staged.counts.values()) or outcome.malformed or outcome.row_violations or outcome.rejected)

    # -- checking ----------------------------------------------------------------------------------------------

    def _validate(self, view: View) -> None:
        """Raise the violations of an input against a view, or reject the entities that cause them."""
        if self.options.is_rejecting:
            self._reject_invalid(view)
            return
        malformed = self.input.outcome.malformed
        findings = self._findings_of(self._row_violations())
        self._check_sets(view, VIOLATIONS_MAX, findings, has_all_rows=not malformed)
        self._raise(self._findings_of(merge_by_line(malformed, findings.violations)) if malformed else findings)

    def _check_sets(self, view: View, limit: int, findings: Findings, *, has_all_rows: bool = True) -> None:
        """Add the violations of set rules to the findings, in the order of every write."""
        self.input.compare(view, limit)
        for rule in SET_RULES if has_all_rows else SET_RULES_OF_ROWS_ALONE:
            rule_input = None if findings.is_full else self.input.rule_input(rule.__name__)
            if rule_input is not None:
                changes, committed = rule_input
                rule(changes, committed if has_all_rows else UnlessReplaced(changes, committed), findings)

    def _row_violations(self) -> list[Violation]:
        """Return the violations of row rules in the order of every write: by rule, type and line."""
        violations = list(self.input.outcome.row_violations)
        violations.sort(key=lambda item: (item[0], item[1].type_key or "", item[1].line or 0))
        return [violation for _, violation in violations]

    def _findings_of(self, violations: Iterable[Violation]) -> Findings:
        findings = Findings(unit=self.input.job.unit)
        for violation in violations:
            findings.add(violation)
        return findings

    def _raise(self, findings: Findings) -> None:
        """Raise the findings, with file names if the input has several files."""
        findings = redact_findings(findings, self._unreadable)
        findings.locate = self.input.lines.locate
        try:
            findings.raise_if_any()
        except OmniGraphError as error:
            name_origins(error, findings, self.input)
            raise

    def _reject_invalid(self, view: View) -> None:
        """Reject entities that break set rules until the rest breaks none: removing a node may orphan its edges."""
        for _ in range(LOAD_ROUNDS_MAX):
            require_few_rejected(self.options, self.input)
            findings = Findings(self.options.errors_max + 1, unit=self.input.job.unit)
            self._check_sets(view, self.options.errors_max + 1, findings)
            if not findings.violations:
                return
            if any(violation.line is None for violation in findings.violations):
                # A violation without a line is caused by committed rows, and no line can be left out to avoid it.
                self._raise(findings)
            self.input.reject(lines_to_reject(self.input, findings.violations, self._unreadable))
        raise DataError(
            f"entities still break rules after {LOAD_ROUNDS_MAX} rounds of rejecting invalid ones; correct the input",
            rule=findings.violations[0].rule,
        )

    # -- publishing --------------------------------------------------------------------------------------------

    def _prepare(self, snapshot: Snapshot) -> Plan:
        """Check the input against the newest snapshot and plan the commit; runs again after a lost race."""
        schema = self._check_schema(snapshot)
        require_not_applied(self.session, snapshot.state.commits, self.options)
        self.check(self.input, snapshot)
        # Kept, because the files that rows of frames are read from are gone when the load has ended.
        self._rejected = rejected_lines(self.input)
        return Plan(
            self.options.kind,
            self.input.effects(),
            requirements=(schema,),
            actor=self.session.actor,
            properties=self._properties(),
            operation_id=self.operation_id,
        )

    def _properties(self) -> dict[str, str]:
        properties: dict[str, str] = {"mode": self.options.mode}
        if self.options.kind == "load":
            properties |= {"job_id": self.options.job_id, "input_digest": self.options.digest}
        if self.options.properties:
            counts = {str(key): count for key, count in self.input.counts.items()}
            properties["counts"] = orjson.dumps(counts, option=orjson.OPT_SORT_KEYS).decode()
            properties["rejected"] = str(len(self._rejected))
        return properties | dict(self.options.properties) | dict(self.late_properties(self._rejected))

    def _check_schema(self, snapshot: Snapshot) -> SchemaIs:
        """Raise if the schema of what is loaded has changed; return the requirement that it stays as it is now."""
        schema = self.input.job.schema
        if self.options.mode == "overwrite":
            # Edges of any type may end at the nodes that it replaces, also of one that came meanwhile.
            SchemaIs(schema.full_hash).check(snapshot)
            if self.input.job.replaced is not None:
                self.input.job.replaced.require_unchanged(snapshot, self.input.counts)
        elif snapshot.state.schema.ir_hash != schema.full_hash:
            catalog = self.session.full_view_of(snapshot).catalog
            require_same_types(schema.catalog, catalog, self.input.counts)
        return SchemaIs(snapshot.state.schema.ir_hash)
