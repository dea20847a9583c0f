"""Builds the syntax tree of `.gq` while Lark parses.

Pure. Raises `SyntaxFault` for what the grammar accepts and the language does not.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

from lark import Token

from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.diagnostic import Span, did_you_mean, join_words
from omnigraph.lang.parsing import SyntaxFault, read_string, span_of
from omnigraph.lang.query import ast

_U32_MAX: Final = 2**32 - 1
_I64_MAX: Final = 2**63 - 1
_U64_MAX: Final = 2**64 - 1
# A longer number is out of every range, and Python itself rejects very long ones.
_DIGITS_MAX: Final = 40
_BASES: Final = {scalar.value: scalar for scalar in Scalar if scalar is not Scalar.VECTOR}
T = TypeVar("T")


def name_of(token: Token) -> ast.Name:
    """Return the token as a name, variables without their `$`."""
    return ast.Name(token[1:] if token.startswith("$") else str(token), span_of(token))


def read_integer(token: Token, least: int, most: int, noun: str) -> int:
    """Return the integer of a token; raises `SyntaxFault` if it is out of bounds."""
    value = int(token) if len(token) <= _DIGITS_MAX else most + 1
    if not least <= value <= most:
        raise SyntaxFault(f"{noun} must lie between {least} and {most}", span_of(token))
    return value


def expression_of(child: object) -> ast.Expression:
    if isinstance(child, Token):
        return ast.Variable(child[1:], span_of(child))
    assert isinstance(child, ast.Expression)
    return child


class ValueBuilder:
    """Names, literals and calls."""

    def text(self, c: list[Token]) -> ast.Literal:
        return ast.Literal(read_string(c[0]), Scalar.STRING, span_of(c[0]))

    def decimal(self, c: list[Token]) -> ast.Literal:
        value = float(c[0])
        if value in (float("inf"), float("-inf")):
            raise SyntaxFault("this number is too large for a 64-bit float", span_of(c[0]))
        return ast.Literal(value, Scalar.F64, span_of(c[0]))

    def integer(self, c: list[Token]) -> ast.Literal:
        value = read_integer(c[0], -_I64_MAX - 1, _U64_MAX, "an integer")
        return ast.Literal(value, Scalar.I64 if value <= _I64_MAX else Scalar.U64, span_of(c[0]))

    def boolean(self, c: list[Token]) -> ast.Literal:
        return ast.Literal(c[0] == "true", Scalar.BOOL, span_of(c[0]))

    def list_literal(self, c: list[object]) -> ast.ListLiteral:
        first, last = c[0], c[-1]
        assert isinstance(first, Token)
        assert isinstance(last, Token)
        items = tuple(item for item in c if isinstance(item, ast.Literal | ast.ListLiteral))
        if len(items) != sum(item is not None for item in c) - 2:
            call = next(item for item in c if isinstance(item, ast.Call))
            raise SyntaxFault(f"a list holds literals only, not `{call.function}()`", call.span)
        return ast.ListLiteral(items, span_of(first).to(span_of(last)))

    def variable(self, c: list[Token]) -> ast.Variable:
        return ast.Variable(c[0][1:], span_of(c[0]))

    def access(self, c: list[Token]) -> ast.PropertyAccess:
        variable, name = name_of(c[0]), name_of(c[1])
        return ast.PropertyAccess(variable, name, variable.span.to(name.span))

    def alias(self, c: list[Token]) -> ast.Alias:
        return ast.Alias(str(c[0]), span_of(c[0]))

    def call(self, c: list[object]) -> ast.Call | ast.Literal:
        word, close = c[0], c[-1]
        assert isinstance(word, Token)
        assert isinstance(close, Token)
        arguments = tuple(expression_of(child) for child in c[1:-1] if child is not None)
        function, span = str(word), span_of(word).to(span_of(close))
        if function not in ast.FUNCTIONS:
            hint = did_you_mean(
                function, ast.FUNCTIONS, otherwise=f"the functions are {join_words(sorted(ast.FUNCTIONS))}"
            )
            raise SyntaxFault(f"there is no function `{function}`", span_of(word), hint)
        fewest, most = ast.FUNCTIONS[function]
        if not fewest <= len(arguments) <= most:
            expected = join_words([str(count) for count in range(fewest, most + 1)])
            message = f"`{function}` takes {expected} argument{'s' * (most != 1)}, not {len(arguments)}"
            raise SyntaxFault(message, span)
        return self._special(ast.Call(function, arguments, span))

    def call_star(self, c: list[Token]) -> ast.Call:
        span = span_of(c[0]).to(span_of(c[-1]))
        if c[0] != "count":
            raise SyntaxFault(f"`*` is an argument of `count` only, not of `{c[0]}`", span_of(c[1]))
        return ast.Call("count", (), span)

    def value_call(self, c: list[ast.Call | ast.Literal]) -> ast.Call | ast.Literal:
        value = c[0]
        if isinstance(value, ast.Call) and value.function != "now":
            hint = 'a value is a literal, a parameter, `now()`, `date("…")` or `datetime("…")`'
            raise SyntaxFault(f"`{value.function}()` is not a value", value.span, hint)
        return value

    def _special(self, call: ast.Call) -> ast.Call | ast.Literal:
        first = call.arguments[0] if call.arguments else None
        if call.function in ("date", "datetime"):
            if not isinstance(first, ast.Literal) or first.scalar is not Scalar.STRING:
                assert first is not None
                hint = f'write {call.function}("2024-01-31"), or declare a parameter of that type'
                raise SyntaxFault(f"`{call.function}` takes its text in double quotes", first.span, hint)
            scalar = Scalar.DATE if call.function == "date" else Scalar.DATETIME
            return ast.Literal(first.value, scalar, call.span)
        if call.function == "nearest" and not isinstance(first, ast.PropertyAccess):
            assert first is not None
            hint = "write nearest($x.vectors, …)"
            raise SyntaxFault("the first argument of `nearest` is a property of a variable", first.span, hint)
        return call


def _only(children: list[object], kind: type[T]) -> tuple[T, ...]:
    return tuple(child for child in children if isinstance(child, kind))


def _conditions(children: list[object]) -> tuple[ast.Condition, ...]:
    return tuple(child for child in children if isinstance(child, ast.Condition))


class ConditionBuilder(ValueBuilder):
    """Filters and their combinations."""

    def comparison(self, c: list[object]) -> ast.Comparison:
        left, operator, right = c
        assert isinstance(operator, Token)
        a, b = expression_of(left), expression_of(right)
        return ast.Comparison(a, name_of(operator), b, a.span.to(b.span))

    def null_test(self, c: list[object]) -> ast.NullTest:
        operand, null = expression_of(c[0]), c[-1]
        assert isinstance(null, Token)
        return ast.NullTest(operand, c[2] is not None, operand.span.to(span_of(null)))

    def membership(self, c: list[object]) -> ast.Membership:
        operand, collection = expression_of(c[0]), expression_of(c[2])
        assert isinstance(collection, ast.ListLiteral | ast.Variable)
        return ast.Membership(operand, collection, operand.span.to(collection.span))

    def text_predicate(self, c: list[ast.Call | ast.Literal]) -> ast.TextPredicate:
        call = c[0]
        if not isinstance(call, ast.Call) or call.function not in ast.TEXT_PREDICATES:
            raise SyntaxFault("this is a value, not a condition", call.span, "compare it with something, as in `… = …`")
        return ast.TextPredicate(call, call.span)

    def any_of(self, c: list[object]) -> ast.AnyOf:
        parts = _conditions(c)
        return ast.AnyOf(parts, parts[0].span.to(parts[-1].span))

    def all_of(self, c: list[object]) -> ast.AllOf:
        parts = _conditions(c)
        return ast.AllOf(parts, parts[0].span.to(parts[-1].span))


class PatternBuilder(ConditionBuilder):
    """Bindings, traversals and blocks."""

    def match(self, c: list[object]) -> ast.Match:
        name, value = c
        assert isinstance(name, Token)
        return ast.Match(name_of(name), value)  # type: ignore[arg-type]

    def binding(self, c: list[object]) -> ast.Binding:
        variable, type_name = c[0], c[1]
        assert isinstance(variable, Token)
        assert isinstance(type_name, Token)
        name, type_ = name_of(variable), name_of(type_name)
        return ast.Binding(name, type_, _only(c, ast.Match), name.span.to(type_.span))

    def hops(self, c: list[Token | None]) -> ast.Hops:
        opening, low, high, closing = c
        assert opening is not None
        assert low is not None
        assert closing is not None
        minimum = read_integer(low, 0, _U32_MAX, "a hop bound")
        maximum = None if high is None else read_integer(high, 0, _U32_MAX, "a hop bound")
        return ast.Hops(minimum, maximum, span_of(opening).to(span_of(closing)))

    def walk(self, c: list[object]) -> ast.Traversal:
        left, edge, *tail = c
        return self._walk(left, None, edge, tail, undirected=False)

    def walk_both(self, c: list[object]) -> ast.Traversal:
        left, _, edge, _, *tail = c
        return self._walk(left, None, edge, tail, undirected=True)

    def walk_edge(self, c: list[object]) -> ast.Traversal:
        left, variable, edge, *tail = c
        return self._walk(left, variable, edge, tail, undirected=False)

    def walk_edge_both(self, c: list[object]) -> ast.Traversal:
        left, variable, _, edge, _, *tail = c
        return self._walk(left, variable, edge, tail, undirected=True)

    def _walk(
        self, left: object, variable: object, edge: object, tail: list[object], *, undirected: bool
    ) -> ast.Traversal:
        hops, right, _, hops_variable = tail
        assert isinstance(left, Token)
        assert isinstance(edge, Token)
        assert isinstance(right, Token)
        if re.match(r"not(?![A-Za-z0-9])", edge):
            hint = "write `not { … }` around the pattern to negate it"
            raise SyntaxFault(f"`{edge}` cannot be used as an edge here", span_of(edge), hint)
        start, end = name_of(left), name_of(right)
        return ast.Traversal(
            left=start,
            edge=name_of(edge),
            right=end,
            undirected=undirected,
            edge_variable=name_of(variable) if isinstance(variable, Token) else None,
            hops=hops if isinstance(hops, ast.Hops) else None,
            hops_variable=name_of(hops_variable) if isinstance(hops_variable, Token) else None,
            span=start.span.to(end.span),
        )

    def block(self, c: list[ast.Clause]) -> tuple[ast.Clause, ...]:
        return tuple(c)

    def negation(self, c: list[object]) -> ast.Negation:
        word, clauses = c
        assert isinstance(word, Token)
        return ast.Negation(clauses, span_of(word))  # type: ignore[arg-type]

    def optional(self, c: list[object]) -> ast.Optional:
        word, clauses = c
        assert isinstance(word, Token)
        return ast.Optional(clauses, span_of(word))  # type: ignore[arg-type]


class MutationBuilder(PatternBuilder):
    """Statements that write."""

    def assign(self, c: list[object]) -> ast.Match:
        return self.match(c)

    def predicate(self, c: list[object]) -> ast.Predicate:
        name, operator, value = c
        assert isinstance(name, Token)
        assert isinstance(operator, Token)
        return ast.Predicate(name_of(name), name_of(operator), value)  # type: ignore[arg-type]

    def insert(self, c: list[object]) -> ast.Insert:
        word, type_name = c[0], c[1]
        assert isinstance(word, Token)
        assert isinstance(type_name, Token)
        return ast.Insert(name_of(type_name), _only(c, ast.Match), span_of(word).to(span_of(type_name)))

    def update(self, c: list[object]) -> ast.Update:
        word, type_name, predicate = c[0], c[1], c[-1]
        assert isinstance(word, Token)
        assert isinstance(type_name, Token)
        assert isinstance(predicate, ast.Predicate)
        span = span_of(word).to(span_of(type_name))
        return ast.Update(name_of(type_name), _only(c, ast.Match), predicate, span)

    def delete(self, c: list[object]) -> ast.Delete:
        word, type_name, predicate = c
        assert isinstance(word, Token)
        assert isinstance(type_name, Token)
        assert isinstance(predicate, ast.Predicate)
        return ast.Delete(name_of(type_name), predicate, span_of(word).to(span_of(type_name)))

    def mutation(self, c: list[ast.Statement]) -> ast.Mutation:
        return ast.Mutation(tuple(c))


class Builder(MutationBuilder):
    """Whole queries."""

    def projection(self, c: list[object]) -> ast.Projection:
        expression, _, alias = c
        return ast.Projection(expression_of(expression), name_of(alias) if isinstance(alias, Token) else None)

    def ordering(self, c: list[object]) -> ast.Ordering:
        expression, direction = expression_of(c[0]), c[1]
        if direction is None:
            return ast.Ordering(expression, None)
        assert isinstance(direction, Token)
        if isinstance(expression, ast.Call) and expression.function == "nearest":
            hint = "`nearest` always puts the closest first; leave the direction out"
            raise SyntaxFault(f"`nearest` takes no `{direction}`", span_of(direction), hint)
        return ast.Ordering(expression, name_of(direction))

    def order(self, c: list[ast.Ordering]) -> tuple[ast.Ordering, ...]:
        return tuple(c)

    def skip(self, c: list[Token]) -> ast.Bound:
        return self._bound(c[0], "skip")

    def limit(self, c: list[Token]) -> ast.Bound:
        return self._bound(c[0], "limit")

    def read(self, c: list[object]) -> ast.Read:
        clauses, distinct, *projections, order, skip, limit = c
        return ast.Read(
            clauses=clauses,  # type: ignore[arg-type]
            distinct=distinct is not None,
            projections=_only(projections, ast.Projection),
            order=order or (),  # type: ignore[arg-type]
            skip=skip,  # type: ignore[arg-type]
            limit=limit,  # type: ignore[arg-type]
        )

    def type_scalar(self, c: list[Token]) -> tuple[PropertyType, Span]:
        return PropertyType(self._base(c[0]), nullable=len(c) > 1), span_of(c[0])

    def type_list(self, c: list[Token]) -> tuple[PropertyType, Span]:
        return PropertyType(self._base(c[0]), is_list=True, nullable=len(c) > 1), span_of(c[0])

    def type_vector(self, c: list[Token]) -> tuple[PropertyType, Span]:
        if c[0] != "Vector":
            raise SyntaxFault(f"`{c[0]}` takes no length", span_of(c[0]), "only `Vector(n)` does")
        dimension = read_integer(c[1], 0, _U32_MAX, "a vector length")
        return PropertyType(Scalar.VECTOR, nullable=len(c) > 2, dimension=dimension), span_of(c[0]).to(span_of(c[1]))

    def param(self, c: list[object]) -> ast.Param:
        variable, typed = c
        assert isinstance(variable, Token)
        assert isinstance(typed, tuple)
        return ast.Param(name_of(variable), *typed)

    def meta(self, c: list[Token]) -> tuple[Token, str]:
        return c[0], read_string(c[1])

    def query(self, c: list[object]) -> ast.Query:
        name, body = c[0], c[-1]
        assert isinstance(name, Token)
        assert isinstance(body, ast.Read | ast.Mutation)
        metadata: dict[str, str] = {}
        for word, text in _only(c, tuple):
            if word not in ("@description", "@instruction"):
                hint = "a query takes `@description` and `@instruction`"
                raise SyntaxFault(f"a query takes no `{word}`", span_of(word), hint)
            if word in metadata:
                raise SyntaxFault(f"`{word}` is written twice", span_of(word), "keep one of them")
            metadata[word] = text
        params = _only(c, ast.Param)
        return ast.Query(name_of(name), params, metadata.get("@description"), metadata.get("@instruction"), body)

    def start(self, c: list[ast.Query]) -> tuple[ast.Query, ...]:
        return tuple(c)

    def _bound(self, token: Token, noun: str) -> ast.Bound:
        span = span_of(token)
        if token.startswith("$"):
            return ast.Bound(ast.Variable(token[1:], span), span)
        return ast.Bound(read_integer(token, 0, _U64_MAX, f"`{noun}`"), span)

    def _base(self, token: Token) -> Scalar:
        scalar = _BASES.get(token)
        if scalar is None:
            if token == "Vector":
                raise SyntaxFault("`Vector` needs its length", span_of(token), "write `Vector(3)`")
            hint = did_you_mean(
                token, [*_BASES, "Vector"], otherwise=f"the types are {join_words(sorted(_BASES))} or Vector(n)"
            )
            raise SyntaxFault(f"there is no parameter type `{token}`", span_of(token), hint)
        return scalar
