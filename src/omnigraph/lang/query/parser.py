"""Parses `.gq` sources, and words their syntax errors: what was expected, what was found, and what was probably meant.

Pure.
"""

from __future__ import annotations

import re
from typing import Final

from omnigraph.lang.diagnostic import Source, Span, join_words
from omnigraph.lang.parsing import SHOWN_TOKEN_MAX, Language, Stop, SyntaxFault, parse_source, quote_token
from omnigraph.lang.query import ast
from omnigraph.lang.query.ast_builder import Builder
from omnigraph.limits import QUERY_TOKENS_MAX

# Word, required terminals, further terminals: a state that accepts all the required ones is described by the word,
# which then covers the further ones too. Earlier groups win.
_GROUPS: Final[tuple[tuple[str, set[str], set[str]], ...]] = (
    ("a clause", {"NOT", "OPTIONAL", "VAR", "NAME"}, {"LPAR", "STRING", "INT", "FLOAT", "BOOL", "OPEN_BRACKET"}),
    ("an operator", {"COMPARE", "LESS", "MORE"}, {"CONTAINS", "STARTS_WITH", "IS", "IN"}),
    ("a condition", {"VAR", "NAME", "STRING", "LPAR"}, {"INT", "FLOAT", "BOOL", "OPEN_BRACKET"}),
    ("an expression", {"VAR", "NAME", "STRING"}, {"INT", "FLOAT", "BOOL", "OPEN_BRACKET"}),
    ("a literal", {"STRING", "INT", "FLOAT", "BOOL"}, {"NAME", "OPEN_BRACKET"}),
    ("a property name", {"NAME", "AS", "IS"}, {"ASC", "DESC", "AND", "OR", "IN", "NOT", "OPTIONAL", "CONTAINS"}
        | {"STARTS_WITH", "BOOL", "INSERT", "UPDATE", "DELETE"}),
    ("a statement", {"INSERT", "UPDATE", "DELETE"}, set()),
)  # fmt: skip

_WORDS: Final = {
    "TYPE": "a type name",
    "VAR": "a variable",
    "NAME": "a name",
    "META": "`@description`",
    "INT": "an integer",
    "FLOAT": "a number",
    "STRING": "a string",
    "BOOL": "`true` or `false`",
    "STAR": "`*`",
    "OPTIONAL_MARK": "`?`",
    "LESS": "`<`",
    "MORE": "`>`",
    "COMPARE": "`=`",
    "LPAR": "`(`",
    "CLOSE_PAREN": "`)`",
    "OPEN_BRACE": "`{`",
    "CLOSE_BRACE": "`}`",
    "OPEN_BRACKET": "`[`",
    "CLOSE_BRACKET": "`]`",
    "COLON": "`:`",
    "COMMA": "`,`",
    "DOT": "`.`",
    "$END": "the end of the source",
}

# Habits from other languages, by token.
_HABITS: Final = {
    "'": "strings take double quotes",
    "==": "equality is one `=`",
    "!": "write `!=` to compare, or `not { … }` around a pattern",
    "&": "write `and`, or simply put the filters one after the other",
    "|": "write `or`",
    ";": "leave it out: nothing ends in a semicolon",
    "#": "comments start with `//`",
    "-": "write a sign directly before its number; there is no arithmetic",
    "+": "numbers take no `+`; there is no arithmetic",
    "*": "only `count(*)` takes a star",
    "`": "names take no quotes",
}

_TOKEN: Final = re.compile(
    r"[$@]?[A-Za-z_][A-Za-z0-9_]*|[0-9]+(?:\.[0-9]+)?[A-Za-z0-9_]*|\"[^\"\n]{0,40}\"?|[=!<>]=|\S"
)
_FILE_NAME: Final = re.compile(r"[^\s{}]+\.(?:gq|txt|pg)")
_LOOK_BACK: Final = 200


def parse_queries(source: Source) -> tuple[ast.Query, ...]:
    """Return the queries of a source in written order; raises `LanguageError` with one Q000."""
    queries: tuple[ast.Query, ...] = parse_source(source, _LANGUAGE)
    return queries


def _explain(source: Source, stop: Stop) -> SyntaxFault:
    text, offset, accepted = source.text, stop.offset, stop.accepted
    before, before_offset = _token_before(text, offset)
    earlier, _ = _token_before(text, before_offset)
    if accepted == {"LPAR"} and earlier != "query":
        # A bare word was read as a function name, so the parser waits for its parenthesis; a value belongs there.
        offset, before, accepted = before_offset, earlier, frozenset({"VAR", "STRING", "INT", "FLOAT", "BOOL"})
    token = _token_at(text, offset)
    location = f"found {quote_token(token)}" if token else "the source ends here"
    message = f"expected {_describe_expected(accepted, before)}, but {location}"
    return SyntaxFault(message, Span(offset, offset + len(token)), _hint(token, before, accepted, text, offset))


