"""Maintenance commands: `index …`, optimize, cleanup, repair, verify, doctor, reconcile, upgrade and `audit list`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from omnigraph.cli.app import Destroys, Reads, Writes
from omnigraph.cli.options import Branch, Json, Master, Message, ReadBranch, Where, argument, option, switch
from omnigraph.cli.output import Output, commit_line, echo, format_time, plural, progress_bar, table
from omnigraph.cli.startup import restore_gc
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.engine.maintain.cleanup import CleanupReport
    from omnigraph.engine.maintain.maintenance import ReconcileReport
    from omnigraph.engine.maintain.purge import Purged
    from omnigraph.engine.maintain.verify import VerifyReport
    from omnigraph.store.index.index_build import PendingIndex


def optimize(
    target: Writes, branch: Branch = "main", message: Message = None, engine: Where = "auto", master: Master = None
) -> Output:
    from omnigraph import pipeline

    target.announce()
    with target.store_to_write() as graph, progress_bar():
        report = pipeline.optimize(graph, branch, message=message, engine=engine, master=master)
    columns = ["type", "fragments removed", "added", "indexes built", "skipped"]
    rows = (
        [item.type_key, item.fragments_removed, item.fragments_added, item.indexes_built, item.skipped or ""]
        for item in report.types
    )
    pending = ((item.type_key, index) for item in report.types for index in item.pending)
    errors = [f"{item.type_key} cannot be read: {item.error}" for item in report.types if item.error is not None]
    lines = (*table(columns, rows), *_pending_lines(pending), *errors, commit_line(report.commit))
    return Output({"uri": graph.uri, **report.to_json()}, lines, 1 if errors else 0)


def list_indexes(target: Reads, branch: ReadBranch = None) -> Output:
    with target.store_to_read() as graph:
        indexes = graph.maintenance.list_indices(branch or "main")
    rows = (
        [index.type_key.kind, index.type_key.name, index.property, index.kind, index.state, index.reason or ""]
        for index in indexes
    )
    lines = table(["of", "type", "property", "kind", "state", "reason"], rows)
    return Output({"indexes": [index.to_json() for index in indexes]}, lines)


def build_indexes(target: Writes, branch: Branch = "main", message: Message = None) -> Output:
    target.announce()
    with target.store_to_write() as graph, progress_bar():
        report = graph.maintenance.ensure_indices(branch, message=message)
    built = (f"built the {spec.kind.name.lower()} index of {type_key}.{spec.column}" for type_key, spec in report.built)
    lines = (*built, *_pending_lines(report.pending), commit_line(report.commit))
    return Output({"uri": graph.uri, **report.to_json()}, lines)


def _pending_lines(indexes: Iterable[tuple[str, PendingIndex]]) -> Iterator[str]:
    for type_key, pending in indexes:
        yield f"pending: the index of {type_key}.{pending.spec.column}: {pending.reason}"


_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def cleanup(
    target: Destroys,
    keep: Annotated[int | None, option("--keep", "N", "Keep the newest N commits of each branch.")] = None,
    older_than: Annotated[
        str | None, option("--older-than", "AGE", "Keep states newer than this: 90s, 15m, 6h, 7d, 2w.")
    ] = None,
    dry_run: Annotated[bool, switch("--dry-run", "Show what would be deleted, and its size; delete nothing.")] = False,
    confirmed: Annotated[bool, switch("--confirm", "Delete; without it, only show the retention policy.")] = False,
    as_json: Json = False,
) -> int:
    age = None if older_than is None else parse_duration(older_than)
    if keep is None and age is None:
        raise UsageError("no retention policy; give `--keep N`, `--older-than AGE` or both")
    if keep is not None and keep < 1:
        raise UsageError(
            f"`--keep {keep}` is invalid: the newest commit of each branch is always kept; use 1 or more", keep=keep
        )
    if not confirmed and not dry_run:
        newest = "the newest commit" if keep == 1 else f"the newest {keep} commits"
        retained = [f"{newest} of each branch"] if keep is not None else []
        retained += [f"the states of the last {older_than}"] if older_than is not None else []
        plan = f"would clean {target.address} and keep {' and '.join(retained)}"
        echo(
            f"{plan}; nothing was removed. Add --dry-run to see what would be removed, or --confirm to remove it",
            err=True,
        )
        return 0
    if not dry_run:
        target.announce()
        target.confirm("cleanup")
    # A preview reads storage's time as the run does, which takes a handle that can write.
    with target.store_to_write() as graph, progress_bar():
        report = graph.maintenance.cleanup(keep, age, dry_run=dry_run, confirm=not dry_run)
    errors = [*(item.error for item in report.datasets), *(item.error for item in report.purged)]
    lines = _cleanup_lines(report, dry_run=dry_run)
    return Output({"uri": graph.uri, **report.to_json()}, lines, 1 if any(errors) else 0).print(as_json=as_json)


def _cleanup_lines(report: CleanupReport, *, dry_run: bool) -> Iterator[str]:
    rows = (
        [item.type_key, item.versions_removed, item.files_removed, item.bytes_removed, item.error or ""]
        for item in report.datasets
    )
    yield from table(["dataset", "versions", "files", "bytes", "error"], rows)
    would_be = "would be " if dry_run else ""
    for count, outcome in ((report.swept.rolled_back, "back"), (report.swept.rolled_forward, "forward")):
        if count:
            yield f"{plural(count, 'dead operation')} {would_be}rolled {outcome}"
    yield from (_purged_line(purged, dry_run=dry_run) for purged in report.purged)
    yield f"{report.bytes_removed} bytes {would_be}removed, {report.swept.bytes_removed} of them in orphan files"


def _purged_line(purged: Purged, *, dry_run: bool) -> str:
    if purged.error is not None:
        return f"{purged.name} was hard-dropped, but not all of its data could be erased: {purged.error}"
    if dry_run:
        return f"{purged.name} was hard-dropped; its data would be erased"
    later = "" if purged.is_done else "; the next cleanup checks files of writers that started before the drop"
    return f"{purged.name} was hard-dropped: its data was erased from {plural(purged.files, 'file')}{later}"


def parse_duration(text: str) -> timedelta:
    """Parse an age.

    >>> parse_duration("90s"), parse_duration("7d")
    (datetime.timedelta(seconds=90), datetime.timedelta(days=7))
    """
    match = re.fullmatch(r"(\d+)([smhdw])", text.strip())
    if match is None:
        raise UsageError(f"`{text}` is not an age; write for example `90s`, `15m`, `6h`, `7d` or `2w`", age=text)
    return timedelta(seconds=int(match[1]) * _UNITS[match[2]])


def repair(
    target: Writes,
    branch: Branch = "main",
    confirm: Annotated[bool, switch("--confirm", "Adopt maintenance of other tools that was verified.")] = False,
    force: Annotated[bool, switch("--force", "With `--confirm`: also adopt all other changes.")] = False,
    discard: Annotated[bool, switch("--discard", "With `--confirm`: discard the changes.")] = False,
    message: Message = None,
) -> Output:
    if confirm:
        target.announce()
    with target.store_to_write() if confirm else target.store_to_read() as graph:
        report = graph.maintenance.repair(branch, confirm=confirm, force=force, discard=discard, message=message)
    options = {"confirm": confirm, "force": force, "discard": discard}
    columns = ["type", "published", "by path", "classification", "action", "operations"]
    rows = (
        [
            item.type_key,
            item.published_version,
            item.head_version,
            item.classification,
            item.action,
            f"{', '.join(item.operations)}{f' ({item.error})' if item.error else ''}",
        ]
        for item in report.types
    )
    status = 1 if report.is_refused else 0
    return Output({"uri": graph.uri, **options, **report.to_json()}, table(columns, rows), status)


Data = Annotated[bool, switch("--data", "Also compare all files with their checksums.")]


def verify(target: Reads, engine: Where = "auto", master: Master = None, data: Data = False) -> Output:
    from omnigraph import pipeline

    with target.store_to_read() as graph, progress_bar():
        report = pipeline.verify(graph, engine=engine, master=master, data=data)
    return Output({"uri": graph.uri, **report.to_json()}, _verify_lines(report), 0 if report.is_sound else 1)


def _verify_lines(report: VerifyReport) -> Iterator[str]:
    rows = [[finding.severity, finding.branch, finding.type_key, finding.message] for finding in report.findings]
    if rows:
        yield from table(["severity", "branch", "type", "finding"], rows)
    if report.checked_files is not None:
        compared = plural(report.checked_files, "file")
        yield f"{compared} compared with their checksums, {report.unchecked_files} without one"
    unreferenced = "no unreferenced files"
    if report.unreferenced_files:
        count = plural(report.unreferenced_files, "unreferenced file")
        unreferenced = f"{count} of {report.unreferenced_bytes:,} bytes, to be removed by cleanup"
    yield f"{'OK' if report.is_sound else 'the graph is damaged'}; {unreferenced}"


def doctor(uri: Annotated[str, argument("URI", "The store: a path, `s3://…`, `gs://…` or `az://…`.")]) -> Output:
    from omnigraph.graph import check_store

    report = check_store(uri)
    rows = [[check.name, check.outcome, check.detail] for check in report.checks]
    address = uri if report.endpoint is None else f"{uri} at {report.endpoint}"
    verdict = f"{address} is {'fit' if report.is_fit else 'not fit'} for graphs"
    return Output(report.to_json(), (*table(["check", "outcome", "finding"], rows), verdict), 0 if report.is_fit else 1)


Every = Annotated[str | None, option("--every", "TIME", "Repeat at this interval until stopped: 30s, 5m, 1h.")]


def reconcile(target: Writes, every: Every = None, as_json: Json = False) -> int:
    pause = None if every is None else parse_duration(every)
    target.announce()
    with target.store_to_write() as graph:
        if pause is None:
            _print_report(graph.uri, graph.maintenance.reconcile(), as_json)
            return 0
        reconciler = graph.maintenance.reconciler(pause)
        restore_gc()
        while True:
            reconciler.tick()
            if (error := reconciler.last_error) is not None:
                echo(f"this round failed: {str(error) or repr(error)}", err=True)
            elif reconciler.last is not None:
                _print_report(graph.uri, reconciler.last, as_json)
            reconciler.pause()


def _print_report(uri: str, report: ReconcileReport, as_json: bool) -> None:
    if as_json:
        # One line per round (JSON lines), so that a consumer can parse them one by one.
        echo(json.dumps({"uri": uri, **report.to_json()}))
        return
    if report.is_claimed:
        echo("another process is reconciling this graph; nothing was done")
        return
    settled = f"{report.rolled_forward} rolled forward, {report.rolled_back} rolled back"
    echo(f"{plural(report.links_finished, 'link')} finished; dead operations: {settled}")
    for verb, types in (("compacted", report.compacted), ("indexed", report.folded)):
        for type_key in types:
            echo(f"{verb} {type_key}")
    for type_key in report.left:
        echo(f"too large for a background round: {type_key}; run `omnigraph optimize`")
    for type_key in report.drifted:
        echo(f"written by another tool: {type_key}; run `omnigraph repair`")
    if report.deferred:
        echo(f"{plural(report.deferred, 'type')} left for the next round")


def upgrade(target: Writes) -> Output:
    from omnigraph.graph import upgrade as upgrade_graph

    target.announce()
    report = upgrade_graph(target.address, actor=target.actor)
    if report.branches:
        line = f"format {report.before} → {report.after}: {', '.join(report.branches)}"
    elif report.named:
        line = f"format {report.after} already; recorded the earlier names of {', '.join(report.named)}"
    else:
        line = f"format {report.after} already; nothing to do"
    return Output({"uri": target.address, **report.to_json()}, [line])


def list_entries(
    target: Reads,
    kind: Annotated[
        str | None,
        option("--kind", "NAME", "rolled_forward, rolled_back, branch_discarded, repaired, discarded or upgraded."),
    ] = None,
    by: Annotated[str | None, option("--actor", "NAME", "Only operations of this actor.")] = None,
    since: Annotated[
        str | None, option("--since", "WHEN", "Only since this timestamp or age: 90s, 15m, 6h, 7d.")
    ] = None,
    until: Annotated[str | None, option("--until", "WHEN", "Only before this timestamp or age.")] = None,
    limit: Annotated[int | None, option("--limit", "N", "Maximum number of entries.", min=1)] = None,
) -> Output:
    begins, ends = parse_time(since), parse_time(until)
    with target.store_to_read() as graph:
        entries = graph.maintenance.audit(kind=kind, actor=by, since=begins, until=ends, limit=limit)
    columns = ["when", "kind", "operation", "actor", "commit", "operation id"]
    rows = (
        [
            format_time(entry.created_at_us),
            entry.kind,
            entry.operation,
            entry.actor,
            entry.commit_id,
            entry.operation_id,
        ]
        for entry in entries
    )
    return Output({"uri": graph.uri, "entries": [entry.to_json() for entry in entries]}, table(columns, rows))


def parse_time(text: str | None) -> datetime | None:
    """Parse an ISO 8601 timestamp, UTC by default, or an age.

    >>> parse_time("2026-01-31"), parse_time("2026-01-31T12:00:00+02:00").hour
    (datetime.datetime(2026, 1, 31, 0, 0, tzinfo=datetime.timezone.utc), 12)
    """
    if text is None:
        return None
    with suppress(ValueError):
        written = datetime.fromisoformat(text.strip())
        return written if written.tzinfo else written.replace(tzinfo=UTC)
    from omnigraph import clock

    try:
        return datetime.fromtimestamp(clock.now_us() / 1_000_000, UTC) - parse_duration(text)
    except UsageError:
        raise UsageError(
            f"`{text}` is not a timestamp; write for example `2026-01-31`, `2026-01-31T12:00:00Z` or an age like `7d`"
        ) from None
