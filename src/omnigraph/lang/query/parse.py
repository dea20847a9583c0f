"""Parse `.gq` text into the syntax tree, or refuse it with one Q000 diagnostic.

Pure. Bounded: size and nesting are checked before the parser sees the text, and nothing recurses over it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from itertools import islice
from typing import Final

from lark import Lark, UnexpectedInput

from omnigraph.lang.diagnostic import Diagnostic, LanguageError
from omnigraph.lang.query import ast
from omnigraph.lang.query.build import Builder
from omnigraph.lang.query.constants import SyntaxRefusal
from omnigraph.lang.query.syntax import before_at, describe_expected, found_at, hint_for
from omnigraph.lang.source import Source, Span
from omnigraph.limits import QUERY_TOKENS_MAX, SOURCE_BYTES_MAX, SOURCE_NESTING_MAX

# What is never closed runs to the end, so that no text is scanned twice.
_BRACKETS: Final = re.compile(r'"[^"\\]*(?:\\[\s\S][^"\\]*)*"?|//[^\n]*|/\*(?:[\s\S]*?\*/|[\s\S]*)|[\[\](){}]')

_TOKENS: Final = re.compile(r'"[^"\\]*(?:\\[\s\S][^"\\]*)*"?|(?://[^\n]*|/\*(?:[\s\S]*?\*/|[\s\S]*))|\w+|[^\w\s]')


def parse_queries(source: Source) -> tuple[ast.Query, ...]:
    """Return the queries of a source in written order; raises LanguageError with one Q000."""
    _guard(source)
    try:
        queries: tuple[ast.Query, ...] = _parser().parse(source.text)  # type: ignore[assignment]
    except UnexpectedInput as error:
        raise _refused(source, _explain(source.text, error)) from None
    except SyntaxRefusal as error:
        raise _refused(source, error) from None
    return queries


@cache
def _parser() -> Lark:
    grammar = resources.files("omnigraph.lang.query").joinpath("grammar.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", transformer=Builder(), maybe_placeholders=True)


def _guard(source: Source) -> None:
    text = source.text
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        raise _refused(source, SyntaxRefusal(Span(error.start, error.end), "this is not a Unicode character")) from None
    if size > SOURCE_BYTES_MAX:
        message = f"the source has {size} bytes; at most {SOURCE_BYTES_MAX} are read"
        raise _refused(source, SyntaxRefusal(Span(0, 0), message, "split it into several files"))
    depth = 0
    for match in _BRACKETS.finditer(text):
        bracket = match[0]
        if bracket in ("(", "[", "{"):
            depth += 1
            if depth > SOURCE_NESTING_MAX:
                message = f"brackets are nested more than {SOURCE_NESTING_MAX} deep"
                raise _refused(source, SyntaxRefusal(Span(match.start(), match.end()), message))
        elif bracket in (")", "]", "}"):
            depth -= 1
    # A token has a character at least, so what is short need not be counted.
    if len(text) > QUERY_TOKENS_MAX and _count_tokens(text) > QUERY_TOKENS_MAX:
        message = f"the source has more than {QUERY_TOKENS_MAX} words and signs"
        hint = "split it, or pass long lists as parameters"
        raise _refused(source, SyntaxRefusal(Span(0, 0), message, hint))


def _count_tokens(text: str) -> int:
    """Return how many words and signs a text has, about as the parser counts them; stops beyond the bound."""
    return sum(1 for _ in islice(_TOKENS.finditer(text), QUERY_TOKENS_MAX + 1))


def _refused(source: Source, refusal: SyntaxRefusal) -> LanguageError:
    finding = Diagnostic("Q000", refusal.message, source, refusal.span, refusal.hint)
    return LanguageError(diagnostics=(finding,))


def _explain(text: str, error: UnexpectedInput) -> SyntaxRefusal:
    offset: int = getattr(error, "pos_in_stream", -1)
    token = getattr(error, "token", None)
    if offset < 0 or (token is not None and token.type == "$END"):
        offset = len(text)
    parser = getattr(error, "interactive_parser", None)
    accepts: set[str] = set(parser.accepts()) if parser is not None else set()
    before, before_offset = before_at(text, offset)
    earlier, _ = before_at(text, before_offset)
    if accepts == {"LPAR"} and earlier != "query":
        # A bare word stood where a value belongs; only the missing parenthesis told the parser so.
        offset, before, accepts = before_offset, earlier, {"VAR", "STRING", "INT", "FLOAT", "BOOL"}
    found = found_at(text, offset)
    if found[:1] == '"' and not (token and token.type == "STRING"):
        return SyntaxRefusal(Span(offset, offset + 1), "this string is never closed", 'end it with `"`')
    if text.startswith("/*", offset):
        return SyntaxRefusal(Span(offset, offset + 2), "this comment is never closed", "end it with `*/`")
    what = f"found {_quoted(found)}" if found else "the source ends here"
    message = f"expected {describe_expected(accepts, before)}, but {what}"
    hint = hint_for(found, before, accepts, text, offset)
    return SyntaxRefusal(Span(offset, offset + max(len(found), 1) if found else offset), message, hint)


def _quoted(found: str) -> str:
    # A control character or a backtick would spoil the message, so it is shown by its escape.
    return f"`{found}`" if found.isprintable() and "`" not in found else repr(found)
