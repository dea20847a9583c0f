"""Linter: compiles every query of the sources and warns about probable omissions.

Pure. Findings sort by severity, type, property; errors come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from omnigraph.lang.catalog import Catalog
from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Severity, Source, join_words
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.compile import CompiledQuery, QueryKind, compile_parsed
from omnigraph.lang.query.parser import parse_queries

_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


@dataclass(frozen=True, slots=True)
class LintFinding(Diagnostic):
    """A diagnostic with its subject: a file, a query, or a property that queries update."""

    query: str | None = None
    type_name: str | None = None
    property_name: str | None = None
    query_names: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The subject of the finding: `Type.property`, a query, or a file."""
        if self.type_name is not None:
            return f"{self.type_name}.{self.property_name}"
        return self.query or self.source.name

    def to_json(self) -> dict[str, object]:
        about: dict[str, object] = {
            "query": self.query,
            "type_name": self.type_name,
            "property": self.property_name,
            "query_names": list(self.query_names) or ([] if self.query is None else [self.query]),
        }
        # `super()` does not work in a slotted dataclass, which is a new class.
        return {**Diagnostic.to_json(self), **about}


@dataclass(frozen=True, slots=True)
class QueryReport:
    """A query of a linted file: compiled, or with its errors."""

    file: str
    name: str
    kind: QueryKind
    compiled: CompiledQuery | None
    diagnostics: tuple[Diagnostic, ...]

    def result(self, warnings: Sequence[str]) -> dict[str, object]:
        """Return a summary: whether the query compiled, its warnings and errors."""
        summary = {"name": self.name, "kind": self.kind, "status": "ok" if self.compiled else "error"}
        error = {} if self.compiled else {"error": "; ".join(item.message for item in self.diagnostics)}
        return {**summary, **({"warnings": list(warnings)} if warnings else {}), **error}

    def to_json(self) -> dict[str, object]:
        report: dict[str, object] = {"file": self.file, "name": self.name, "status": "ok" if self.compiled else "error"}
        query = self.compiled
        if query is None:
            return {**report, "kind": self.kind, "diagnostics": [item.to_json() for item in self.diagnostics]}
        params = [
            {"name": item.name, "type": str(item.type), "kind": item.kind, "nullable": item.type.nullable}
            for item in query.params
        ]
        return {
            **report,
            "kind": query.kind,
            "params": params,
            "columns": [{"name": column.name, "type": column.type} for column in query.descriptor],
            "reads": [use.to_json() for use in query.reads],
            "writes": [use.to_json() for use in query.writes],
        }


@dataclass(frozen=True, slots=True)
class LintReport:
    """All findings on the sources. `status` is `error` if a source or query has errors."""

    findings: tuple[LintFinding, ...]
    queries: tuple[QueryReport, ...]

    @property
    def status(self) -> str:
        return "error" if any(finding.severity is Severity.ERROR for finding in self.findings) else "ok"

    def to_json(self) -> dict[str, object]:
        severities = [finding.severity for finding in self.findings]
        return {
            "status": self.status,
            "queries_processed": len(self.queries),
            "errors": severities.count(Severity.ERROR),
            "warnings": severities.count(Severity.WARNING),
            "infos": severities.count(Severity.INFO),
            "results": [query.result(self._warnings_of(query)) for query in self.queries],
            "findings": [finding.to_json() for finding in self.findings],
            "queries": [query.to_json() for query in self.queries],
        }

    def _warnings_of(self, query: QueryReport) -> list[str]:
        """Return the warnings on a single query; those on several queries are in `findings` only."""
        return [
            finding.message
            for finding in self.findings
            if finding.severity is Severity.WARNING and (finding.query, finding.source.name) == (query.name, query.file)
        ]


