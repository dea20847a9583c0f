"""`omnigraph load`, its former name `ingest`, and `embed`: bring entities and vectors into a graph."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, Literal

from omnigraph.cli.app import Destroys, Writes
from omnigraph.cli.options import Branch, Master, Message, OptionGroup, Types, Where, argument, option, switch
from omnigraph.cli.output import Output, commit_line, echo, plural, progress_bar, table
from omnigraph.errors import OmniGraphError, UsageError
from omnigraph.limits import LOAD_ERRORS_MAX

if TYPE_CHECKING:
    from omnigraph.cli.target import Target
    from omnigraph.pipeline import LoadReport
    from omnigraph.public_values import IngestReceipt


Nodes = Annotated[list[str] | None, option("--node", "TYPE=FILE", "Parquet or CSV with nodes of one type; repeatable.")]
Edges = Annotated[
    list[str] | None, option("--edge", "TYPE=FILE[:FROM->TO]", "The same for edges; FROM and TO are columns.")
]
Delimiter = Annotated[
    str | None, option("--delimiter", "C", "What separates the fields of CSV files; `tab` for a tab.")
]
MaxErrors = Annotated[int, option("--max-errors", "N", "Fail if more entities than this are quarantined.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions(OptionGroup):
    """What `load` takes, and its former name."""

    files: Annotated[list[str] | None, argument("FILE", "NDJSON, as with `--data`.")] = None
    data: Annotated[
        list[str] | None,
        option(
            "--data",
            "FILE",
            "NDJSON, also `.gz` or `.zst`: file, directory, glob, `s3://…`, `gs://…`, `az://…` or `-`; repeatable.",
        ),
    ] = None
    mode: Annotated[
        Literal["append", "merge", "overwrite"],
        option("--mode", "NAME", "`append` new entities, `merge` by id, or `overwrite` whole types."),
    ] = "merge"
    node: Nodes = None
    edge: Edges = None
    maps: Annotated[
        list[str] | None, option("--map", "TYPE.COLUMN=PROPERTY", "A column by another name; repeatable.")
    ] = None
    delimiter: Delimiter = None
    branch: Branch = "main"
    from_branch: Annotated[
        str | None, option("--from", "NAME", "If the branch does not exist, create it from this one.")
    ] = None
    job_id: Annotated[str | None, option("--job-id", "ID", "Apply a load with this ID at most once.")] = None
    on_error: Annotated[
        Literal["fail", "quarantine"], option("--on-error", "NAME", "Invalid entities: `fail`, or `quarantine`.")
    ] = "fail"
    on_duplicate: Annotated[
        Literal["error", "first", "last"],
        option("--on-duplicate", "NAME", "Equal keys in the input: `error`, or load `first` or `last`."),
    ] = "error"
    max_errors: MaxErrors = LOAD_ERRORS_MAX
    report: Annotated[Path | None, option("--report", "DIR", "Directory for the report and rejected entities.")] = None
    embed: Annotated[bool, switch("--embed", "Compute `@embed` vectors that the input lacks.")] = False
    message: Message = None
    engine: Where = "auto"
    master: Master = None

    @property
    def inputs(self) -> list[str]:
        """The files of NDJSON."""
        return [*(self.files or ()), *(self.data or ())]

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that every method of a graph has which loads."""
        names = ("mode", "branch", "from_branch", "on_duplicate", "message")
        return {name: getattr(self, name) for name in names}

    @property
    def is_small(self) -> bool:
        """Whether one small write does: nothing is named that only a load into storage has."""
        return self == LoadOptions(files=self.files, data=self.data, **self.arguments)


def load(target: Destroys, options: LoadOptions) -> Output:
    _announce(target, options)
    if not target.is_served:
        return _load(target, options, options.inputs)
    if not options.is_small:
        raise UsageError("a server accepts NDJSON only; leave out all options but `--data`, or add `--store URI`")
    return _ingest(target, options, options.inputs)


def ingest(target: Destroys, options: LoadOptions) -> Output:
    """Load in one small write if possible."""
    options = replace(options, from_branch=options.from_branch or "main")
    if target.is_served or not options.is_small or len(options.inputs) > 1:
        return load(target, options)
    _announce(target, options)
    with _without_stdin(options.inputs) as files:
        try:
            return _ingest(target, options, files)
        except OmniGraphError as error:
            if error.code != "limit.exceeded":
                raise
        if not target.quiet:
            echo("the input is too large for one small write; loading it in bulk", err=True)
        return _load(target, options, files)


def _announce(target: Target, options: LoadOptions) -> None:
    target.announce()
    if options.mode == "overwrite":
        target.confirm("overwriting types")


def _load(target: Target, options: LoadOptions, files: Sequence[str]) -> Output:
    """Load any input into storage."""
    from omnigraph import pipeline

    nodes, edges = files_by_type("--node", options.node), files_by_type("--edge", options.edge)
    nodes, edges = _with_columns(nodes, edges, options.maps or (), options.delimiter)
    with target.store_to_write() as graph, progress_bar(), _without_stdin(files) as inputs:
        result = pipeline.load(
            graph,
            inputs or None,
            nodes=nodes,
            edges=edges,
            **options.arguments,
            job_id=options.job_id,
            on_error=options.on_error,
            max_errors=options.max_errors,
            report=options.report,
            embed=options.embed,
            engine=options.engine,
            master=options.master,
        )
    return Output({"uri": graph.uri, **result.to_json()}, _report_lines(result, options.report))


