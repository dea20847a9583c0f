"""Load an input of any size: validate arguments, authorize, plan and digest the input, run the transaction.

A load follows the rules of an ingest and is atomic: everything is published as one commit, or nothing is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias, cast, get_args

from omnigraph import clock
from omnigraph.engine.arguments import check_choice, check_type, strip_name
from omnigraph.engine.authorization import on_branch
from omnigraph.engine.branches import mask_hidden_names
from omnigraph.engine.input.splits import (
    Columns,
    find_table_key,
    is_frame,
    parse_columns,
    plan_columns,
    plan_ndjson,
    write_arrow,
)
from omnigraph.engine.input.splits import Path as Source
from omnigraph.engine.load.digest import digest_input
from omnigraph.engine.load.job import (
    NO_DIGEST,
    InputSchema,
    LoadOptions,
    LoadReport,
    prepare_folder,
    write_report,
)
from omnigraph.engine.load.transaction import (
    AlreadyApplied,
    LateProperties,
    LoadOutcome,
    LoadPlan,
    LoadTransaction,
    find_applied,
    no_late_properties,
    require_not_applied,
)
from omnigraph.engine.session import GraphSession
from omnigraph.engine.tasks import Runner
from omnigraph.engine.write.write_authorization import check_base, missing_base, write_permissions
from omnigraph.errors import BranchExists, Effect, OmniGraphError, UsageError
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import Catalog, Kind, TypeKey
from omnigraph.limits import LOAD_ERRORS_MAX
from omnigraph.manifest.branches import create_branch, delete_branch
from omnigraph.manifest.model import MAIN
from omnigraph.public_values import Mode, OnDuplicate

OnError = Literal["fail", "quarantine"]
# NDJSON files, and files or DataFrames by node type and by edge type.
_Sources: TypeAlias = tuple[list[Source], Mapping[str, Any], Mapping[str, Any]]


def load(
    session: GraphSession,
    data: Source | Sequence[Source] = (),
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
    """Load an input of any size as one commit; see `pipeline.load`."""
    check_type("nodes", nodes, Mapping | None)
    check_type("edges", edges, Mapping | None)
    check_type("from_branch", from_branch, str | None)
    check_type("job_id", job_id, str | None)
    check_type("report", report, str | os.PathLike | None)
    check_type("max_errors", max_errors, int)
    check_choice("mode", mode, get_args(Mode))
    check_choice("on_error", on_error, get_args(OnError))
    check_choice("on_duplicate", on_duplicate, get_args(OnDuplicate))
    if on_error == "quarantine" and report is None:
        raise UsageError("a load with quarantine needs a directory for what it rejects; give `report`")
    if max_errors < 0:
        raise UsageError(f"`max_errors` must be >= 0, got {max_errors}", max_errors=max_errors)
    branch = strip_name(branch)
    session.require("change", on_branch(branch))
    base = missing_base(session, branch, from_branch)
    if base is not None:
        check_base(session, base, branch)
    report_folder = prepare_folder(report) if report is not None else None
    options = LoadOptions(
        mode=mode,
        branch=branch,
        base=base,
        job_id=job_id if job_id is not None else new_ulid(),
        is_repeatable=job_id is not None,
        errors_max=max_errors,
        report_folder=report_folder,
        is_rejecting=on_error == "quarantine",
        embed=embed,
        digest="" if is_input_digested else NO_DIGEST,
        properties=dict(properties or {}),
        commits_empty=commits_empty,
        on_duplicate=on_duplicate,
    )
    with TemporaryDirectory(prefix="omnigraph-load-") as folder:
        node_sources, edge_sources = (
            {name: write_arrow(source, f"{folder}/{kind}", str(name)) for name, source in (sources or {}).items()}
            for kind, sources in (("node", nodes), ("edge", edges))
        )
        # Anything else is rejected with its type when its files are looked for.
        files = list(data) if isinstance(data, list | tuple) else [cast(Source, data)]
        return _load(session, options, (files, node_sources, edge_sources), late_properties)


def _load(session: GraphSession, options: LoadOptions, sources: _Sources, late: LateProperties) -> LoadReport:
    """Plan the input, run the transaction unless the job was applied before, and report what happened."""
    started, base = clock.elapsed(), options.base
    start = session.kernel.snapshot(base if base is not None else options.branch)
    permissions = write_permissions(session, start, options.branch if base is not None else None)
    schema = InputSchema(permissions.visible.snapshot.state.schema.ir, start.state.schema.ir_hash)
    load_plan = _plan_input(schema, *sources)
    size = sum(split.size for split in load_plan.splits)
    frames = (columns.data for columns in load_plan.frames.values())
    runner = session.runners.by_input(size, frames, "load a file")
    if options.is_repeatable and not options.digest:
        digested_mode = f"{options.mode}, embedded" if options.embed else options.mode
        digested_mode += "" if options.on_duplicate == "error" else f", {options.on_duplicate} duplicate"
        digest = digest_input(runner, digested_mode, load_plan.splits, load_plan.frames)
        options = replace(options, digest=digest)
    report = LoadReport(
        options.branch, base, base is not None, options.mode, options.job_id, runner.engine, {}, {}, None, session.actor
    )
    commits = session.kernel.history(options.branch) if options.is_repeatable and base is None else ()
    applied = find_applied(session, commits, options)
    if applied is None:
        try:
            outcome = _run_on_branch(session, runner, options, load_plan, late)
        except AlreadyApplied as applied_meanwhile:
            applied = applied_meanwhile.commit
    if applied is not None:
        return replace(
            report, branch_created=False, commit=session.redact_receipt(applied, options.branch), already_applied=True
        )
    report = replace(
        report,
        nodes=_counts_of_kind(outcome, "node"),
        edges=_counts_of_kind(outcome, "edge"),
        commit=session.redact_receipt(outcome.commit, options.branch) if outcome.commit else None,
        rejected=outcome.rejected,
        embedded=outcome.embedded,
        input_bytes=size,
        seconds=clock.elapsed() - started,
    )
    if options.report_folder is not None:
        write_report(options.report_folder, report)
    return report


def _counts_of_kind(outcome: LoadOutcome, kind: Kind) -> dict[str, int]:
    return {key.name: count for key, count in outcome.counts.items() if key.kind == kind}


def _run_on_branch(
    session: GraphSession, runner: Runner, options: LoadOptions, load_plan: LoadPlan, late: LateProperties
) -> LoadOutcome:
    """Run the transaction; a missing branch is created first, and deleted again if nothing was loaded."""
    is_created = options.base is not None and _create_branch(session, options.branch, options.base)
    view = session.full_view(options.branch)
    try:
        if options.base is not None and options.is_repeatable:
            # The job may have been applied to the base before the branch was made.
            require_not_applied(session, session.kernel.history(options.branch), options)
        return LoadTransaction(session, view, runner, options, late).run(load_plan)
    except BaseException as error:
        is_untouched = not isinstance(error, OmniGraphError) or error.effect is Effect.NONE
        if is_created and is_untouched:
            # The caller needs the reason of the failed load, not that of a failed cleanup.
            with suppress(OmniGraphError):
                if session.kernel.snapshot(options.branch).head == view.snapshot.head:
                    delete_branch(session.kernel, options.branch, session.actor)
        raise


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


def _plan_input(
    schema: InputSchema, data: list[Source], nodes: Mapping[str, Any], edges: Mapping[str, Any]
) -> LoadPlan:
    """Cut the sources into splits. NDJSON may hold any type; other files hold the type they were passed for."""
    catalog = schema.catalog
    named = _parse_typed_sources(catalog, nodes, edges)
    if not data and not named:
        raise UsageError("there is nothing to load; give `data`, `nodes` or `edges`")
    frames = {key: columns for key, columns in named.items() if is_frame(columns.data)}
    splits = plan_ndjson(data)
    for key, columns in named.items():
        splits += plan_columns(key, columns, catalog.type_of(key).properties) if key not in frames else []
    table_keys = sorted(type_.table_key for type_ in catalog.types) if data else sorted(named)
    return LoadPlan(splits, frames, table_keys, list(named), schema)


def _parse_typed_sources(
    catalog: Catalog, nodes: Mapping[str, Any], edges: Mapping[str, Any]
) -> dict[TypeKey, Columns]:
    named: dict[TypeKey, Columns] = {}
    for kind, sources in (("node", nodes), ("edge", edges)):
        for name, source in sources.items():
            columns = parse_columns(source)
            if kind == "node" and columns.source is not None:
                raise UsageError(
                    f"`{name}` is a node type, which has no endpoints; omit `:{columns.source}->{columns.target}`",
                    type=name,
                )
            named[find_table_key(catalog, kind, str(name))] = columns
    return named
