"""Turns `.pg` text into declarations, or into one S1 diagnostic.

Pure. Bounds are checked before the grammar sees the text.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from lark import Lark, UnexpectedInput

from omnigraph.lang.diagnostic import Diagnostic, LanguageError
from omnigraph.lang.schema.builder import Builder, SyntaxFault
from omnigraph.lang.schema.explain import BRACKET, explain_unexpected
from omnigraph.lang.schema.syntax import Declaration
from omnigraph.lang.source import Source, Span
from omnigraph.limits import SOURCE_BYTES_MAX, SOURCE_NESTING_MAX


def parse_schema(source: Source) -> tuple[Declaration, ...]:
    """Return the declarations of a source in the order written; raises `LanguageError` with one S1.

    >>> [declaration.name.text for declaration in parse_schema(Source("s.pg", "node A {} edge E: A -> A"))]
    ['A', 'E']
    """
    try:
        _check_bounds(source.text)
        try:
            return _lark().parse(source.text)  # type: ignore[return-value]
        except UnexpectedInput as error:
            raise explain_unexpected(error, source) from None
    except SyntaxFault as fault:
        diagnostic = Diagnostic("S1", fault.message, source, fault.span, fault.hint)
    raise LanguageError(diagnostics=(diagnostic,))


@cache
def _lark() -> Lark:
    grammar = files("omnigraph.lang.schema").joinpath("grammar.lark").read_text(encoding="utf-8")
    builder: Any = Builder()
    return Lark(grammar, parser="lalr", lexer="contextual", transformer=builder, maybe_placeholders=True)


def _check_bounds(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise SyntaxFault("the source is not valid Unicode here", Span(error.start, error.end)) from None
    if size > SOURCE_BYTES_MAX:
        raise SyntaxFault(
            f"the source has {size:,} bytes; at most {SOURCE_BYTES_MAX:,} are read",
            Span(0, 0),
            "a schema describes types, not data: load data from NDJSON",
        )
    depth = 0
    for match in BRACKET.finditer(text):
        if match[1]:
            depth += 1
            if depth > SOURCE_NESTING_MAX:
                raise SyntaxFault(f"brackets are nested more than {SOURCE_NESTING_MAX} deep", Span(*match.span()))
        elif match[2]:
            depth -= 1
