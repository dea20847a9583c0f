"""Check `exists { … }` and `count { … }`: patterns that are matched beside each row, as values of expressions.

Pure. The pattern becomes an operator that counts its matches for all rows at once; the expression reads the count.
"""

from __future__ import annotations

from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_context import Context, Counted, Kind, Scope
from omnigraph.lang.query.check_patterns import check_block, count_clause, mentioned_names

_ZERO = ir.Literal(0, ir.I64)


def check_subquery(ctx: Context, scope: Scope, subquery: ast.Subquery, *, is_having: bool) -> ir.Expr | None:
    """Check the pattern of a subquery against the variables around it; returns whether or how often it matches."""
    word = f"`{subquery.word} {{ … }}`"
    if is_having:
        message = f"{word} asks about single rows, but `having` filters groups"
        return ctx.report("T33", subquery.span, message, "return it as a column, and filter by the name of the column")
    if any(variable.kind is Kind.ITEM for variable in scope.values()):
        message = f"{word} cannot stand in the condition of `any` or `all`"
        return ctx.report("T33", subquery.span, message, "unwind the list instead: `unwind $v.list as $item`")
    names = frozenset(mentioned_names(subquery.clauses))
    if not names & scope.keys():
        message = f"this {word} shares no variable with the pattern around it"
        return ctx.report("T9", subquery.span, message, "mention a variable of the pattern around it")
    count_clause(ctx, subquery)
    block = check_block(ctx, subquery.clauses, scope)
    ctx.count_number += 1
    is_existence = subquery.word == "exists"
    reference = ir.CountRef(f"~{subquery.word}{ctx.count_number}")
    ctx.counts.append(Counted(reference.variable, block, names, is_existence))
    return ir.Compare(ir.CompareOp.GT, reference, _ZERO, ir.BOOL) if is_existence else reference
