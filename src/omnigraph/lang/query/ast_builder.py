"""Builds the syntax tree of `.gq` while Lark parses.

Pure. Raises `SyntaxFault` for what the grammar accepts and the language does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar

from lark import Token, Transformer, v_args

from omnigraph.lang.catalog import PropertyType
from omnigraph.lang.diagnostic import Span, did_you_mean, join_words
from omnigraph.lang.parsing import SyntaxFault, read_string, span_of
from omnigraph.lang.query import ast
from omnigraph.lang.query.functions import AGGREGATES, FUNCTION_NAMES, arity_of, describe_arity, function_hint
from omnigraph.lang.scalars import LITERAL_CALLS, NUMBERS, TIME_FORMS, Family, Scalar
from omnigraph.limits import EXPRESSION_DEPTH_MAX

_U32_MAX: Final = 2**32 - 1
_I64_MAX: Final = 2**63 - 1
_U64_MAX: Final = 2**64 - 1
# A longer number is out of every range, and Python itself rejects very long ones.
_DIGITS_MAX: Final = 40
_BASES: Final = {scalar.value: scalar for scalar in Scalar if scalar.facts.family is not Family.VECTOR}

T = TypeVar("T")
# Where a clause may still be a walk, the grammar leaves a variable as its token.
Operand: TypeAlias = Token | ast.Expression
WrittenType: TypeAlias = tuple[PropertyType, Span]
Branch: TypeAlias = tuple[ast.Expression, ast.Expression]
# Of paths: whether all shortest ones are asked for, and how many otherwise.
Search: TypeAlias = tuple[bool, int | ast.Variable]


@v_args(inline=True)
class Builder(Transformer[Token, Any]):
    """Lark's parse-time transformer: a method per rule or alias of the grammar, no state between calls."""

    # -- literals and calls ------------------------------------------------------------------------------------

    def text(self, token: Token) -> ast.Literal:
        return ast.Literal(read_string(token), Scalar.STRING, span_of(token))

    def decimal(self, token: Token) -> ast.Literal:
        value = float(token)
        if value in (float("inf"), float("-inf")):
            raise SyntaxFault("this number is too large for a 64-bit float", span_of(token))
        return ast.Literal(value, Scalar.F64, span_of(token))

    def integer(self, token: Token) -> ast.Literal:
        value = _read_integer(token, -_I64_MAX - 1, _U64_MAX, "an integer")
        return ast.Literal(value, Scalar.I64 if value <= _I64_MAX else Scalar.U64, span_of(token))

    def boolean(self, token: Token) -> ast.Literal:
        return ast.Literal(token == "true", Scalar.BOOL, span_of(token))

    def list_literal(self, opening: Token, *rest: Any) -> ast.ListLiteral:
        *items, closing = rest
        for item in items:
            if isinstance(item, ast.Call):
                raise SyntaxFault(f"a list holds literals only, not `{item.function}()`", item.span)
        return ast.ListLiteral(tuple(item for item in items if item is not None), span_of(opening, closing))

    def variable(self, token: Token) -> ast.Variable:
        return _variable(token)

    def access(self, variable: Token, name: Token) -> ast.PropertyAccess:
        return ast.PropertyAccess(_name(variable), _name(_known_field(name)), span_of(variable, name))

    def alias(self, token: Token) -> ast.Alias:
        return ast.Alias(str(_known_field(token)), span_of(token))

    def call(self, word: Token, distinct: Token | None, *rest: Any) -> ast.Call | ast.Literal:
        *written, close = rest
        arguments = tuple(_expression(child) for child in written if child is not None)
        function, span = str(word), span_of(word, close)
        if function in ("any", "all"):
            raise SyntaxFault(f"`{function}` takes a condition", span, f"write `{function}($item in $v.list where …)`")
        if function not in FUNCTION_NAMES:
            raise SyntaxFault(f"there is no function `{function}`", span_of(word), function_hint(function))
        fewest, most = arity_of(function)
        if function == "cast":
            raise SyntaxFault("`cast` takes a value and a type", span, "write `cast($v.property as F64)`")
        if len(arguments) < fewest or (most is not None and len(arguments) > most):
            raise SyntaxFault(f"`{function}` takes {describe_arity(fewest, most)}, not {len(arguments)}", span)
        if distinct is not None and (function not in AGGREGATES or not AGGREGATES[function].allows_distinct):
            takers = sorted(item.name for item in AGGREGATES.values() if item.allows_distinct)
            hint = f"it goes with {join_words(takers)}"
            raise SyntaxFault(f"`{function}` takes no `distinct`", span_of(word), hint)
        return _special_call(ast.Call(function, arguments, span, distinct is not None))

    def conversion(self, word: Token, operand: Operand, _as: Token, typed: WrittenType, close: Token) -> ast.Conversion:
        if word != "cast":
            raise SyntaxFault(f"only `cast` takes `as` and a type, not `{word}`", span_of(word))
        type_, type_span = typed
        if type_.nullable:
            raise SyntaxFault("a `cast` names its type without `?`", type_span, "the result is null where the value is")
        return ast.Conversion(_expression(operand), type_, span_of(word, close))

    def quantifier(self, word: Token, member: Operand, condition: Operand, close: Token) -> ast.Quantifier:
        hint = "write `any($item in $v.list where …)`"
        if word not in ("any", "all"):
            raise SyntaxFault(f"only `any` and `all` take `where`, not `{word}`", span_of(word), hint)
        match member:
            case ast.Membership(operand=ast.Variable(name=name, span=span), negated=False):
                item = ast.Name(name, span)
            case _:
                message = f"`{word}` begins with a new variable and its list"
                raise SyntaxFault(message, _expression(member).span, hint)
        return ast.Quantifier(str(word), item, member.collection, _expression(condition), span_of(word, close))

    def call_star(self, word: Token, star: Token, close: Token) -> ast.Call:
        if word != "count":
            raise SyntaxFault(f"`*` is an argument of `count` only, not of `{word}`", span_of(star))
        return ast.Call("count", (), span_of(word, close))

    def value_call(self, value: ast.Call | ast.Conversion | ast.Quantifier | ast.Literal) -> ast.Call | ast.Literal:
        if isinstance(value, ast.Literal) or (isinstance(value, ast.Call) and value.function == "now"):
            return value
        calls = ["`now()`", *(f'`{word}("…")`' for word in LITERAL_CALLS)]
        hint = f"a value is {join_words(['a literal', 'a parameter', *calls])}"
        function = "cast" if isinstance(value, ast.Conversion) else value.function
        raise SyntaxFault(f"`{function}()` is not a value", value.span, hint)

    # -- operators and conditions ------------------------------------------------------------------------------

    def parenthesis(self, expression: Operand, _close: Token) -> ast.Expression:
        return _expression(expression)

    def arithmetic(self, left: Operand, operator: Token, right: Operand) -> ast.Call:
        a, b = _expression(left), _expression(right)
        return ast.Call(str(operator), (a, b), a.span.to(b.span))

    def negative(self, sign: Token, written: Operand) -> ast.Call | ast.Literal:
        operand = _expression(written)
        span = span_of(sign).to(operand.span)
        if isinstance(operand, ast.Literal) and operand.scalar in NUMBERS:
            assert isinstance(operand.value, int | float)
            if operand.scalar is Scalar.U64 and operand.value > _I64_MAX + 1:
                raise SyntaxFault(f"an integer must lie between {-_I64_MAX - 1} and {_U64_MAX}", span)
            scalar = Scalar.F64 if operand.scalar is Scalar.F64 else Scalar.I64
            # The negative of the smallest integer is not one; it is computed, and overflows there.
            if scalar is Scalar.F64 or -operand.value <= _I64_MAX:
                return ast.Literal(-operand.value, scalar, span)
        return ast.Call("-", (operand,), span)

    def element(self, written: Operand, _opening: Token, position: Operand, close: Token) -> ast.Element:
        collection = _expression(written)
        return ast.Element(collection, _expression(position), collection.span.to(span_of(close)))

    def branch(self, _when: Token, condition: Operand, _then: Token, value: Operand) -> Branch:
        return _expression(condition), _expression(value)

    def case(self, word: Token, *rest: Any) -> ast.Case:
        *branches, _, otherwise, end = rest
        return ast.Case(tuple(branches), None if otherwise is None else _expression(otherwise), span_of(word, end))

    def subquery(self, word: Token, clauses: tuple[ast.Clause, ...]) -> ast.Subquery:
        return ast.Subquery(str(word), clauses, span_of(word))

    def comparison(self, left: Operand, operator: Token, right: Operand) -> ast.Comparison:
        a, b = _expression(left), _expression(right)
        return ast.Comparison(a, _name(operator), b, a.span.to(b.span))

    def null_test(self, written: Operand, _is: Token, negation: Token | None, null: Token) -> ast.NullTest:
        operand = _expression(written)
        return ast.NullTest(operand, negation is not None, operand.span.to(span_of(null)))

    def membership(self, left: Operand, word: Token, right: Operand) -> ast.Membership:
        operand, collection = _expression(left), _expression(right)
        return ast.Membership(operand, collection, operand.span.to(collection.span), word.type == "NOT_IN")

    def inverse(self, word: Token, written: Operand) -> ast.Inverse:
        condition = _expression(written)
        return ast.Inverse(condition, span_of(word).to(condition.span))

    def any_of(self, *children: Operand) -> ast.AnyOf:
        parts = tuple(map(_expression, children[::2]))
        return ast.AnyOf(parts, parts[0].span.to(parts[-1].span))

    def all_of(self, *children: Operand) -> ast.AllOf:
        parts = tuple(map(_expression, children[::2]))
        return ast.AllOf(parts, parts[0].span.to(parts[-1].span))

    # -- patterns ----------------------------------------------------------------------------------------------

    def match(self, name: Token, value: ast.Value) -> ast.Match:
        return ast.Match(_name(name), value)

    def binding(self, *children: Token | ast.Match | None) -> ast.Binding:
        variable, *types = map(_name, _only(children, Token))
        return ast.Binding(variable, tuple(types), _only(children, ast.Match), variable.span.to(types[-1].span))

    def hops(self, opening: Token, low: Token, high: Token | None, closing: Token) -> ast.Hops:
        maximum = None if high is None else _read_bound(high, 0, _U32_MAX, "a hop bound")
        return ast.Hops(_read_bound(low, 0, _U32_MAX, "a hop bound"), maximum, span_of(opening, closing))

    def walk(self, left: Token, *rest: Any) -> ast.Traversal:
        return _traversal(left, None, *rest)

    def walk_edge(self, left: Token, edge_variable: Token, *rest: Any) -> ast.Traversal:
        return _traversal(left, edge_variable, *rest)

    walk_both, walk_edge_both = walk, walk_edge

    def search_all(self, _all: Token) -> Search:
        return True, 1

    def search_shortest(self, count: Token | None) -> Search:
        return False, 1 if count is None else _read_bound(count, 1, _U32_MAX, "a number of paths")

    def path(
        self, variable: Token, equals: Token, search: Search | None, traversal: ast.Traversal, weight: Token | None
    ) -> ast.Path:
        if equals != "=":
            raise SyntaxFault("a path is bound with `=`", span_of(equals), f"write `path {variable} = …`")
        is_all, count = search or (False, 1)
        by = None if weight is None else _name(weight)
        return ast.Path(_name(variable), is_all, count, by, traversal, span_of(variable).to(traversal.span))

    def block(self, *clauses: ast.Clause) -> tuple[ast.Clause, ...]:
        for clause in clauses:
            if isinstance(clause, ast.Expression):
                _check_depth(clause)
        return clauses

    def unwind(self, collection: Operand, _as: Token, variable: Token) -> ast.Unwind:
        written = _check_depth(collection)
        return ast.Unwind(written, _name(variable), written.span.to(span_of(variable)))

    def negation(self, word: Token, clauses: tuple[ast.Clause, ...]) -> ast.Negation:
        return ast.Negation(clauses, span_of(word))

    def optional(self, word: Token, clauses: tuple[ast.Clause, ...]) -> ast.Optional:
        return ast.Optional(clauses, span_of(word))

    # -- statements that write ---------------------------------------------------------------------------------

    def assign(self, name: Token, value: Operand) -> ast.Assign:
        return ast.Assign(_name(name), _check_depth(value))

    def insert(self, word: Token, type_name: Token, *assignments: ast.Assign) -> ast.Insert:
        return ast.Insert(str(word), _name(type_name), assignments, span_of(word, type_name))

    def update(self, word: Token, type_name: Token, *rest: Any) -> ast.Update:
        *assignments, condition = rest
        span = span_of(word, type_name)
        return ast.Update(str(word), _name(type_name), tuple(assignments), _check_depth(condition), span)

    def delete(self, word: Token, type_name: Token, condition: Operand) -> ast.Delete:
        return ast.Delete(_name(type_name), _check_depth(condition), span_of(word, type_name))

    def update_matched(self, word: Token, variable: Token, *assignments: ast.Assign) -> ast.UpdateMatched:
        return ast.UpdateMatched(str(word), _name(variable), assignments, span_of(word, variable))

    def delete_matched(self, word: Token, variable: Token) -> ast.DeleteMatched:
        return ast.DeleteMatched(_name(variable), span_of(word, variable))

    def pattern(self, clauses: tuple[ast.Clause, ...]) -> ast.Pattern:
        return ast.Pattern(clauses, clauses[0].span)

    def plain_comparison(self, name: Token, operator: Token, right: Operand) -> ast.Comparison:
        value = _expression(right)
        left = ast.Alias(str(name), span_of(name))
        return ast.Comparison(left, _name(operator), value, left.span.to(value.span))

    def mutation(self, *statements: ast.Statement) -> ast.Mutation:
        return ast.Mutation(statements)

    # -- reads -------------------------------------------------------------------------------------------------

    def projection(self, expression: Operand, _as: Token | None, alias: Token | None) -> ast.Projection:
        name = None if alias is None else _name(alias)
        return ast.Projection(_check_depth(expression), name, alias is not None and alias.startswith("$"))

    def all_properties(self, variable: Token, star: Token) -> ast.EntityProjection:
        return ast.EntityProjection(_name(variable), None, span_of(variable, star))

    def some_properties(self, variable: Token, *names: Token) -> ast.EntityProjection:
        return ast.EntityProjection(_name(variable), tuple(map(_name, names)), span_of(variable, names[-1]))

    def ordering(self, written: Operand, direction: Token | None) -> ast.Ordering:
        expression = _check_depth(written)
        if direction is None:
            return ast.Ordering(expression, None)
        if isinstance(expression, ast.Call) and expression.function == "nearest":
            hint = "`nearest` always puts the closest first; leave the direction out"
            raise SyntaxFault(f"`nearest` takes no `{direction}`", span_of(direction), hint)
        return ast.Ordering(expression, _name(direction))

    def distinct(self, _word: Token, keys: tuple[ast.Expression, ...] | None) -> tuple[ast.Expression, ...]:
        return keys or ()

    def distinct_keys(self, *keys: Operand) -> tuple[ast.Expression, ...]:
        return tuple(map(_check_depth, keys))

    def having(self, condition: Operand) -> ast.Expression:
        return _check_depth(condition)

    def skip(self, token: Token) -> ast.Bound:
        return _bound(token, "`skip`")

    def limit(self, token: Token) -> ast.Bound:
        return _bound(token, "`limit`")

    def limit_per(self, token: Token, *keys: Operand) -> ast.LimitPer:
        return ast.LimitPer(_bound(token, "`limit`"), tuple(map(_check_depth, keys)))

    def stage(self, *children: Any) -> _Stage:
        *written, clauses = children
        result = _read((), *written)
        for item in result.projections:
            if isinstance(item, ast.EntityProjection):
                hint = f"write `${item.variable.text}`: its properties can be read behind the `with`"
                raise SyntaxFault("a `with` passes an entity on as a whole", item.span, hint)
            if item.alias is not None and not item.is_variable:
                hint = f"write `as ${item.alias.text}`"
                raise SyntaxFault("a `with` binds variables, which begin with `$`", item.alias.span, hint)
        return _Stage(result, clauses or ())

    def part(self, clauses: tuple[ast.Clause, ...], *rest: Any) -> ast.Read:
        stages: list[ast.Read] = []
        while isinstance(rest[0], _Stage):
            stages.append(replace(rest[0].read, clauses=clauses))
            clauses, rest = rest[0].clauses, rest[1:]
        read = _read(clauses, *rest)
        for item in read.projections:
            if isinstance(item, ast.Projection) and item.alias is not None and item.is_variable:
                hint = f"write `as {item.alias.text}`; a `with` binds variables"
                raise SyntaxFault("a column is named without `$`", item.alias.span, hint)
        return replace(read, stages=tuple(stages))

    def union(self, word: Token, is_all: Token | None) -> ast.Name:
        return ast.Name("union" if is_all is None else "union all", span_of(word))

    def read(self, *children: ast.Read | ast.Name) -> ast.Read | ast.Union:
        parts, words = _only(children, ast.Read), _only(children, ast.Name)
        last = parts[-1]
        if not words:
            return last
        for per in (part.limit_per for part in parts if part.limit_per is not None):
            hint = "cut each group in a `with`: `with { … } order { … } limit 3 per { $v }`"
            raise SyntaxFault("`limit … per` does not stand in a union", per.span, hint)
        for part in parts[:-1]:
            ends = [*(key.expression for key in part.order), part.skip, part.limit]
            for end in (item for item in ends if item is not None):
                hint = "write it behind the last block; to order or cut a single block, do that in a `with`"
                raise SyntaxFault("`order`, `skip` and `limit` apply to the whole union", end.span, hint)
        for word in words[1:]:
            if word.text != words[0].text:
                hint = "keep one of them; put a union of its own into another query"
                raise SyntaxFault("`union` and `union all` cannot be mixed", word.span, hint)
        plain = (*parts[:-1], replace(last, order=(), skip=None, limit=None))
        return ast.Union(plain, words[0].text == "union all", last.order, last.skip, last.limit)

    # -- whole queries -----------------------------------------------------------------------------------------

    def type_scalar(self, base: Token, mark: Token | None = None) -> WrittenType:
        return PropertyType(_base_type(base), nullable=mark is not None), span_of(base)

    def type_list(self, base: Token, mark: Token | None = None) -> WrittenType:
        return PropertyType(_base_type(base), is_list=True, nullable=mark is not None), span_of(base)

    def type_vector(self, base: Token, length: Token, mark: Token | None = None) -> WrittenType:
        if base != "Vector":
            raise SyntaxFault(f"`{base}` takes no length", span_of(base), "only `Vector(n)` does")
        dimension = _read_integer(length, 0, _U32_MAX, "a vector length")
        return PropertyType(Scalar.VECTOR, nullable=mark is not None, dimension=dimension), span_of(base, length)

    def param(self, variable: Token, typed: WrittenType) -> ast.Param:
        return ast.Param(_name(variable), *typed)

    def meta(self, word: Token, text: Token | None = None) -> tuple[Token, str | None]:
        return word, None if text is None else read_string(text)

    mark = meta

    def query(self, name: Token, *rest: Any) -> ast.Query:
        metadata: dict[str, str | None] = {}
        body = rest[-1]
        for word, text in _only(rest, tuple):
            _check_annotation(word, text, body)
            if word in metadata:
                raise SyntaxFault(f"`{word}` is written twice", span_of(word), "keep one of them")
            metadata[word] = text
        if _MIXED in metadata:
            body = replace(body, is_mixed=True)
        texts = metadata.get("@description"), metadata.get("@instruction")
        return ast.Query(_name(name), _only(rest, ast.Param), *texts, body=body)

    def unnamed(self, body: ast.Read | ast.Union | ast.Mutation) -> ast.Query:
        return ast.Query(ast.Name(ast.UNNAMED, Span(0, 0)), (), None, None, body)

    def start(self, *children: Any) -> tuple[Any, ...]:
        return children

    order = start


