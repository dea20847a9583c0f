"""Compile a query: parse, check and lower it against a catalog.

Pure; the result is immutable and its key names everything it depends on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from heapq import heappop, heappush
from itertools import count
from typing import Final, Literal, NamedTuple

from omnigraph.lang.catalog import Catalog
from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Source, Span, nearest_word
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_context import (
    Context,
    Counted,
    Kind,
    Scope,
    TooManyFindings,
    TypeUse,
    shared_properties,
    types_read,
    types_written,
    with_null,
)
from omnigraph.lang.query.check_mutations import check_mutation
from omnigraph.lang.query.check_patterns import Block, Start
from omnigraph.lang.query.check_reads import check_read
from omnigraph.lang.query.check_returns import DescribedColumn
from omnigraph.lang.query.check_values import restrict_parameters
from omnigraph.lang.query.parser import parse_queries
from omnigraph.limits import VECTOR_DIMENSION_MAX


class _Lowering:
    """One lowering; it hands out temporaries that no source can spell and no two walks share."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._numbers = count(1)

    def block(self, block: Block, outer: frozenset[str]) -> tuple[ir.Operator, ...]:
        pipeline = _Pattern(self, block, outer).operators()
        pipeline.extend(ir.Filter(condition) for condition in block.conditions)
        around = frozenset(block.scope) | outer
        adopted = {variable.name for _, fresh in block.optionals for variable in fresh}
        inside = outer | (block.scope.keys() - adopted)
        # What is counted without the variables of optional blocks may leave fewer rows for them.
        early = [item for item in block.counts if not item.names & adopted]
        pipeline.extend(self._count(item, inside) for item in early)
        for inner, fresh in block.optionals:
            bindings = tuple(variable.bound() for variable in fresh)
            pipeline.append(ir.OptionalJoin(self.block(inner, inside), bindings))
            inside |= {variable.name for variable in fresh}
        pipeline.extend(self._count(item, around) for item in block.counts if item.names & adopted)
        pipeline.extend(ir.Filter(condition) for condition in block.late_conditions)
        pipeline.extend(ir.AntiJoin(self.block(inner, around)) for inner in block.negations)
        return tuple(pipeline)

    def _count(self, counted: Counted, outer: frozenset[str]) -> ir.CountJoin:
        return ir.CountJoin(self.block(counted.block, outer), counted.variable, counted.is_existence)

    def result_counts(self, counts: Sequence[Counted], scope: Scope) -> tuple[ir.Operator, ...]:
        """Return what the result behind a pattern asks of patterns beside each row."""
        return tuple(self._count(item, frozenset(scope)) for item in counts)

    def temporary(self) -> str:
        return f"~{next(self._numbers)}"

    def name_end(self, end: str) -> str:
        """Return the name of an end of a walk; each anonymous one gets its own, so that two stay unrelated."""
        return self.temporary() if end == "_" else end

    def matches(self, variable: str, start: Start, nullable: bool) -> tuple[ir.Expr, ...]:
        properties = shared_properties(self._catalog, "node", start.node_type)
        comparisons: list[ir.Expr] = []
        for name, value in start.matches:
            type_ = with_null(properties[name].type, nullable)
            op = ir.CompareOp.CONTAINS if type_.is_list else ir.CompareOp.EQ
            comparisons.append(
                ir.Compare(op, ir.PropertyRef(variable, Kind.NODE.value, start.node_type, name, type_), value)
            )
        return tuple(comparisons)


