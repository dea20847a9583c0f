"""Patterns: the blocks of `match`, with every variable, edge and direction resolved.

Pure. Clauses are read in written order; optional blocks and negations come after what they depend on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.context import Context, EnoughFound, Kind, Scope, Variable
from omnigraph.lang.query.filters import check_condition, variables_of
from omnigraph.lang.query.traversals import Walk, check_traversal
from omnigraph.lang.query.values import match_value
from omnigraph.lang.query.words import suggestion
from omnigraph.limits import QUERY_CLAUSES_MAX, QUERY_VARIABLES_MAX


@dataclass(frozen=True, slots=True)
class Start:
    """A binding clause; an anonymous one has no variable."""

    variable: str | None
    node_type: str
    matches: tuple[tuple[str, ir.Expr], ...]


@dataclass(slots=True)
class Block:
    """One checked block: what it binds and asks, each kind of clause in written order."""

    scope: Scope
    starts: list[Start] = field(default_factory=list)
    walks: list[Walk] = field(default_factory=list)
    conditions: list[ir.Expr] = field(default_factory=list)
    optionals: list[tuple[Block, tuple[Variable, ...]]] = field(default_factory=list)
    late_conditions: list[ir.Expr] = field(default_factory=list)
    negations: list[Block] = field(default_factory=list)


def check_block(ctx: Context, clauses: tuple[ast.Clause, ...], outer: Scope) -> Block:
    """Check a block against the variables around it."""
    block = Block(outer.inner())
    scope = block.scope
    loose: set[str] = set()
    late: list[ast.Condition] = []
    for clause in clauses:
        _count_clause(ctx, clause)
        _refuse_crowd(ctx, scope, clause)
        if isinstance(clause, ast.Binding):
            if not _is_loose(ctx, scope, loose, clause, [clause.variable]):
                _check_binding(ctx, block, clause)
        elif isinstance(clause, ast.Traversal):
            if not _is_loose(ctx, scope, loose, clause, [clause.left, clause.right]):
                walk = check_traversal(ctx, scope, clause)
                if walk is not None:
                    block.walks.append(walk)
        elif isinstance(clause, ast.Optional):
            loose.update(name for name in _bound_names(clause.clauses) if name not in scope)
        elif not isinstance(clause, ast.Negation):
            if any(name in loose and name not in scope for name in variables_of(clause)):
                late.append(clause)
            else:
                _keep(block.conditions, check_condition(ctx, scope, clause))
    _check_optionals(ctx, block, clauses)
    for condition in late:
        _keep(block.late_conditions, check_condition(ctx, scope, condition))
    for clause in clauses:
        if isinstance(clause, ast.Negation):
            if not _mentions_outer(clause.clauses, scope):
                hint = "mention a variable of the pattern around it"
                ctx.report("T9", clause.span, "this `not` block is about nothing outside it", hint)
                continue
            block.negations.append(check_block(ctx, clause.clauses, scope))
    return block


def _check_optionals(ctx: Context, block: Block, clauses: Iterable[ast.Clause]) -> None:
    scope = block.scope
    for clause in clauses:
        if not isinstance(clause, ast.Optional):
            continue
        _refuse_crowd(ctx, scope, clause)
        if not _mentions_outer(clause.clauses, scope):
            hint = "mention a variable of the pattern around it"
            ctx.report("T30", clause.span, "this `optional` block is about nothing outside it", hint)
            for name in _bound_names(clause.clauses):
                scope.setdefault(name, Variable(name, Kind.BROKEN))
            continue
        inner = check_block(ctx, clause.clauses, scope)
        fresh = tuple(variable for name, variable in inner.scope.items() if name not in scope)
        block.optionals.append((inner, fresh))
        scope.adopt(fresh)


def _check_binding(ctx: Context, block: Block, clause: ast.Binding) -> None:
    variable, type_name, scope = clause.variable.text, clause.type.text, block.scope
    node = ctx.catalog.nodes.get(type_name)
    if node is None:
        _report_unknown_type(ctx, clause.type)
        if variable != "_":
            scope.setdefault(variable, Variable(variable, Kind.BROKEN))
        return
    found = scope.get(variable)
    if found is not None and found.kind in (Kind.EDGE, Kind.HOPS):
        what, code = ("an edge", "T23") if found.kind is Kind.EDGE else ("a number of hops", "T37")
        ctx.report(code, clause.variable.span, f"`${variable}` is {what} and cannot be bound as a node")
        return
    if found is not None and found.kind is Kind.NODE and found.type_name != type_name:
        message = f"`${variable}` is already a `{found.type_name}` and cannot also be a `{type_name}`"
        ctx.report("T25", clause.type.span, message, "use another variable")
        return
    if variable != "_" and (found is None or found.kind is Kind.BROKEN):
        scope.bind(variable, Kind.NODE, type_name)
    matches: list[tuple[str, ir.Expr]] = []
    for match in clause.matches:
        property_ = node.properties.get(match.property.text)
        if property_ is None:
            hint = suggestion(match.property.text, node.properties)
            message = f"`{type_name}` has no property `{match.property.text}`"
            ctx.report("T2", match.property.span, message, hint)
            continue
        value = match_value(ctx, scope, match.value, property_.name, property_.type)
        if value is not None:
            matches.append((property_.name, value))
    block.starts.append(Start(None if variable == "_" else variable, type_name, tuple(matches)))


def _report_unknown_type(ctx: Context, name: ast.Name) -> None:
    hint = suggestion(name.text, ctx.catalog.nodes)
    if name.text in ctx.catalog.interfaces:
        hint = "an interface cannot be queried; bind one of the types that implement it"
    elif name.text in ctx.catalog.edges:
        word = name.text[0].lower() + name.text[1:]
        hint = f"`{name.text}` is an edge: traverse it, as in `$a {word} $b`"
    ctx.report("T1", name.span, f"there is no node type `{name.text}`", hint)


def _count_clause(ctx: Context, clause: ast.Clause) -> None:
    """Refuse more clauses than a planner can compare with each other in good time; conditions are not among them."""
    if isinstance(clause, ast.Binding | ast.Traversal | ast.Optional | ast.Negation):
        ctx.pattern_clauses += 1
        if ctx.pattern_clauses > QUERY_CLAUSES_MAX:
            message = f"a query has at most {QUERY_CLAUSES_MAX} bindings, walks and blocks"
            ctx.report("Q000", clause.span, message, "split the query")
            raise EnoughFound


def _refuse_crowd(ctx: Context, scope: Scope, clause: ast.Clause) -> None:
    if len(scope) > QUERY_VARIABLES_MAX:
        ctx.report("Q000", clause.span, f"a query binds at most {QUERY_VARIABLES_MAX} variables", "split the query")
        raise EnoughFound


def _is_loose(ctx: Context, scope: Scope, loose: set[str], clause: ast.Clause, ends: list[ast.Name]) -> bool:
    end = next((end for end in ends if end.text in loose and end.text not in scope), None)
    if end is None:
        return False
    message = f"`${end.text}` belongs to an `optional` block and may be missing here"
    hint = "put this clause into the block, into another `optional`, or before the block"
    ctx.report("T31", end.span, message, hint)
    for name in _bound_names([clause]):
        scope.setdefault(name, Variable(name, Kind.BROKEN))
    return True


def _bound_names(clauses: Iterable[ast.Clause]) -> Iterator[str]:
    for clause in clauses:
        if isinstance(clause, ast.Binding):
            yield clause.variable.text
        elif isinstance(clause, ast.Traversal):
            names = (clause.left, clause.right, clause.edge_variable, clause.hops_variable)
            yield from (name.text for name in names if name is not None and name.text != "_")
        elif isinstance(clause, ast.Optional):
            yield from _bound_names(clause.clauses)


def _mentions_outer(clauses: Iterable[ast.Clause], outer: Scope) -> bool:
    for clause in clauses:
        if isinstance(clause, ast.Negation | ast.Optional):
            if _mentions_outer(clause.clauses, outer):
                return True
            continue
        bound = isinstance(clause, ast.Binding | ast.Traversal)
        names = _bound_names([clause]) if bound else variables_of(clause)  # type: ignore[arg-type]
        if any(name in outer for name in names):
            return True
    return False


def _keep(conditions: list[ir.Expr], condition: ir.Expr | None) -> None:
    if condition is not None:
        conditions.append(condition)
