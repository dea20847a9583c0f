"""Names, literals and calls of the syntax tree, from the reductions of the grammar.

Pure and stateless; `build` goes on from here to conditions, patterns and whole queries.
"""

from __future__ import annotations

import re
from typing import Final

from lark import Token

from omnigraph.lang.query import ast
from omnigraph.lang.query.words import FUNCTIONS, listed, suggestion
from omnigraph.lang.source import Span
from omnigraph.lang.types import Scalar

I64_MAX: Final = 2**63 - 1
U64_MAX: Final = 2**64 - 1
# A number with more digits fits nothing, and Python itself refuses to read very long ones.
DIGITS_MAX: Final = 40
_ESCAPE: Final = re.compile(r"\\([\s\S])")
_ESCAPES: Final = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


class SyntaxRefusal(Exception):
    """A syntax error found while building; the parser turns it into a diagnostic."""

    def __init__(self, span: Span, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.span = span
        self.message = message
        self.hint = hint


def span_of(token: Token) -> Span:
    """Return the place of a token in its source."""
    assert token.start_pos is not None
    assert token.end_pos is not None
    return Span(token.start_pos, token.end_pos)


def name_of(token: Token) -> ast.Name:
    """Return the token as a name, variables without their `$`."""
    return ast.Name(token[1:] if token.startswith("$") else str(token), span_of(token))


def read_string(token: Token) -> str:
    """Return the text a string token stands for."""
    body = token[1:-1]
    if "\\" not in body:
        return str(body)

    def replace(match: re.Match[str]) -> str:
        found = _ESCAPES.get(match[1])
        if found is None:
            start = span_of(token).start + 1 + match.start()
            hint = 'only \\" \\\\ \\n \\r and \\t are escapes; write a backslash as \\\\'
            raise SyntaxRefusal(Span(start, start + 2), f"unsupported escape `{match[0]}` in a string", hint)
        return found

    return _ESCAPE.sub(replace, body)


def read_integer(token: Token, least: int, most: int, what: str) -> int:
    """Return the integer of a token, or refuse one outside its bounds."""
    value = int(token) if len(token) <= DIGITS_MAX else most + 1
    if not least <= value <= most:
        raise SyntaxRefusal(span_of(token), f"{what} must lie between {least} and {most}")
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
            raise SyntaxRefusal(span_of(c[0]), "this number is too large for a 64-bit float")
        return ast.Literal(value, Scalar.F64, span_of(c[0]))

    def integer(self, c: list[Token]) -> ast.Literal:
        value = read_integer(c[0], -I64_MAX - 1, U64_MAX, "an integer")
        return ast.Literal(value, Scalar.I64 if value <= I64_MAX else Scalar.U64, span_of(c[0]))

    def boolean(self, c: list[Token]) -> ast.Literal:
        return ast.Literal(c[0] == "true", Scalar.BOOL, span_of(c[0]))

    def list_literal(self, c: list[object]) -> ast.ListLiteral:
        first, last = c[0], c[-1]
        assert isinstance(first, Token)
        assert isinstance(last, Token)
        items = tuple(item for item in c if isinstance(item, ast.Literal | ast.ListLiteral))
        if len(items) != sum(item is not None for item in c) - 2:
            call = next(item for item in c if isinstance(item, ast.Call))
            raise SyntaxRefusal(call.span, f"a list holds literals only, not `{call.function}()`")
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
        if function not in FUNCTIONS:
            known = suggestion(function, FUNCTIONS, otherwise=f"the functions are {listed(sorted(FUNCTIONS))}")
            raise SyntaxRefusal(span_of(word), f"there is no function `{function}`", known)
        fewest, most = FUNCTIONS[function]
        if not fewest <= len(arguments) <= most:
            wanted = listed([str(count) for count in range(fewest, most + 1)])
            message = f"`{function}` takes {wanted} argument{'s' * (most != 1)}, not {len(arguments)}"
            raise SyntaxRefusal(span, message)
        return self._special(ast.Call(function, arguments, span))

    def call_star(self, c: list[Token]) -> ast.Call:
        span = span_of(c[0]).to(span_of(c[-1]))
        if c[0] != "count":
            raise SyntaxRefusal(span_of(c[1]), f"`*` is an argument of `count` only, not of `{c[0]}`")
        return ast.Call("count", (), span)

    def value_call(self, c: list[ast.Call | ast.Literal]) -> ast.Call | ast.Literal:
        value = c[0]
        if isinstance(value, ast.Call) and value.function != "now":
            hint = 'a value is a literal, a parameter, `now()`, `date("…")` or `datetime("…")`'
            raise SyntaxRefusal(value.span, f"`{value.function}()` is not a value", hint)
        return value

    def _special(self, call: ast.Call) -> ast.Call | ast.Literal:
        first = call.arguments[0] if call.arguments else None
        if call.function in ("date", "datetime"):
            if not isinstance(first, ast.Literal) or first.scalar is not Scalar.STRING:
                assert first is not None
                hint = f'write {call.function}("2024-01-31"), or declare a parameter of that type'
                raise SyntaxRefusal(first.span, f"`{call.function}` takes its text in double quotes", hint)
            scalar = Scalar.DATE if call.function == "date" else Scalar.DATETIME
            return ast.Literal(first.value, scalar, call.span)
        if call.function == "nearest" and not isinstance(first, ast.PropertyAccess):
            assert first is not None
            hint = "write nearest($x.vectors, …)"
            raise SyntaxRefusal(first.span, "the first argument of `nearest` is a property of a variable", hint)
        return call
