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
from omnigraph.lang.catalog import Catalog, Scalar
from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Severity
from omnigraph.lang.query import CompiledQuery, LintFinding, ast, lint_queries
from omnigraph.lang.query.ir import Parameter
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.source import Source
from omnigraph.limits import STORED_BREAKAGES_SHOWN_MAX
from omnigraph.source_files import read_source


@dataclass(frozen=True, slots=True)
class StoredParameter:
    """A parameter as tools describe it; `item_kind` is that of a list, `vector_dim` that of a vector.

    `type` is what the query declares it as, without the mark of a nullable one.
    """

    name: str
    kind: str
    nullable: bool
    item_kind: str | None = None
    vector_dim: int | None = None
    type: str = ""

    def to_json(self) -> dict[str, object]:
        extra = {"item_kind": self.item_kind, "vector_dim": self.vector_dim}
        given = {name: value for name, value in extra.items() if value is not None}
        return {"name": self.name, "kind": self.kind, **given, "nullable": self.nullable}


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A checked query. `source` is the whole text of its file, in which `name` picks it; `types` is what it touches."""

    name: str
    description: str | None
    instruction: str | None
    mutation: bool
    params: tuple[StoredParameter, ...]
    source: str
    types: frozenset[str]

    def is_seen(self, catalog: Catalog) -> bool:
        """Tell whether a catalog has all the types that the query touches."""
        return self.types <= {*catalog.nodes, *catalog.edges}

    def to_json(self) -> dict[str, object]:
        """Return the query as every surface lists it."""
        told = {"description": self.description, "instruction": self.instruction}
        return {
            "name": self.name,
            "tool_name": self.name,
            **{name: value for name, value in told.items() if value is not None},
            "mutation": self.mutation,
            "params": [one.to_json() for one in self.params],
        }


@dataclass(frozen=True, slots=True)
class BrokenQuery:
    """A stored query that does not compile; `name` is that of its file when the file cannot even be parsed."""

    name: str
    file: str
    diagnostics: tuple[Diagnostic, ...]

    def to_json(self) -> dict[str, object]:
        """Return what is wrong with it; of its file only the name, because the folder is the operator's business."""
        found = [
            {"code": one.code, "message": one.message, "hint": one.hint, "line": _line(one)} for one in self.diagnostics
        ]
        return {"name": self.name, "file": Path(self.file).name, "diagnostics": found}

    def render(self) -> str:
        """Return it on one line."""
        first = self.diagnostics[0]
        return f"`{self.name}` ({Path(self.file).name}:{_line(first)}: [{first.code}] {first.message})"


