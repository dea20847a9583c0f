"""Stored queries: a directory of `.gq` files, checked as a whole, as a catalog of named queries with typed parameters.

Reads files and compiles; running a stored query is `graph.query` or `graph.mutate` with its `source` and `name`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from omnigraph.errors import UsageError
from omnigraph.files import read_source
from omnigraph.lang.catalog import Catalog
from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Severity
from omnigraph.lang.query import CompiledQuery, LintFinding, lint_queries
from omnigraph.lang.query.ir import Parameter
from omnigraph.lang.types import Scalar


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
class StoredQueries:
    """The stored queries of one graph, in name order, and what is worth a second look."""

    queries: tuple[StoredQuery, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()

    def list(self, catalog: Catalog | None = None) -> Sequence[StoredQuery]:
        """Return all queries; with the catalog that somebody sees, only those whose types it has."""
        return self.queries if catalog is None else [one for one in self.queries if one.is_seen(catalog)]

    def get(self, name: str) -> StoredQuery | None:
        """Return a query by its name; None when there is no such query."""
        return next((one for one in self.queries if one.name == name), None)


def load_queries(sources: str | Path | Iterable[str | Path], catalog: Catalog) -> StoredQueries:
    """Read and check a directory of `.gq` files, or some files; everything that is wrong is told in one error."""
    files = [read_source(path, "Q000") for path in _files(sources)]
    report = lint_queries(files, catalog)
    refused: list[Diagnostic] = [one for one in report.findings if one.severity is Severity.ERROR]
    first: dict[str, CompiledQuery] = {}
    warnings: list[Diagnostic] = []
    for query in (one.compiled for one in report.queries if one.compiled is not None):
        other = first.setdefault(query.name, query)
        if other is not query:
            message = f"there is a stored query `{query.name}` in `{other.source.name}` already"
            hint = "give each a name of its own"
            refused.append(LintFinding("L203", message, query.source, query.span, hint, query=query.name))
        warnings += [_vector_warning(query, one) for one in query.params if one.type.scalar is Scalar.VECTOR]
    if refused:
        raise LanguageError(diagnostics=tuple(refused))
    return StoredQueries(tuple(_stored(first[name]) for name in sorted(first)), tuple(warnings))


def _files(sources: str | Path | Iterable[str | Path]) -> list[Path]:
    if not isinstance(sources, str | Path):
        return [Path(one) for one in sources]
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
