"""Compile a query: parse, check and lower it against a catalog.

Pure; the result is immutable and its key names everything it depends on.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, Literal, NamedTuple

from omnigraph.lang.catalog import Catalog
from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Source, Span, nearest_word
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_context import Context, TooManyFindings, TypeUse, types_read, types_written
from omnigraph.lang.query.check_mutations import check_mutation
from omnigraph.lang.query.check_reads import check_read
from omnigraph.lang.query.check_returns import DescribedColumn
from omnigraph.lang.query.check_values import restrict_parameters
from omnigraph.lang.query.lower import Lowering
from omnigraph.lang.query.parser import parse_queries
from omnigraph.limits import VECTOR_DIMENSION_MAX

QueryKind = Literal["read", "mutation"]
_NAMES_SHOWN: Final = 8
RESERVED_PARAMETER: Final = "__nanograph_now"


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


def compile_query(
    source: Source, catalog: Catalog, *, name: str | None = None, written: Catalog | None = None
) -> CompiledQuery:
    """Compile the named query of a source, or its only one; raises LanguageError.

    `written` is a catalog with more types, for a mutation whose author may write types that it may not read: its
    statements may name them, but its patterns match only types of `catalog`.
    """
    return compile_parsed(source, catalog, _pick(source, parse_queries(source), name), written)


def compile_parsed(source: Source, catalog: Catalog, query: ast.Query, written: Catalog | None = None) -> CompiledQuery:
    """Compile a parsed query of a source; raises `LanguageError` with all its diagnostics."""
    written = written or catalog
    ctx = Context(source, catalog, written, Lowering(catalog))
    with suppress(TooManyFindings):
        compiled, descriptor = _check(ctx, query)
    if ctx.findings:
        in_order = sorted(ctx.findings, key=lambda finding: (finding.span.start, finding.code))
        raise LanguageError(diagnostics=tuple(in_order))
    compiled = replace(compiled, params=restrict_parameters(compiled))
    digest = "sha256:" + sha256(source.text.encode()).hexdigest()
    return CompiledQuery(
        key=QueryKey(digest, query.name.text, schema_key(catalog, written)),
        name=query.name.text,
        kind="read" if isinstance(compiled, ir.ReadIR) else "mutation",
        description=query.description,
        instruction=query.instruction,
        params=compiled.params,
        ir=compiled,
        descriptor=descriptor,
        reads=types_read(compiled, catalog, written),
        writes=types_written(compiled),
        source=source,
        span=query.name.span,
    )


def schema_key(catalog: Catalog, written: Catalog) -> str:
    """Return what names the schemas that a query was compiled against."""
    return catalog.ir_hash if written is catalog else f"{catalog.ir_hash}+{written.ir_hash}"


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
    if not isinstance(query.body, ast.Mutation):
        return check_read(ctx, query.name.text, query.body)
    statements = check_mutation(ctx, query.body)
    return ir.MutationIR(query.name.text, tuple(ctx.params.values()), statements), ()


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
        kind = param.type.scalar.facts.kind
        kinds = ("list", kind) if param.type.is_list else (kind, None)
        ctx.params.setdefault(name, ir.Parameter(name, param.type, *kinds))


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
