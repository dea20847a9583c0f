"""`omnigraph query`, `mutate`, `explain`, `lint` and `queries …`: read, run, explain and check queries."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from omnigraph.cli.app import Reads, Writes
from omnigraph.cli.config import read_config
from omnigraph.cli.options import (
    Branch,
    DryRun,
    Format,
    Json,
    Master,
    Message,
    OfCluster,
    OptionGroup,
    ReadState,
    Shape,
    Where,
    argument,
    is_query_text,
    option,
    switch,
)
from omnigraph.cli.output import (
    Output,
    echo,
    echo_lines,
    metadata_line,
    plural,
    print_diagnostics,
    print_json,
    reason_of,
    render,
    table,
)
from omnigraph.cli.target import open_ledger
from omnigraph.display import Cells
from omnigraph.errors import UsageError
from omnigraph.limits import TABLE_CELL_CHARACTERS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnigraph.cli.target import Target
    from omnigraph.client import Graph as ServedGraph
    from omnigraph.engine.query.result import Result
    from omnigraph.lang.catalog import Catalog
    from omnigraph.lang.diagnostic import Diagnostic, Source
    from omnigraph.lang.query import LintFinding
    from omnigraph.lang.schema import CompiledSchema
    from omnigraph.public_values import MutationReceipt
    from omnigraph.stored_queries import StoredQueries, StoredQuery


Against = Annotated[Path | None, option("--schema", "FILE", "Schema to check the queries against.")]
Query = Annotated[str | None, argument("QUERY", "A `.gq` file, the text of a query, or `-` for standard input.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryInput(OptionGroup):
    """A query: its text, a file with it, or the name of a stored one; and its parameters."""

    query: Query = None
    name: Annotated[str | None, argument("NAME", "Name of the query to run, if there are several.")] = None
    query_file: Annotated[Path | None, option("--query", "FILE", "File with queries, or `-`.")] = None
    text: Annotated[str | None, option("-e --query-string", "GQ", "Text of a query.")] = None
    params: Annotated[str | None, option("--params", "JSON", "Parameters, as a JSON object.")] = None
    params_file: Annotated[
        Path | None, option("--params-file", "FILE", "File with the parameters; `-` reads standard input.")
    ] = None

    @property
    def stored_name(self) -> str | None:
        """The name of a stored query, if that is all there is."""
        return self.name if self.query is None and self.query_file is None and self.text is None else None

    def source(self) -> Source:
        """Return the source of the query, which must be there once."""
        from omnigraph.lang.diagnostic import Source
        from omnigraph.source_files import read_source

        options = {"the argument": self.query, "`--query`": self.query_file, "`-e`": self.text}
        names = [name for name, value in options.items() if value is not None]
        if len(names) > 1:
            raise UsageError(f"{names[0]} and {names[1]} both give a query; use one of them")
        if not names:
            raise UsageError("no query was given; name a `.gq` file, or write the query itself in quotes")
        file, argument = self.query_file, self.query
        if argument is not None and not is_query_text(argument):
            file = Path(argument)
        if file is not None:
            return Source("standard input", sys.stdin.read()) if str(file) == "-" else read_source(file, "Q000")
        return Source("-e", self.text) if self.text is not None else Source("query", argument or "")

    def values(self) -> dict[str, object]:
        return read_parameters(self.params, self.params_file)


def connect_stored_queries(target: Target, name: str) -> ServedGraph:
    """Connect to the server that has the stored query; raises for graphs on storage, which have none."""
    if not target.is_served:
        raise UsageError(
            f"`{target.address}` is storage, and only servers have stored queries such as `{name}`; name a"
            " `.gq` file, or write the query itself in quotes"
        )
    return target.connect()


def read_parameters(text: str | None, file: Path | None) -> dict[str, object]:
    """Return the parameters of a query, from the command line or from a file."""
    import orjson

    from omnigraph.engine.json_text import find_repeated_member

    if text is not None and file is not None:
        raise UsageError("`--params` and `--params-file` both give parameters; use one of them")
    if file is not None:
        text = _read_text(file)
    if text is None:
        return {}
    try:
        members = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UsageError(f'the parameters are not JSON: {error}; write for example {{"name": "x"}}') from None
    if not isinstance(members, dict):
        raise UsageError('the parameters are not a JSON object; write for example {"name": "x"}')
    if (name := find_repeated_member(text.encode(), members)) is not None:
        raise UsageError(f"duplicate member `{name}` in an object of the parameters; keep one of them", name=name)
    return members


def compile_new_schema(source: Source) -> CompiledSchema:
    # The compilers are imported here so that `--help` and `version` do not pay for them.
    from omnigraph.ids import new_ulid
    from omnigraph.lang.schema import compile_schema

    return compile_schema(source, domain=new_ulid())


def read_catalog(target: Target, schema: Path | None) -> Catalog:
    """Return the catalog of a schema file or of a graph."""
    from omnigraph.source_files import read_source

    if target.is_named if schema is not None else not target.is_known:
        raise UsageError(
            "no schema to check against; give a schema with `--schema FILE`, or a graph with `--store URI`"
        )
    if schema is not None:
        return compile_new_schema(read_source(schema, "S1")).catalog
    with target.store_to_read() as graph:
        return graph.schema.catalog


def _read_text(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read `{file}`: {reason_of(error)}; check the path", path=str(file)) from None


@contextmanager
def name_diagnostics(source: Source) -> Iterator[None]:
    """Attribute diagnostics to the query file; the engine knows only its text."""
    from omnigraph.lang.diagnostic import LanguageError

    try:
        yield
    except LanguageError as error:
        diagnostics = tuple(
            replace(diagnostic, source=source) if diagnostic.source.text == source.text else diagnostic
            for diagnostic in error.diagnostics
        )
        raise LanguageError(error.message, effect=error.effect, diagnostics=diagnostics) from None


def print_result(
    result: Result, target: dict[str, object], shape: Format | None, as_json: bool, *, with_metadata: bool = False
) -> int:
    defaults = read_config().defaults
    rows = result.to_json_rows()
    metadata = {
        "query_name": result.query_name,
        "target": target,
        "row_count": len(rows),
        "graph_commit_id": result.graph_commit_id,
    }
    format_ = Format.JSON if as_json else shape or Format(defaults.output)
    width = defaults.table_max_column_width or TABLE_CELL_CHARACTERS_MAX
    cells = Cells(width, defaults.table_cell_layout == "wrap")
    if with_metadata and format_ is Format.JSONL:
        echo(metadata_line(metadata))
    echo_lines(render(format_, list(result.columns), rows, metadata, cells))
    return 0


Analyze = Annotated[bool, switch("--analyze", "Run the query, and add measured rows and times.")]


def query(
    target: Reads,
    query_input: QueryInput,
    state: ReadState,
    engine: Where = "auto",
    master: Master = None,
    shape: Shape = None,
    with_metadata: Annotated[bool, switch("--metadata", "Start `jsonl` output with a line of metadata.")] = False,
    as_json: Json = False,
) -> int:
    values, on_branch, stored_name = query_input.values(), state.branch or "main", query_input.stored_name
    read: dict[str, object] = {"branch": on_branch, "at": state.at} if state.at else {"branch": on_branch}
    on_spark = engine == "spark" or master is not None
    if on_spark and engine == "local":
        raise UsageError("`--engine local` runs in this process; leave out `--master` and `--conf`")
    if stored_name is not None:
        if on_spark:
            raise UsageError(
                "a stored query runs on its server; leave out `--engine` and `--master`, or give the query itself and"
                " the storage with `--store URI`"
            )
        with connect_stored_queries(target, stored_name) as stored_queries:
            result = stored_queries.invoke(stored_name, values, **state.arguments)
        return print_result(result, read, shape, as_json, with_metadata=with_metadata)
    source = query_input.source()
    if on_spark:
        from omnigraph.spark.query import collect
        from omnigraph.spark.session import session

        with target.store_to_read() as graph, name_diagnostics(source):
            result = collect(graph, source, values, name=query_input.name, **state.arguments, spark=session(master))
    else:
        with target.open_to_read() as opened, name_diagnostics(source):
            result = opened.query(source, values, name=query_input.name, **state.arguments)
    return print_result(result, read, shape, as_json, with_metadata=with_metadata)


def explain(target: Reads, query_input: QueryInput, state: ReadState, analyze: Analyze = False) -> Output:
    source, values = query_input.source(), query_input.values()
    with target.open_to_read() as graph, name_diagnostics(source):
        explanation = graph.explain(source, values, name=query_input.name, **state.arguments, profile=analyze)
    return Output(explanation.to_json(), [explanation.render()])


def mutate(
    target: Writes,
    query_input: QueryInput,
    branch: Branch = "main",
    if_commit: Annotated[
        str | None, option("--if-commit", "ID", "Write only if this is the head of the branch.")
    ] = None,
    message: Message = None,
    dry_run: DryRun = False,
) -> Output:
    values, stored_name = query_input.values(), query_input.stored_name
    if stored_name is not None:
        if dry_run:
            raise UsageError("a stored mutation has no dry run; give its text or file")
        with connect_stored_queries(target, stored_name) as served:
            receipt = served.invoke_mutation(stored_name, values, branch=branch, if_commit=if_commit, message=message)
    else:
        source = query_input.source()
        with target.open_to_write() as graph, name_diagnostics(source):
            receipt = graph.mutate(
                source,
                values,
                name=query_input.name,
                branch=branch,
                if_commit=if_commit,
                message=message,
                dry_run=dry_run,
            )
    nothing = "dry run, nothing was written" if dry_run else "nothing changed, no commit"
    commit = f"commit {receipt.commit.commit_id}" if receipt.commit else nothing
    return Output(receipt.to_json(), [f"{receipt.query_name}: {affected(receipt)}, {commit}"])


def affected(receipt: MutationReceipt) -> str:
    """Return how many entities a mutation changed, and on which branch."""
    nodes, edges = plural(receipt.affected_nodes, "node"), plural(receipt.affected_edges, "edge")
    return f"{nodes} and {edges} on {receipt.branch}"


OptionalDirectory = Annotated[
    Path | None, argument("DIR", "A `.gq` file, or a directory of them; a server has its own.")
]


def list_queries(
    target: Reads, directory: OptionalDirectory = None, schema: Against = None, cluster: OfCluster = None
) -> Output:
    from omnigraph.stored_queries import check_queries, read_queries

    if cluster is not None:
        if directory is not None or target.is_named:
            raise UsageError("`--cluster` names queries and graph; leave out the directory, `--store` and `--server`")
        checked = _check_applied(cluster, target.flags.graph)
    elif directory is None:
        queries = _served_queries(target)
        return Output({"queries": queries}, table(_QUERY_COLUMNS, map(_query_row, queries)))
    else:
        checked = check_queries(read_queries(directory), read_catalog(target, schema))
    broken = [query.to_json() for query in checked.broken]
    rows = [_query_row(query.to_json()) for query in checked.queries]
    rows += [[query.name, "broken", "", query.diagnostics[0].message] for query in checked.broken]
    document = {"queries": [_query_json(query) for query in checked.queries], "broken": broken}
    return Output(document, table(_QUERY_COLUMNS, rows))


def _served_queries(target: Target) -> list[dict[str, Any]]:
    if not target.is_known or not target.is_served:
        raise UsageError("no queries were given; name a directory of `.gq` files, or a server with `--server NAME`")
    with target.connect() as graph:
        return graph.queries()


_QUERY_COLUMNS = ("query", "kind", "parameters", "description")


def _query_row(query: Mapping[str, Any]) -> list[str]:
    parameters = ", ".join(f"{param['name']}: {param['kind']}" for param in query["params"])
    return [query["name"], "mutation" if query["mutation"] else "read", parameters, query.get("description", "")]


def _query_json(query: StoredQuery) -> dict[str, object]:
    # A tool names the type of a parameter as the query does; every stored query is offered to tools.
    params = [{**param.to_json(), "type": param.type} for param in query.params]
    return {**query.to_json(), "params": params, "mcp_expose": True}


def validate(target: Reads, directory: OptionalDirectory = None, schema: Against = None, as_json: Json = False) -> int:
    from omnigraph.lang.diagnostic import LanguageError

    if directory is None and target.flags.cluster is None:
        raise UsageError("no queries were given; name a directory of `.gq` files, or a cluster with `--cluster DIR`")
    try:
        stored = _load(target, directory, schema)
    except LanguageError as error:
        if not as_json:
            raise
        breakages = [_issue_json(diagnostic) for diagnostic in error.diagnostics]
        print_json({**error.to_json(), "ok": False, "breakages": breakages, "warnings": []})
        return error.kind.exit_status
    if as_json:
        warnings = [{**diagnostic.to_json(), **_issue_json(diagnostic)} for diagnostic in stored.warnings]
        print_json({"ok": True, "queries": len(stored.queries), "breakages": [], "warnings": warnings})
        return 0
    print_diagnostics(stored.warnings)
    echo(f"{plural(len(stored.queries), 'query')}, {plural(len(stored.warnings), 'warning')}: ok")
    return 0


def _issue_json(diagnostic: Diagnostic) -> dict[str, str]:
    return {"query": getattr(diagnostic, "query", None) or diagnostic.source.name, "message": diagnostic.message}


def _check_applied(cluster: str, graph_id: str | None) -> StoredQueries:
    """Compile the queries that are applied to a cluster against the graph that they are applied to."""
    from omnigraph.cluster.applied_state import choose_graph, read_applied, read_queries
    from omnigraph.graph import open as open_graph
    from omnigraph.graph import session_of
    from omnigraph.stored_queries import check_queries

    ledger = open_ledger(cluster)
    state = read_applied(ledger)
    chosen = choose_graph(state, graph_id)
    with open_graph(ledger.graph_uri(chosen), read_only=True) as graph:
        session = session_of(graph)
        return check_queries(tuple(read_queries(ledger, state, chosen)), session.catalog(session.kernel.snapshot()))


def _load(target: Target, directory: Path | None, schema: Path | None) -> StoredQueries:
    # The compilers are imported here so that `--help` and `version` do not pay for them.
    from omnigraph.lang.diagnostic import LanguageError
    from omnigraph.stored_queries import load_queries

    if directory is None:
        assert target.flags.cluster is not None
        checked = _check_applied(target.flags.cluster, target.flags.graph)
        if checked.broken:
            raise LanguageError(diagnostics=tuple(item for query in checked.broken for item in query.diagnostics))
        return checked
    return load_queries(directory, read_catalog(target, schema))


Queries = Annotated[list[Path], option("--query", "FILE", "File with queries; repeatable.")]


# No update sets a nullable property: often on purpose, so one line for each type is enough.
UNSET = "L201"


def _unset_lines(findings: Sequence[LintFinding]) -> list[str]:
    names: dict[str, list[str]] = {}
    for finding in findings:
        names.setdefault(finding.type_name or "", []).append(finding.property_name or "")
    return [f"note[{UNSET}]: no update sets {', '.join(each)} of `{type_}`" for type_, each in names.items()]


def lint(target: Reads, query: Queries, schema: Against = None, as_json: Json = False) -> int:
    # The compilers are imported here so that `--help` and `version` do not pay for them.
    from omnigraph.lang.query import lint_queries
    from omnigraph.source_files import read_source

    catalog = read_catalog(target, schema)
    report = lint_queries([read_source(path, "Q000") for path in query], catalog)
    has_errors = report.status == "error"
    if as_json:
        schema_source = (
            {"kind": "file", "path": str(schema)} if schema is not None else {"kind": "graph", "uri": target.address}
        )
        print_json({**report.to_json(), "schema_source": schema_source, "query_path": ", ".join(map(str, query))})
        return int(has_errors)
    unset = [finding for finding in report.findings if finding.code == UNSET]
    print_diagnostics([finding for finding in report.findings if finding.code != UNSET])
    echo_lines(_unset_lines(unset), err=True)
    echo(f"{plural(len(report.queries), 'query')}, {plural(len(report.findings), 'finding')}: {report.status}")
    return int(has_errors)