_MIXED: Final = "@mixed"


def _check_annotation(word: Token, text: str | None, body: ast.Read | ast.Union | ast.Mutation) -> None:
    if word not in ("@description", "@instruction", _MIXED):
        hint = "a query takes `@description`, `@instruction` and `@mixed`"
        raise SyntaxFault(f"a query takes no `{word}`", span_of(word), hint)
    if (word == _MIXED) != (text is None):
        hint = "write `@mixed` alone" if word == _MIXED else f'write `{word}("…")`'
        raise SyntaxFault(f"`{word}` takes {'no' if word == _MIXED else 'a'} text", span_of(word), hint)
    if word == _MIXED and not isinstance(body, ast.Mutation):
        raise SyntaxFault("a read takes no `@mixed`", span_of(word), "it is for mutations that delete and write")


def _name(token: Token) -> ast.Name:
    """Return the token as a name, variables without their `$`."""
    return ast.Name(token[1:] if token.startswith("$") else str(token), span_of(token))


def _variable(token: Token) -> ast.Variable:
    return ast.Variable(token[1:], span_of(token))


def _expression(operand: Operand) -> ast.Expression:
    return _variable(operand) if isinstance(operand, Token) else operand


def _read_integer(token: Token, least: int, most: int, noun: str) -> int:
    """Return the integer of a token; raises `SyntaxFault` if it is out of bounds."""
    value = int(token) if len(token) <= _DIGITS_MAX else most + 1
    if not least <= value <= most:
        raise SyntaxFault(f"{noun} must lie between {least} and {most}", span_of(token))
    return value


