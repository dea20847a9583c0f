"""Stored queries: a directory of `.gq` files as a catalog of named queries with typed parameters.

Reads files and compiles; running a stored query is `graph.query` or `graph.mutate` with its `source` and `name`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from omnigraph.errors import GraphError, UsageError
from omnigraph.lang.catalog import Catalog
from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Severity, Source
from omnigraph.lang.query import CompiledQuery, LintFinding, ast, lint_queries
from omnigraph.lang.query.ir import Parameter
from omnigraph.lang.query.parser import parse_queries
from omnigraph.limits import STORED_BREAKAGES_SHOWN_MAX
from omnigraph.source_files import read_source


@dataclass(frozen=True, slots=True)
class StoredParameter:
    """A parameter as tools describe it; `item_kind` is set for a list, `vector_dim` for a vector.

    `type` is the declared type, without the `?` of a nullable one.
    """

    name: str
    kind: str
    nullable: bool
    item_kind: str | None = None
    vector_dim: int | None = None
    type: str = ""

    def to_json(self) -> dict[str, object]:
        optional = {"item_kind": self.item_kind, "vector_dim": self.vector_dim}
        present = {name: value for name, value in optional.items() if value is not None}
        return {"name": self.name, "kind": self.kind, **present, "nullable": self.nullable}


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A compiled query. `source` is the text of its file, in which `name` selects it; `types` are read or written."""

    name: str
    description: str | None
    instruction: str | None
    mutation: bool
    params: tuple[StoredParameter, ...]
    source: str
    types: frozenset[str]

    def is_visible(self, catalog: Catalog) -> bool:
        """Return True if a catalog has all types that the query uses."""
        return self.types <= {*catalog.nodes, *catalog.edges}

    def to_json(self) -> dict[str, object]:
        texts = {"description": self.description, "instruction": self.instruction}
        return {
            "name": self.name,
            "tool_name": self.name,
            **{name: value for name, value in texts.items() if value is not None},
            "mutation": self.mutation,
            "params": [parameter.to_json() for parameter in self.params],
        }


@dataclass(frozen=True, slots=True)
class BrokenQuery:
    """A stored query that does not compile; if its file does not parse, `name` is the name of the file."""

    name: str
    file: str
    diagnostics: tuple[Diagnostic, ...]

    def to_json(self) -> dict[str, object]:
        """Return the public JSON form; leaves out the directory of the file, which is of no use to callers."""
        diagnostics = [
            {"code": item.code, "message": item.message, "hint": item.hint, "line": _line(item)}
            for item in self.diagnostics
        ]
        return {"name": self.name, "file": Path(self.file).name, "diagnostics": diagnostics}

    def render(self) -> str:
        """Return the query and its first error on a line."""
        first = self.diagnostics[0]
        return f"`{self.name}` ({Path(self.file).name}:{_line(first)}: [{first.code}] {first.message})"