def _ingest(target: Target, options: LoadOptions, files: Sequence[str]) -> Output:
    """Load one NDJSON file in one small write."""
    if len(files) != 1:
        raise UsageError(
            f"one file is loaded at a time, but {len(files)} were given; write `load GRAPH FILE`, or join the files"
        )
    records = sys.stdin.buffer.read() if files[0] == "-" else Path(files[0])
    with target.open_to_write() as graph:
        receipt = graph.ingest(records, **options.arguments)
    written = f"{_target_branch(receipt)}, {_commit_of(receipt)}"
    return Output({"uri": graph.uri, **receipt.to_json()}, (*_count_lines(receipt), written))


def _count_lines(loaded: IngestReceipt | LoadReport) -> Iterator[str]:
    for label, counts in (("node", loaded.nodes), ("edge", loaded.edges)):
        yield from (f"{label} {type_name}: {count}" for type_name, count in sorted(counts.items()))


def _target_branch(loaded: IngestReceipt | LoadReport) -> str:
    new_branch = f" (new, from {loaded.base_branch})" if loaded.branch_created else ""
    return f"{plural(loaded.total_entities, 'entity')} on {loaded.branch}{new_branch}"


def _commit_of(loaded: IngestReceipt | LoadReport) -> str:
    return f"commit {loaded.commit.commit_id}" if loaded.commit else "the input has no entities to write, no commit"


@contextmanager
def _without_stdin(files: Sequence[str]) -> Iterator[list[str]]:
    """Yield files, with standard input written to one, which can be read in parts and twice."""
    if "-" not in files:
        yield list(files)
        return
    with NamedTemporaryFile(suffix=".ndjson") as spool:
        shutil.copyfileobj(sys.stdin.buffer, spool)
        spool.flush()
        yield [spool.name if file == "-" else file for file in files]


def files_by_type(option: str, options: list[str] | None) -> dict[str, str]:
    files: dict[str, str] = {}
    for text in options or ():
        name, sign, source = text.partition("=")
        if not sign or not name or not source:
            raise UsageError(f"`{option} {text}` has no type; write `{option} Type=FILE`", option=option)
        if name in files:
            raise UsageError(f"`{option}` names `{name}` twice; use a directory or a glob", option=option)
        files[name] = source
    return files


def separator(delimiter: str | None) -> str | None:
    """Return the character that an option names: `tab` is a tab.

    >>> separator("tab"), separator(";")
    ('\\t', ';')
    """
    return "\t" if delimiter in ("tab", "\\t") else delimiter


def _with_columns(
    nodes: Mapping[str, str], edges: Mapping[str, str], maps: Sequence[str], delimiter: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the files by type with the mapping of their columns and what separates the fields."""
    from omnigraph.engine.input.splits import parse_columns

    properties: dict[str, dict[str, str]] = {}
    for text in maps:
        column, sign, name = text.rpartition("=")
        type_name, dot, column = column.partition(".")
        if not sign or not dot or not column or not name:
            raise UsageError(f"`--map {text}` names no column; write `--map Type.column=property`", option="--map")
        if type_name not in nodes and type_name not in edges:
            raise UsageError(
                f"`--map {text}` is about `{type_name}`, of which no file is given; name it with `--node` or `--edge`",
                option="--map",
            )
        properties.setdefault(type_name, {})[column] = name
    named = (
        {
            name: replace(parse_columns(file), properties=properties.get(name, {}), delimiter=separator(delimiter))
            for name, file in files.items()
        }
        for files in (nodes, edges)
    )
    return next(named), next(named)


def _report_lines(result: LoadReport, report: Path | None) -> Iterator[str]:
    if result.already_applied:
        assert result.commit is not None, "an applied load has a commit"
        yield f"already applied as commit {result.commit.commit_id}; nothing was done"
        return
    yield from _count_lines(result)
    for name, tally in sorted(result.embedded.items()):
        yield f"embedded {name}: {tally.filled}, {plural(tally.asked, 'text')} asked, {tally.cached} known"
    yield from (f"rejected {code}: {count}, see {report}" for code, count in result.rejected_by_code.items())
    rate = f"{result.seconds:.1f} s, {result.total_entities / max(result.seconds, 1e-9):,.0f} per second"
    plane = "on Spark" if result.engine == "spark" else "in process"
    yield f"{_target_branch(result)} {plane} in {rate}, {_commit_of(result)}"


def embed(
    target: Writes,
    branch: Branch = "main",
    types: Types = None,
    reembed_all: Annotated[
        bool, switch("--reembed-all", "Also replace vectors of other models, and those set by hand.")
    ] = False,
    clean: Annotated[bool, switch("--clean", "Delete the vectors.")] = False,
    select: Annotated[
        list[str] | None, option("--select", "[TYPE:]FIELD=VALUE", "Only entities with this value; repeatable.")
    ] = None,
    message: Message = None,
    engine: Where = "auto",
    master: Master = None,
) -> Output:
    from omnigraph import pipeline
    from omnigraph.engine.embed.embed_tasks import Mode as EmbedMode

    if reembed_all and clean:
        raise UsageError("`--reembed-all` and `--clean` contradict each other; give one of them")
    mode: EmbedMode = "clean" if clean else "reembed_all" if reembed_all else "fill_missing"
    target.announce()
    with target.store_to_write() as graph, progress_bar():
        receipt = pipeline.embed(
            graph, branch, types=types, mode=mode, select=select or (), message=message, engine=engine, master=master
        )
    columns = ["property", "filled", "cleared", "texts asked", "texts cached"]
    tallies = ((f"{item.type_name}.{item.property_name}", item.tally) for item in receipt.properties)
    rows = ([name, tally.filled, tally.cleared, tally.asked, tally.cached] for name, tally in tallies)
    lines = (*table(columns, rows), commit_line(receipt.commit))
    return Output({"uri": graph.uri, **receipt.to_json()}, lines)