def lint_queries(sources: Sequence[Source], catalog: Catalog) -> LintReport:
    """Compile every query of every source and report errors and warnings; never raises for a bad source."""
    findings: list[LintFinding] = []
    reports: list[QueryReport] = []
    for source in sources:
        try:
            parsed = parse_queries(source)
        except LanguageError as error:
            findings.extend(_about(item, None) for item in error.diagnostics)
            continue
        for query in parsed:
            kind: QueryKind = "mutation" if isinstance(query.body, ast.Mutation) else "read"
            try:
                compiled = compile_parsed(source, catalog, query)
            except LanguageError as error:
                reports.append(QueryReport(source.name, query.name.text, kind, None, error.diagnostics))
                findings.extend(_about(item, query.name.text) for item in error.diagnostics)
            else:
                reports.append(QueryReport(source.name, query.name.text, kind, compiled, ()))
    valid = [report.compiled for report in reports if report.compiled is not None]
    findings.extend(_without_params(valid))
    findings.extend(_replaces_unnamed(valid, catalog))
    findings.extend(_never_set(valid, catalog))
    return LintReport(tuple(sorted(findings, key=_sort_key)), tuple(reports))


def _about(item: Diagnostic, query: str | None) -> LintFinding:
    return LintFinding(item.code, item.message, item.source, item.span, item.hint, item.severity, query)


def _sort_key(finding: LintFinding) -> tuple[object, ...]:
    position = (finding.source.name, finding.span.start)
    return _RANK[finding.severity], finding.type_name or "", finding.property_name or "", *position, finding.code


def _without_params(queries: Iterable[CompiledQuery]) -> Iterable[LintFinding]:
    for query in queries:
        if query.kind == "mutation" and not query.params:
            message = f"mutation `{query.name}` has no parameters, so it always writes the same"
            hint = "declare what changes from run to run as parameters"
            yield LintFinding("L202", message, query.source, query.span, hint, Severity.WARNING, query.name)


def _replaces_unnamed(queries: Iterable[CompiledQuery], catalog: Catalog) -> Iterable[LintFinding]:
    """Warn of an `insert` that resets properties of an entity with the same key."""
    for query in queries:
        for statement in query.ir.statements if isinstance(query.ir, ir.MutationIR) else ():
            if not isinstance(statement, ir.Insert | ir.InsertMatched) or statement.verb is not ir.Verb.INSERT:
                continue
            type_ = (catalog.nodes if statement.kind == "node" else catalog.edges)[statement.type_name]
            unnamed = sorted(type_.properties.keys() - _columns(statement))
            if type_.key and unnamed:
                names = join_words([f"`{name}`" for name in unnamed], conjunction="and")
                message = f"`insert {type_.name}` resets {names} if there is an entity of the same key"
                hint = "`upsert` keeps them, `create` refuses an entity that exists"
                yield LintFinding("L205", message, query.source, query.span, hint, Severity.WARNING, query.name)


def _is_node_update(statement: ir.Statement) -> bool:
    is_upsert = isinstance(statement, ir.Insert | ir.InsertMatched) and statement.verb is ir.Verb.UPSERT
    if isinstance(statement, ir.Update):
        return True
    return (is_upsert or isinstance(statement, ir.UpdateMatched)) and statement.kind == "node"


def _columns(statement: ir.Statement) -> set[str]:
    """Return the columns that a statement sets."""
    if isinstance(statement, ir.Insert | ir.Update):
        return {item.column for item in statement.assignments}
    assert not isinstance(statement, ir.Delete | ir.DeleteMatched)
    return {item.name for item in statement.read.columns}


def _never_set(queries: Iterable[CompiledQuery], catalog: Catalog) -> Iterable[LintFinding]:
    updates: dict[str, dict[str, CompiledQuery]] = {}
    assigned: dict[str, set[str]] = {}
    for query in queries:
        if not isinstance(query.ir, ir.MutationIR):
            continue
        for statement in query.ir.statements:
            if _is_node_update(statement):
                updates.setdefault(statement.type_name, {})[query.name] = query
                assigned.setdefault(statement.type_name, set()).update(_columns(statement))
    for type_name, updating in updates.items():
        first = next(iter(updating.values()))
        by = join_words([f"`{name}`" for name in sorted(updating)], conjunction="and")
        node = catalog.nodes[type_name]
        for item in node.properties.values():
            is_fillable = item.type.nullable and item.name not in node.key and item.embed is None
            if is_fillable and item.name not in assigned[type_name]:
                message = f"no update sets `{type_name}.{item.name}`; `{type_name}` is updated by {by}"
                hint = "set it in an update, or ignore this if it never changes"
                position = (first.source, first.span)
                names = tuple(sorted(updating))
                yield LintFinding("L201", message, *position, hint, Severity.WARNING, None, type_name, item.name, names)
