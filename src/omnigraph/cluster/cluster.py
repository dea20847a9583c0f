"""The commands of a cluster: validate, plan, apply, approve, status, refresh, import, force-unlock, diff and history.

Each returns a report with `ok` and findings; the command line prints it, and the exit status follows from `ok`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from omnigraph import clock
from omnigraph.cluster.applied_state import applied_blob_rules, applied_schema, choose_graph, read_applied
from omnigraph.cluster.apply import Apply
from omnigraph.cluster.config import read_config
from omnigraph.cluster.desired import DesiredState, read_desired
from omnigraph.cluster.ledger import (
    AppliedState,
    ClusterLock,
    Json,
    Ledger,
    ResourceStatus,
    StoredRevision,
    check_content,
    force_unlock,
    forget_lost,
    hold_lock,
    operation_record,
    read_lock,
)
from omnigraph.cluster.plan import (
    Approvals,
    Change,
    GraphInspection,
    Plan,
    compare_resources,
    graph_of,
    inspect_graph,
    make_plan,
    write_approval,
)
from omnigraph.cluster.recovery import finish_movements, read_pending, sweep
from omnigraph.engine.external_blobs import BLOB_SCOPES
from omnigraph.errors import OmniGraphError, UsageError
from omnigraph.findings import ClusterError, Finding, error, has_errors, warning
from omnigraph.graph import Graph, session_of
from omnigraph.graph import open as open_graph


def diff_change(ledger: Ledger, desired: DesiredState, state: AppliedState, change: Change) -> Json:
    """Return a change with the unified difference of its text; that of graphs and providers is their metadata."""
    before = _applied_text(ledger, state, change.resource)
    after = _desired_text(desired, change.resource)
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"applied/{change.resource}", f"folder/{change.resource}", lineterm=""
    )
    return {"resource": change.resource, "operation": change.operation, "diff": "\n".join(lines)}


def _applied_text(ledger: Ledger, state: AppliedState, address: str) -> str:
    resource = state.resources.get(address)
    if resource is None:
        return ""
    kind, _, name = address.partition(".")
    if kind not in ("schema", "query", "policy", "pipeline"):
        return _metadata_text(resource)
    if kind == "schema":
        # An adopted graph has no stored text: its live schema is what was recorded.
        text = applied_schema(ledger, name, resource["digest"])
        return _live_schema(ledger, name) if text is None else text
    data = ledger.read_payload(address, resource["digest"])
    return "" if data is None else data.decode()


def _live_schema(ledger: Ledger, graph_id: str) -> str:
    try:
        with open_graph(ledger.graph_uri(graph_id), read_only=True) as graph:
            return graph.schema.source
    except OmniGraphError:
        return ""


def _desired_text(desired: DesiredState, address: str) -> str:
    resource = desired.resources.get(address)
    if resource is None:
        return ""
    if resource.payload is not None:
        return resource.payload.decode()
    return _metadata_text({"digest": resource.digest, **resource.metadata})


def _metadata_text(resource: Json) -> str:
    # Only the ledger has these members, so they are not compared.
    shown = {name: value for name, value in resource.items() if name not in ("digest", "incarnation")}
    return orjson.dumps(shown, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode() if shown else ""


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a command: `members` differ from command to command."""

    config_dir: str
    findings: tuple[Finding, ...] = ()
    members: Json = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not has_errors(self.findings)

    def to_json(self) -> Json:
        diagnostics = [finding.to_json() for finding in self.findings]
        return {"ok": self.ok, "config_dir": self.config_dir, **self.members, "diagnostics": diagnostics}