def _read_bound(token: Token, least: int, most: int, noun: str) -> int | ast.Variable:
    """Return an integer, or the parameter that will hold it."""
    return _variable(token) if token.startswith("$") else _read_integer(token, least, most, noun)


def _bound(token: Token, noun: str) -> ast.Bound:
    return ast.Bound(_read_bound(token, 0, _U64_MAX, noun), span_of(token))


def _known_field(token: Token) -> Token:
    """Return a name; raises `SyntaxFault` for an `@name` that is no system field."""
    if token.startswith("@") and token not in ast.SYSTEM_FIELDS:
        fields = join_words([f"`{field}`" for field in ast.SYSTEM_FIELDS], conjunction="and")
        hint = did_you_mean(token, ast.SYSTEM_FIELDS, otherwise=f"the system fields are {fields}")
        raise SyntaxFault(f"there is no system field `{token}`", span_of(token), hint)
    return token


def _special_call(call: ast.Call) -> ast.Call | ast.Literal:
    """Return a date as a literal, and any other call as it is; raises `SyntaxFault` for a wrong first argument."""
    scalar = LITERAL_CALLS.get(call.function)
    if scalar is None and call.function != "nearest":
        return call
    first = call.arguments[0]
    if scalar is None:
        if isinstance(first, ast.PropertyAccess):
            return call
        hint = "write nearest($x.vectors, …)"
        raise SyntaxFault("the first argument of `nearest` is a property of a variable", first.span, hint)
    if not isinstance(first, ast.Literal) or first.scalar is not Scalar.STRING:
        hint = f'write {call.function}("{TIME_FORMS[scalar].example}"), or declare a parameter of that type'
        raise SyntaxFault(f"`{call.function}` takes its text in double quotes", first.span, hint)
    return ast.Literal(first.value, scalar, call.span)