@dataclass(frozen=True, slots=True)
class StoredQueries:
    """The stored queries of a graph in name order, the warnings about them, and the queries that do not compile."""

    queries: tuple[StoredQuery, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    broken: tuple[BrokenQuery, ...] = ()

    def list(self, catalog: Catalog | None = None) -> Sequence[StoredQuery]:
        """Return all queries; with the catalog that is visible to an actor, only those that use its types."""
        return self.queries if catalog is None else [query for query in self.queries if query.is_visible(catalog)]

    def get(self, name: str) -> StoredQuery | None:
        """Return a query by name; None if it does not exist or does not compile."""
        return next((query for query in self.queries if query.name == name), None)


class QueryFolder:
    """The sources of stored queries, read once and compiled against the current schema of a graph."""

    def __init__(self, sources: Sequence[Source] = ()) -> None:
        self._sources = tuple(sources)
        self._checked: dict[str, StoredQueries] = {}
        self._is_mutation: dict[str, bool] = {}
        for source in self._sources:
            with suppress(LanguageError):
                for query in parse_queries(source):
                    # One without a name is refused by `check_queries`.
                    self._is_mutation.setdefault(query.name.text, isinstance(query.body, ast.Mutation))

    def is_mutation(self, name: str) -> bool | None:
        """Return True for a mutation, False for a read and None for an unknown query; independent of the schema."""
        return self._is_mutation.get(name)

    def check(self, catalog: Catalog) -> StoredQueries:
        """Compile the queries against a catalog; those that do not compile are `broken`."""
        queries = self._checked.get(catalog.ir_hash)
        if queries is None:
            queries = check_queries(self._sources, catalog)
            # Only the latest schema is requested again, so a single entry is enough.
            self._checked = {catalog.ir_hash: queries}
        return queries

    def reject_breakage(self, before: Catalog, after: Catalog) -> None:
        """Reject a schema under which queries would no longer compile, apart from those that are broken already."""
        broken_before = {(query.name, query.file) for query in self.check(before).broken}
        broken_after = check_queries(self._sources, after).broken
        broken = [query for query in broken_after if (query.name, query.file) not in broken_before]
        if broken:
            messages = "; ".join(query.render() for query in broken[:STORED_BREAKAGES_SHOWN_MAX])
            more = len(broken) - STORED_BREAKAGES_SHOWN_MAX
            raise GraphError(
                f"the schema would break {len(broken)} stored {'query' if len(broken) == 1 else 'queries'}: {messages}"
                f"{f'; and {more} more' if more > 0 else ''}. Nothing was changed; change or remove them first",
                code="schema.breaks_queries",
                queries=[query.to_json() for query in broken],
            )


def read_queries(sources: str | Path | Iterable[str | Path]) -> tuple[Source, ...]:
    """Read a directory of `.gq` files, or a list of files, without parsing them."""
    return tuple(read_source(path, "Q000") for path in _files(sources))


def load_queries(sources: str | Path | Iterable[str | Path], catalog: Catalog) -> StoredQueries:
    """Read and compile a directory of `.gq` files, or a list of files; raises a single error with all diagnostics."""
    stored = check_queries(read_queries(sources), catalog)
    if stored.broken:
        raise LanguageError(diagnostics=tuple(item for query in stored.broken for item in query.diagnostics))
    return stored


def check_queries(sources: Sequence[Source], catalog: Catalog) -> StoredQueries:
    """Compile every query of the sources; those that do not compile are `broken`."""
    report = lint_queries(sources, catalog)
    broken: list[BrokenQuery] = []
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    for (name, file), findings in groupby(sorted(errors, key=_query_of), _query_of):
        broken.append(BrokenQuery(name, file, tuple(findings)))
    first: dict[str, CompiledQuery] = {}
    warnings: list[Diagnostic] = []
    for query in (linted.compiled for linted in report.queries if linted.compiled is not None):
        if query.span.end == 0:
            hint = "write `query name() { … }` around it"
            nameless = Diagnostic("Q000", "a stored query needs a name", query.source, query.span, hint)
            broken.append(BrokenQuery(Path(query.source.name).stem, query.source.name, (nameless,)))
            continue
        other = first.setdefault(query.name, query)
        if other is not query:
            message = f"duplicate stored query `{query.name}`; it is also in `{other.source.name}`"
            repeated = Diagnostic("L203", message, query.source, query.span, "rename one of them")
            broken.append(BrokenQuery(query.name, query.source.name, (repeated,)))
        warnings += [_vector_warning(query, param) for param in query.params if param.type.is_vector]
    return StoredQueries(tuple(_stored(first[name]) for name in sorted(first)), tuple(warnings), tuple(broken))


def _query_of(finding: LintFinding) -> tuple[str, str]:
    return finding.query or Path(finding.source.name).stem, finding.source.name


def _line(diagnostic: Diagnostic) -> int:
    return diagnostic.source.position(diagnostic.span.start).line


def _files(sources: str | Path | Iterable[str | Path]) -> list[Path]:
    if not isinstance(sources, str | Path):
        paths: Sequence[object] = tuple(sources) if hasattr(sources, "__iter__") else (sources,)
        if isinstance(sources, bytes | Mapping) or not all(isinstance(path, str | Path) for path in paths):
            raise UsageError("`queries` must be a directory or a list of file paths", argument="queries")
        return [Path(str(path)) for path in paths]
    path = Path(sources)
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.gq"))
    if not files:
        raise UsageError(f"no `.gq` files in `{path}`; check the directory", path=str(path))
    return files


def _stored(query: CompiledQuery) -> StoredQuery:
    return StoredQuery(
        query.name,
        query.description,
        query.instruction,
        query.kind == "mutation",
        tuple(_parameter(param) for param in query.params),
        query.source.text,
        frozenset(use.type_name for use in (*query.reads, *query.writes)),
    )


def _parameter(param: Parameter) -> StoredParameter:
    type_ = str(param.type).removesuffix("?")
    return StoredParameter(param.name, param.kind, param.type.nullable, param.item_kind, param.type.dimension, type_)


def _vector_warning(query: CompiledQuery, param: Parameter) -> Diagnostic:
    message = f"`{query.name}` takes the vector `${param.name}`, which is impractical for callers of a tool"
    hint = "take a String and let `nearest` embed it"
    return LintFinding("L204", message, query.source, query.span, hint, Severity.WARNING, query.name)