class Cluster:
    """A cluster: the folder that declares it, and the storage that holds it.

    Args:
        directory: The folder with `cluster.yaml`.
        actor: Who runs the commands; recorded in the ledger and in the commits of graphs.
    """

    def __init__(self, directory: str | Path, *, actor: str | None = None) -> None:
        self.config = read_config(directory)
        self.actor = actor
        self.ledger = Ledger(self.config.storage)

    def validate(self) -> Report:
        """Check everything that the folder declares, without touching storage."""
        desired = read_desired(self.config)
        dependencies = {address: list(item.depends_on) for address, item in desired.resources.items()}
        members = {"resources": list(desired.resources), "dependencies": dependencies}
        return self._report(desired.findings, resource_digests=desired.digests, **members)

    def plan(self) -> Report:
        """Compare the folder with what is deployed; changes nothing."""
        desired = self._desired()
        with self._lock("plan") as lock:
            stored = self.ledger.read()
            plan, findings = self._plan(desired, stored)
            observed = self._observations(stored)
        return self._report((*lock_findings(lock), *findings, *desired.findings), **plan.to_json(), **observed)

    def apply(self) -> Report:
        """Deploy what the folder declares. Safe to run again at any time, also after a crash."""
        desired = self._desired()
        with self._lock("apply") as lock:
            stored = self._require_state()
            swept = sweep(self.ledger, stored.state)
            assert lock is not None
            members, findings = Apply(self.ledger, lock, desired, self.actor, stored).run(swept)
        return self._report((*findings, *desired.findings), **members)

    def approve(self, address: str, reason: str = "") -> Report:
        """Approve the deletion of a graph, in exactly the form that the current plan has."""
        if self.actor is None:
            raise UsageError("an approval needs to know who gives it; pass `--as`", argument="actor")
        desired = self._desired()
        with self._lock("approve"):
            plan, findings = self._plan(desired, self._require_state())
            if address not in [item["resource"] for item in plan.approvals_required]:
                message = "the current plan has nothing to approve for it; see `cluster plan`"
                return self._report((*findings, error("approval_not_required", address, message)))
            change = next(item for item in plan.changes if item.resource == address)
            artifact = write_approval(self.ledger, change, desired.config_digest, self.actor, reason)
        return self._report(findings, approval=artifact)

    def status(self) -> Report:
        """Show the ledger, the lock and whether stored queries and policies are intact; takes no lock."""
        stored = self.ledger.read()
        if stored is None:
            return self._report((_state_missing("warning"),), **self._observations(None))
        _, findings = read_pending(self.ledger)
        checked = [*findings, *check_content(self.ledger, stored.state)]
        return self._report(tuple(checked), state=stored.state.to_json(), **self._observations(stored))

    def refresh(self) -> Report:
        """Compare the ledger with the live graphs and stored content, and record what has drifted."""
        desired = self._desired()
        with self._lock("refresh") as lock:
            stored = self._require_state()
            return self._observe(desired, stored, lock, "refresh")

    def import_(self) -> Report:
        """Start the ledger of a cluster from the graphs that exist."""
        desired = self._desired()
        with self._lock("import") as lock:
            if self.ledger.read() is not None:
                message = "the cluster has a ledger; run `cluster refresh` to compare it with storage"
                return self._report((error("state_already_exists", "state", message),))
            return self._observe(desired, None, lock, "import")

    def diff(self) -> Report:
        """Show the text of every difference between the folder and what is deployed; takes no lock."""
        desired = self._desired()
        stored = self.ledger.read()
        state = stored.state if stored is not None else AppliedState()
        # Like a plan, it refuses a cluster whose approvals cannot be read.
        Approvals.read(self.ledger, state)
        diffs = [diff_change(self.ledger, desired, state, change) for change in compare_resources(desired, state)]
        return self._report(desired.findings, diffs=diffs)

    def open(self, graph_id: str | None = None) -> Graph:
        """Open a graph that is applied, as this process may use it: with its external blobs of every scope.

        Args:
            graph_id: The graph; without an id, the only one.

        Returns:
            The graph, which the caller closes.

        Raises:
            ClusterError: Nothing is applied.
            UsageError: There is no such graph.
        """
        state = read_applied(self.ledger)
        chosen = choose_graph(state, graph_id)
        rules = applied_blob_rules(state, chosen, *BLOB_SCOPES)
        graph = open_graph(self.ledger.graph_uri(chosen), actor=self.actor)
        session_of(graph).external_blobs = rules
        return graph

    def force_unlock(self, lock_id: str) -> Report:
        """Release the lock of a process that is certainly dead."""
        force_unlock(self.ledger, lock_id, self.actor)
        return self._report((), unlocked=lock_id)

    def history(self, limit: int = 20) -> Report:
        """List the newest revisions of the ledger: who did what, when, with the changes of each."""
        revisions = []
        findings: list[Finding] = []
        newest = max(self.ledger.revisions(), default=0)
        if newest == 0:
            findings.append(_state_missing("warning"))
        for number in range(newest, max(0, newest - limit), -1):
            try:
                stored = self.ledger.read_revision(number)
            except ClusterError as failure:
                # The newest one decides whether the cluster works; an older one only leaves a gap here.
                findings += [replace(item, severity="warning") for item in failure.findings]
                continue
            if stored is None:
                message = "it is missing from storage, and its changes are unknown; the others are complete"
                findings.append(warning("state_revision_missing", f"revision {number}", message))
                continue
            digest = stored.state.config_digest
            revisions.append({"revision": number, "config_digest": digest, **stored.state.operation})
        return self._report(findings, revisions=revisions)

    # -- parts ---------------------------------------------------------------------------------------------------

    def _desired(self) -> DesiredState:
        desired = read_desired(self.config)
        if has_errors(desired.findings):
            raise ClusterError.of(desired.findings)
        return desired

    @contextmanager
    def _lock(self, operation: str) -> Iterator[ClusterLock | None]:
        if not self.config.uses_lock and operation != "apply":
            yield None
            return
        with hold_lock(self.ledger, operation, self.actor) as lock:
            yield lock

    def _require_state(self) -> StoredRevision:
        stored = self.ledger.read()
        if stored is None:
            raise ClusterError.of([_state_missing("error")])
        return stored

    def _plan(self, desired: DesiredState, stored: StoredRevision | None) -> tuple[Plan, tuple[Finding, ...]]:
        state = stored.state if stored is not None else AppliedState()
        # A sidecar is only reported here: the apply that follows settles it first.
        _, findings = read_pending(self.ledger)
        content_findings = check_content(self.ledger, state)
        plan = make_plan(self.ledger, desired, forget_lost(state, content_findings), {})
        return plan, (*findings, *content_findings, *plan.findings)

    def _observations(self, stored: StoredRevision | None) -> Json:
        lock = read_lock(self.ledger)
        return {
            "state_observations": {
                "cas": None if stored is None else stored.cas,
                "revision": None if stored is None else stored.state.revision,
                "lock": lock.to_json() if lock is not None and lock.is_held else None,
            }
        }

    def _observe(
        self, desired: DesiredState, base: StoredRevision | None, lock: ClusterLock | None, operation: str
    ) -> Report:
        swept = sweep(self.ledger, base.state if base is not None else AppliedState())
        observer = _Observer(self.ledger, desired, swept.state)
        for graph_id in desired.graphs:
            observer.look_at(graph_id)
        content_findings = check_content(self.ledger, swept.state)
        observer.state = forget_lost(observer.state, content_findings)
        findings = (*lock_findings(lock), *swept.findings, *observer.findings, *content_findings)
        if base is None and has_errors(findings):
            return self._report(findings, state_written=False)
        stored, is_written = base, False
        if base is None or _without_times(observer.state) != _without_times(base.state):
            if lock is not None:
                lock.require()
            record = operation_record(operation, self.actor)
            stored, is_written = self.ledger.write(replace(observer.state, operation=record), base), True
        assert stored is not None
        finish_movements(self.ledger, swept.used_approvals, swept.retired)
        observations = {"observations": dict(observer.state.observations), "state_revision": stored.state.revision}
        return self._report(findings, state_written=is_written, **observations)

    def _report(self, findings: tuple[Finding, ...] | list[Finding], **members: Any) -> Report:
        return Report(str(self.config.directory), tuple(findings), members)


