"""Traversals: which edge, in which direction, between which types, how far.

Pure. Binds the ends that were free and returns the walk that lowering arranges.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.lang.catalog import EdgeType
from omnigraph.lang.query import ast
from omnigraph.lang.query.context import Context, Kind, Scope, Variable
from omnigraph.lang.query.ir import Direction
from omnigraph.lang.query.words import listed, suggestion


@dataclass(frozen=True, slots=True)
class Walk:
    """A checked traversal as written, left to right; an anonymous end has no name."""

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
    """Check a traversal and bind its free ends, also when it is refused, so that later clauses stay quiet."""
    edge = ctx.catalog.edge_by_word(clause.edge.text)
    sound = _check_ends(ctx, scope, clause)
    if edge is None:
        _report_unknown_edge(ctx, clause.edge)
    hops = _check_hops(ctx, clause)
    directed = _direct(ctx, scope, clause, edge) if edge is not None and sound else None
    names_sound = _check_names(ctx, scope, clause)
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
    if hops is None or not names_sound:
        return None
    minimum, maximum = hops
    # Edges between different types never chain, so no walk is longer than one hop.
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
        found = scope.get(end.text)
        if found is not None and found.kind is Kind.EDGE:
            ctx.report("T23", end.span, f"`${end.text}` is an edge; a traversal joins nodes")
            return False
        if found is not None and found.kind is Kind.HOPS:
            ctx.report("T37", end.span, f"`${end.text}` is a number of hops; a traversal joins nodes")
            return False
    return True


def _report_unknown_edge(ctx: Context, word: ast.Name) -> None:
    words = [name[0].lower() + name[1:] for name in ctx.catalog.edges]
    hint = suggestion(word.text, words)
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
    # The end that fixed the direction is right by construction, unless it is no end of this edge at all.
    for end, type_name, fits in ((clause.left, left, ends[0]), (clause.right, right, ends[1])):
        if type_name is not None and type_name != fits:
            _report_misfit(ctx, end, type_name, edge, fits)
            return None
    return direction, *ends


def _report_misfit(ctx: Context, end: ast.Name, type_name: str, edge: EdgeType, fits: str) -> None:
    joins = f"`{edge.name}` joins `{edge.source}` to `{edge.target}`"
    hint = f"`${end.text}` would have to be a `{fits}`"
    if type_name not in (edge.source, edge.target):
        ends = listed([f"`{name}`" for name in dict.fromkeys([edge.source, edge.target])])
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
        hint = "leave `as $_` out" if name == "_" else "use a name that nothing else has"
        ctx.report("T37", hops_variable.span, f"`${name}` cannot hold the number of hops", hint)
        return False
    if edge_variable is not None and edge_variable.text != "_":
        message = "a traversal that binds its edge takes one hop; there is nothing to count"
        ctx.report("T37", hops_variable.span, message, "drop `as` or the edge variable")
        return False
    return True


def _type_of(scope: Scope, end: ast.Name) -> str | None:
    found = scope.get(end.text)
    return found.type_name if found is not None and found.kind is Kind.NODE else None