@dataclass(frozen=True, slots=True)
class StoredQueries:
    """The stored queries of one graph, in name order, what is worth a second look, and what cannot be called."""

    queries: tuple[StoredQuery, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    broken: tuple[BrokenQuery, ...] = ()

    def list(self, catalog: Catalog | None = None) -> Sequence[StoredQuery]:
        """Return all queries; with the catalog that an actor sees, only those whose types it has."""
        return self.queries if catalog is None else [one for one in self.queries if one.is_seen(catalog)]

    def get(self, name: str) -> StoredQuery | None:
        """Return a query by its name; None when there is no such query, or it does not compile."""
        return next((one for one in self.queries if one.name == name), None)


class QueryFolder:
    """The texts of stored queries, read once, and checked against whatever schema a graph has by now."""

    def __init__(self, sources: Sequence[Source] = ()) -> None:
        self._sources = tuple(sources)
        self._checked: dict[str, StoredQueries] = {}
        self._is_mutation: dict[str, bool] = {}
        for source in self._sources:
            with suppress(LanguageError):
                for query in parse_queries(source):
                    self._is_mutation.setdefault(query.name.text, isinstance(query.body, ast.Mutation))

    def is_mutation(self, name: str) -> bool | None:
        """Return the kind of a query, which no schema changes; None when there is no such query."""
        return self._is_mutation.get(name)

    def check(self, catalog: Catalog) -> StoredQueries:
        """Return the queries as a schema has them; those that do not compile are set aside as broken."""
        found = self._checked.get(catalog.ir_hash)
        if found is None:
            found = check_queries(self._sources, catalog)
            # The newest schema is the one that is asked for again.
            self._checked = {catalog.ir_hash: found}
        return found

    def refuse_breakage(self, before: Catalog, after: Catalog) -> None:
        """Refuse a schema under which queries would no longer compile; those that are broken already do not count.

        Raises:
            GraphError: `schema.breaks_queries`, with all of them under `queries`.
        """
        already = {(one.name, one.file) for one in self.check(before).broken}
        found = check_queries(self._sources, after).broken
        broken = [one for one in found if (one.name, one.file) not in already]
        if broken:
            listed = "; ".join(one.render() for one in broken[:STORED_BREAKAGES_SHOWN_MAX])
            more = len(broken) - STORED_BREAKAGES_SHOWN_MAX
            raise GraphError(
                f"the schema would break {len(broken)} stored {'query' if len(broken) == 1 else 'queries'}: {listed}"
                f"{f'; and {more} more' if more > 0 else ''}. Nothing was changed; change or remove them first",
                code="schema.breaks_queries",
                queries=[one.to_json() for one in broken],
            )


def read_queries(sources: str | Path | Iterable[str | Path]) -> tuple[Source, ...]:
    """Read a directory of `.gq` files, or some files, without looking into them."""
    return tuple(read_source(path, "Q000") for path in _files(sources))


def load_queries(sources: str | Path | Iterable[str | Path], catalog: Catalog) -> StoredQueries:
    """Read and check a directory of `.gq` files, or some files; everything that is wrong is told in one error."""
    found = check_queries(read_queries(sources), catalog)
    if found.broken:
        raise LanguageError(diagnostics=tuple(one for query in found.broken for one in query.diagnostics))
    return found


def check_queries(sources: Sequence[Source], catalog: Catalog) -> StoredQueries:
    """Compile every query of some files; those that a schema does not take are set aside."""
    report = lint_queries(sources, catalog)
    broken: list[BrokenQuery] = []
    errors = [one for one in report.findings if one.severity is Severity.ERROR]
    for (name, file), found in groupby(sorted(errors, key=_of_query), _of_query):
        broken.append(BrokenQuery(name, file, tuple(found)))
    first: dict[str, CompiledQuery] = {}
    warnings: list[Diagnostic] = []
    for query in (one.compiled for one in report.queries if one.compiled is not None):
        other = first.setdefault(query.name, query)
        if other is not query:
            message = f"there is a stored query `{query.name}` in `{other.source.name}` already"
            repeated = Diagnostic("L203", message, query.source, query.span, "give each a name of its own")
            broken.append(BrokenQuery(query.name, query.source.name, (repeated,)))
        warnings += [_vector_warning(query, one) for one in query.params if one.type.scalar is Scalar.VECTOR]
    return StoredQueries(tuple(_stored(first[name]) for name in sorted(first)), tuple(warnings), tuple(broken))


def _of_query(finding: LintFinding) -> tuple[str, str]:
    return finding.query or Path(finding.source.name).stem, finding.source.name


def _line(one: Diagnostic) -> int:
    return one.source.position(one.span.start).line


def _files(sources: str | Path | Iterable[str | Path]) -> list[Path]:
    if not isinstance(sources, str | Path):
        paths: Sequence[object] = tuple(sources) if hasattr(sources, "__iter__") else (sources,)
        if isinstance(sources, bytes | Mapping) or not all(isinstance(path, str | Path) for path in paths):
            raise UsageError("stored queries are a directory or a list of files, given as paths", argument="queries")
        return [Path(str(path)) for path in paths]
    path = Path(sources)
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.gq"))
    if not found:
        raise UsageError(f"there are no `.gq` files in `{path}`; name the directory that has them", path=str(path))
    return found


def _stored(query: CompiledQuery) -> StoredQuery:
    return StoredQuery(
        query.name,
        query.description,
        query.instruction,
        query.kind == "mutation",
        tuple(_parameter(one) for one in query.params),
        query.source.text,
        frozenset(use.type_name for use in (*query.reads, *query.writes)),
    )


def _parameter(one: Parameter) -> StoredParameter:
    type_ = str(one.type).removesuffix("?")
    return StoredParameter(one.name, one.kind, one.type.nullable, one.item_kind, one.type.dimension, type_)


def _vector_warning(query: CompiledQuery, one: Parameter) -> Diagnostic:
    message = f"`{query.name}` takes a vector as `${one.name}`, which callers of a tool can hardly write"
    hint = "take a text and let `nearest` embed it"
    return LintFinding("L204", message, query.source, query.span, hint, Severity.WARNING, query.name)
