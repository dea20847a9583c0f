"""Check `path $p = …`: its traversal, the number of paths, the weight, and the variable.

Pure.
"""

from __future__ import annotations

from dataclasses import replace

from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_context import Context, Kind, Scope, Variable, shared_properties
from omnigraph.lang.query.check_traversals import Walk, check_traversal, integer_parameter


def check_path(ctx: Context, scope: Scope, clause: ast.Path) -> Walk | None:
    """Check a path clause and bind its variable; the walk carries what to search for."""
    traversal, variable = clause.traversal, clause.variable
    is_valid = _check_variable(ctx, scope, clause) and _check_shape(ctx, clause)
    walk = check_traversal(ctx, scope, traversal)
    count = clause.count if isinstance(clause.count, int) else integer_parameter(ctx, clause.count, "T41", "`shortest`")
    is_weighted = walk is None or clause.weight is None or _check_weight(ctx, walk, clause.weight)
    if walk is None or not is_valid or count is None or not is_weighted:
        scope.setdefault(variable.text, Variable(variable.text, Kind.BROKEN))
        return None
    space = ir.walk_space(walk.left_type, walk.legs) if walk.legs else ir.join_types([walk.left_type, walk.right_type])
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
    """Bind a variable to the nodes of a path; a bound one must be among them. True if the clause is of that kind."""
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
    assert way.type_name is not None
    if bound is None:
        scope.bind(variable.name, Kind.NODE, way.type_name)
        return True
    if bound.kind is not Kind.NODE or bound.type_name == way.type_name:
        return bound.kind is Kind.NODE
    message = f"`${variable.name}` is a `{bound.type_name}`, but `${path.name}` visits nodes of `{way.type_name}`"
    ctx.report("T41", variable.span, message, "use another variable")
    return True


def _check_variable(ctx: Context, scope: Scope, clause: ast.Path) -> bool:
    name, traversal = clause.variable.text, clause.traversal
    ends = {traversal.left.text, traversal.right.text}
    if name != "_" and name not in ends and name not in scope and name not in ctx.params:
        return True
    ctx.report("T41", clause.variable.span, f"`${name}` cannot name a path", "use an unused name")
    return False


def _check_shape(ctx: Context, clause: ast.Path) -> bool:
    traversal = clause.traversal
    if traversal.edge_variable is not None:
        hint = "drop the edge variable, and read `edges($p)`"
        ctx.report("T41", traversal.edge_variable.span, "a path binds no edge variable", hint)
        return False
    if traversal.hops_variable is not None:
        hint = "drop `as`, and read `length($p)`"
        ctx.report("T41", traversal.hops_variable.span, "a path counts its hops itself", hint)
        return False
    hops = traversal.hops
    if hops is not None and hops.minimum not in (0, 1):
        ctx.report("T41", hops.span, "the hop range of a path begins at 0 or 1", "filter by `length($p)`")
        return False
    if clause.weight is not None and hops is not None and hops.maximum is not None:
        ctx.report("T41", hops.span, "a path by weight has no upper hop bound", f"write `{{{hops.minimum},}}`")
        return False
    return True


def _check_weight(ctx: Context, walk: Walk, weight: ast.Name) -> bool:
    properties = shared_properties(ctx.catalog, "edge", walk.edge)
    property_ = properties.get(weight.text)
    if property_ is not None and property_.type.is_number:
        return True
    if property_ is None:
        message = f"`{walk.edge}` has no property `{weight.text}`"
        ctx.report("T41", weight.span, message, did_you_mean(weight.text, properties))
    else:
        ctx.report("T41", weight.span, f"a weight is a number, but `{weight.text}` is {property_.type}")
    return False
