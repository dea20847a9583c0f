"""Load an input of any size as one commit: arguments, rights, where tasks run, and the receipt.

A load is atomic: everything is published as one commit, or nothing is. An input that fits is held in memory and written
like a mutation; tasks stage a larger one in files. Nothing else depends on its size.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, get_args

from omnigraph import clock
from omnigraph.engine.arguments import check_choice, check_type, strip_name
from omnigraph.engine.authorization import on_branch
from omnigraph.engine.branches import mask_hidden_names
from omnigraph.engine.embed.cache import compact_caches
from omnigraph.engine.input.frames import frame_name
from omnigraph.engine.input.reading import Bounds
from omnigraph.engine.input.splits import Columns, Split, plan_columns, write_frame
from omnigraph.engine.input.spool import Spool
from omnigraph.engine.load.digest import digest_input
from omnigraph.engine.load.job import NO_DIGEST, InputSchema, Job, LoadOptions, Replaced, RowJob
from omnigraph.engine.load.kept_rows import plan_embedding
from omnigraph.engine.load.memory import InMemory
from omnigraph.engine.load.plan_input import LoadPlan, plan_input, plan_small_write
from omnigraph.engine.load.report import LoadReport, prepare_folder, write_report
from omnigraph.engine.load.transaction import (
    AlreadyApplied,
    LateProperties,
    LoadOutcome,
    LoadTransaction,
    find_applied,
    no_late_properties,
    require_not_applied,
)
from omnigraph.engine.runners import input_threads
from omnigraph.engine.session import GraphSession, View
from omnigraph.engine.tasks import Runner, ThisThread
from omnigraph.engine.write.write_authorization import WritePermissions, check_base, missing_base, write_permissions
from omnigraph.errors import BranchExists, Effect, OmniGraphError, UsageError
from omnigraph.ids import OperationId, new_ulid
from omnigraph.lang.catalog import KINDS, TypeKey
from omnigraph.limits import LOAD_ERRORS_MAX, LOAD_MEMORY_BYTES_MAX, WRITE_BYTES_MAX, WRITE_ENTITIES_MAX
from omnigraph.manifest.branches import create_branch, delete_branch
from omnigraph.manifest.intents import declared
from omnigraph.manifest.model import MAIN
from omnigraph.public_values import EntityCounts, Mode, OnDuplicate

OnError = Literal["fail", "quarantine"]
Dialect = Literal["strict", "compatible"]


def load(
    session: GraphSession,
    data: Any = None,
    *,
    nodes: Mapping[str, Any] | None = None,
    edges: Mapping[str, Any] | None = None,
    mode: Mode = "merge",
    branch: str = MAIN,
    from_branch: str | None = None,
    job_id: str | None = None,
    on_error: OnError = "fail",
    on_duplicate: OnDuplicate = "error",
    max_errors: int = LOAD_ERRORS_MAX,
    report: str | os.PathLike[str] | None = None,
    embed: bool = False,
    properties: Mapping[str, str] | None = None,
    is_input_digested: bool = True,
    commits_empty: bool = False,
    late_properties: LateProperties = no_late_properties,
) -> LoadReport:
    """Load an input of any size as one commit; see `Graph.load`."""
    check_type("job_id", job_id, str | None)
    check_type("report", report, str | os.PathLike | None)
    check_type("max_errors", max_errors, int)
    check_choice("on_error", on_error, get_args(OnError))
    if on_error == "quarantine" and report is None:
        raise UsageError("a load with quarantine needs a directory for what it rejects; give `report`")
    if max_errors < 0:
        raise UsageError(f"`max_errors` must be >= 0, got {max_errors}", max_errors=max_errors)
    options = LoadOptions(
        mode=mode,
        branch=branch,
        job_id=job_id if job_id is not None else new_ulid(),
        is_repeatable=job_id is not None,
        errors_max=max_errors,
        is_rejecting=on_error == "quarantine",
        embed=embed,
        digest="" if is_input_digested else NO_DIGEST,
        properties=dict(properties or {}),
        commits_empty=commits_empty,
        on_duplicate=on_duplicate,
    )
    return _load(session, options, (data, nodes, edges), from_branch, report, late_properties)


def ingest(
    session: GraphSession,
    data: Any = None,
    *,
    nodes: Mapping[str, Any] | None = None,
    edges: Mapping[str, Any] | None = None,
    mode: Mode = "merge",
    branch: str = MAIN,
    from_branch: str | None = None,
    dialect: Dialect = "strict",
    on_duplicate: OnDuplicate = "error",
) -> LoadReport:
    """Load NDJSON, dictionaries or data frames in one small write; more is refused."""
    check_choice("dialect", dialect, get_args(Dialect))
    is_keyed, is_strict = mode != "overwrite", dialect == "strict"
    entities_max = WRITE_ENTITIES_MAX if is_keyed else sys.maxsize
    bytes_max = WRITE_BYTES_MAX if is_keyed or is_strict else sys.maxsize
    options = LoadOptions(
        kind="ingest",
        mode=mode,
        branch=branch,
        on_duplicate=on_duplicate,
        bounds=Bounds(entities_max, bytes_max),
        is_compatible=not is_strict,
    )
    return _load(session, options, (data, nodes, edges), from_branch)


def _load(
    session: GraphSession,
    options: LoadOptions,
    sources: tuple[Any, Mapping[str, Any] | None, Mapping[str, Any] | None],
    from_branch: str | None,
    report: str | os.PathLike[str] | None = None,
    late_properties: LateProperties = no_late_properties,
) -> LoadReport:
    """Check arguments and rights, plan the input, and load it unless the job was applied before."""
    started = clock.elapsed()
    data, nodes, edges = sources
    check_type("nodes", nodes, Mapping | None)
    check_type("edges", edges, Mapping | None)
    check_type("from_branch", from_branch, str | None)
    check_choice("mode", options.mode, get_args(Mode))
    check_choice("on_duplicate", options.on_duplicate, get_args(OnDuplicate))
    branch = strip_name(options.branch)
    session.require("change", on_branch(branch))
    base = missing_base(session, branch, from_branch)
    if base is not None:
        check_base(session, base, branch)
    report_folder = prepare_folder(report) if report is not None else None
    options = replace(options, branch=branch, base=base, report_folder=report_folder)
    start = session.kernel.snapshot(base if base is not None else branch)
    permissions = write_permissions(session, start, branch if base is not None else None)
    visible = permissions.visible
    schema = InputSchema(visible.snapshot.state.schema.ir, start.state.schema.ir_hash, visible.catalog)
    with Spool() as spool:
        plan_sources = plan_input if options.bounds is None else plan_small_write
        plan = plan_sources(spool, schema, data, nodes or {}, edges or {})
        result = _run(session, options, plan, permissions, late_properties)
        result = replace(result, seconds=clock.elapsed() - started)
        if report_folder is not None and not result.already_applied:
            write_report(report_folder, result)
    return result


def _run(
    session: GraphSession,
    options: LoadOptions,
    plan: LoadPlan,
    permissions: WritePermissions,
    late_properties: LateProperties,
) -> LoadReport:
    """Choose where tasks run, and run the transaction unless the job was applied before."""
    size = sum(split.size for split in plan.splits)
    runner = _choose_runner(session, options, plan, size)
    if options.is_repeatable and not options.digest:
        options = replace(options, digest=digest_input(runner, options, plan.splits, plan.frames))
    branch, base = options.branch, options.base
    commits = session.kernel.history(branch) if options.is_repeatable and base is None else ()
    applied, is_created, outcome = find_applied(session, commits, options), False, LoadOutcome(None, {}, ())
    if applied is None:
        transaction = LoadTransaction(session, options, permissions, late_properties)
        run = _load_in_memory if isinstance(runner, ThisThread) else _load_in_buckets
        try:
            outcome, is_created = run(session, transaction, plan, runner)
        except AlreadyApplied as applied_meanwhile:
            applied = applied_meanwhile.commit
    commit = applied or outcome.commit
    counts = outcome.counts
    nodes, edges = (EntityCounts({key.name: counts[key] for key in counts if key.kind == kind}) for kind in KINDS)
    return LoadReport(
        branch,
        base,
        is_created,
        options.mode,
        nodes,
        edges,
        session.actor,
        None if commit is None else session.redact_receipt(commit, branch),
        job_id=options.job_id,
        engine=runner.engine,
        already_applied=applied is not None,
        rejected=outcome.rejected,
        embedded=outcome.embedded,
        input_bytes=0 if applied is not None else size,
    )


def _choose_runner(session: GraphSession, options: LoadOptions, plan: LoadPlan, size: int) -> Runner:
    """Return where tasks run, by what is known of the input before it is read."""
    if options.bounds is not None:
        return ThisThread()
    is_small = sum(split.memory_bytes for split in plan.splits) <= LOAD_MEMORY_BYTES_MAX
    frames = (columns.data for columns in plan.frames.values())
    return session.runners.by_input(size, frames, "load a file", ThisThread() if is_small else input_threads())


def _load_in_memory(
    session: GraphSession, transaction: LoadTransaction, plan: LoadPlan, runner: Runner
) -> tuple[LoadOutcome, bool]:
    """Load an input whose rows fit into memory; what is invalid leaves no branch behind."""
    options, start = transaction.options, transaction.permissions.visible.snapshot
    is_created, embed = False, None
    if options.embed:
        view = session.full_view(options.branch if options.base is None else options.base)
        embed = plan_embedding(view, new_ulid(), runner)
    job = RowJob(
        options=options,
        schema=plan.schema,
        unit="record" if options.is_compatible else plan.unit,
        blob_rules=session.external_blobs,
        embed=embed,
        replaced=Replaced.of(start, start.state.pins),
    )
    staged = InMemory(job, plan.splits, plan.named)
    staged.stage()
    if options.base is not None:
        transaction.check(staged, session.kernel.snapshot(options.base))
        is_created = _create_branch(session, options.branch, options.base)
        _require_new_job(session, options)
    outcome = transaction.publish(staged)
    if embed is not None:
        compact_caches(session.kernel.store, embed.spaces)
    return outcome, is_created


def _load_in_buckets(
    session: GraphSession, transaction: LoadTransaction, plan: LoadPlan, runner: Runner
) -> tuple[LoadOutcome, bool]:
    """Load an input that tasks stage in files of the branch; a new branch is deleted again if nothing was loaded."""
    options = transaction.options
    is_created = options.base is not None and _create_branch(session, options.branch, options.base)
    view = session.full_view(options.branch)
    try:
        _require_new_job(session, options)
        return _stage_and_publish(session, transaction, plan, runner, view), is_created
    except BaseException as error:
        is_untouched = not isinstance(error, OmniGraphError) or error.effect is Effect.NONE
        if is_created and is_untouched:
            # The caller needs the reason of the failed load, not that of a failed cleanup.
            with suppress(OmniGraphError):
                if session.kernel.snapshot(options.branch).head == view.snapshot.head:
                    delete_branch(session.kernel, options.branch, session.actor)
        raise


def _stage_and_publish(
    session: GraphSession, transaction: LoadTransaction, plan: LoadPlan, runner: Runner, view: View
) -> LoadOutcome:
    # Most loads are small, and import none of what a large one takes.
    from omnigraph.engine.load.buckets import InBuckets, plan_job
    from omnigraph.engine.load.stage_split import StageTask

    session.kernel.reject_read_only()
    options, store = transaction.options, session.kernel.store
    # The intent names all files that tasks may write, so the next sweep removes what a killed driver leaves behind.
    with declared(store, "load", view.snapshot, session.actor) as intent:
        embed = plan_embedding(view, intent.operation_id, runner) if options.embed else None
        job = plan_job(session, view, options, plan, intent.operation_id, embed)
        intent.staging(*job.claims)
        staged = InBuckets(job, runner, store, plan.named)
        with staged.cleaning_up():
            splits = [*plan.splits, *_write_frames(runner, job, plan.frames)]
            staged.stage([StageTask(split) for split in splits])
            outcome = transaction.publish(staged, OperationId(job.operation_id))
        if embed is not None:
            compact_caches(store, embed.spaces)
        return outcome


def _write_frames(runner: Runner, job: Job, frames: Mapping[TypeKey, Columns]) -> Iterator[Split]:
    """Write distributed frames to files, and yield the splits of those."""
    for key, columns in frames.items():
        paths = write_frame(runner, columns.data, job.access, job.scratch, key.name)
        # Messages name the frame: its files are gone when they are read.
        yield from plan_columns(key, replace(columns, data=paths, name=frame_name(key.name)))


def _require_new_job(session: GraphSession, options: LoadOptions) -> None:
    """Raise `AlreadyApplied` if the job was applied to the base before the branch was made."""
    if options.base is not None and options.is_repeatable:
        require_not_applied(session, session.kernel.history(options.branch), options)


def _create_branch(session: GraphSession, branch: str, base: str) -> bool:
    """Create a branch; return False if another load, such as the same job in another process, did so meanwhile."""
    try:
        with mask_hidden_names(session, branch):
            create_branch(session.kernel, branch, session.full_view(base).snapshot, session.actor)
    except BranchExists:
        if missing_base(session, branch, base) is not None:
            raise
        return False
    return True
