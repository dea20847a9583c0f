"""Check the patterns of `match`: bindings, and the order and scope of clauses in nested blocks.

Pure. Clauses are checked in written order, then optional blocks, then negations, which may use all variables before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from typing import TypeVar

from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_context import (
    Context,
    Counted,
    Kind,
    Scope,
    TooManyFindings,
    Variable,
    shared_properties,
    with_null,
)
from omnigraph.lang.query.check_expressions import Role, check_condition, check_expression, variables_of
from omnigraph.lang.query.check_traversals import (
    NOT_NODES,
    check_path_nodes,
    check_walk,
    path_of_nodes,
)
from omnigraph.lang.query.check_values import describe, element_type, match_value
from omnigraph.limits import QUERY_CLAUSES_MAX, QUERY_VARIABLES_MAX

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Start:
    """A binding clause; an anonymous variable is called `_`."""

    variable: str
    node_type: str
    matches: tuple[tuple[str, ir.Expr], ...]


@dataclass(slots=True)
class Block:
    """A checked block: its clauses by kind, each kind in written order."""

    scope: Scope
    starts: list[Start] = field(default_factory=list)
    walks: list[ir.Expand] = field(default_factory=list)
    # The nodes of paths, as variable and path.
    path_nodes: list[tuple[str, str]] = field(default_factory=list)
    conditions: list[ir.Expr] = field(default_factory=list)
    optionals: list[tuple[Block, tuple[Variable, ...]]] = field(default_factory=list)
    late_conditions: list[ir.Expr] = field(default_factory=list)
    negations: list[Block] = field(default_factory=list)
    # What the conditions, or the result behind the pattern, ask of patterns beside each row.
    counts: list[Counted] = field(default_factory=list)
    unwinds: list[ir.Unwind] = field(default_factory=list)


def check_block(ctx: Context, clauses: tuple[ast.Clause, ...], outer: Scope) -> Block:
    """Check a block against the variables around it."""
    block = Block(Scope(outer))
    scope = block.scope
    around, ctx.counts = ctx.counts, block.counts
    scope.declared = _declared_types(ctx, clauses)
    for name in scope.declared.keys() & scope.keys():
        scope.narrow(name, scope.declared[name])
    optional_names: set[str] = set()
    late_conditions: list[ast.Expression] = []
    for clause in clauses:
        if not isinstance(clause, ast.Subquery):
            count_clause(ctx, clause)
        _check_variable_count(ctx, scope, clause)
        if _uses_optional_variable(ctx, scope, optional_names, clause):
            continue
        if isinstance(clause, ast.Binding):
            _check_binding(ctx, block, clause)
        elif isinstance(clause, ast.Traversal | ast.Path):
            _append_valid(block.walks, check_walk(ctx, scope, clause))
        elif isinstance(clause, ast.Unwind):
            _check_unwind(ctx, block, clause)
        elif isinstance(clause, ast.Optional):
            optional_names.update(name for name in _bound_names(clause.clauses) if name not in scope)
        elif (named := path_of_nodes(clause)) is not None and check_path_nodes(ctx, scope, *named):
            if scope[named[0].name].kind is not Kind.BROKEN:
                block.path_nodes.append((named[0].name, named[1].name))
        elif not isinstance(clause, ast.Negation):
            # A pattern in a condition shares every variable of this block, wherever that is bound.
            if _has_pattern(clause) or any(
                name in optional_names and name not in scope for name in variables_of(clause)
            ):
                late_conditions.append(clause)
            else:
                _append_valid(block.conditions, check_condition(ctx, scope, clause))
    _check_optionals(ctx, block, clauses)
    for condition in late_conditions:
        _append_valid(block.late_conditions, check_condition(ctx, scope, condition))
    for clause in clauses:
        if isinstance(clause, ast.Negation) and _shares_variable(ctx, scope, clause, "T9", "not"):
            block.negations.append(check_block(ctx, clause.clauses, scope))
    ctx.counts = around
    return block


def _check_unwind(ctx: Context, block: Block, clause: ast.Unwind) -> None:
    """Check a list and bind its elements, even on errors, so that later clauses report no consequences."""
    scope, name = block.scope, clause.variable.text
    if name == "_" or name in scope or name in ctx.params:
        hint = "use a variable with a name" if name == "_" else "use an unused name"
        ctx.report("T44", clause.variable.span, f"`${name}` cannot hold the elements of a list", hint)
        return
    typed = None
    if _has_pattern(clause.collection):
        message = "a list of `unwind` cannot depend on a pattern"
        ctx.report("T44", clause.collection.span, message, "compute it in a `with`, and unwind it behind that")
    else:
        typed = check_expression(ctx, scope, clause.collection, Role.VALUE)
    if typed is not None and typed.type is not None and not typed.type.is_list:
        hint = "name a property, a parameter or a value that is a list, such as `$v.tags`"
        ctx.report("T44", clause.collection.span, f"`unwind` takes a list, but {describe(typed)}", hint)
    if typed is None or typed.type is None or not typed.type.is_list:
        scope.mark_broken([name])
        return
    # Stored lists and literals hold no nulls.
    element = with_null(element_type(typed.type), not isinstance(typed, ir.PropertyRef | ir.Literal))
    scope[name] = Variable(name, Kind.VALUE, value_type=element)
    block.unwinds.append(ir.Unwind(typed, name, element))


def _has_pattern(condition: ast.Expression) -> bool:
    return any(isinstance(part, ast.Subquery) for part in ast.walk_expression(condition))


def _check_optionals(ctx: Context, block: Block, clauses: Iterable[ast.Clause]) -> None:
    scope = block.scope
    for clause in clauses:
        if not isinstance(clause, ast.Optional):
            continue
        _check_variable_count(ctx, scope, clause)
        if not _shares_variable(ctx, scope, clause, "T30", "optional"):
            scope.mark_broken(_bound_names(clause.clauses))
            continue
        inner = check_block(ctx, clause.clauses, scope)
        new_variables = tuple(variable for name, variable in inner.scope.items() if name not in scope)
        block.optionals.append((inner, new_variables))
        scope.adopt(new_variables)


def _declared_types(ctx: Context, clauses: Iterable[ast.Clause]) -> dict[str, str]:
    """Return the types that the bindings of a block leave to variables; several bindings ask for all of theirs."""
    declared: dict[str, str | None] = {}
    for clause in clauses:
        if isinstance(clause, ast.Binding) and clause.variable.text != "_":
            name, type_name = clause.variable.text, _binding_type(ctx, clause)
            before = declared.get(name, type_name)
            declared[name] = None if before is None or type_name is None else ir.common_types(before, type_name)
    return {name: type_name for name, type_name in declared.items() if type_name is not None}


def _binding_type(ctx: Context, clause: ast.Binding) -> str | None:
    """Return the type of a binding, a union for interfaces and alternatives; None if a type does not exist."""
    members: list[str] = []
    for word in clause.types:
        implementing = [node.name for node in ctx.catalog.nodes.values() if word.text in node.implements]
        if word.text not in ctx.catalog.nodes and not implementing:
            return None
        members.extend(implementing or [word.text])
    return ir.join_types(members)


def _check_binding(ctx: Context, block: Block, clause: ast.Binding) -> None:
    variable, scope = clause.variable.text, block.scope
    type_name = _binding_type(ctx, clause)
    if type_name is None:
        _report_unknown_type(ctx, clause)
        if variable != "_":
            scope.mark_broken([variable])
        return
    bound = scope.get(variable)
    if bound is not None and bound.kind in NOT_NODES:
        noun, code = NOT_NODES[bound.kind]
        ctx.report(code, clause.variable.span, f"`${variable}` is {noun} and cannot be bound as a node")
        return
    if bound is None or bound.kind is Kind.BROKEN:
        # All bindings of the block hold of the same node, so the first already has the types that they leave.
        type_name = scope.declared.get(variable, type_name)
        if variable != "_":
            scope.bind(variable, Kind.NODE, type_name)
    else:
        narrowed = _narrow_binding(ctx, block, clause, bound, type_name)
        if narrowed is None:
            return
        type_name = narrowed
    matches = _check_matches(ctx, scope, clause, type_name)
    block.starts.append(Start(variable, type_name, matches))


def _narrow_binding(ctx: Context, block: Block, clause: ast.Binding, bound: Variable, type_name: str) -> str | None:
    """Check another binding of a node, which asks more of it; returns the type that its properties are read by."""
    assert bound.type_name is not None
    assert bound.types is not None
    if ir.common_types(bound.types, type_name) is None:
        message = f"`${bound.name}` is already a `{bound.types}` and cannot also be a `{type_name}`"
        return ctx.report("T25", clause.type.span, message, "use another variable")
    block.scope.narrow(bound.name, type_name)
    common = ir.common_types(bound.type_name, type_name)
    if common is not None and common != bound.type_name:
        names = ir.Literal(ir.split_type(common), replace(ir.ID, is_list=True))
        block.conditions.append(ir.In(ir.TypeRef(bound.name, "node", bound.type_name), names))
    return bound.type_name


def _check_matches(ctx: Context, scope: Scope, clause: ast.Binding, type_name: str) -> tuple[tuple[str, ir.Expr], ...]:
    properties = shared_properties(ctx.catalog, "node", type_name)
    matches: list[tuple[str, ir.Expr]] = []
    for match in clause.matches:
        property_ = properties.get(match.property.text)
        if property_ is None:
            hint = did_you_mean(match.property.text, properties)
            message = f"`{type_name}` has no property `{match.property.text}`"
            if ir.is_union(type_name):
                message = f"not all types of `{type_name}` have a property `{match.property.text}`"
            ctx.report("T2", match.property.span, message, hint)
            continue
        value = match_value(ctx, scope, match.value, property_.name, property_.type)
        if value is not None:
            matches.append((property_.name, value))
    return tuple(matches)


def _report_unknown_type(ctx: Context, clause: ast.Binding) -> None:
    for name in clause.types:
        if name.text in ctx.catalog.nodes or any(name.text in node.implements for node in ctx.catalog.nodes.values()):
            continue
        hint = did_you_mean(name.text, [*ctx.catalog.nodes, *ctx.catalog.interfaces])
        if name.text in ctx.catalog.interfaces:
            ctx.report("T1", name.span, f"no node type implements `{name.text}`", f"write `implements {name.text}`")
            continue
        if name.text in ctx.catalog.edges:
            word = ctx.catalog.edges[name.text].word
            hint = f"`{name.text}` is an edge: traverse it, as in `$a {word} $b`"
        ctx.report("T1", name.span, f"there is no node type `{name.text}`", hint)


def count_clause(ctx: Context, clause: ast.Clause) -> None:
    """Limit the clauses that the planner has to order against each other; conditions do not count."""
    counted = ast.Binding | ast.Traversal | ast.Path | ast.Unwind | ast.Optional | ast.Negation | ast.Subquery
    if isinstance(clause, counted):
        ctx.pattern_clauses += 1
        if ctx.pattern_clauses > QUERY_CLAUSES_MAX:
            message = f"a query has at most {QUERY_CLAUSES_MAX} bindings, walks and blocks"
            ctx.report("Q000", clause.span, message, "split the query")
            raise TooManyFindings


def _check_variable_count(ctx: Context, scope: Scope, clause: ast.Clause) -> None:
    if len(scope) > QUERY_VARIABLES_MAX:
        ctx.report("Q000", clause.span, f"a query binds at most {QUERY_VARIABLES_MAX} variables", "split the query")
        raise TooManyFindings


def _uses_optional_variable(ctx: Context, scope: Scope, optional_names: set[str], clause: ast.Clause) -> bool:
    """Report a clause that starts from a variable of an `optional` block before it."""
    name = next(
        (name for name in _names_needed(clause) if name.text in optional_names and name.text not in scope), None
    )
    if name is None:
        return False
    message = f"`${name.text}` belongs to an `optional` block and may be missing here"
    hint = "put this clause into the block, into another `optional`, or before the block"
    ctx.report("T31", name.span, message, hint)
    scope.mark_broken(_bound_names([clause]))
    return True


def _names_needed(clause: ast.Clause) -> list[ast.Name]:
    """Return the variables that a clause starts from or leads to; a condition can wait for its own."""
    if isinstance(clause, ast.Binding):
        return [clause.variable]
    if isinstance(clause, ast.Traversal | ast.Path):
        traversal = clause.traversal if isinstance(clause, ast.Path) else clause
        return [traversal.left, traversal.right]
    if isinstance(clause, ast.Unwind):
        return [ast.Name(name, clause.collection.span) for name in variables_of(clause.collection)]
    return [ast.Name(variable.name, variable.span) for variable in path_of_nodes(clause) or ()]


def _bound_names(clauses: Iterable[ast.Clause]) -> Iterator[str]:
    for clause in clauses:
        if isinstance(clause, ast.Binding | ast.Unwind):
            yield clause.variable.text
        elif isinstance(clause, ast.Traversal):
            yield from clause.names
        elif isinstance(clause, ast.Path):
            yield from (clause.variable.text, *clause.traversal.names)
        elif (named := path_of_nodes(clause)) is not None:
            yield named[0].name
        elif isinstance(clause, ast.Optional):
            yield from _bound_names(clause.clauses)


def find_rebound(clauses: Iterable[ast.Clause], names: Set[str]) -> Iterator[tuple[str, ast.Clause]]:
    """Yield which of some names clauses bind, inner blocks included, with the clause that does."""
    for clause in clauses:
        if isinstance(clause, ast.Negation | ast.Optional | ast.Subquery):
            yield from find_rebound(clause.clauses, names)
        elif not isinstance(clause, ast.Binding | ast.Traversal | ast.Path | ast.Unwind) and _has_pattern(clause):
            yield from find_rebound(ast.parts_of(clause), names)
        else:
            yield from ((name, clause) for name in dict.fromkeys(_bound_names([clause])) if name in names)


def _shares_variable(ctx: Context, scope: Scope, block: ast.Negation | ast.Optional, code: str, word: str) -> bool:
    """Return True if a block mentions a variable of the pattern around it, or report that it does not."""
    if any(name in scope for name in mentioned_names(block.clauses)):
        return True
    message = f"this `{word}` block shares no variable with the outer pattern"
    ctx.report(code, block.span, message, "mention a variable of the pattern around it")
    return False


def mentioned_names(clauses: Iterable[ast.Clause]) -> Iterator[str]:
    """Yield the names of the variables that clauses mention, with those in their blocks."""
    for clause in clauses:
        if isinstance(clause, ast.Negation | ast.Optional):
            yield from mentioned_names(clause.clauses)
        elif isinstance(clause, ast.Binding | ast.Traversal | ast.Path):
            yield from _bound_names([clause])
        elif isinstance(clause, ast.Unwind):
            yield from (clause.variable.text, *variables_of(clause.collection))
        else:
            yield from variables_of(clause)


def _append_valid(items: list[T], item: T | None) -> None:
    if item is not None:
        items.append(item)
