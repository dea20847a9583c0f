"""Formats a query plan as a readable tree.

Pure; the text is for people and for cases, never parsed back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from omnigraph.lang.query import ir

_INDENT = "  "


def format_plan(query: ir.QueryIR) -> str:
    """Return the logical plan: a read from its result down to its scans in order, a mutation by statement.

    >>> scan = ir.NodeScan("v", "Vessel")
    >>> column = ir.Column("v", ir.NodeRef("v", "Vessel"), ir.ID)
    >>> print(format_plan(ir.ReadIR("q", (), (scan,), (column,), False, False, None, (), None, 5)))
    read q()
      scan $v: Vessel
      return v = $v: String
      limit 5
    """
    params = ", ".join(f"${param.name}: {param.type}" for param in query.params)
    if isinstance(query, ir.MutationIR):
        lines = [f"mutation {query.name}({params})", *(f"{_INDENT}{_statement(item)}" for item in query.statements)]
        return "\n".join(lines)
    lines = [f"read {query.name}({params})", *(_INDENT + line for line in _pipeline(query.pipeline))]
    lines.extend(_INDENT + line for line in _tail(query))
    return "\n".join(lines)


def _tail(query: ir.ReadIR) -> Iterator[str]:
    word = "group" if query.is_grouped else "return"
    columns = ", ".join(f"{column.name} = {_show(column.expression)}: {column.type}" for column in query.columns)
    yield f"{word}{' distinct' if query.is_distinct else ''} {columns}"
    if query.rank is not None:
        yield f"rank {_show(query.rank)}"
    if query.order:
        keys = (f"{_show(key.expression)} {'desc' if key.descending else 'asc'}" for key in query.order)
        yield f"order {', '.join(keys)}"
    for name, bound in (("skip", query.skip), ("limit", query.limit)):
        if bound is not None:
            yield f"{name} {bound if isinstance(bound, int) else _show(bound)}"


def _pipeline(operators: Iterable[ir.Operator]) -> Iterator[str]:
    for operator in operators:
        if isinstance(operator, ir.NodeScan):
            yield f"scan ${operator.variable}: {operator.node_type}{_where(operator.filters)}"
        elif isinstance(operator, ir.Expand):
            yield _expand(operator)
        elif isinstance(operator, ir.Filter):
            yield f"filter {_show(operator.condition)}"
        else:
            yield _join_word(operator)
            yield from (_INDENT + line for line in _pipeline(operator.inner))


def _join_word(operator: ir.AntiJoin | ir.OptionalJoin) -> str:
    if isinstance(operator, ir.AntiJoin):
        return "anti join"
    names = ", ".join(f"${item.variable}: {item.type_name or 'I64'}?" for item in operator.bindings)
    return f"optional join{' ' + names if names else ''}"


def _expand(operator: ir.Expand) -> str:
    hops = "" if (operator.minimum, operator.maximum) == (1, 1) else f"{{{operator.minimum},{operator.maximum}}}"
    edge = f"${operator.edge_variable}:{operator.edge}" if operator.edge_variable else operator.edge
    counted = f" as ${operator.hops_variable}" if operator.hops_variable else ""
    ends = f"${operator.source} {operator.direction} {edge}{hops} ${operator.target}: {operator.target_type}"
    return f"expand {ends}{counted}{_where(operator.filters)}"


def _where(filters: tuple[ir.Expr, ...]) -> str:
    return f" where {' and '.join(_show(item) for item in filters)}" if filters else ""


def _statement(statement: ir.Statement) -> str:
    if isinstance(statement, ir.Delete):
        cascades = f" with {', '.join(statement.cascades)}" if statement.cascades else ""
        return f"delete {statement.kind} {statement.type_name} where {_predicate(statement.predicate)}{cascades}"
    values = ", ".join(f"{item.column}: {item.type} = {_show(item.value)}" for item in statement.assignments)
    if isinstance(statement, ir.Insert):
        return f"insert {statement.kind} {statement.type_name} {values}"
    return f"update node {statement.type_name} {values} where {_predicate(statement.predicate)}"


def _predicate(predicate: ir.Predicate) -> str:
    return f"{predicate.column} {predicate.op} {_show(predicate.value)}"


def _show(expression: ir.Expr) -> str:
    match expression:
        case ir.Literal():
            return _literal(expression)
        case ir.ParameterRef(name=name):
            return f"param {name}"
        case ir.Now():
            return "now()"
        case ir.PropertyRef(variable=variable, property=name):
            return f"${variable}.{name}"
        case ir.NodeRef(variable=variable) | ir.HopsRef(variable=variable):
            return f"${variable}"
        case ir.ColumnRef(name=name):
            return name
        case ir.Compare(op=op, left=left, right=right):
            return f"{_show(left)} {op} {_show(right)}"
        case ir.IsNull(operand=operand, negated=negated):
            return f"{_show(operand)} is {'not ' if negated else ''}null"
        case ir.In(operand=operand, collection=collection):
            return f"{_show(operand)} in {_show(collection)}"
        case ir.And(conditions=conditions):
            return f"({' and '.join(_show(item) for item in conditions)})"
        case ir.Or(conditions=conditions):
            return f"({' or '.join(_show(item) for item in conditions)})"
        case _:
            return _call(expression)


def _call(expression: ir.TextMatch | ir.Nearest | ir.Bm25 | ir.Rrf | ir.Aggregate) -> str:
    match expression:
        case ir.Aggregate(function=function, argument=argument):
            return f"{function}({'*' if argument is None else _show(argument)})"
        case ir.TextMatch(function=function, field=field, query=query, max_edits=edits):
            more = f", {_show(edits)}" if edits is not None else ""
            return f"{function}({_show(field)}, {_show(query)}{more})"
        case ir.Rrf(first=first, second=second, k=k):
            return f"rrf({_show(first)}, {_show(second)}, {_show(k)})"
        case ir.Nearest(field=field, query=query):
            return f"nearest({_show(field)}, {_show(query)})"
        case ir.Bm25(field=field, query=query):
            return f"bm25({_show(field)}, {_show(query)})"


def _literal(literal: ir.Literal) -> str:
    text = json.dumps(literal.value, ensure_ascii=False)
    if literal.type.is_list or literal.type.scalar.value not in ("Date", "DateTime"):
        return text
    return f"{literal.type.scalar.value.lower()}({text})"