def _check_depth(operand: Operand) -> ast.Expression:
    """Return an expression that is not too deep; raises `SyntaxFault`. Checks and plans go down it recursively."""
    expression = _expression(operand)
    level = [expression]
    for _ in range(EXPRESSION_DEPTH_MAX):
        level = [part for item in level for part in ast.parts_of(item)]
        if not level:
            return expression
    message = f"an expression nests at most {EXPRESSION_DEPTH_MAX} operations"
    raise SyntaxFault(message, level[0].span, "split it into several columns or conditions")


def _only(children: Iterable[object], kind: type[T]) -> tuple[T, ...]:
    return tuple(child for child in children if isinstance(child, kind))


def _traversal(left: Token, edge_variable: Token | None, *rest: Any) -> ast.Traversal:
    """Return a traversal; an undirected one has angle brackets around its edges."""
    *words, hops, right, _, hops_variable = rest
    undirected = words[0].type == "LESS"
    edges = words[1:-1] if undirected else words
    for word in edges:
        if re.match(r"not(?![A-Za-z0-9])", word):
            hint = "write `not { … }` around the pattern to negate it"
            raise SyntaxFault(f"`{word}` cannot be used as an edge here", span_of(word), hint)
    return ast.Traversal(
        left=_name(left),
        edges=tuple(map(_name, edges)),
        right=_name(right),
        undirected=undirected,
        edge_variable=None if edge_variable is None else _name(edge_variable),
        hops=hops,
        hops_variable=None if hops_variable is None else _name(hops_variable),
        span=span_of(left, right),
    )


@dataclass(frozen=True, slots=True)
class _Stage:
    """A `with` and the clauses behind it; those of its own pattern stand before it."""

    read: ast.Read
    clauses: tuple[ast.Clause, ...]


def _read(clauses: tuple[ast.Clause, ...], distinct: tuple[ast.Expression, ...] | None, *rest: Any) -> ast.Read:
    *projections, having, order, limit_per, skip, limit = rest
    return ast.Read(
        clauses=clauses,
        distinct=distinct == (),
        distinct_on=distinct or (),
        projections=tuple(projections),
        having=having,
        order=order or (),
        skip=skip,
        limit=limit,
        limit_per=limit_per,
    )


def _base_type(token: Token) -> Scalar:
    scalar = _BASES.get(token)
    if scalar is None:
        if token == "Vector":
            raise SyntaxFault("`Vector` needs its length", span_of(token), "write `Vector(3)`")
        known = f"the types are {join_words(sorted(_BASES))} or Vector(n)"
        hint = did_you_mean(token, [*_BASES, "Vector"], otherwise=known)
        raise SyntaxFault(f"there is no parameter type `{token}`", span_of(token), hint)
    return scalar
