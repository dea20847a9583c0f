"""Builds the syntax tree of `.gq` while Lark parses.

Pure. Raises `SyntaxFault` for what the grammar accepts and the language does not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from lark import Token

from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.diagnostic import Span, did_you_mean, join_words
from omnigraph.lang.parsing import SyntaxFault, read_string, span_of
from omnigraph.lang.query import ast
from omnigraph.lang.query.functions import FUNCTION_NAMES, arity_of, describe_arity, function_hint
from omnigraph.limits import EXPRESSION_DEPTH_MAX

_U32_MAX: Final = 2**32 - 1
_I64_MAX: Final = 2**63 - 1
_U64_MAX: Final = 2**64 - 1
# A longer number is out of every range, and Python itself rejects very long ones.
_DIGITS_MAX: Final = 40
_BASES: Final = {scalar.value: scalar for scalar in Scalar if scalar is not Scalar.VECTOR}
T = TypeVar("T")
DISTINCT_AGGREGATES: Final = frozenset({"count", "sum", "avg", "collect"})


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
        variable, name = name_of(c[0]), name_of(_known_field(c[1]))
        return ast.PropertyAccess(variable, name, variable.span.to(name.span))

    def alias(self, c: list[Token]) -> ast.Alias:
        return ast.Alias(str(_known_field(c[0])), span_of(c[0]))

    def call(self, c: list[object]) -> ast.Call | ast.Literal:
        word, close = c[0], c[-1]
        assert isinstance(word, Token)
        assert isinstance(close, Token)
        arguments = tuple(expression_of(child) for child in c[2:-1] if child is not None)
        function, span = str(word), span_of(word).to(span_of(close))
        if function in ("any", "all"):
            raise SyntaxFault(f"`{function}` takes a condition", span, f"write `{function}($item in $v.list where …)`")
        if function not in FUNCTION_NAMES:
            raise SyntaxFault(f"there is no function `{function}`", span_of(word), function_hint(function))
        fewest, most = arity_of(function)
        if function == "cast":
            raise SyntaxFault("`cast` takes a value and a type", span, "write `cast($v.property as F64)`")
        if len(arguments) < fewest or (most is not None and len(arguments) > most):
            raise SyntaxFault(f"`{function}` takes {describe_arity(fewest, most)}, not {len(arguments)}", span)
        is_distinct = c[1] is not None
        if is_distinct and function not in DISTINCT_AGGREGATES:
            hint = f"it goes with {join_words(sorted(DISTINCT_AGGREGATES))}"
            raise SyntaxFault(f"`{function}` takes no `distinct`", span_of(word), hint)
        return self._special(ast.Call(function, arguments, span, is_distinct))

    def conversion(self, c: list[object]) -> ast.Conversion:
        word, operand, _, typed, close = c
        assert isinstance(word, Token)
        assert isinstance(typed, tuple)
        assert isinstance(close, Token)
        if word != "cast":
            raise SyntaxFault(f"only `cast` takes `as` and a type, not `{word}`", span_of(word))
        type_, type_span = typed
        if type_.nullable:
            raise SyntaxFault("a `cast` names its type without `?`", type_span, "the result is null where the value is")
        return ast.Conversion(expression_of(operand), type_, span_of(word).to(span_of(close)))

    def quantifier(self, c: list[object]) -> ast.Quantifier:
        word, member, condition, close = c[0], c[1], expression_of(c[2]), c[3]
        assert isinstance(word, Token)
        assert isinstance(close, Token)
        hint = "write `any($item in $v.list where …)`"
        if word not in ("any", "all"):
            raise SyntaxFault(f"only `any` and `all` take `where`, not `{word}`", span_of(word), hint)
        is_member = isinstance(member, ast.Membership) and not member.negated
        if not isinstance(member, ast.Membership) or not is_member or not isinstance(member.operand, ast.Variable):
            raise SyntaxFault(f"`{word}` begins with a new variable and its list", expression_of(member).span, hint)
        item = ast.Name(member.operand.name, member.operand.span)
        return ast.Quantifier(str(word), item, member.collection, condition, span_of(word).to(span_of(close)))

    def call_star(self, c: list[Token]) -> ast.Call:
        span = span_of(c[0]).to(span_of(c[-1]))
        if c[0] != "count":
            raise SyntaxFault(f"`*` is an argument of `count` only, not of `{c[0]}`", span_of(c[1]))
        return ast.Call("count", (), span)

    def value_call(self, c: list[ast.Call | ast.Conversion | ast.Quantifier | ast.Literal]) -> ast.Call | ast.Literal:
        value = c[0]
        if isinstance(value, ast.Conversion | ast.Quantifier) or (
            isinstance(value, ast.Call) and value.function != "now"
        ):
            hint = 'a value is a literal, a parameter, `now()`, `date("…")` or `datetime("…")`'
            function = "cast" if isinstance(value, ast.Conversion) else value.function
            raise SyntaxFault(f"`{function}()` is not a value", value.span, hint)
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


def _known_field(token: Token) -> Token:
    """Return a name; raises `SyntaxFault` for an `@name` that is no system field."""
    if token.startswith("@") and token not in ast.SYSTEM_FIELDS:
        fields = join_words([f"`{field}`" for field in ast.SYSTEM_FIELDS], conjunction="and")
        hint = did_you_mean(token, ast.SYSTEM_FIELDS, otherwise=f"the system fields are {fields}")
        raise SyntaxFault(f"there is no system field `{token}`", span_of(token), hint)
    return token


def check_depth(expression: ast.Expression) -> ast.Expression:
    """Return an expression that is not too deep; raises `SyntaxFault`. Checks and plans go down it recursively."""
    level = [expression]
    for _ in range(EXPRESSION_DEPTH_MAX):
        level = [part for item in level for part in ast.parts_of(item)]
        if not level:
            return expression
    message = f"an expression nests at most {EXPRESSION_DEPTH_MAX} operations"
    raise SyntaxFault(message, level[0].span, "split it into several columns or conditions")


def _only(children: list[object], kind: type[T]) -> tuple[T, ...]:
    return tuple(child for child in children if isinstance(child, kind))


class ExpressionBuilder(ValueBuilder):
    """Operators and conditions."""

    def parenthesis(self, c: list[object]) -> ast.Expression:
        return expression_of(c[0])

    def arithmetic(self, c: list[object]) -> ast.Arithmetic:
        left, operator, right = c
        assert isinstance(operator, Token)
        a, b = expression_of(left), expression_of(right)
        return ast.Arithmetic(a, name_of(operator), b, a.span.to(b.span))

    def negative(self, c: list[object]) -> ast.Negative | ast.Literal:
        sign, operand = c[0], expression_of(c[1])
        assert isinstance(sign, Token)
        span = span_of(sign).to(operand.span)
        if isinstance(operand, ast.Literal) and operand.scalar in (Scalar.I64, Scalar.U64, Scalar.F64):
            assert isinstance(operand.value, int | float)
            if operand.scalar is Scalar.U64 and operand.value > _I64_MAX + 1:
                raise SyntaxFault(f"an integer must lie between {-_I64_MAX - 1} and {_U64_MAX}", span)
            scalar = Scalar.F64 if operand.scalar is Scalar.F64 else Scalar.I64
            # The negative of the smallest integer is not one; it is computed, and overflows there.
            if scalar is Scalar.F64 or -operand.value <= _I64_MAX:
                return ast.Literal(-operand.value, scalar, span)
        return ast.Negative(operand, span)

    def element(self, c: list[object]) -> ast.Element:
        collection, position, close = expression_of(c[0]), expression_of(c[2]), c[3]
        assert isinstance(close, Token)
        return ast.Element(collection, position, collection.span.to(span_of(close)))

    def branch(self, c: list[object]) -> ast.Branch:
        condition, value = expression_of(c[1]), expression_of(c[3])
        return ast.Branch(condition, value, condition.span.to(value.span))

    def case(self, c: list[object]) -> ast.Case:
        first, otherwise, last = c[0], c[-2], c[-1]
        assert isinstance(first, Token)
        assert isinstance(last, Token)
        span = span_of(first).to(span_of(last))
        return ast.Case(_only(c, ast.Branch), None if otherwise is None else expression_of(otherwise), span)

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
        operand, word, collection = expression_of(c[0]), c[1], expression_of(c[2])
        assert isinstance(word, Token)
        return ast.Membership(operand, collection, operand.span.to(collection.span), word.type == "NOT_IN")

    def inverse(self, c: list[object]) -> ast.Inverse:
        word, condition = c[0], expression_of(c[1])
        assert isinstance(word, Token)
        return ast.Inverse(condition, span_of(word).to(condition.span))

    def any_of(self, c: list[object]) -> ast.AnyOf:
        parts = _operands(c)
        return ast.AnyOf(parts, parts[0].span.to(parts[-1].span))

    def all_of(self, c: list[object]) -> ast.AllOf:
        parts = _operands(c)
        return ast.AllOf(parts, parts[0].span.to(parts[-1].span))


def _operands(children: list[object]) -> tuple[ast.Expression, ...]:
    return tuple(child for child in children if isinstance(child, ast.Expression))


class PatternBuilder(ExpressionBuilder):
    """Bindings, traversals and blocks."""

    def match(self, c: list[object]) -> ast.Match:
        name, value = c
        assert isinstance(name, Token)
        return ast.Match(name_of(name), value)  # type: ignore[arg-type]

    def binding(self, c: list[object]) -> ast.Binding:
        name, *types = (name_of(token) for token in _only(c, Token))
        return ast.Binding(name, tuple(types), _only(c, ast.Match), name.span.to(types[-1].span))

    def hops(self, c: list[Token | None]) -> ast.Hops:
        opening, low, high, closing = c
        assert opening is not None
        assert low is not None
        assert closing is not None
        maximum = None if high is None else self._hop_bound(high)
        return ast.Hops(self._hop_bound(low), maximum, span_of(opening).to(span_of(closing)))

    def _hop_bound(self, token: Token) -> int | ast.Variable:
        if token.startswith("$"):
            return ast.Variable(token[1:], span_of(token))
        return read_integer(token, 0, _U32_MAX, "a hop bound")

    # The last four children of a walk are its hops, right end, `as` and hop variable.
    def walk(self, c: list[object]) -> ast.Traversal:
        return self._walk(c[0], None, c[1:-4], c[-4:], undirected=False)

    def walk_both(self, c: list[object]) -> ast.Traversal:
        return self._walk(c[0], None, c[2:-5], c[-4:], undirected=True)

    def walk_edge(self, c: list[object]) -> ast.Traversal:
        return self._walk(c[0], c[1], c[2:-4], c[-4:], undirected=False)

    def walk_edge_both(self, c: list[object]) -> ast.Traversal:
        return self._walk(c[0], c[1], c[3:-5], c[-4:], undirected=True)

    def _walk(
        self, left: object, variable: object, edges: list[object], tail: list[object], *, undirected: bool
    ) -> ast.Traversal:
        hops, right, _, hops_variable = tail
        assert isinstance(left, Token)
        assert isinstance(right, Token)
        words = _only(edges, Token)
        for word in words:
            if re.match(r"not(?![A-Za-z0-9])", word):
                hint = "write `not { … }` around the pattern to negate it"
                raise SyntaxFault(f"`{word}` cannot be used as an edge here", span_of(word), hint)
        start, end = name_of(left), name_of(right)
        return ast.Traversal(
            left=start,
            edges=tuple(name_of(word) for word in words),
            right=end,
            undirected=undirected,
            edge_variable=name_of(variable) if isinstance(variable, Token) else None,
            hops=hops if isinstance(hops, ast.Hops) else None,
            hops_variable=name_of(hops_variable) if isinstance(hops_variable, Token) else None,
            span=start.span.to(end.span),
        )

    def search_all(self, c: list[Token]) -> tuple[bool, int | ast.Variable]:
        return True, 1

    def search_shortest(self, c: list[Token | None]) -> tuple[bool, int | ast.Variable]:
        count = c[0]
        if count is None:
            return False, 1
        if count.startswith("$"):
            return False, ast.Variable(count[1:], span_of(count))
        return False, read_integer(count, 1, _U32_MAX, "a number of paths")

    def path(self, c: list[object]) -> ast.Path:
        variable, equals, search, traversal, weight = c
        assert isinstance(variable, Token)
        assert isinstance(equals, Token)
        assert isinstance(traversal, ast.Traversal)
        if equals != "=":
            raise SyntaxFault("a path is bound with `=`", span_of(equals), f"write `path {variable} = …`")
        is_all, count = search if isinstance(search, tuple) else (False, 1)
        name = name_of(variable)
        by = name_of(weight) if isinstance(weight, Token) else None
        return ast.Path(name, is_all, count, by, traversal, name.span.to(traversal.span))

    def block(self, c: list[ast.Clause]) -> tuple[ast.Clause, ...]:
        for clause in c:
            if isinstance(clause, ast.Expression):
                check_depth(clause)
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

    def assign(self, c: list[object]) -> ast.Assign:
        name = c[0]
        assert isinstance(name, Token)
        return ast.Assign(name_of(name), check_depth(expression_of(c[1])))

    def insert(self, c: list[object]) -> ast.Insert:
        word, type_name = c[0], c[1]
        assert isinstance(word, Token)
        assert isinstance(type_name, Token)
        span = span_of(word).to(span_of(type_name))
        return ast.Insert(str(word), name_of(type_name), _only(c, ast.Assign), span)

    def update(self, c: list[object]) -> ast.Update:
        word, type_name, condition = c[0], c[1], check_depth(expression_of(c[-1]))
        assert isinstance(word, Token)
        assert isinstance(type_name, Token)
        span = span_of(word).to(span_of(type_name))
        return ast.Update(name_of(type_name), _only(c, ast.Assign), condition, span)

    def delete(self, c: list[object]) -> ast.Delete:
        word, type_name, condition = c[0], c[1], check_depth(expression_of(c[-1]))
        assert isinstance(word, Token)
        assert isinstance(type_name, Token)
        return ast.Delete(name_of(type_name), condition, span_of(word).to(span_of(type_name)))

    def update_matched(self, c: list[object]) -> ast.UpdateMatched:
        word, variable = c[0], c[1]
        assert isinstance(word, Token)
        assert isinstance(variable, Token)
        return ast.UpdateMatched(name_of(variable), _only(c, ast.Assign), span_of(word).to(span_of(variable)))

    def delete_matched(self, c: list[Token]) -> ast.DeleteMatched:
        return ast.DeleteMatched(name_of(c[1]), span_of(c[0]).to(span_of(c[1])))

    def pattern(self, c: list[tuple[ast.Clause, ...]]) -> ast.Pattern:
        return ast.Pattern(c[0], c[0][0].span)

    def plain_comparison(self, c: list[object]) -> ast.Comparison:
        name, operator, value = c[0], c[1], expression_of(c[2])
        assert isinstance(name, Token)
        assert isinstance(operator, Token)
        left = ast.Alias(str(name), span_of(name))
        return ast.Comparison(left, name_of(operator), value, left.span.to(value.span))

    def mutation(self, c: list[ast.Statement]) -> ast.Mutation:
        return ast.Mutation(tuple(c))


@dataclass(frozen=True, slots=True)
class _Stage:
    """A `with` and the clauses behind it; those of its own pattern stand before it."""

    read: ast.Read
    clauses: tuple[ast.Clause, ...]


class Builder(MutationBuilder):
    """Whole queries."""

    def projection(self, c: list[object]) -> ast.Projection:
        expression, _, alias = c
        is_variable = isinstance(alias, Token) and alias.startswith("$")
        name = name_of(alias) if isinstance(alias, Token) else None
        return ast.Projection(check_depth(expression_of(expression)), name, is_variable)

    def all_properties(self, c: list[Token]) -> ast.EntityProjection:
        variable = name_of(c[0])
        return ast.EntityProjection(variable, None, variable.span.to(span_of(c[1])))

    def some_properties(self, c: list[Token]) -> ast.EntityProjection:
        variable, *names = (name_of(token) for token in c)
        return ast.EntityProjection(variable, tuple(names), variable.span.to(names[-1].span))

    def ordering(self, c: list[object]) -> ast.Ordering:
        expression, direction = check_depth(expression_of(c[0])), c[1]
        if direction is None:
            return ast.Ordering(expression, None)
        assert isinstance(direction, Token)
        if isinstance(expression, ast.Call) and expression.function == "nearest":
            hint = "`nearest` always puts the closest first; leave the direction out"
            raise SyntaxFault(f"`nearest` takes no `{direction}`", span_of(direction), hint)
        return ast.Ordering(expression, name_of(direction))

    def order(self, c: list[ast.Ordering]) -> tuple[ast.Ordering, ...]:
        return tuple(c)

    def distinct(self, c: list[tuple[ast.Expression, ...] | None]) -> tuple[ast.Expression, ...]:
        return c[1] or ()

    def distinct_keys(self, c: list[object]) -> tuple[ast.Expression, ...]:
        return tuple(check_depth(expression_of(child)) for child in c)

    def having(self, c: list[object]) -> ast.Expression:
        return check_depth(expression_of(c[0]))

    def skip(self, c: list[Token]) -> ast.Bound:
        return self._bound(c[0], "skip")

    def limit(self, c: list[Token]) -> ast.Bound:
        return self._bound(c[0], "limit")

    def stage(self, c: list[object]) -> _Stage:
        *written, clauses = c
        result = self._result((), written)
        for item in result.projections:
            if isinstance(item, ast.EntityProjection):
                hint = f"write `${item.variable.text}`: its properties can be read behind the `with`"
                raise SyntaxFault("a `with` passes an entity on as a whole", item.span, hint)
            if item.alias is not None and not item.is_variable:
                hint = f"write `as ${item.alias.text}`"
                raise SyntaxFault("a `with` binds variables, which begin with `$`", item.alias.span, hint)
        return _Stage(result, clauses or ())  # type: ignore[arg-type]

    def part(self, c: list[object]) -> ast.Read:
        stages: list[ast.Read] = []
        clauses: tuple[ast.Clause, ...] = c[0]  # type: ignore[assignment]
        rest = c[1:]
        while isinstance(rest[0], _Stage):
            stages.append(replace(rest[0].read, clauses=clauses))
            clauses, rest = rest[0].clauses, rest[1:]
        read = self._result(clauses, rest)
        for item in read.projections:
            if isinstance(item, ast.Projection) and item.alias is not None and item.is_variable:
                hint = f"write `as {item.alias.text}`; a `with` binds variables"
                raise SyntaxFault("a column is named without `$`", item.alias.span, hint)
        return replace(read, stages=tuple(stages))

    def _result(self, clauses: tuple[ast.Clause, ...], c: list[object]) -> ast.Read:
        distinct, *projections, having, order, skip, limit = c
        distinct_on: tuple[ast.Expression, ...] = distinct or ()  # type: ignore[assignment]
        return ast.Read(
            clauses=clauses,
            distinct=distinct is not None and not distinct_on,
            distinct_on=distinct_on,
            projections=tuple(item for item in projections if isinstance(item, ast.Projection | ast.EntityProjection)),
            having=having,  # type: ignore[arg-type]
            order=order or (),  # type: ignore[arg-type]
            skip=skip,  # type: ignore[arg-type]
            limit=limit,  # type: ignore[arg-type]
        )

    def union(self, c: list[Token | None]) -> ast.Name:
        word, is_all = c
        assert word is not None
        return ast.Name("union all" if is_all is not None else "union", span_of(word))

    def read(self, c: list[object]) -> ast.Read | ast.Union:
        parts, words = _only(c, ast.Read), _only(c, ast.Name)
        last = parts[-1]
        if not words:
            return last
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
        assert isinstance(body, ast.Read | ast.Union | ast.Mutation)
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

    def unnamed(self, c: list[ast.Read | ast.Union | ast.Mutation]) -> ast.Query:
        return ast.Query(ast.Name(ast.UNNAMED, Span(0, 0)), (), None, None, c[0])

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
