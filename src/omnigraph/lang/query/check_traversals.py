"""Check traversals and `path $p = …`: edges, directions, end types, hop bounds, weights and variables.

Pure. A traversal of one edge type between ends of one type each goes the documented way; alternatives, any edge and
ends of several types become legs, one per edge type.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from omnigraph.lang.catalog import INTEGERS, EdgeType
from omnigraph.lang.diagnostic import did_you_mean, join_words
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_context import Context, Kind, Scope, shared_properties
from omnigraph.lang.query.ir import Direction

ANY_EDGE = "_"
# Variables that are no nodes: what they are, and the code of errors about them.
NOT_NODES: Final = {
    Kind.EDGE: ("an edge", "T23"),
    Kind.HOPS: ("a number of hops", "T37"),
    Kind.PATH: ("a path", "T41"),
    Kind.VALUE: ("a value", "T42"),
}


Hops = tuple[ir.HopBound, ir.HopBound | None]


def check_walk(ctx: Context, scope: Scope, clause: ast.Traversal | ast.Path) -> ir.Expand | None:
    """Check a traversal, alone or in a path clause; the walk goes left to right, and an anonymous end is called `_`.

    Free variables are bound even on errors, so that later clauses report no consequences.
    """
    if isinstance(clause, ast.Path):
        return _check_path(ctx, scope, clause)
    edges = _resolve_edges(ctx, clause)
    ends_valid = _check_ends(ctx, scope, clause)
    hops = _check_hops(ctx, clause)
    walk = _find_walk(ctx, scope, clause, edges, hops or (1, 1)) if edges and ends_valid else None
    names_valid = _check_names(ctx, scope, clause)
    if walk is None:
        scope.mark_broken(clause.names)
        return None
    for end, type_name in ((clause.left, walk.source_type), (clause.right, walk.target_type)):
        if end.text != "_" and _type_of(scope, end) is None:
            scope.bind(end.text, Kind.NODE, type_name)
    edge_variable = _bind(scope, clause.edge_variable, Kind.EDGE, walk.edge)
    hops_variable = _bind(scope, clause.hops_variable, Kind.HOPS, None)
    if hops is None or not names_valid:
        return None
    if walk.joins_types and not isinstance(walk.maximum, ir.ParameterRef):
        # An edge between different types cannot follow itself, so a walk has one hop at most.
        walk = replace(walk, maximum=1 if walk.maximum is None else min(walk.maximum, 1))
    return replace(walk, edge_variable=edge_variable, hops_variable=hops_variable)


def _bind(scope: Scope, name: ast.Name | None, kind: Kind, type_name: str | None) -> str | None:
    if name is None or name.text == "_":
        return None
    if name.text not in scope:
        scope.bind(name.text, kind, type_name)
    return name.text


def _check_ends(ctx: Context, scope: Scope, clause: ast.Traversal) -> bool:
    for end in (clause.left, clause.right):
        binding = scope.get(end.text)
        if binding is not None and binding.kind in NOT_NODES:
            noun, code = NOT_NODES[binding.kind]
            hint = "pass the node on, too" if binding.kind is Kind.VALUE else None
            ctx.report(code, end.span, f"`${end.text}` is {noun}; a traversal joins nodes", hint)
            return False
    return True


def _resolve_edges(ctx: Context, clause: ast.Traversal) -> tuple[EdgeType, ...]:
    """Return the edge types that a traversal names; none if one of them does not exist."""
    if clause.edge.text == ANY_EDGE and len(clause.edges) == 1:
        edges = tuple(ctx.catalog.edges.values())
        if not edges:
            ctx.report("T4", clause.edge.span, "there is no edge to walk: the schema has none")
        return edges
    named: dict[str, EdgeType] = {}
    for word in clause.edges:
        edge = ctx.catalog.edge_by_word(word.text)
        if edge is None:
            _report_unknown_edge(ctx, word)
        elif edge.name in named:
            ctx.report("T4", word.span, f"the edge `{word.text}` is named twice", "keep one of them")
        else:
            named[edge.name] = edge
    return tuple(named.values()) if len(named) == len(clause.edges) else ()


def _report_unknown_edge(ctx: Context, word: ast.Name) -> None:
    hint = did_you_mean(word.text, [edge.word for edge in ctx.catalog.edges.values()])
    if word.text in ("contains", "starts_with", "in"):
        hint = f"variable, word, variable is a traversal; to compare, write parentheses: `($a {word.text} $b)`"
    elif word.text == ANY_EDGE:
        hint = "`_` is any edge, so it stands alone"
    ctx.report("T4", word.span, f"there is no edge `{word.text}`", hint)


# -- hops ------------------------------------------------------------------------------------------------------


def _check_hops(ctx: Context, clause: ast.Traversal) -> Hops | None:
    hops = clause.hops
    if hops is None:
        return 1, 1
    if clause.edge_variable is not None and clause.edge_variable.text != "_":
        message = "a traversal that binds its edge takes one hop"
        return ctx.report("T23", hops.span, message, "drop the hop bounds or the edge variable")
    minimum = integer_bound(ctx, hops.minimum, "T15", "a hop bound")
    maximum = None if hops.maximum is None else integer_bound(ctx, hops.maximum, "T15", "a hop bound")
    if minimum is None or (maximum is None and hops.maximum is not None):
        return None
    if isinstance(minimum, int) and isinstance(maximum, int) and maximum < minimum:
        return ctx.report("T15", hops.span, f"the hop range {minimum} to {maximum} is empty", "swap the bounds")
    return minimum, maximum


def integer_bound(ctx: Context, bound: int | ast.Variable, code: str, noun: str) -> ir.HopBound | None:
    """Return a number, or the parameter that will hold it, which must be a required integer."""
    if isinstance(bound, int):
        return bound
    name = bound.name
    parameter = ctx.params.get(name)
    if parameter is None:
        return ctx.report_unknown_parameter(code, bound, "I64")
    type_ = parameter.type
    if type_.scalar not in INTEGERS or type_.is_list or type_.nullable:
        message = f"{noun} needs a required integer, but `${name}` is {type_}"
        return ctx.report(code, bound.span, message, f"declare `${name}: I64`")
    return ir.ParameterRef(name, type_)


# -- directions ------------------------------------------------------------------------------------------------


def _find_walk(
    ctx: Context, scope: Scope, clause: ast.Traversal, edges: tuple[EdgeType, ...], hops: Hops
) -> ir.Expand | None:
    """Return where a traversal leads: the types of its ends, and the edge types between them."""
    source, target = clause.left.text, clause.right.text
    known = [name for end in (clause.left, clause.right) if (name := _type_of(scope, end)) is not None]
    includes_start = hops[0] == 0
    is_plain = len(clause.edges) == 1 and clause.edge.text != ANY_EDGE and not any(map(ir.is_union, known))
    if is_plain and not (includes_start and edges[0].source != edges[0].target):
        directed = _direct(ctx, scope, clause, edges[0])
        if directed is None:
            return None
        direction, left_type, right_type = directed
        return ir.Expand(source, left_type, target, right_type, edges[0].name, direction, *hops)
    left, right = (_types_of(scope, end) for end in (clause.left, clause.right))
    if hops == (1, 1):
        legs = _single_legs(ctx, clause, edges, left, right)
    else:
        legs = _chained_legs(ctx, clause, edges, left, right, includes_start)
    if legs is None:
        return None
    pairs = [pair for leg in legs for pair in leg.ends]
    left = left or {near for near, _ in pairs}
    reached = {far for _, far in pairs} | (left if includes_start else set())
    edge = ir.join_types(leg.edge for leg in legs)
    # The rows of a bound variable are numbered by the type that it was bound with.
    left_type = _type_of(scope, clause.left) or ir.join_types(left)
    right_type = _type_of(scope, clause.right) or ir.join_types(right or reached)
    return ir.Expand(source, left_type, target, right_type, edge, Direction.OUT, *hops, legs=legs)


Types = set[str] | None


def _single_legs(
    ctx: Context, clause: ast.Traversal, edges: Iterable[EdgeType], left: Types, right: Types
) -> tuple[ir.Leg, ...] | None:
    """Return the legs of one hop: each named edge in the direction that its ends allow, any edge as it is stored."""
    is_any = clause.edge.text == ANY_EDGE
    legs: list[ir.Leg] = []
    for edge in edges:
        is_out = _fits(left, edge.source) and _fits(right, edge.target)
        is_in = _fits(left, edge.target) and _fits(right, edge.source)
        if clause.undirected and is_out and is_in:
            direction = Direction.BOTH
        elif is_out:
            direction = Direction.OUT
        elif is_in and (clause.undirected or not is_any):
            direction = Direction.IN
        elif is_any:
            continue
        else:
            return _report_no_fit(ctx, clause, edge, left, right)
        legs.append(ir.Leg(edge.name, direction, edge.source, edge.target))
    if not legs:
        return _report_no_edge(ctx, clause, left, right)
    return tuple(legs)


def _chained_legs(
    ctx: Context, clause: ast.Traversal, edges: tuple[EdgeType, ...], left: Types, right: Types, includes_start: bool
) -> tuple[ir.Leg, ...] | None:
    """Return the legs of a walk of several hops: all edges that can be reached from its start, in one direction."""
    direction = Direction.BOTH if clause.undirected else Direction.OUT
    if left is not None and direction is Direction.OUT and not any(edge.source in left for edge in edges):
        is_any = clause.edge.text == ANY_EDGE
        direction = direction if is_any or not any(edge.target in left for edge in edges) else Direction.IN
    legs = [ir.Leg(edge.name, direction, edge.source, edge.target) for edge in edges]
    visited = set(left) if left is not None else {near for leg in legs for near, _ in leg.ends}
    grown = visited
    while grown:
        grown = {far for leg in legs for near, far in leg.ends if near in visited} - visited
        visited |= grown
    reached = [leg for leg in legs if any(near in visited for near, _ in leg.ends)]
    if len(reached) < len(legs) and clause.edge.text != ANY_EDGE:
        lost = next(index for index, leg in enumerate(legs) if leg not in reached)
        return _report_no_fit(ctx, clause, edges[lost], left, None)
    ends = {far for leg in reached for _, far in leg.ends} | (visited if includes_start else set())
    if not reached or (right is not None and not right & ends):
        return _report_no_edge(ctx, clause, left, right)
    return tuple(reached)


def _fits(types: Types, name: str) -> bool:
    return types is None or name in types


def _report_no_fit(
    ctx: Context, clause: ast.Traversal, edge: EdgeType, left: Types, right: Types
) -> tuple[ir.Leg, ...] | None:
    position = next(word.span for word in clause.edges if word.text.lower() == edge.name.lower())
    ends = [
        f"`${end.text}` is a {join_words([f'`{name}`' for name in sorted(types)])}"
        for end, types in ((clause.left, left), (clause.right, right))
        if types is not None
    ]
    message = f"`{edge.name}` joins `{edge.source}` to `{edge.target}`, but {join_words(ends, conjunction='and')}"
    return ctx.report("T5", position, message, "leave this edge out, or change the type of an end")


def _report_no_edge(ctx: Context, clause: ast.Traversal, left: Types, right: Types) -> tuple[ir.Leg, ...] | None:
    start, end = (
        "any node" if types is None else f"a {join_words([f'`{name}`' for name in sorted(types)])}"
        for types in (left, right)
    )
    hint = None if clause.undirected else f"write `<{clause.edge.text}>` to walk both ways"
    return ctx.report("T5", clause.edge.span, f"no such edge leads from {start} to {end}", hint)


def _direct(ctx: Context, scope: Scope, clause: ast.Traversal, edge: EdgeType) -> tuple[Direction, str, str] | None:
    source, target = edge.source, edge.target
    left, right = _type_of(scope, clause.left), _type_of(scope, clause.right)
    if clause.undirected and source != target:
        message = f"`{edge.name}` joins `{source}` to `{target}`, so it has one direction between any two nodes"
        return ctx.report("T22", clause.edge.span, message, "drop the angle brackets")
    is_backwards = source != target and (right == source if left is None else left == target)
    direction = Direction.BOTH if clause.undirected else Direction.IN if is_backwards else Direction.OUT
    ends = (target, source) if direction is Direction.IN else (source, target)
    # The side that determined the direction fits by construction, unless its type is no endpoint of the edge.
    for end, type_name, fits in ((clause.left, left, ends[0]), (clause.right, right, ends[1])):
        if type_name is not None and type_name != fits:
            joins = f"`{edge.name}` joins `{source}` to `{target}`"
            fitting = [fits] if type_name in (source, target) else dict.fromkeys([source, target])
            hint = f"`${end.text}` would have to be a {join_words([f'`{name}`' for name in fitting])}"
            return ctx.report("T5", end.span, f"{joins}, but `${end.text}` is a `{type_name}`", hint)
    return direction, *ends


def _check_names(ctx: Context, scope: Scope, clause: ast.Traversal) -> bool:
    names = {clause.left.text, clause.right.text}
    edge_variable, hops_variable = clause.edge_variable, clause.hops_variable
    if edge_variable is not None and edge_variable.text != "_":
        if edge_variable.text in names or edge_variable.text in scope:
            message = f"`${edge_variable.text}` is already bound and cannot name an edge"
            ctx.report("T23", edge_variable.span, message, "use another variable")
            return False
        names.add(edge_variable.text)
    if hops_variable is None:
        return True
    name = hops_variable.text
    if name == "_" or name in names or name in scope or name in ctx.params:
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


def _types_of(scope: Scope, end: ast.Name) -> Types:
    """Return the types that bindings leave to an end, also those that a later binding of the block gives it."""
    binding = scope.get(end.text)
    is_node = binding is not None and binding.kind is Kind.NODE
    name = binding.types if binding is not None and is_node else scope.declared.get(end.text)
    return None if name is None else set(ir.split_type(name))


def _check_path(ctx: Context, scope: Scope, clause: ast.Path) -> ir.Expand | None:
    """Check a path clause and bind its variable; the walk carries what to search for."""
    traversal, variable = clause.traversal, clause.variable
    before = len(ctx.findings)
    _check_form(ctx, scope, clause)
    walk = check_walk(ctx, scope, traversal)
    count = integer_bound(ctx, clause.count, "T41", "`shortest`")
    if walk is not None and clause.weight is not None:
        _check_weight(ctx, walk, clause.weight)
    if walk is None or count is None or len(ctx.findings) > before:
        scope.mark_broken([variable.text])
        return None
    types = walk.source_type, walk.target_type
    space = ir.walk_space(walk.source_type, walk.legs) if walk.legs else ir.join_types(types)
    scope.bind(variable.text, Kind.PATH, space)
    weight = None if clause.weight is None else clause.weight.text
    legs = walk.legs
    if not legs:
        edge = ctx.catalog.edges[walk.edge]
        legs = (ir.Leg(walk.edge, walk.direction, edge.source, edge.target),)
    return replace(walk, legs=legs, path=ir.Path(variable.text, clause.is_all, count, weight))


def path_of_nodes(clause: ast.Clause) -> tuple[ast.Variable, ast.Variable] | None:
    """Return the variable and the path of a clause `$v in nodes($p)`."""
    if not isinstance(clause, ast.Membership) or clause.negated or not isinstance(clause.operand, ast.Variable):
        return None
    call = clause.collection
    if not isinstance(call, ast.Call) or call.function != "nodes" or not isinstance(call.arguments[0], ast.Variable):
        return None
    return clause.operand, call.arguments[0]


def check_path_nodes(ctx: Context, scope: Scope, variable: ast.Variable, path: ast.Variable) -> bool:
    """Bind a variable to the nodes of a path, or restrict a bound one to them; False if it is an ordinary `in`."""
    bound, way = scope.get(variable.name), scope.get(path.name)
    if variable.name in ctx.params or variable.name == "_":
        return False
    if way is None or way.kind is not Kind.PATH:
        if bound is not None:
            return False
        scope.bind(variable.name, Kind.BROKEN, None)
        if way is None or way.kind is not Kind.BROKEN:
            ctx.report("T33", path.span, "`nodes` takes a path: `path $p = …`", "bind the path before its nodes")
        return True
    if bound is None:
        scope.bind(variable.name, Kind.NODE, way.owner)
        return True
    if bound.kind is not Kind.NODE or bound.type_name == way.type_name:
        return bound.kind is Kind.NODE
    message = f"`${variable.name}` is a `{bound.type_name}`, but `${path.name}` visits nodes of `{way.type_name}`"
    ctx.report("T41", variable.span, message, "use another variable")
    return True


def _check_form(ctx: Context, scope: Scope, clause: ast.Path) -> None:
    """Report the first thing that a path clause cannot have."""
    name, traversal, hops = clause.variable.text, clause.traversal, clause.traversal.hops
    if name in ("_", traversal.left.text, traversal.right.text) or name in scope or name in ctx.params:
        ctx.report("T41", clause.variable.span, f"`${name}` cannot name a path", "use an unused name")
    elif traversal.edge_variable is not None:
        hint = "drop the edge variable, and read `edges($p)`"
        ctx.report("T41", traversal.edge_variable.span, "a path binds no edge variable", hint)
    elif traversal.hops_variable is not None:
        hint = "drop `as`, and read `length($p)`"
        ctx.report("T41", traversal.hops_variable.span, "a path counts its hops itself", hint)
    elif hops is not None and hops.minimum not in (0, 1):
        ctx.report("T41", hops.span, "the hop range of a path begins at 0 or 1", "filter by `length($p)`")
    elif clause.weight is not None and hops is not None and hops.maximum is not None:
        ctx.report("T41", hops.span, "a path by weight has no upper hop bound", f"write `{{{hops.minimum},}}`")


def _check_weight(ctx: Context, walk: ir.Expand, weight: ast.Name) -> None:
    properties = shared_properties(ctx.catalog, "edge", walk.edge)
    property_ = properties.get(weight.text)
    if property_ is None:
        message = f"`{walk.edge}` has no property `{weight.text}`"
        ctx.report("T41", weight.span, message, did_you_mean(weight.text, properties))
    elif not property_.type.is_number:
        ctx.report("T41", weight.span, f"a weight is a number, but `{weight.text}` is {property_.type}")