class _Observer:
    """Compares applied state with live graphs; drifted parts lose their digest, so that the next plan restores them."""

    def __init__(self, ledger: Ledger, desired: DesiredState, state: AppliedState) -> None:
        self.ledger = ledger
        self.desired = desired
        self.state = state
        self.findings: list[Finding] = []

    def look_at(self, graph_id: str) -> None:
        """Compare a graph with its declaration and record what is there."""
        graph = self.desired.graphs[graph_id]
        applied = self.state.digest(f"schema.{graph_id}")
        text = applied_schema(self.ledger, graph_id, applied)
        live = inspect_graph(self.ledger, graph_id, graph.schema.text, text)
        address = f"graph.{graph_id}"
        resources, statuses = dict(self.state.resources), dict(self.state.statuses)
        if live.error is not None:
            self.findings.append(error("graph_unavailable", address, live.error))
            statuses[address] = ResourceStatus("error", ("graph_unavailable",), live.error)
        elif not live.exists:
            # Recorded drift has changed the ledger already; it is reported until it is repaired.
            is_known = address in resources or "graph_missing" in _conditions(statuses, address)
            for name in [name for name in resources if graph_of(name) == graph_id]:
                del resources[name]
            if is_known:
                message = "the graph is missing; the next apply creates an empty one"
                self.findings.append(warning("graph_missing", address, message))
                statuses[address] = ResourceStatus("drifted", ("graph_missing",), message)
        else:
            self._compare(graph_id, live, resources, statuses)
        observations = {**self.state.observations, address: {**live.to_json(), "observed_at": clock.now_us()}}
        self.state = replace(self.state, resources=resources, statuses=statuses, observations=observations)

    def _compare(
        self, graph_id: str, live: GraphInspection, resources: dict[str, Json], statuses: dict[str, ResourceStatus]
    ) -> None:
        address, schema = f"graph.{graph_id}", f"schema.{graph_id}"
        applied = resources.get(schema)
        if {"graph_missing", "graph_unavailable"} & _conditions(statuses, address):
            statuses[address] = ResourceStatus("applied")
        if live.matches_desired:
            desired = self.desired.resources[schema]
            resources[schema] = {"digest": desired.digest}
            resources.setdefault(address, {"digest": live.schema_digest or ""})
            statuses[schema] = ResourceStatus("applied")
            return
        # An adopted graph has no stored text; its digest is that of the live schema.
        is_applied = applied is not None and (live.matches_applied or live.schema_digest == applied["digest"])
        if not is_applied or "schema_drifted" in _conditions(statuses, schema):
            message = "the live schema is neither the applied nor the declared one; the next apply changes it"
            resources[schema] = {"digest": live.schema_digest or ""}
            resources.setdefault(address, {"digest": live.schema_digest or ""})
            statuses[schema] = ResourceStatus("drifted", ("schema_drifted",), message)
            self.findings.append(warning("schema_drifted", schema, message))


def _conditions(statuses: Mapping[str, ResourceStatus], address: str) -> set[str]:
    return set(statuses[address].conditions) if address in statuses else set()


def _without_times(state: AppliedState) -> AppliedState:
    """Return a state without the times of its observations, which alone are no reason for a revision."""
    observations = {
        address: {name: value for name, value in item.items() if name not in ("observed_at", "manifest_version")}
        for address, item in state.observations.items()
    }
    return replace(state, observations=observations)


def lock_findings(lock: ClusterLock | None) -> tuple[Finding, ...]:
    if lock is None:
        message = "two operations can run at once; the ledger refuses the second, but graphs may change in between"
        return (warning("state_lock_disabled", "state.lock", message),)
    return lock.findings


def _state_missing(severity: Any) -> Finding:
    message = "the cluster has no ledger yet; run `omnigraph cluster import` first"
    return Finding("state_missing", severity, "state", message)
