"""Formats a query plan as a readable tree.

Pure; the text is for people and for cases, never parsed back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from omnigraph.lang.query import ir
from omnigraph.lang.scalars import TIMES
from omnigraph.limits import RANK_WINDOW_DEFAULT

_INDENT = "  "


def format_plan(query: ir.QueryIR) -> str:
    """Return the logical plan: a read from its result down to its scans in order, a mutation by statement.

    >>> scan = ir.NodeScan("v", "Vessel")
    >>> column = ir.Column("v", ir.NodeRef("v", "Vessel"), ir.ID)
    >>> print(format_plan(ir.ReadIR("q", (), (scan,), (column,), limit=5)))
    read q()
      scan $v: Vessel
      return v = $v: String
      limit 5
    """
    params = ", ".join(f"${param.name}: {param.type}" for param in query.params)
    if isinstance(query, ir.MutationIR):
        lines = [f"mutation {query.name}({params})", *(f"{_INDENT}{_statement(item)}" for item in query.statements)]
        return "\n".join(lines)
    return "\n".join([f"read {query.name}({params})", *(_INDENT + line for line in _read(query, "return"))])


def _read(query: ir.ReadIR, word: str) -> Iterator[str]:
    """Yield what a read starts from, its pattern, and what it makes of the rows: `with` or `return`."""
    if isinstance(query.source, ir.ReadIR):
        yield from _read(query.source, "with")
    elif query.source is not None:
        yield "union"
        for part in query.source.parts:
            yield f"{_INDENT}block"
            yield from (_INDENT * 2 + line for line in _read(part, "return"))
    yield from _pipeline(query.pipeline)
    yield from _tail(query, word)


def _tail(query: ir.ReadIR, word: str) -> Iterator[str]:
    word = ("with group" if word == "with" else "group") if query.is_grouped else word
    columns = ", ".join(f"{column.name} = {_show(column.expression)}: {column.type}" for column in query.columns)
    first_of = f" distinct on ({', '.join(_show(key) for key in query.distinct_on)})" if query.distinct_on else ""
    yield f"{word}{' distinct' if query.is_distinct else first_of} {columns}"
    if query.having is not None:
        yield f"having {_show(query.having)}"
    if query.rank is not None:
        yield f"rank {_show(query.rank)}"
    if query.order:
        keys = (f"{_show(key.expression)} {'desc' if key.descending else 'asc'}" for key in query.order)
        yield f"order {', '.join(keys)}"
    if query.limit_per is not None:
        count = query.limit_per.count
        shown = count if isinstance(count, int) else _show(count)
        yield f"limit {shown} per {', '.join(_show(key) for key in query.limit_per.keys)}"
    for name, bound in (("skip", query.skip), ("limit", query.limit)):
        if bound is not None:
            yield f"{name} {bound if isinstance(bound, int) else _show(bound)}"


def _pipeline(operators: Iterable[ir.Operator]) -> Iterator[str]:
    for operator in operators:
        if isinstance(operator, ir.NodeScan):
            yield f"scan ${operator.variable}: {operator.node_type}{_where(operator.filters)}"
        elif isinstance(operator, ir.Expand):
            yield _expand(operator)
        elif isinstance(operator, ir.PathNodes):
            ends = f"${operator.variable}: {operator.node_type} in nodes(${operator.path})"
            yield f"bind {ends}{_where(operator.filters)}"
        elif isinstance(operator, ir.Unwind):
            yield f"unwind {_show(operator.collection)} as ${operator.variable}: {operator.type}"
        elif isinstance(operator, ir.Filter):
            yield f"filter {_show(operator.condition)}"
        else:
            yield _join_word(operator)
            yield from (_INDENT + line for line in _pipeline(operator.inner))


def _join_word(operator: ir.Join) -> str:
    if isinstance(operator, ir.AntiJoin):
        return "anti join"
    if isinstance(operator, ir.CountJoin):
        return f"{'test' if operator.is_existence else 'count'} matches as {show_count(operator.variable)}"
    names = ", ".join(f"${item.variable}: {item.type_name or 'I64'}?" for item in operator.bindings)
    return f"optional join{' ' + names if names else ''}"


def show_count(variable: str) -> str:
    """Return the name of what a pattern in an expression counts.

    >>> show_count("~exists2")
    'exists2'
    """
    return variable.removeprefix("~")


def _expand(operator: ir.Expand) -> str:
    hops = "" if operator.is_single else format_hops(operator.minimum, operator.maximum)
    edge = f"${operator.edge_variable}:{operator.edge}" if operator.edge_variable else operator.edge
    counted = f" as ${operator.hops_variable}" if operator.hops_variable else ""
    ends = f"${operator.source} {operator.direction} {edge}{hops} ${operator.target}: {operator.target_type}"
    verb = "expand" if operator.path is None else f"paths ${operator.path.variable} {format_search(operator.path)}"
    return f"{verb} {ends}{counted}{_where(operator.filters)}"


def format_search(path: ir.Path) -> str:
    """Return what a search of paths looks for, as it is written."""
    count = f"${path.count.name}" if isinstance(path.count, ir.ParameterRef) else path.count
    by = "" if path.weight is None else f" by {path.weight}"
    return f"{'all shortest' if path.is_all else f'shortest {count}'}{by}:"


def format_hops(minimum: ir.HopBound, maximum: ir.HopBound | None) -> str:
    """Return hop bounds as they are written.

    >>> format_hops(1, None), format_hops(0, ir.ParameterRef("n", ir.I64))
    ('{1,}', '{0,$n}')
    """
    low, high = (f"${item.name}" if isinstance(item, ir.ParameterRef) else item for item in (minimum, maximum))
    return f"{{{low},{'' if high is None else high}}}"


def _where(filters: tuple[ir.Expr, ...]) -> str:
    return f" where {' and '.join(_show(item) for item in filters)}" if filters else ""


def _statement(statement: ir.Statement) -> str:
    if isinstance(statement, ir.Matched):
        return _matched(statement)
    if isinstance(statement, ir.Delete):
        cascades = f" with {', '.join(statement.cascades)}" if statement.cascades else ""
        return f"delete {statement.kind} {statement.type_name} where {_predicate(statement.predicate)}{cascades}"
    values = ", ".join(f"{item.column}: {item.type} = {_show(item.value)}" for item in statement.assignments)
    if isinstance(statement, ir.Insert):
        return f"{statement.verb} {statement.kind} {statement.type_name} {values}"
    word, more = "update", ""
    if isinstance(statement, ir.Rename):
        word, more = "rename", f" with {', '.join(statement.repointed)}" if statement.repointed else ""
    return f"{word} node {statement.type_name} {values} where {_predicate(statement.predicate)}{more}"


def _matched(statement: ir.Matched) -> str:
    word = statement.verb.value if isinstance(statement, ir.InsertMatched) else _WORDS[type(statement)]
    columns = ", ".join(f"{item.name.strip('~')} = {_show(item.expression)}" for item in statement.read.columns)
    lines = "".join(f"\n{_INDENT * 2}{line}" for line in _pipeline(statement.read.pipeline))
    return f"{word} {statement.kind} {statement.type_name} {columns} for each row of{lines}"


_WORDS: Final = {ir.UpdateMatched: "update", ir.RenameMatched: "rename", ir.DeleteMatched: "delete"}


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
        case ir.PropertyRef(variable=variable):
            return f"${variable}.{expression.written()}"
        case ir.CountRef(variable=variable):
            return show_count(variable)
        case ir.NodeRef() | ir.HopsRef() | ir.ValueRef() | ir.VariableRef():
            return f"${expression.variable}"
        case ir.TypeRef(variable=variable):
            return f"type(${variable})"
        case ir.PathRef(variable=variable, function=function):
            return f"{function}(${variable})"
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
        case ir.Quantifier(function=function, item=item, collection=collection, condition=condition):
            return f"{function}({item} in {_show(collection)} where {_show(condition)})"
        case ir.Not(condition=condition):
            return f"not ({_show(condition)})"
        case ir.Case(branches=branches, otherwise=otherwise):
            parts = (f"when {_show(condition)} then {_show(value)}" for condition, value in branches)
            return f"case {' '.join(parts)} else {_show(otherwise)} end"
        case _:
            return _call(expression)


def _call(expression: ir.TextMatch | ir.Nearest | ir.Bm25 | ir.Rrf | ir.Aggregate | ir.Call) -> str:
    match expression:
        case ir.Call(function="cast", arguments=(operand,), type=type_):
            return f"cast({_show(operand)} as {str(type_).removesuffix('?')})"
        case ir.Call(function=function, arguments=arguments):
            parts = [_show(argument) for argument in arguments]
            if function.isidentifier():
                return f"{function}({', '.join(parts)})"
            return f"({parts[0]} {function} {parts[1]})" if len(parts) == 2 else f"{function}{parts[0]}"
        case ir.Aggregate(function=function, argument=argument):
            shown = "*" if argument is None else _show(argument)
            more = f", {expression.fraction}" if expression.fraction is not None else ""
            return f"{function}({'distinct ' * expression.is_distinct}{shown}{more})"
        case ir.TextMatch(function=function, field=field, query=query, max_edits=edits):
            more = f", {_show(edits)}" if edits is not None else ""
            return f"{function}({_show(field)}, {_show(query)}{more})"
        case ir.Rrf(first=first, second=second, k=k, window=window):
            # The default is left out, as it may be in a query.
            is_default = isinstance(window, ir.Literal) and window.value == RANK_WINDOW_DEFAULT
            more = "" if is_default else f", {_show(window)}"
            return f"rrf({_show(first)}, {_show(second)}, {_show(k)}{more})"
        case ir.Nearest(field=field, query=query):
            return f"nearest({_show(field)}, {_show(query)})"
        case ir.Bm25(field=field, query=query):
            return f"bm25({_show(field)}, {_show(query)})"


def _literal(literal: ir.Literal) -> str:
    text = json.dumps(literal.value, ensure_ascii=False)
    if literal.type.is_list or literal.type.scalar not in TIMES:
        return text
    return f"{literal.type.scalar.literal_call}({text})"
