"""Check the patterns of `match`: resolve variables, types, edges and directions in nested blocks.

Pure. Clauses are checked in written order, then optional blocks, then negations, which may use all variables before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from omnigraph.lang.catalog import EdgeType
from omnigraph.lang.diagnostic import did_you_mean, join_words
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_context import Context, Kind, Scope, TooManyFindings, Variable
from omnigraph.lang.query.check_expressions import match_value
from omnigraph.lang.query.check_filters import check_condition, variables_of
from omnigraph.lang.query.ir import Direction
from omnigraph.limits import QUERY_CLAUSES_MAX, QUERY_VARIABLES_MAX


@dataclass(frozen=True, slots=True)
class Walk:
    """A checked traversal as written, left to right; an anonymous endpoint has no name."""

    left: str | None
    left_type: str
    right: str | None
    right_type: str
    edge: str
    direction: Direction
    minimum: int
    maximum: int
    edge_variable: str | None
    hops_variable: str | None


def check_traversal(ctx: Context, scope: Scope, clause: ast.Traversal) -> Walk | None:
    """Check a traversal and bind its free variables, even on errors, so that later clauses report no consequences."""
    edge = ctx.catalog.edge_by_word(clause.edge.text)
    ends_valid = _check_ends(ctx, scope, clause)
    if edge is None:
        _report_unknown_edge(ctx, clause.edge)
    hops = _check_hops(ctx, clause)
    directed = _direct(ctx, scope, clause, edge) if edge is not None and ends_valid else None
    names_valid = _check_names(ctx, scope, clause)
    if edge is None or directed is None:
        for name in (clause.left, clause.right, clause.edge_variable, clause.hops_variable):
            if name is not None and name.text != "_":
                scope.setdefault(name.text, Variable(name.text, Kind.BROKEN))
        return None
    direction, left_type, right_type = directed
    for end, type_name in ((clause.left, left_type), (clause.right, right_type)):
        if end.text != "_" and _type_of(scope, end) is None:
            scope.bind(end.text, Kind.NODE, type_name)
    edge_variable = _bind(scope, clause.edge_variable, Kind.EDGE, edge.name)
    hops_variable = _bind(scope, clause.hops_variable, Kind.HOPS, None)
    if hops is None or not names_valid:
        return None
    minimum, maximum = hops
    # An edge between different types cannot follow itself, so a walk has one hop at most.
    maximum = maximum if edge.source == edge.target else 1
    left = None if clause.left.text == "_" else clause.left.text
    right = None if clause.right.text == "_" else clause.right.text
    return Walk(
        left, left_type, right, right_type, edge.name, direction, minimum, maximum, edge_variable, hops_variable
    )


def _bind(scope: Scope, name: ast.Name | None, kind: Kind, type_name: str | None) -> str | None:
    if name is None or name.text == "_":
        return None
    if name.text not in scope:
        scope.bind(name.text, kind, type_name)
    return name.text


def _check_ends(ctx: Context, scope: Scope, clause: ast.Traversal) -> bool:
    for end in (clause.left, clause.right):
        binding = scope.get(end.text)
        if binding is not None and binding.kind is Kind.EDGE:
            ctx.report("T23", end.span, f"`${end.text}` is an edge; a traversal joins nodes")
            return False
        if binding is not None and binding.kind is Kind.HOPS:
            ctx.report("T37", end.span, f"`${end.text}` is a number of hops; a traversal joins nodes")
            return False
    return True


def _report_unknown_edge(ctx: Context, word: ast.Name) -> None:
    words = [name[0].lower() + name[1:] for name in ctx.catalog.edges]
    hint = did_you_mean(word.text, words)
    if word.text in ("contains", "starts_with", "in"):
        hint = f"variable, word, variable is a traversal; to compare, write parentheses: `($a {word.text} $b)`"
    ctx.report("T4", word.span, f"there is no edge `{word.text}`", hint)


def _check_hops(ctx: Context, clause: ast.Traversal) -> tuple[int, int] | None:
    hops = clause.hops
    if hops is None:
        return 1, 1
    if clause.edge_variable is not None and clause.edge_variable.text != "_":
        message = "a traversal that binds its edge takes one hop"
        ctx.report("T23", hops.span, message, "drop the hop bounds or the edge variable")
        return None
    if hops.maximum is None:
        hint = f"close the range, as in `{{{max(hops.minimum, 1)},5}}`"
        ctx.report("T15", hops.span, "a hop range needs its upper bound", hint)
    elif hops.minimum == 0:
        ctx.report("T15", hops.span, "a hop range starts at 1 or more")
    elif hops.maximum < hops.minimum:
        ctx.report("T15", hops.span, f"the hop range {hops.minimum} to {hops.maximum} is empty", "swap the bounds")
    else:
        return hops.minimum, hops.maximum
    return None


def _direct(ctx: Context, scope: Scope, clause: ast.Traversal, edge: EdgeType) -> tuple[Direction, str, str] | None:
    source, target = edge.source, edge.target
    left, right = _type_of(scope, clause.left), _type_of(scope, clause.right)
    if clause.undirected:
        if source != target:
            message = f"`{edge.name}` joins `{source}` to `{target}`, so it has one direction between any two nodes"
            ctx.report("T22", clause.edge.span, message, "drop the angle brackets")
            return None
        direction = Direction.BOTH
    elif left in (source, target) or left is None:
        backwards = left == target if left is not None else right == source
        direction = Direction.IN if backwards and source != target else Direction.OUT
    else:
        direction = Direction.OUT
    ends = (target, source) if direction is Direction.IN else (source, target)
    # The side that determined the direction fits by construction, unless its type is no endpoint of the edge.
    for end, type_name, fits in ((clause.left, left, ends[0]), (clause.right, right, ends[1])):
        if type_name is not None and type_name != fits:
            _report_misfit(ctx, end, type_name, edge, fits)
            return None
    return direction, *ends


def _report_misfit(ctx: Context, end: ast.Name, type_name: str, edge: EdgeType, fits: str) -> None:
    joins = f"`{edge.name}` joins `{edge.source}` to `{edge.target}`"
    hint = f"`${end.text}` would have to be a `{fits}`"
    if type_name not in (edge.source, edge.target):
        ends = join_words([f"`{name}`" for name in dict.fromkeys([edge.source, edge.target])])
        hint = f"`${end.text}` would have to be a {ends}"
    ctx.report("T5", end.span, f"{joins}, but `${end.text}` is a `{type_name}`", hint)


def _check_names(ctx: Context, scope: Scope, clause: ast.Traversal) -> bool:
    taken = {clause.left.text, clause.right.text}
    edge_variable, hops_variable = clause.edge_variable, clause.hops_variable
    if edge_variable is not None and edge_variable.text != "_":
        if edge_variable.text in taken or edge_variable.text in scope:
            message = f"`${edge_variable.text}` is already bound and cannot name an edge"
            ctx.report("T23", edge_variable.span, message, "use another variable")
            return False
        taken.add(edge_variable.text)
    if hops_variable is None:
        return True
    name = hops_variable.text
    if name == "_" or name in taken or name in scope or name in ctx.params:
        hint = "leave `as $_` out" if name == "_" else "use an unused name"
        ctx.report("T37", hops_variable.span, f"`${name}` cannot hold the number of hops", hint)
        return False
    if edge_variable is not None and edge_variable.text != "_":
        message = "a traversal that binds its edge takes one hop; there is nothing to count"
        ctx.report("T37", hops_variable.span, message, "drop `as` or the edge variable")
        return False
    return True


def _type_of(scope: Scope, end: ast.Name) -> str | None:
    binding = scope.get(end.text)
    return binding.type_name if binding is not None and binding.kind is Kind.NODE else None


@dataclass(frozen=True, slots=True)
class Start:
    """A binding clause; an anonymous one has no variable."""

    variable: str | None
    node_type: str
    matches: tuple[tuple[str, ir.Expr], ...]


@dataclass(slots=True)
class Block:
    """A checked block: its clauses by kind, each kind in written order."""

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
    optional_names: set[str] = set()
    late_conditions: list[ast.Condition] = []
    for clause in clauses:
        _count_clause(ctx, clause)
        _check_variable_count(ctx, scope, clause)
        if isinstance(clause, ast.Binding):
            if not _uses_optional_variable(ctx, scope, optional_names, clause, [clause.variable]):
                _check_binding(ctx, block, clause)
        elif isinstance(clause, ast.Traversal):
            if not _uses_optional_variable(ctx, scope, optional_names, clause, [clause.left, clause.right]):
                walk = check_traversal(ctx, scope, clause)
                if walk is not None:
                    block.walks.append(walk)
        elif isinstance(clause, ast.Optional):
            optional_names.update(name for name in _bound_names(clause.clauses) if name not in scope)
        elif not isinstance(clause, ast.Negation):
            if any(name in optional_names and name not in scope for name in variables_of(clause)):
                late_conditions.append(clause)
            else:
                _append_valid(block.conditions, check_condition(ctx, scope, clause))
    _check_optionals(ctx, block, clauses)
    for condition in late_conditions:
        _append_valid(block.late_conditions, check_condition(ctx, scope, condition))
    for clause in clauses:
        if isinstance(clause, ast.Negation):
            if not _mentions_outer(clause.clauses, scope):
                hint = "mention a variable of the pattern around it"
                ctx.report("T9", clause.span, "this `not` block shares no variable with the outer pattern", hint)
                continue
            block.negations.append(check_block(ctx, clause.clauses, scope))
    return block


def _check_optionals(ctx: Context, block: Block, clauses: Iterable[ast.Clause]) -> None:
    scope = block.scope
    for clause in clauses:
        if not isinstance(clause, ast.Optional):
            continue
        _check_variable_count(ctx, scope, clause)
        if not _mentions_outer(clause.clauses, scope):
            hint = "mention a variable of the pattern around it"
            ctx.report("T30", clause.span, "this `optional` block shares no variable with the outer pattern", hint)
            for name in _bound_names(clause.clauses):
                scope.setdefault(name, Variable(name, Kind.BROKEN))
            continue
        inner = check_block(ctx, clause.clauses, scope)
        new_variables = tuple(variable for name, variable in inner.scope.items() if name not in scope)
        block.optionals.append((inner, new_variables))
        scope.adopt(new_variables)


def _check_binding(ctx: Context, block: Block, clause: ast.Binding) -> None:
    variable, type_name, scope = clause.variable.text, clause.type.text, block.scope
    node = ctx.catalog.nodes.get(type_name)
    if node is None:
        _report_unknown_type(ctx, clause.type)
        if variable != "_":
            scope.setdefault(variable, Variable(variable, Kind.BROKEN))
        return
    bound = scope.get(variable)
    if bound is not None and bound.kind in (Kind.EDGE, Kind.HOPS):
        noun, code = ("an edge", "T23") if bound.kind is Kind.EDGE else ("a number of hops", "T37")
        ctx.report(code, clause.variable.span, f"`${variable}` is {noun} and cannot be bound as a node")
        return
    if bound is not None and bound.kind is Kind.NODE and bound.type_name != type_name:
        message = f"`${variable}` is already a `{bound.type_name}` and cannot also be a `{type_name}`"
        ctx.report("T25", clause.type.span, message, "use another variable")
        return
    if variable != "_" and (bound is None or bound.kind is Kind.BROKEN):
        scope.bind(variable, Kind.NODE, type_name)
    matches: list[tuple[str, ir.Expr]] = []
    for match in clause.matches:
        property_ = node.properties.get(match.property.text)
        if property_ is None:
            hint = did_you_mean(match.property.text, node.properties)
            message = f"`{type_name}` has no property `{match.property.text}`"
            ctx.report("T2", match.property.span, message, hint)
            continue
        value = match_value(ctx, scope, match.value, property_.name, property_.type)
        if value is not None:
            matches.append((property_.name, value))
    block.starts.append(Start(None if variable == "_" else variable, type_name, tuple(matches)))


def _report_unknown_type(ctx: Context, name: ast.Name) -> None:
    hint = did_you_mean(name.text, ctx.catalog.nodes)
    if name.text in ctx.catalog.interfaces:
        hint = "an interface cannot be queried; bind one of the types that implement it"
    elif name.text in ctx.catalog.edges:
        word = name.text[0].lower() + name.text[1:]
        hint = f"`{name.text}` is an edge: traverse it, as in `$a {word} $b`"
    ctx.report("T1", name.span, f"there is no node type `{name.text}`", hint)


def _count_clause(ctx: Context, clause: ast.Clause) -> None:
    """Limit the clauses that the planner has to order against each other; conditions do not count."""
    if isinstance(clause, ast.Binding | ast.Traversal | ast.Optional | ast.Negation):
        ctx.pattern_clauses += 1
        if ctx.pattern_clauses > QUERY_CLAUSES_MAX:
            message = f"a query has at most {QUERY_CLAUSES_MAX} bindings, walks and blocks"
            ctx.report("Q000", clause.span, message, "split the query")
            raise TooManyFindings


def _check_variable_count(ctx: Context, scope: Scope, clause: ast.Clause) -> None:
    if len(scope) > QUERY_VARIABLES_MAX:
        ctx.report("Q000", clause.span, f"a query binds at most {QUERY_VARIABLES_MAX} variables", "split the query")
        raise TooManyFindings


def _uses_optional_variable(
    ctx: Context, scope: Scope, optional_names: set[str], clause: ast.Clause, ends: list[ast.Name]
) -> bool:
    end = next((end for end in ends if end.text in optional_names and end.text not in scope), None)
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


def _append_valid(conditions: list[ir.Expr], condition: ir.Expr | None) -> None:
    if condition is not None:
        conditions.append(condition)
