"""The front end that both languages share: bounds on the source, the Lark parser, tokens, and syntax errors.

Pure. A language supplies its grammar, the builder of its syntax tree, and the wording of its syntax errors.
"""

from __future__ import annotations

import pickle
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources
from itertools import islice
from typing import Any, Final

import lark
from lark import Lark, Token, Tree, UnexpectedInput
from lark.lexer import PatternStr

from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Source, Span
from omnigraph.lang.scalars import Family, Scalar
from omnigraph.limits import SOURCE_BYTES_MAX, SOURCE_NESTING_MAX

# An unclosed string or comment extends to the end of the source, so that these scans stay linear.
_OPAQUE: Final = r'"(?:[^"\\]|\\.)*+"?|//[^\n]*|/\*(?:.*?\*/|.*)'
_BRACKET: Final = re.compile(rf"{_OPAQUE}|([(\[{{])|([)\]}}])", re.DOTALL)
_TOKEN: Final = re.compile(rf"{_OPAQUE}|\w+|[^\w\s]", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
SHOWN_TOKEN_MAX: Final = 40


class SyntaxFault(Exception):
    """A syntax error at a span; `parse_source` turns it into a diagnostic."""

    def __init__(self, message: str, span: Span, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Language:
    """What the front end has to know of a language.

    `package` holds `grammar.lark`, and `builder` has a method for each of its rules. `explain` words a syntax error at
    an offset, where the parser would have accepted some terminals.
    """

    package: str
    code: str
    builder: Any
    explain: Callable[[Source, int, frozenset[str]], SyntaxFault]
    size_hint: str
    tokens_max: int | None = None


def parse_source(source: Source, language: Language) -> Any:
    """Return the syntax tree of a source; raises `LanguageError` with one diagnostic of the language's code."""
    return _parse(source, language, _parser)


def parse_tree(source: Source, language: Language) -> Tree[Token]:
    """Return the parse tree of a source with all its tokens, as tools need it; raises like `parse_source`."""
    tree: Tree[Token] = _parse(source, language, tree_parser)
    return tree


def _parse(source: Source, language: Language, make_parser: Callable[[Language], Lark]) -> Any:
    try:
        _check_bounds(source.text, language)
        try:
            return make_parser(language).parse(source.text)
        except UnexpectedInput as error:
            raise _explain(source, error, language) from None
    except SyntaxFault as fault:
        diagnostic = Diagnostic(language.code, fault.message, source, fault.span, fault.hint)
    raise LanguageError(diagnostics=(diagnostic,))


@cache
def _parser(language: Language) -> Lark:
    return _load_tables(language) or build_parser(language)


def build_parser(language: Language) -> Lark:
    """Return the parser that builds syntax trees, computed from the grammar."""
    grammar = _read_grammar(language)
    return Lark(grammar, parser="lalr", lexer="contextual", transformer=language.builder, maybe_placeholders=True)


def tables_key(language: Language) -> bytes:
    """Return what the tables of a grammar begin with: a digest of the grammar and of the Lark that computed them."""
    return sha256(f"{lark.__version__}\n{_read_grammar(language)}".encode()).digest()


def _load_tables(language: Language) -> Lark | None:
    """Return the parser from tables that `tools/grammar_tables.py` has computed; None if they are not of this grammar.

    Computing the tables of a large grammar takes a quarter of a second, longer than most queries.
    """
    file = resources.files(language.package).joinpath("grammar.tables")
    key = tables_key(language)
    stored = file.read_bytes() if file.is_file() else b""
    if not stored.startswith(key):
        return None
    tables = pickle.loads(zlib.decompress(stored[len(key) :]))
    return Lark._load_from_dict(**tables, transformer=language.builder)  # type: ignore[no-any-return, no-untyped-call]


@cache
def tree_parser(language: Language) -> Lark:
    """Return the parser that builds plain trees and keeps every token."""
    grammar = _read_grammar(language)
    return Lark(grammar, parser="lalr", lexer="contextual", keep_all_tokens=True, maybe_placeholders=False)


@cache
def fixed_terminals(language: Language) -> Mapping[str, str]:
    """Return the terminals that stand for one text, such as a bracket, with that text."""
    terminals = _parser(language).terminals
    return {item.name: item.pattern.value for item in terminals if isinstance(item.pattern, PatternStr)}


def accepted_terminals(text: str, language: Language) -> frozenset[str]:
    """Return the terminals that may follow a text; none if the text is not the beginning of a source."""
    parser = tree_parser(language).parse_interactive(text)
    try:
        parser.exhaust_lexer()
    except UnexpectedInput:
        return frozenset()
    return frozenset(parser.accepts())  # type: ignore[no-untyped-call]


def _read_grammar(language: Language) -> str:
    text = resources.files(language.package).joinpath("grammar.lark").read_text("utf-8")
    return text.replace("SCALARS", "|".join(scalar for scalar in Scalar if scalar.facts.family is not Family.VECTOR))


def _check_bounds(text: str, language: Language) -> None:
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        raise SyntaxFault("the source is not valid Unicode here", Span(error.start, error.end)) from None
    if size > SOURCE_BYTES_MAX:
        message = f"the source has {size:,} bytes; the limit is {SOURCE_BYTES_MAX:,}"
        raise SyntaxFault(message, Span(0, 0), language.size_hint)
    depth = 0
    for bracket, offset in _brackets(text):
        depth += 1 if bracket in "([{" else -1
        if depth > SOURCE_NESTING_MAX:
            message = f"brackets are nested more than {SOURCE_NESTING_MAX} deep"
            raise SyntaxFault(message, Span(offset, offset + 1))
    # A token has at least one character, so short sources need no count.
    tokens_max = language.tokens_max
    if tokens_max is not None and len(text) > tokens_max and _has_more_tokens(text, tokens_max):
        hint = "split it, or pass long lists as parameters"
        raise SyntaxFault(f"the source has more than {tokens_max} tokens", Span(0, 0), hint)


def _brackets(text: str) -> Iterator[tuple[str, int]]:
    """Yield each bracket outside strings and comments, with its offset."""
    for match in _BRACKET.finditer(text):
        if match.lastindex:
            yield match[0], match.start()


def _has_more_tokens(text: str, count: int) -> bool:
    return next(islice(_TOKEN.finditer(text), count, None), None) is not None


def _explain(source: Source, error: UnexpectedInput, language: Language) -> SyntaxFault:
    text = source.text
    token: Token | None = getattr(error, "token", None)
    position: int | None = getattr(error, "pos_in_stream", None)
    # Lark reports the end of the last token when the source runs out; readers look at the end of the source.
    is_at_end = position is None or position < 0 or (token is not None and token.type == "$END")
    offset = len(text) if is_at_end or position is None else min(position, len(text))
    # A string that is closed is a token; an unclosed one is a quote that starts no token.
    if text.startswith('"', offset) and not (token is not None and token.type == "STRING"):
        return SyntaxFault("this string is never closed", Span(offset, offset + 1), 'end it with `"`')
    if text.startswith("/*", offset):
        return SyntaxFault("this comment is never closed", Span(offset, offset + 2), "end it with `*/`")
    # The table of a LALR state lists more terminals than the whole stack accepts, so the stack is simulated.
    parser = getattr(error, "interactive_parser", None)
    accepted = frozenset(parser.accepts()) if parser is not None else frozenset()
    return language.explain(source, offset, accepted)


def quote_token(token: str) -> str:
    """Return a token as a message shows it: in backticks, or escaped if it has a control character or a backtick."""
    if not token.isprintable() or "`" in token:
        return repr(token)
    return f"`{token if len(token) <= SHOWN_TOKEN_MAX else token[:SHOWN_TOKEN_MAX] + '…'}`"


def unclosed_bracket_hint(source: Source) -> str | None:
    """Return a hint that points to the innermost bracket that is still open at the end of a source."""
    open_brackets: list[tuple[str, int]] = []
    for bracket, offset in _brackets(source.text):
        if bracket in "([{":
            open_brackets.append((bracket, offset))
        elif open_brackets:
            open_brackets.pop()
    if not open_brackets:
        return None
    bracket, offset = open_brackets[-1]
    position = source.position(offset)
    return f"the `{bracket}` at line {position.line}, column {position.column} is never closed"


def span_of(token: Token, last: Token | None = None) -> Span:
    """Return the span of a token, or from it to the end of a later one."""
    end = (last or token).end_pos
    assert token.start_pos is not None
    assert end is not None
    return Span(token.start_pos, end)


def read_string(token: Token) -> str:
    """Return the value of a string token, without its quotes and escapes."""
    body = token[1:-1]
    if "\\" not in body:
        return str(body)

    def unescape(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            start = span_of(token).start + 1 + match.start()
            message = f"unsupported escape `{match[0]}` in a string"
            hint = 'the escapes are \\" \\\\ \\n \\r and \\t; write `\\\\` for a backslash'
            raise SyntaxFault(message, Span(start, start + 2), hint)
        return _ESCAPES[match[1]]

    return _ESCAPE.sub(unescape, body)
