"""`omnigraph cluster …`: graphs, schemas, queries and policies declared in a folder, planned and applied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from omnigraph.cli.config import read_config
from omnigraph.cli.options import Json, argument, option, switch
from omnigraph.cli.output import echo, plural, print_json, print_table
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
Watch = Annotated[bool, switch("--watch", "Look again and again, and show drift when it changes.")]
Every = Annotated[int, option("--every", "SECONDS", "With `--watch`: time between looks.", min=1)]


def validate(config: ConfigDir = Path(), as_json: Json = False) -> int:
    return _run(config, None, lambda cluster: cluster.validate(), as_json, _show_resources)


def plan(config: ConfigDir = Path(), actor: Actor = None, as_json: Json = False) -> int:
    return _run(config, actor, lambda cluster: cluster.plan(), as_json, _show_changes)


def apply(config: ConfigDir = Path(), actor: Actor = None, as_json: Json = False) -> int:
    return _run(config, actor, lambda cluster: cluster.apply(), as_json, _show_apply)


def approve(
    address: Address, config: ConfigDir = Path(), reason: Reason = "", actor: Actor = None, as_json: Json = False
) -> int:
    return _run(config, actor, lambda cluster: cluster.approve(address, reason), as_json, _show_approval)


def status(config: ConfigDir = Path(), as_json: Json = False) -> int:
    return _run(config, None, lambda cluster: cluster.status(), as_json, _show_status)


def diff(config: ConfigDir = Path(), as_json: Json = False) -> int:
    return _run(config, None, lambda cluster: cluster.diff(), as_json, _show_diffs)


def refresh(
    config: ConfigDir = Path(),
    watch: Watch = False,
    every: Every = CLUSTER_WATCH_SECONDS,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    if watch:
        return _watch(config, actor, every, as_json)
    return _run(config, actor, lambda cluster: cluster.refresh(), as_json, _show_observations)


def _watch(config: Path, actor: str | None, every: int, as_json: bool) -> int:
    """Refresh until interrupted; prints a report whenever it differs from the last."""
    shown: list[dict[str, Any]] | None = None
    while True:
        report = _report(config, actor, lambda cluster: cluster.refresh())
        findings = [finding.to_json() for finding in report.findings]
        if findings != shown:
            shown = findings
            _print_report(report, as_json, _show_observations)
            if not findings and not as_json:
                echo("no drift")
        pause(every)


def import_graphs(config: ConfigDir = Path(), actor: Actor = None, as_json: Json = False) -> int:
    return _run(config, actor, lambda cluster: cluster.import_(), as_json, _show_observations)


def force_unlock(lock_id: LockId, config: ConfigDir = Path(), actor: Actor = None, as_json: Json = False) -> int:
    def show(members: dict[str, Any]) -> None:
        echo(f"released the lock {members['unlocked']}")

    return _run(config, actor, lambda cluster: cluster.force_unlock(lock_id), as_json, show)


def history(config: ConfigDir = Path(), limit: Limit = 20, as_json: Json = False) -> int:
    return _run(config, None, lambda cluster: cluster.history(limit), as_json, _show_history)


def _run(
    config: Path,
    actor: str | None,
    command: Callable[[Cluster], Report],
    as_json: bool,
    show: Callable[[dict[str, Any]], None],
) -> int:
    report = _report(config, actor, command)
    _print_report(report, as_json, show)
    return 0 if report.ok else 1


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


def _print_report(report: Report, as_json: bool, show: Callable[[dict[str, Any]], None]) -> None:
    if as_json:
        print_json(report.to_json())
        return
    for finding in report.findings:
        echo(finding.render(), err=True)
    if report.members:
        show({"ok": report.ok, **report.members})


def _show_resources(members: dict[str, Any]) -> None:
    print_table(
        ["resource", "digest"], ([address, digest[:12]] for address, digest in members["resource_digests"].items())
    )
    outcome = "ok" if members["ok"] else "not valid: see the errors"
    echo(f"{plural(len(members['resources']), 'resource')}: {outcome}")


def _show_changes(members: dict[str, Any]) -> None:
    from omnigraph.lang.migrate.step import Step

    changes = members["changes"]
    rows = ([item["operation"], item["resource"], item["disposition"], _detail(item)] for item in changes)
    print_table(["operation", "resource", "disposition", "detail"], rows)
    for change in changes:
        for step in (change["migration"] or {"steps": []})["steps"]:
            echo(f"{change['resource']}: {Step.from_json(step).render()}")
    echo(plural(len(changes), "change"))


def _detail(change: dict[str, Any]) -> str:
    migration = change["migration"] or {"steps": []}
    parts = [change["reason"], change["metadata_change"]]
    parts += [plural(len(migration["steps"]), "migration step")] if migration["steps"] else []
    return ", ".join(part for part in parts if part)


def _show_apply(members: dict[str, Any]) -> None:
    _show_changes(members)
    state = "converged" if members["converged"] else "not converged: see the warnings"
    echo(f"{state}, revision {members['state_revision']}")


def _show_diffs(members: dict[str, Any]) -> None:
    for item in members["diffs"]:
        echo(item["diff"] or f"{item['operation']} {item['resource']}")
    echo(plural(len(members["diffs"]), "change"))


def _show_approval(members: dict[str, Any]) -> None:
    approval = members["approval"]
    echo(
        f"approved: {approval['operation']} {approval['resource']} ({approval['approval_id']}); now run `cluster apply`"
    )


def _show_status(members: dict[str, Any]) -> None:
    lock = members["state_observations"]["lock"]
    if lock is not None:
        silence = lock["silent_seconds"]
        sign = "last sign unknown" if silence is None else f"last sign {silence} s ago"
        echo(f"locked by {lock['operation']} ({lock['lock_id']}), {sign}")
    if "state" in members:
        state = members["state"]
        statuses = state["resource_statuses"].items()
        print_table(
            ["resource", "status", "detail"],
            ([name, item["status"], item.get("message") or ", ".join(item["conditions"])] for name, item in statuses),
        )
        echo(f"revision {state['state_revision']}")


def _show_observations(members: dict[str, Any]) -> None:
    if members["state_written"]:
        rows = (
            [address, "yes" if item["exists"] else "no", str(item["manifest_version"] or "")]
            for address, item in members["observations"].items()
        )
        print_table(["graph", "exists", "version"], rows)
        echo(f"revision {members['state_revision']}")


def _show_history(members: dict[str, Any]) -> None:
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
    print_table(["revision", "time", "operation", "actor", "changes"], rows)
