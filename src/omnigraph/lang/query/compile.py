"""Compile a query: parse, check and lower it against a catalog.

Pure; the result is immutable and its key names everything it depends on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, Literal, NamedTuple

from omnigraph.lang.catalog import Catalog, PropertyType, Scalar
from omnigraph.lang.diagnostic import Diagnostic, LanguageError
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_context import Context, Scope, TooManyFindings, TypeUse, types_read, types_written
from omnigraph.lang.query.check_expressions import restrict_parameters
from omnigraph.lang.query.check_mutations import check_mutation
from omnigraph.lang.query.check_patterns import check_block
from omnigraph.lang.query.check_returns import DescribedColumn, check_bound, check_order, check_projections
from omnigraph.lang.query.lower import lower_pattern
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.source import Source, Span
from omnigraph.lang.suggestions import nearest_word
from omnigraph.limits import VECTOR_DIMENSION_MAX

QueryKind = Literal["read", "mutation"]
_NAMES_SHOWN: Final = 8
RESERVED_PARAMETER: Final = "__nanograph_now"
_KINDS: Final = {
    Scalar.STRING: "string",
    Scalar.BLOB: "blob",
    Scalar.BOOL: "bool",
    Scalar.I32: "int",
    Scalar.U32: "int",
    Scalar.I64: "bigint",
    Scalar.U64: "bigint",
    Scalar.F32: "float",
    Scalar.F64: "float",
    Scalar.DATE: "date",
    Scalar.DATETIME: "datetime",
    Scalar.VECTOR: "vector",
}


class QueryKey(NamedTuple):
    """Cache key of a compiled query; equal keys mean equal compilations."""

    source_hash: str
    name: str
    schema_hash: str


@dataclass(frozen=True, slots=True)
class CompiledQuery:
    """A checked query, ready for any engine."""

    key: QueryKey
    name: str
    kind: QueryKind
    description: str | None
    instruction: str | None
    params: tuple[ir.Parameter, ...]
    ir: ir.QueryIR
    descriptor: tuple[DescribedColumn, ...]
    reads: tuple[TypeUse, ...]
    writes: tuple[TypeUse, ...]
    source: Source
    span: Span


def compile_query(source: Source, catalog: Catalog, *, name: str | None = None) -> CompiledQuery:
    """Compile the named query of a source, or its only one; raises LanguageError."""
    return compile_parsed(source, catalog, _pick(source, parse_queries(source), name))


def compile_parsed(source: Source, catalog: Catalog, query: ast.Query) -> CompiledQuery:
    """Compile a parsed query of a source; raises `LanguageError` with all its diagnostics."""
    ctx = Context(source, catalog)
    try:
        compiled, descriptor = _check(ctx, query)
    except TooManyFindings:
        raise LanguageError(diagnostics=_in_order(ctx.findings)) from None
    if ctx.findings:
        raise LanguageError(diagnostics=_in_order(ctx.findings))
    compiled = replace(compiled, params=restrict_parameters(compiled))
    digest = "sha256:" + sha256(source.text.encode()).hexdigest()
    return CompiledQuery(
        key=QueryKey(digest, query.name.text, catalog.ir_hash),
        name=query.name.text,
        kind="read" if isinstance(compiled, ir.ReadIR) else "mutation",
        description=query.description,
        instruction=query.instruction,
        params=compiled.params,
        ir=compiled,
        descriptor=descriptor,
        reads=types_read(compiled, catalog),
        writes=types_written(compiled),
        source=source,
        span=query.name.span,
    )


def require_kind(query: CompiledQuery, kind: QueryKind) -> CompiledQuery:
    """Return the query if it is of the kind that the caller runs; raises LanguageError with T29."""
    if query.kind == kind:
        return query
    verb = "query" if query.kind == "read" else "mutate"
    message = f"`{query.name}` is a {query.kind}, but a {kind} is expected here; use `{verb}`, over HTTP `/{verb}`"
    hint = "run it as a query" if query.kind == "read" else "run it as a mutation"
    raise LanguageError(diagnostics=(Diagnostic("T29", message, query.source, query.span, hint),))


def _check(ctx: Context, query: ast.Query) -> tuple[ir.QueryIR, tuple[DescribedColumn, ...]]:
    _declare(ctx, query.params)
    if isinstance(query.body, ast.Read):
        return _read(ctx, query, query.body)
    statements = check_mutation(ctx, query.body)
    return ir.MutationIR(query.name.text, tuple(ctx.params.values()), statements), ()


def _read(ctx: Context, query: ast.Query, body: ast.Read) -> tuple[ir.ReadIR, tuple[DescribedColumn, ...]]:
    block = check_block(ctx, body.clauses, Scope())
    returned, is_grouped = check_projections(ctx, block.scope, body.projections)
    ordered = check_order(ctx, block.scope, body, returned, is_grouped)
    compiled = ir.ReadIR(
        name=query.name.text,
        params=tuple(ctx.params.values()),
        pipeline=lower_pattern(ctx.catalog, block),
        columns=tuple(item.column for item in returned),
        is_grouped=is_grouped,
        is_distinct=body.distinct,
        rank=ordered.rank,
        order=ordered.keys,
        skip=check_bound(ctx, body.skip, "skip"),
        limit=check_bound(ctx, body.limit, "limit"),
    )
    return compiled, tuple(item.described for item in returned)


def _declare(ctx: Context, params: tuple[ast.Param, ...]) -> None:
    for param in params:
        name = param.name.text
        if name == RESERVED_PARAMETER or name == "_":
            ctx.report("T27", param.name.span, f"`${name}` is reserved and cannot be a parameter", "use another name")
        elif name in ctx.params:
            ctx.report("T27", param.name.span, f"parameter `${name}` is declared twice", "drop one of them")
        elif param.type.dimension is not None and not 1 <= param.type.dimension <= VECTOR_DIMENSION_MAX:
            ctx.report("T27", param.type_span, f"a vector has between 1 and {VECTOR_DIMENSION_MAX} numbers")
        # A rejected parameter is still declared, so that its uses are not reported as well.
        ctx.params.setdefault(name, ir.Parameter(name, param.type, *_kinds_of(param.type)))


def _kinds_of(type_: PropertyType) -> tuple[str, str | None]:
    return ("list", _KINDS[type_.scalar]) if type_.is_list else (_KINDS[type_.scalar], None)


def _in_order(findings: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(sorted(findings, key=lambda finding: (finding.span.start, finding.code)))


def _pick(source: Source, queries: tuple[ast.Query, ...], name: str | None) -> ast.Query:
    names = [query.name.text for query in queries]
    if name is None and len(queries) == 1:
        return queries[0]
    if name is not None and name in names:
        return queries[names.index(name)]
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    holds = f"it holds {', '.join(f'`{item}`' for item in names[:_NAMES_SHOWN])}{more}"
    if not queries:
        message, hint = "the source holds no query", "write `query name() { … }`"
    elif name is None:
        message, hint = f"the source holds {len(names)} queries; name the one to run", holds
    else:
        near = nearest_word(name, names)
        message, hint = f"the source holds no query `{name}`", f"did you mean `{near}`?" if near else holds
    # A missing query has no position in the source.
    raise LanguageError(diagnostics=(Diagnostic("E1", message, source, Span(0, 0), hint, is_placed=False),))
