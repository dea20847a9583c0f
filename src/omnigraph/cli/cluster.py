"""`omnigraph cluster …`: graphs, schemas, queries and policies declared in a folder, planned and applied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from omnigraph.cli.config import read_config
from omnigraph.cli.options import Json, argument, option, switch
from omnigraph.cli.output import Output, echo, echo_lines, plural, table
from omnigraph.clock import pause
from omnigraph.limits import CLUSTER_WATCH_SECONDS

if TYPE_CHECKING:
    from omnigraph.cluster import Cluster, Report

ConfigDir = Annotated[Path, option("--config", "DIR", "Folder with `cluster.yaml`.")]
Actor = Annotated[str | None, option("--as", "ACTOR", "Actor to record in the ledger and commits.")]
Address = Annotated[str, argument("ADDRESS", "Resource to approve, such as `graph.old`.")]
LockId = Annotated[str, argument("LOCK_ID", "ID of the lock, as `cluster status` shows it.")]
Reason = Annotated[str, option("--reason", "TEXT", "Why it is approved; kept in the ledger.")]
Limit = Annotated[int, option("--limit", "N", "Number of revisions to show.", min=1)]


def validate(config: ConfigDir = Path()) -> Output:
    return _run(config, None, lambda cluster: cluster.validate(), _resource_lines)


def plan(config: ConfigDir = Path(), actor: Actor = None) -> Output:
    return _run(config, actor, lambda cluster: cluster.plan(), _change_lines)


def apply(config: ConfigDir = Path(), actor: Actor = None) -> Output:
    return _run(config, actor, lambda cluster: cluster.apply(), _apply_lines)


def approve(address: Address, config: ConfigDir = Path(), reason: Reason = "", actor: Actor = None) -> Output:
    return _run(config, actor, lambda cluster: cluster.approve(address, reason), _approval_lines)


def status(config: ConfigDir = Path()) -> Output:
    return _run(config, None, lambda cluster: cluster.status(), _status_lines)


def diff(config: ConfigDir = Path()) -> Output:
    return _run(config, None, lambda cluster: cluster.diff(), _diff_lines)


def refresh(
    config: ConfigDir = Path(),
    watch: Annotated[bool, switch("--watch", "Look again and again, and show drift when it changes.")] = False,
    every: Annotated[
        int, option("--every", "SECONDS", "With `--watch`: time between looks.", min=1)
    ] = CLUSTER_WATCH_SECONDS,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    if watch:
        return _watch(config, actor, every, as_json)
    return _run(config, actor, lambda cluster: cluster.refresh(), _observation_lines).print(as_json=as_json)


def _watch(config: Path, actor: str | None, every: int, as_json: bool) -> int:
    """Refresh until interrupted; prints a report whenever it differs from the last."""
    shown: list[dict[str, Any]] | None = None
    while True:
        report = _report(config, actor, lambda cluster: cluster.refresh())
        findings = [finding.to_json() for finding in report.findings]
        if findings != shown:
            shown = findings
            _output(report, _observation_lines).print(as_json=as_json)
            if not findings and not as_json:
                echo("no drift")
        pause(every)


def import_graphs(config: ConfigDir = Path(), actor: Actor = None) -> Output:
    return _run(config, actor, lambda cluster: cluster.import_(), _observation_lines)


def force_unlock(lock_id: LockId, config: ConfigDir = Path(), actor: Actor = None) -> Output:
    return _run(config, actor, lambda cluster: cluster.force_unlock(lock_id), _unlock_lines)


def history(config: ConfigDir = Path(), limit: Limit = 20) -> Output:
    return _run(config, None, lambda cluster: cluster.history(limit), _history_lines)


# The text of what a command has found.
Lines = Callable[[dict[str, Any]], Iterator[str]]


def _run(config: Path, actor: str | None, command: Callable[[Cluster], Report], lines: Lines) -> Output:
    return _output(_report(config, actor, command), lines)


def _report(config: Path, actor: str | None, command: Callable[[Cluster], Report]) -> Report:
    from omnigraph.cluster import Cluster, ClusterError, Report
    from omnigraph.errors import OmniGraphError
    from omnigraph.findings import error

    try:
        return command(Cluster(config, actor=actor or read_config().actor))
    except ClusterError as failure:
        return Report(str(config), failure.findings)
    except OmniGraphError as failure:
        # Storage that fails, or a wrong argument: the same report, with the code of the error.
        path = failure.context.get("object") or failure.context.get("argument") or "cluster"
        return Report(str(config), (error(failure.code, str(path), failure.message),))


def _output(report: Report, lines: Lines) -> Output:
    return Output(report.to_json(), _report_lines(report, lines), 0 if report.ok else 1)


def _report_lines(report: Report, lines: Lines) -> Iterator[str]:
    echo_lines((finding.render() for finding in report.findings), err=True)
    if report.members:
        yield from lines({"ok": report.ok, **report.members})


def _resource_lines(members: dict[str, Any]) -> Iterator[str]:
    yield from table(
        ["resource", "digest"], ([address, digest[:12]] for address, digest in members["resource_digests"].items())
    )
    outcome = "ok" if members["ok"] else "not valid: see the errors"
    yield f"{plural(len(members['resources']), 'resource')}: {outcome}"


def _change_lines(members: dict[str, Any]) -> Iterator[str]:
    from omnigraph.lang.migrate.step import Step

    changes = members["changes"]
    rows = ([item["operation"], item["resource"], item["disposition"], _detail(item)] for item in changes)
    yield from table(["operation", "resource", "disposition", "detail"], rows)
    for change in changes:
        for step in (change["migration"] or {"steps": []})["steps"]:
            yield f"{change['resource']}: {Step.from_json(step).render()}"
    yield plural(len(changes), "change")


def _detail(change: dict[str, Any]) -> str:
    migration = change["migration"] or {"steps": []}
    parts = [change["reason"], change["metadata_change"]]
    parts += [plural(len(migration["steps"]), "migration step")] if migration["steps"] else []
    return ", ".join(part for part in parts if part)


def _apply_lines(members: dict[str, Any]) -> Iterator[str]:
    yield from _change_lines(members)
    state = "converged" if members["converged"] else "not converged: see the warnings"
    yield f"{state}, revision {members['state_revision']}"


def _diff_lines(members: dict[str, Any]) -> Iterator[str]:
    for item in members["diffs"]:
        yield item["diff"] or f"{item['operation']} {item['resource']}"
    yield plural(len(members["diffs"]), "change")


def _approval_lines(members: dict[str, Any]) -> Iterator[str]:
    approval = members["approval"]
    what = f"{approval['operation']} {approval['resource']} ({approval['approval_id']})"
    yield f"approved: {what}; now run `cluster apply`"


def _unlock_lines(members: dict[str, Any]) -> Iterator[str]:
    yield f"released the lock {members['unlocked']}"


def _status_lines(members: dict[str, Any]) -> Iterator[str]:
    lock = members["state_observations"]["lock"]
    if lock is not None:
        silence = lock["silent_seconds"]
        sign = "last sign unknown" if silence is None else f"last sign {silence} s ago"
        yield f"locked by {lock['operation']} ({lock['lock_id']}), {sign}"
    if "state" in members:
        state = members["state"]
        statuses = state["resource_statuses"].items()
        yield from table(
            ["resource", "status", "detail"],
            ([name, item["status"], item.get("message") or ", ".join(item["conditions"])] for name, item in statuses),
        )
        yield f"revision {state['state_revision']}"


def _observation_lines(members: dict[str, Any]) -> Iterator[str]:
    if members["state_written"]:
        rows = (
            [address, "yes" if item["exists"] else "no", str(item["manifest_version"] or "")]
            for address, item in members["observations"].items()
        )
        yield from table(["graph", "exists", "version"], rows)
        yield f"revision {members['state_revision']}"


def _history_lines(members: dict[str, Any]) -> Iterator[str]:
    from datetime import UTC, datetime

    rows = (
        [
            str(item["revision"]),
            datetime.fromtimestamp(item["at"] / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S"),
            item["operation"],
            item["actor"] or "",
            ", ".join(f"{change['operation']} {change['resource']}" for change in item.get("changes", ())),
        ]
        for item in members["revisions"]
    )
    yield from table(["revision", "time", "operation", "actor", "changes"], rows)
