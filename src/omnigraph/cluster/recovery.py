"""Recovery of interrupted applies: sidecars name graph movements that the ledger has not recorded yet.

The sweep only rolls forward. It compares the live graph with what the sidecar wanted, records what has happened, and
never deletes a graph; an apply that runs again does the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from omnigraph import clock
from omnigraph.cluster.ledger import FOLDER, AppliedState, Json, Ledger, ResourceStatus, graph_path
from omnigraph.cluster.plan import approval_path, consumed, graph_of, inspect_graph
from omnigraph.findings import Finding, error, warning
from omnigraph.ids import GRAPH_ID, new_ulid

RECOVERY_FOLDER: Final = f"{FOLDER}/recoveries"
MovementKind = Literal["graph_create", "schema_apply", "graph_delete"]
_TEXTS: Final = ("operation_id", "kind", "graph_id", "desired_schema_digest", "desired_schema")


@dataclass(frozen=True, slots=True)
class Sweep:
    """The outcome of a sweep: the state with what was rolled forward, and sidecars that are done or remain.

    `pending` maps each graph with a remaining sidecar to its operation. `used_approvals` are marked after the state
    that records them.
    """

    state: AppliedState
    retired: tuple[str, ...]
    pending: Mapping[str, str]
    findings: tuple[Finding, ...]
    used_approvals: tuple[Json, ...] = ()


def write_sidecar(
    ledger: Ledger,
    kind: MovementKind,
    graph_id: str,
    schema_digest: str,
    schema_text: str,
    actor: str | None,
    *,
    approval_id: str | None = None,
    observed_manifest_version: int | None = None,
    state_cas_base: str | None = None,
) -> str:
    """Record a movement before it begins; returns the path of the sidecar."""
    # A write-ahead intent: sidecar, then movement, then revision, then the sidecar is removed. A crash anywhere leaves
    # a sidecar whose movement has happened or not, which the live graph tells.
    operation_id = new_ulid()
    path = f"{RECOVERY_FOLDER}/{operation_id}.json"
    ledger.write_json(
        path,
        {
            "schema_version": 1,
            "operation_id": operation_id,
            "started_at": clock.now_us(),
            "actor": actor,
            "kind": kind,
            "graph_id": graph_id,
            "graph_uri": ledger.graph_uri(graph_id),
            "observed_manifest_version": observed_manifest_version,
            "state_cas_base": state_cas_base,
            "desired_schema_digest": schema_digest,
            "desired_schema": schema_text,
            "approval_id": approval_id,
        },
    )
    return path


def read_pending(ledger: Ledger) -> tuple[dict[str, str], tuple[Finding, ...]]:
    """Return the graphs with a sidecar and warnings about them, without changing anything."""
    pending: dict[str, str] = {}
    findings: list[Finding] = []
    for _, sidecar in _read_sidecars(ledger, findings):
        graph, kind = sidecar["graph_id"], sidecar["kind"]
        pending[graph] = kind
        message = f"an interrupted `{kind}` is finished by the next apply"
        findings.append(warning("cluster_recovery_pending", f"graph.{graph}", message))
    return pending, tuple(findings)


def _read_sidecars(ledger: Ledger, findings: list[Finding]) -> Iterator[tuple[str, Json]]:
    """Yield the sidecars that say which graph moved, and how, in the order in which the movements began; report others.

    Ids of operations are ULIDs, so that is the order of their paths.
    """
    for path, sidecar in sorted(ledger.read_json("recoveries").items()):
        if (
            all(isinstance(sidecar.get(name), str) for name in _TEXTS)
            and {"started_at", "actor"} <= sidecar.keys()
            and sidecar["kind"] in get_args(MovementKind)
            and GRAPH_ID.fullmatch(sidecar["graph_id"]) is not None
        ):
            yield path, sidecar
        else:
            message = "it names no movement of a graph; look at the graphs, then remove it by hand"
            findings.append(error("cluster_recovery_unattributed", path, message))


def sweep(ledger: Ledger, state: AppliedState) -> Sweep:
    """Roll the ledger forward over every sidecar; the caller writes the state and then removes the retired ones."""
    retired: list[str] = []
    pending: dict[str, str] = {}
    findings: list[Finding] = []
    result = state
    for path, sidecar in _read_sidecars(ledger, findings):
        rolled, finding = _settle(ledger, result, sidecar)
        if finding is not None:
            findings.append(finding)
        if rolled is None:
            assert finding is not None
            pending[sidecar["graph_id"]] = sidecar["kind"]
            result = _with_problem(result, sidecar["graph_id"], finding)
        else:
            retired.append(path)
            result = rolled
    used = [item for name, item in result.approval_records.items() if name not in state.approval_records]
    return Sweep(result, tuple(retired), pending, tuple(findings), tuple(used))


def finish_movements(ledger: Ledger, used_approvals: Iterable[Json], sidecars: Iterable[str]) -> None:
    """Mark used approvals and remove settled sidecars, after the state that records them was written."""
    for artifact in used_approvals:
        ledger.write_json(approval_path(artifact["approval_id"]), artifact)
    for path in sidecars:
        ledger.objects.discard(path)


def _with_problem(state: AppliedState, graph_id: str, finding: Finding) -> AppliedState:
    """Record why a sidecar remains as the status of its graph."""
    is_drift = finding.code == "actual_applied_state_pending"
    status = ResourceStatus("drifted" if is_drift else "error", (finding.code,), finding.message)
    return replace(state, statuses={**state.statuses, f"graph.{graph_id}": status})


def _settle(ledger: Ledger, state: AppliedState, sidecar: Json) -> tuple[AppliedState | None, Finding | None]:
    """Return the state after a sidecar, or None if it must stay, and what there is to report."""
    graph_id = sidecar["graph_id"]
    if sidecar["kind"] == "graph_delete":
        return _settle_delete(ledger, state, sidecar)
    live = inspect_graph(ledger, graph_id, sidecar["desired_schema"])
    # Idempotent: the crash came after the revision was written, and only the sidecar is left to remove.
    if state.digest(f"schema.{graph_id}") == sidecar["desired_schema_digest"] and live.matches_desired:
        return state, None
    if live.matches_desired:
        return _recorded(state, sidecar), None
    # Whatever else is there, the movement did not happen, and the next apply decides by the live graph.
    if live.error is not None:
        is_create = sidecar["kind"] == "graph_create"
        remedy = "move it away" if is_create else "repair it"
        message = f"the graph cannot be opened: {live.error}; {remedy}, then run the command again"
        code = "graph_create_incomplete" if is_create else "graph_unavailable"
        return None, error(code, f"graph.{graph_id}", message)
    if sidecar["kind"] == "graph_create" and live.exists:
        message = "another graph was created at its address; move it away, or import it"
        return None, error("actual_applied_state_pending", f"graph.{graph_id}", message)
    return state, None


def _settle_delete(ledger: Ledger, state: AppliedState, sidecar: Json) -> tuple[AppliedState, Finding | None]:
    graph_id = sidecar["graph_id"]
    if ledger.objects.list(graph_path(graph_id)):
        message = "the deletion was interrupted; the next apply goes on with it"
        return state, warning("graph_delete_incomplete", f"graph.{graph_id}", message)
    # On a disk, its folders may be left.
    ledger.objects.discard_prefix(graph_path(graph_id))
    result = without_graph(state, graph_id)
    approval_id = sidecar.get("approval_id")
    if approval_id is not None:
        artifact = ledger.read_json("approvals").get(approval_path(approval_id))
        if artifact is not None:
            used = consumed(artifact, sidecar["operation_id"])
            result = replace(result, approval_records={**result.approval_records, approval_id: used})
    return _remember(result, sidecar), None


def without_graph(state: AppliedState, graph_id: str) -> AppliedState:
    """Return a state without a graph and all that belongs to it."""
    return replace(
        state,
        resources={address: item for address, item in state.resources.items() if graph_of(address) != graph_id},
        statuses={address: item for address, item in state.statuses.items() if graph_of(address) != graph_id},
        observations={address: item for address, item in state.observations.items() if graph_of(address) != graph_id},
    )


def _recorded(state: AppliedState, sidecar: Json) -> AppliedState:
    address, digest = f"schema.{sidecar['graph_id']}", sidecar["desired_schema_digest"]
    resources = {**state.resources, address: {"digest": digest}}
    if sidecar["kind"] == "graph_create":
        # Its own digest follows with the queries; without an entry, a changed declaration would create it once more.
        resources.setdefault(f"graph.{sidecar['graph_id']}", {"digest": digest, "incarnation": sidecar["operation_id"]})
    statuses = {**state.statuses, address: ResourceStatus("applied", message="recorded by a recovery")}
    return _remember(replace(state, resources=resources, statuses=statuses), sidecar)


def _remember(state: AppliedState, sidecar: Json) -> AppliedState:
    record = {name: sidecar[name] for name in ("kind", "graph_id", "started_at", "actor")}
    record["recovered_at"] = clock.now_us()
    return replace(state, recovery_records={**state.recovery_records, sidecar["operation_id"]: record})