class _Pattern:
    """The bindings and walks of a block, ordered so that every walk starts from a bound variable."""

    def __init__(self, lowering: _Lowering, block: Block, outer: frozenset[str]) -> None:
        self._lowering = lowering
        self._bound = set(outer)
        self._operators: list[ir.Operator] = []
        self._nullable = {name for name in outer if block.scope[name].nullable}
        self._starts = [(lowering.name_end(start.variable), start) for start in block.starts]
        self._walks = [
            replace(walk, source=lowering.name_end(walk.source), target=lowering.name_end(walk.target))
            for walk in block.walks
        ]
        self._filters: dict[str, list[ir.Expr]] = {}
        for variable, start in self._starts:
            matches = lowering.matches(variable, start, variable in self._nullable)
            self._filters.setdefault(variable, []).extend(matches)
        self._touching: dict[str, list[int]] = {}
        for index, walk in enumerate(self._walks):
            for end in {walk.source, walk.target}:
                self._touching.setdefault(end, []).append(index)
        self._path_nodes = list(block.path_nodes)
        self._unwinds = list(block.unwinds)
        self._types = {name: variable.type_name for name, variable in block.scope.items()}
        self._waiting: list[int] = []
        self._emitted: set[int] = set()

    def operators(self) -> list[ir.Operator]:
        for variable, start in self._starts:
            if variable in self._nullable:
                # What an optional block left empty is no node, so it cannot be bound again.
                reference = ir.NodeRef(variable, start.node_type, with_null(ir.ID, True))
                self._operators.append(ir.Filter(ir.IsNull(reference, negated=True)))
        for variable in sorted(self._bound & self._filters.keys()):
            # A binding of an outer variable asks more of the same entity.
            self._operators.extend(ir.Filter(condition) for condition in self._filters[variable])
        # Lists that are known before the pattern may then select its nodes.
        self._unwind()
        for variable in self._bound & self._touching.keys():
            self._reach(variable)
        for path in [path for _, path in self._path_nodes if path in self._bound]:
            self._bind_path_nodes(path)
        self._walk()
        for variable, start in self._starts:
            self._scan(variable, start.node_type)
        for walk in self._walks:
            self._scan(walk.source, walk.source_type)
        self._bound |= self._types.keys()
        self._unwind()
        return self._operators

    def _unwind(self) -> None:
        """Bind the elements of the lists that read bound variables alone, in written order."""
        for unwind in self._unwinds[:]:
            if ir.variables_read(unwind.collection) <= self._bound:
                self._unwinds.remove(unwind)
                self._operators.append(unwind)
                self._bound.add(unwind.variable)

    def _scan(self, variable: str, node_type: str) -> None:
        if variable in self._bound:
            return
        self._operators.append(ir.NodeScan(variable, node_type, tuple(self._filters.get(variable, ()))))
        self._reach(variable)
        self._walk()

    def _reach(self, variable: str) -> None:
        self._bound.add(variable)
        for index in self._touching.get(variable, ()):
            heappush(self._waiting, index)

    def _walk(self) -> None:
        while self._waiting:
            index = heappop(self._waiting)
            walk = self._walks[index]
            if index in self._emitted or self._awaits_end(walk):
                continue
            self._emitted.add(index)
            if walk.source in self._bound and walk.target in self._bound:
                self._close(walk)
            else:
                self._expand(walk if walk.source in self._bound else _turn_back(walk))
            if walk.path is not None:
                self._bind_path_nodes(walk.path.variable)

    def _bind_path_nodes(self, path: str) -> None:
        """Bind the nodes of a path that has just been bound."""
        for variable, _ in [item for item in self._path_nodes if item[1] == path]:
            self._path_nodes.remove((variable, path))
            node_type = self._types[variable]
            assert node_type is not None
            if variable not in self._bound:
                filters = tuple(self._filters.get(variable, ()))
                self._operators.append(ir.PathNodes(path, variable, node_type, filters))
                self._reach(variable)
                continue
            temporary = self._lowering.temporary()
            self._operators.append(ir.PathNodes(path, temporary, node_type))
            self._require_same(temporary, variable, node_type)

    def _awaits_end(self, walk: ir.Expand) -> bool:
        """Return True if a path should wait for the binding of its other end, which leaves few pairs to search."""
        ends = {walk.source, walk.target} - self._bound
        return walk.path is not None and any(self._filters.get(end) for end in ends)

    def _expand(self, walk: ir.Expand) -> None:
        self._operators.append(replace(walk, filters=tuple(self._filters.get(walk.target, ()))))
        self._reach(walk.target)

    def _close(self, walk: ir.Expand) -> None:
        temporary = self._lowering.temporary()
        path = None if walk.path is None else replace(walk.path, end=walk.target)
        self._operators.append(replace(walk, target=temporary, path=path))
        self._require_same(temporary, walk.target, walk.target_type)

    def _require_same(self, temporary: str, variable: str, node_type: str) -> None:
        """Keep the rows in which a node that was reached again is the bound one."""
        bound = ir.NodeRef(variable, node_type, with_null(ir.ID, variable in self._nullable))
        self._operators.append(ir.Filter(ir.Compare(ir.CompareOp.EQ, ir.NodeRef(temporary, node_type), bound)))


def _turn_back(walk: ir.Expand) -> ir.Expand:
    """Return a walk from its right end as written, which finds the same pairs."""
    return replace(
        walk,
        source=walk.target,
        source_type=walk.target_type,
        target=walk.source,
        target_type=walk.source_type,
        direction=ir.REVERSED[walk.direction],
        is_backwards=True,
        legs=tuple(leg.reversed() for leg in walk.legs),
    )


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
    ctx = Context(source, catalog, written)
    try:
        compiled, descriptor = _check(ctx, query)
    except TooManyFindings:
        raise LanguageError(diagnostics=_in_order(ctx.findings)) from None
    if ctx.findings:
        raise LanguageError(diagnostics=_in_order(ctx.findings))
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
    lowering = _Lowering(ctx.catalog)
    if not isinstance(query.body, ast.Mutation):
        return check_read(ctx, query.name.text, query.body, lowering)
    statements = check_mutation(ctx, query.body, lowering)
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