def _token_at(text: str, offset: int) -> str:
    """Return the token at an offset, empty at the end of the source."""
    match = _TOKEN.match(text, offset)
    return match[0][:SHOWN_TOKEN_MAX] if match else text[offset : offset + 1]


def _token_before(text: str, offset: int) -> tuple[str, int]:
    """Return the token that ends before an offset, and where it starts."""
    start = max(0, offset - _LOOK_BACK)
    tokens = list(_TOKEN.finditer(text, start, offset))
    return (tokens[-1][0], tokens[-1].start()) if tokens else ("", offset)


def _describe_expected(accepted: frozenset[str], before: str) -> str:
    """Describe the accepted terminals; `before` is the token just read."""
    left = set(accepted)
    if left == {"NAME"}:
        special = {"query": "a query name", "as": "a column name"}
        return special.get(before, "a property name")
    words: list[str] = []
    for word, required, also in _GROUPS:
        if required <= left:
            words.append(word)
            left -= required | also
    closing = sorted(left & {"CLOSE_BRACE", "CLOSE_PAREN", "CLOSE_BRACKET", "$END"})
    for name in [*sorted(left.difference(closing)), *closing]:
        words.append(_WORDS.get(name) or f"`{name.strip('_').lower()}`")
    unique = list(dict.fromkeys(words))
    return join_words(unique[:6]) if unique else "nothing more"


def _hint(token: str, before: str, accepted: frozenset[str], text: str, offset: int) -> str | None:
    """Return a hint for a common mistake."""
    if not before:
        if _FILE_NAME.fullmatch(text.strip()):
            return "this looks like a file name; pass the text of the file"
        return "a source holds queries: `query name() { match { … } return { … } }`"
    if token in ("and", "or") and accepted & {"INSERT", "UPDATE", "DELETE"}:
        return "the `where` of a mutation takes one comparison; write a statement for each"
    habit = _habit_hint(token, before, text, offset)
    if habit:
        return habit
    if token == "null":
        return "there is no null value: test with `is null`, or leave the property out"
    if token == "," and "NOT" in accepted:
        return "clauses stand one after the other, without commas"
    if token[:1].isupper() and before.startswith("$") and "NAME" in accepted:
        return f"an edge is traversed with a lower-case first letter: `{token[0].lower()}{token[1:]}`"
    if token[:1].islower() and "TYPE" in accepted:
        return f"type names begin with an upper-case letter: `{token[0].upper()}{token[1:]}`"
    if token == ":" and "LPAR" in accepted:
        return f"variables begin with `$`: `${before}`"
    if token == "}" and accepted == {"NAME"} and before in ("{", ","):
        return "leave the braces out, or name a property"
    if token == "}" and before.isdigit() and "COMMA" in accepted:
        return f"a hop range has two bounds: `{{{before},{before}}}`"
    if token in ("order", "skip", "limit") and "CLOSE_BRACE" in accepted:
        return "the order is `order { … }`, then `skip`, then `limit`"
    if token.isidentifier() and accepted & {"VAR", "STRING"} and "NAME" not in accepted:
        return f"variables begin with `$`: `${token}`"
    return None


def _habit_hint(token: str, before: str, text: str, offset: int) -> str | None:
    if token == "." and (before.isdigit() or text[offset + 1 : offset + 2].isdigit()):
        return "a number with a point has digits on both sides of it"
    if token == "=" and before == "=" and text[offset - 1 : offset] == "=":
        return _HABITS["=="]
    if token[:1].isdigit() and re.match(r"[0-9.]+[eE]", text[offset : offset + 60]):
        return "numbers have no exponent: write all digits"
    if token[:1] == "$" and len(token) == 1:
        return "a variable is `$` and a lower-case name, with no gap"
    if token.startswith("$") and token[1:2].isupper():
        return f"variables begin with a lower-case letter: `${token[1].lower()}{token[2:]}`"
    return _HABITS.get(token) or (_HABITS.get(token[:1]) if token else None)


_LANGUAGE: Final = Language(
    package="omnigraph.lang.query",
    code="Q000",
    builder=Builder(),
    explain=_explain,
    size_hint="split it into several files",
    tokens_max=QUERY_TOKENS_MAX,
)
