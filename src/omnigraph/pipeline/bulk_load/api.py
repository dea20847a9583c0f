"""Load: an input of any size as one commit, on any branch, by the rules of an ingest.

Tasks read, check and stage; the driver judges what concerns many rows at once and publishes, or nothing happens.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, cast, get_args

from omnigraph import clock, settings
from omnigraph.engine.authorization import on
from omnigraph.engine.branches import mask_hidden_tag
from omnigraph.engine.given import checked
from omnigraph.engine.session import Core
from omnigraph.engine.tasks import NO_PROGRESS, Progress, Runner, Threads
from omnigraph.engine.write.ingest import Mode
from omnigraph.engine.write.write_authorization import admit, check_base, missing_base, rights
from omnigraph.errors import Effect, GraphError, OmniGraphError, UsageError
from omnigraph.graph import Graph
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import Catalog
from omnigraph.limits import LOAD_ERRORS_MAX, LOAD_LOCAL_BYTES_MAX
from omnigraph.manifest.branches import create_branch, delete_branch
from omnigraph.manifest.model import MAIN, Commit
from omnigraph.pipeline.bulk_load.report import LoadReport, digest_input, prepare_folder, write_report
from omnigraph.pipeline.bulk_load.splits import (
    Columns,
    is_frame,
    parse_columns,
    plan_columns,
    plan_ndjson,
    table_key_of,
)
from omnigraph.pipeline.bulk_load.splits import Path as Source
from omnigraph.pipeline.bulk_load.transaction import AlreadyApplied, Done, Loading, Options, Work, find_applied
from omnigraph.pipeline.spark.executors import Engine, Executors, check_engine, executors

OnError = Literal["fail", "quarantine"]


@checked
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
    max_errors: int = LOAD_ERRORS_MAX,
    report: str | os.PathLike[str] | None = None,
    embed: bool = False,
    actor: str | None = None,
    engine: Engine = "auto",
    master: str | None = None,
    watcher: Progress = NO_PROGRESS,
) -> LoadReport:
    """Write an input of any size as one commit.

    `data` names NDJSON files, `nodes` and `edges` give the Parquet files, CSV files or DataFrames of a type; each may
    be a path, a directory, a pattern or an `s3://` address. With a `job_id`, the same load is done only once. With
    `on_error="quarantine"`, up to `max_errors` wrong entities are left out and written to the directory `report`. With
    `embed`, `@embed` vectors that the input does not give are made from their texts.
    """
    check_engine(engine)
    _check_words(mode, on_error)
    if on_error == "quarantine" and report is None:
        raise UsageError("a load with quarantine needs a directory for what it rejects; give `report`")
    if max_errors < 0:
        raise UsageError(f"`max_errors` is {max_errors}; it takes a whole number from 0 on", max_errors=max_errors)
    core, branch, started = graph.core, branch.strip(), clock.elapsed()
    core = admit(core, "change", on(branch), actor)
    actor = core.actor
    base = missing_base(core, branch, from_branch)
    if base is not None:
        check_base(core, base, branch)
    folder = prepare_folder(report) if report is not None else None
    start = core.kernel.snapshot(base if base is not None else branch)
    catalog = rights(core, start, branch if base is not None else None).seen.catalog
    work = _work(catalog, _sources(data), nodes or {}, edges or {})
    size = sum(split.size for split in work.splits)
    runner = _runner(engine, master, size, work.frames, watcher)
    how = f"{mode}, embedded" if embed else mode
    digest = digest_input(runner, how, work.splits, work.frames) if job_id is not None else ""
    job = job_id if job_id is not None else new_ulid()

    def report_applied(commit: Commit) -> LoadReport:
        return LoadReport(branch, base, False, mode, job, runner.engine, {}, {}, commit, actor, already_applied=True)

    known = core.kernel.history(branch) if job_id is not None and base is None else ()
    applied = find_applied(known, job, digest)
    if applied is not None:
        return report_applied(applied)
    rejects = folder if on_error == "quarantine" else None
    options = Options(mode, branch, job, digest, actor, max_errors, rejects, embed=embed)
    try:
        done = _run(core, runner, options, base, work)
    except AlreadyApplied as twin:
        return report_applied(twin.commit)
    result = LoadReport(
        branch,
        base,
        base is not None,
        mode,
        job,
        runner.engine,
        _counts(done, "node:"),
        _counts(done, "edge:"),
        done.commit,
        actor,
        rejected=done.rejected,
        embedded=done.embedded,
        input_bytes=size,
        seconds=clock.elapsed() - started,
    )
    if folder is not None:
        write_report(folder, result)
    return result


def _counts(done: Done, kind: str) -> dict[str, int]:
    return {key.removeprefix(kind): count for key, count in done.counts.items() if key.startswith(kind)}


def _run(core: Core, runner: Runner, options: Options, base: str | None, work: Work) -> Done:
    """Load, on a branch that is made for it if it is missing, and taken away again if nothing was loaded."""
    if base is None:
        return Loading(core, core.whole(options.branch), runner, options).run(work)
    try:
        with mask_hidden_tag(core, options.branch):
            create_branch(core.kernel, options.branch, core.whole(base).snapshot, options.actor)
    except GraphError as error:
        # Another load, such as the same job in another process, may have made it meanwhile.
        if error.code != "branch.exists" or missing_base(core, options.branch, base) is not None:
            raise
        return Loading(core, core.whole(options.branch), runner, options).run(work)
    view = core.whole(options.branch)
    try:
        return Loading(core, view, runner, options).run(work)
    except BaseException as error:
        is_untouched = not isinstance(error, OmniGraphError) or error.effect is Effect.NONE
        if is_untouched:
            # What the caller has to hear of is why nothing was loaded.
            with suppress(OmniGraphError):
                if core.kernel.snapshot(options.branch).head == view.snapshot.head:
                    delete_branch(core.kernel, options.branch, options.actor)
        raise


def _check_words(mode: str, on_error: str) -> None:
    for what, word, known in (
        ("mode", mode, get_args(Mode)),
        ("on_error", on_error, get_args(OnError)),
    ):
        if word not in known:
            raise UsageError(f"there is no {what} `{word}`; it is one of {', '.join(known)}", word=word)


def _sources(data: Source | Sequence[Source]) -> list[Source]:
    # Whatever is neither is refused, by its type, when its files are looked for.
    return list(data) if isinstance(data, list | tuple) else [cast(Source, data)]


def _work(catalog: Catalog, data: list[Source], nodes: Mapping[str, Any], edges: Mapping[str, Any]) -> Work:
    """Return what is to be loaded; NDJSON may hold any type, other files hold the type that they are given for."""
    named = _named(catalog, nodes, edges)
    if not data and not named:
        raise UsageError("there is nothing to load; give `data`, `nodes` or `edges`")
    frames = {key: columns for key, columns in named.items() if is_frame(columns.data)}
    splits = plan_ndjson(data)
    for key, columns in named.items():
        splits += plan_columns(key, columns, catalog.type_of(key).properties) if key not in frames else []
    return Work(splits, frames, _all_keys(catalog) if data else sorted(named), list(named))


def _named(catalog: Catalog, nodes: Mapping[str, Any], edges: Mapping[str, Any]) -> dict[str, Columns]:
    named: dict[str, Columns] = {}
    for kind, given in (("node", nodes), ("edge", edges)):
        for name, source in given.items():
            columns = parse_columns(source)
            if kind == "node" and columns.source is not None:
                raise UsageError(
                    f"`{name}` is a node type, which has no ends; leave `:{columns.source}->{columns.target}` away",
                    type=name,
                )
            named[table_key_of(catalog, kind, str(name))] = columns
    return named


def _all_keys(catalog: Catalog) -> list[str]:
    return sorted(
        [*(one.table_key for one in catalog.nodes.values()), *(one.table_key for one in catalog.edges.values())]
    )


def _runner(engine: str, master: str | None, size: int, frames: Mapping[str, Columns], watcher: Progress) -> Runner:
    """Return where tasks run: small inputs are done before Spark would have started."""
    for columns in frames.values():
        if engine == "local":
            raise UsageError("a DataFrame lives in Spark; leave `engine` away, or give a file", engine=engine)
        return Executors(columns.data.sparkSession, watcher)
    if engine == "local" or (engine == "auto" and master is None and size <= LOAD_LOCAL_BYTES_MAX):
        return Threads(watcher, settings.whole("OMNIGRAPH_LOAD_CONCURRENCY", least=1))
    return executors(master, watcher)
