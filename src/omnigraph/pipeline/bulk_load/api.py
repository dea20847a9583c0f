"""The public entry point of a load: validate arguments, authorize, plan and digest the input, run the transaction.

A load follows the rules of an ingest and is atomic: everything is published as one commit, or nothing is.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from omnigraph import clock
from omnigraph.docstrings import complete_docs
from omnigraph.engine.arguments import check_choice, check_type, strip_name
from omnigraph.engine.authorization import on_branch
from omnigraph.engine.branches import mask_hidden_names
from omnigraph.engine.session import GraphSession
from omnigraph.engine.tasks import Progress, Runner, reporting_to
from omnigraph.engine.write.write_authorization import check_base, missing_base, write_permissions
from omnigraph.errors import BranchExists, Effect, OmniGraphError, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import Catalog, Kind, TypeKey
from omnigraph.limits import LOAD_ERRORS_MAX
from omnigraph.manifest.branches import create_branch, delete_branch
from omnigraph.manifest.model import MAIN
from omnigraph.pipeline.bulk_load.job import (
    NO_DIGEST,
    InputSchema,
    LoadOptions,
    LoadReport,
    prepare_folder,
    write_report,
)
from omnigraph.pipeline.bulk_load.splits import (
    Columns,
    Split,
    find_table_key,
    is_frame,
    parse_columns,
    plan_columns,
    plan_ndjson,
    write_arrow,
)
from omnigraph.pipeline.bulk_load.splits import Path as Source
from omnigraph.pipeline.bulk_load.transaction import (
    AlreadyApplied,
    LateProperties,
    LoadOutcome,
    LoadPlan,
    LoadTransaction,
    find_applied,
    no_late_properties,
    require_not_applied,
)
from omnigraph.pipeline.filesystems import open_file
from omnigraph.pipeline.spark.executors import ENGINE_DOCS, Engine, RunnerChoice
from omnigraph.public_values import Mode, OnDuplicate

# Changing this size would change every digest, and past jobs would look new.
_BLOCK_BYTES: Final = 32 * 1024 * 1024
_STEP_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ByteRange:
    file: str
    start: int
    stop: int


def digest_input(runner: Runner, mode: str, splits: Sequence[Split], frames: Mapping[TypeKey, Columns]) -> str:
    """Return a digest of the input and the mode of a load.

    A DataFrame counts by its schema only: computing its rows may cost as much as the load.
    """
    firsts = [split for split in splits if split.is_first]
    sizes = _file_sizes(splits)
    blocks = [
        ByteRange(split.file, start, min(start + _BLOCK_BYTES, sizes[split.file]))
        for split in firsts
        for start in range(0, max(sizes[split.file], 1), _BLOCK_BYTES)
    ]
    digests = runner.run("hashing the input", digest_block, blocks, [block.stop - block.start for block in blocks])
    descriptions = [
        f"{split.table_key}:{_format_mapping(split.columns)}:{sizes[split.file]}{_format_partitions(split)}"
        for split in firsts
    ]
    descriptions += [f"{key}:{columns.data.schema.json()}" for key, columns in sorted(frames.items())]
    return hashlib.sha256("\n".join([mode, *descriptions, *digests]).encode()).hexdigest()


def _format_mapping(columns: Columns | None) -> str:
    """Format a column mapping field by field, so that digests stay the same when the class gets new fields."""
    if columns is None:
        return ""
    delimiter = [] if columns.delimiter is None else [f"delimiter {columns.delimiter}"]
    properties = map(str, sorted(columns.properties.items()))
    return "\0".join([columns.source or "", columns.target or "", *properties, *delimiter])


def _format_partitions(split: Split) -> str:
    """Format partition columns; empty without any, as digests were before partitions were supported."""
    partitions = (*split.parent_partitions, *split.partitions)
    return f":{partitions}" if partitions else ""


def digest_block(block: ByteRange) -> str:
    digest = hashlib.sha256()
    with open_file(block.file) as file:
        for position in range(block.start, block.stop, _STEP_BYTES):
            digest.update(file.read_at(min(_STEP_BYTES, block.stop - position), position))
    return digest.hexdigest()


def _file_sizes(splits: Sequence[Split]) -> dict[str, int]:
    """Return file sizes; splits of Parquet count row groups, so the size of a Parquet file is read."""
    sizes: dict[str, int] = {}
    for split in splits:
        if split.format != "parquet":
            sizes[split.file] = max(sizes.get(split.file, 0), split.stop, split.size)
        elif split.file not in sizes:
            with open_file(split.file) as file:
                sizes[split.file] = file.size()
    return sizes


OnError = Literal["fail", "quarantine"]
# NDJSON files, and files or DataFrames by node type and by edge type.
_Sources: TypeAlias = tuple[list[Source], Mapping[str, Any], Mapping[str, Any]]


@complete_docs(Graph.load, ENGINE_DOCS)
def load(
    graph: Graph,
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
    message: str | None = None,
    actor: str | None = None,
    engine: Engine = "auto",
    spark: Any = None,
    master: str | None = None,
    progress: Progress | None = None,
    properties: Mapping[str, str] | None = None,
    is_input_digested: bool = True,
    commits_empty: bool = False,
    late_properties: LateProperties = no_late_properties,
) -> LoadReport:
    """Load an input of any size as one commit.

    Args:
        data: NDJSON files, whose lines name their types: paths, directories, glob patterns or addresses of objects.
        nodes: By node type: Parquet or CSV files, or frames (Spark, pandas, polars, Arrow tables and readers). Frames
            that are not Spark's are written to temporary files, which executors on other machines cannot read.
        edges: The same by edge type; `"FILE:from_column->to_column"` names the columns of the endpoints.
        job_id: Idempotency key; a load with the same key and input is applied at most once.
        on_error: `fail` raises the violations; `quarantine` leaves wrong entities out and writes them to `report`.
        on_duplicate: Entities of the input with the same key: an `error`, or load the `first` or the `last` of them.
            This is decided before other rules are checked.
        max_errors: How many entities a quarantine may leave out before the load fails.
        report: Directory for `report.json` and `rejected.ndjson`.
        embed: Make the `@embed` vectors that the input does not have from their texts.
        actor: Who writes; by default the actor of the graph.
        properties: Further properties of the commit, such as where the input came from; with them, its property
            `counts` has the number of entities by type, and `rejected` that of entities that were left out.
        commits_empty: Commit an input without entities as well, for the sake of its properties.
        late_properties: Returns more properties of the commit; called with what is rejected when everything is staged.
        is_input_digested: Compare the input of a repeated `job_id`; without it, the key alone decides.

    Returns:
        What was loaded and rejected, and the commit, if there was anything to publish.

    Raises:
        UsageError: An argument or a file cannot be used.
        DataError: The input breaks a rule of the schema; nothing was written.
        JobExists: `job_id` was used for another input.
        PipelineUnavailable: The input needs Spark, which is not installed.

    Example:
        >>> import pyarrow as pa
        >>> from omnigraph import pipeline
        >>> pipeline.load(graph, nodes={"Person": pa.table({"name": ["Cid", "Dee"]})}).total_entities
        2
    """
    check_type("nodes", nodes, Mapping | None)
    check_type("edges", edges, Mapping | None)
    check_type("from_branch", from_branch, str | None)
    check_type("job_id", job_id, str | None)
    check_type("report", report, str | os.PathLike | None)
    check_type("max_errors", max_errors, int)
    choice = RunnerChoice(engine, master, spark, is_flexible=False)
    check_choice("mode", mode, get_args(Mode))
    check_choice("on_error", on_error, get_args(OnError))
    check_choice("on_duplicate", on_duplicate, get_args(OnDuplicate))
    if on_error == "quarantine" and report is None:
        raise UsageError("a load with quarantine needs a directory for what it rejects; give `report`")
    if max_errors < 0:
        raise UsageError(f"`max_errors` must be >= 0, got {max_errors}", max_errors=max_errors)
    branch = strip_name(branch)
    session = session_of(graph if actor is None else graph.acting_as(actor)).with_message(message)
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
    with reporting_to(progress), TemporaryDirectory(prefix="omnigraph-load-") as folder:
        node_sources, edge_sources = (
            {name: write_arrow(source, f"{folder}/{kind}", str(name)) for name, source in (sources or {}).items()}
            for kind, sources in (("node", nodes), ("edge", edges))
        )
        # Anything else is rejected with its type when its files are looked for.
        files = list(data) if isinstance(data, list | tuple) else [cast(Source, data)]
        return _load(session, options, (files, node_sources, edge_sources), choice, late_properties)


def _load(
    session: GraphSession, options: LoadOptions, sources: _Sources, choice: RunnerChoice, late: LateProperties
) -> LoadReport:
    """Plan the input, run the transaction unless the job was applied before, and report what happened."""
    started, base = clock.elapsed(), options.base
    start = session.kernel.snapshot(base if base is not None else options.branch)
    permissions = write_permissions(session, start, options.branch if base is not None else None)
    schema = InputSchema(permissions.visible.snapshot.state.schema.ir, start.state.schema.ir_hash)
    load_plan = _plan_input(schema, *sources)
    size = sum(split.size for split in load_plan.splits)
    runner = choice.by_input(size, (columns.data for columns in load_plan.frames.values()), "load a file")
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
