"""From reductions of the grammar to the syntax tree, while parsing: no second walk, so nothing recurses.

Pure and stateless. A construct the grammar is too coarse to refuse is refused here, as a syntax error.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

from lark import Token

from omnigraph.lang.query import ast
from omnigraph.lang.query.constants import (
    SyntaxRefusal,
    ValueBuilder,
    expression_of,
    name_of,
    read_integer,
    read_string,
    span_of,
)
from omnigraph.lang.query.words import listed, suggestion
from omnigraph.lang.source import Span
from omnigraph.lang.types import PropertyType, Scalar

U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1
_BASES: Final = {scalar.value: scalar for scalar in Scalar if scalar is not Scalar.VECTOR}
T = TypeVar("T")


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
        if not isinstance(call, ast.Call) or call.function not in ("search", "fuzzy", "match_text"):
            raise SyntaxRefusal(
                call.span, "this is a value, not a condition", "compare it with something, as in `… = …`"
            )
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
        minimum = read_integer(low, 0, U32_MAX, "a hop bound")
        maximum = None if high is None else read_integer(high, 0, U32_MAX, "a hop bound")
        return ast.Hops(minimum, maximum, span_of(opening).to(span_of(closing)))

    def walk(self, c: list[object]) -> ast.Traversal:
        left, edge, *rest = c
        return self._walk(left, None, edge, rest, undirected=False)

    def walk_both(self, c: list[object]) -> ast.Traversal:
        left, _, edge, _, *rest = c
        return self._walk(left, None, edge, rest, undirected=True)

    def walk_edge(self, c: list[object]) -> ast.Traversal:
        left, variable, edge, *rest = c
        return self._walk(left, variable, edge, rest, undirected=False)

    def walk_edge_both(self, c: list[object]) -> ast.Traversal:
        left, variable, _, edge, _, *rest = c
        return self._walk(left, variable, edge, rest, undirected=True)

    def _walk(
        self, left: object, variable: object, edge: object, rest: list[object], *, undirected: bool
    ) -> ast.Traversal:
        hops, right, _, hops_variable = rest
        assert isinstance(left, Token)
        assert isinstance(edge, Token)
        assert isinstance(right, Token)
        if re.match(r"not(?![A-Za-z0-9])", edge):
            hint = "write `not { … }` around the pattern to negate it"
            raise SyntaxRefusal(span_of(edge), f"`{edge}` cannot be used as an edge here", hint)
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
            raise SyntaxRefusal(span_of(direction), f"`nearest` takes no `{direction}`", hint)
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
            raise SyntaxRefusal(span_of(c[0]), f"`{c[0]}` takes no length", "only `Vector(n)` does")
        dimension = read_integer(c[1], 0, U32_MAX, "a vector length")
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
                raise SyntaxRefusal(span_of(word), f"a query takes no `{word}`", hint)
            if word in metadata:
                raise SyntaxRefusal(span_of(word), f"`{word}` is written twice", "keep one of them")
            metadata[word] = text
        params = _only(c, ast.Param)
        return ast.Query(name_of(name), params, metadata.get("@description"), metadata.get("@instruction"), body)

    def start(self, c: list[ast.Query]) -> tuple[ast.Query, ...]:
        return tuple(c)

    def _bound(self, token: Token, what: str) -> ast.Bound:
        span = span_of(token)
        if token.startswith("$"):
            return ast.Bound(ast.Variable(token[1:], span), span)
        return ast.Bound(read_integer(token, 0, U64_MAX, f"`{what}`"), span)

    def _base(self, token: Token) -> Scalar:
        scalar = _BASES.get(token)
        if scalar is None:
            if token == "Vector":
                raise SyntaxRefusal(span_of(token), "`Vector` needs its length", "write `Vector(3)`")
            known = suggestion(
                token, [*_BASES, "Vector"], otherwise=f"the types are {listed(sorted(_BASES))} or Vector(n)"
            )
            raise SyntaxRefusal(span_of(token), f"there is no parameter type `{token}`", known)
        return scalar
