"""Parses `.gq` sources, and words their syntax errors: what was expected, what was found, and what was probably meant.

Pure.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Final

from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Source, Span, join_words
from omnigraph.lang.parsing import SHOWN_TOKEN_MAX, Language, SyntaxFault, fixed_terminals, parse_source, quote_token
from omnigraph.lang.query import ast
from omnigraph.lang.query.ast_builder import Builder
from omnigraph.lang.query.other_languages import hint_from_other_languages
from omnigraph.limits import QUERY_TOKENS_MAX

# Word, required terminals, further terminals: a state that accepts all the required ones is described by the word,
# which then covers the further ones too. Earlier groups win.
_VALUES: Final = {"INT", "FLOAT", "BOOL", "OPEN_BRACKET", "LPAR", "CASE", "EXISTS", "COUNT", "MINUS"}
_ARITHMETIC: Final = {"PLUS", "MINUS", "STAR", "SLASH", "PERCENT", "INDEX"}
_GROUPS: Final[tuple[tuple[str, set[str], set[str]], ...]] = (
    ("a clause", {"NOT", "OPTIONAL", "VAR", "NAME"}, {"STRING", "_PATH", "_UNWIND"} | _VALUES),
    ("an operator", {"COMPARE", "LESS", "MORE"},
        {"CONTAINS", "STARTS_WITH", "ENDS_WITH", "MATCHES", "IS", "IN", "NOT_IN"} | _ARITHMETIC),
    ("an expression", {"VAR", "NAME", "STRING"}, {"NOT"} | _VALUES),
    ("a literal", {"STRING", "INT", "FLOAT", "BOOL"}, {"NAME", "OPEN_BRACKET", "SIGNED_INT", "SIGNED_FLOAT"}),
    ("a statement", {"INSERT", "CREATE", "UPSERT", "UPDATE", "RENAME", "DELETE"}, set()),
)  # fmt: skip

_WORDS: Final = {
    "TYPE": "a type name",
    "VAR": "a variable",
    "NAME": "a name",
    "ASSIGNED": "a property name",
    "PROPERTY": "a property name",
    "META": "`@description`",
    "INT": "an integer",
    "SIGNED_INT": "an integer",
    "SIGNED_FLOAT": "a number",
    "INDEX": "`[`",
    "NOT_IN": "`not in`",
    "FLOAT": "a number",
    "STRING": "a string",
    "BOOL": "`true` or `false`",
    "COMPARE": "`=`",
    "$END": "the end of the source",
}

# Habits from other languages, by token.
_HABITS: Final = {
    "'": "strings take double quotes",
    "==": "equality is one `=`",
    "!": "write `!=` to compare, or `not { … }` around a pattern",
    "&": "write `and`, or simply put the filters one after the other",
    "|": "write `or` between conditions; `|` stands between edges or types: `$a knows|likes $b`, `$x: A|B`",
    ";": "leave it out: nothing ends in a semicolon",
    "#": "comments start with `//`",
    "-": "write a sign directly before its number",
    "+": "numbers take no `+`",
    "*": "only `count(*)` takes a star without operands",
    "`": "names take no quotes",
    "~": 'a regular expression is `matches`: `$a.name matches "x.*"`',
}

_TOKEN: Final = re.compile(
    r"[$@]?[A-Za-z_][A-Za-z0-9_]*|[0-9]+(?:\.[0-9]+)?[A-Za-z0-9_]*|\"[^\"\n]{0,40}\"?|[=!<>]=|\S"
)
_JOINED_WALK: Final = re.compile(r"\b(?:and|or|not)\s+\$\w+\s+([a-z_]\w*)\s+\$\w+\s*$")
_FILE_NAME: Final = re.compile(r"[^\s{}]+\.(?:gq|txt|pg)")
_KEYWORDS: Final = re.compile(r"^_?[A-Z_]+\.3: /(?:\(\?:)?([a-z_]+(?:\|[a-z_]+)*)", re.MULTILINE)
_LOOK_BACK: Final = 200


def parse_queries(source: Source) -> tuple[ast.Query, ...]:
    """Return the queries of a source in written order; raises `LanguageError` with one Q000."""
    queries: tuple[ast.Query, ...] = parse_source(source, LANGUAGE)
    for query in queries:
        _check_pattern_used(source, query)
    return queries


def _check_pattern_used(source: Source, query: ast.Query) -> None:
    """Reject a pattern that nothing follows, and what cannot be done for each of its rows."""
    statements = query.body.statements if isinstance(query.body, ast.Mutation) else ()
    pattern: ast.Pattern | None = None
    for index, statement in enumerate(statements):
        following = statements[index + 1] if index + 1 < len(statements) else None
        if isinstance(statement, ast.Pattern):
            pattern = statement
            if following is None or isinstance(following, ast.Pattern):
                # A bare body may go on, so its place is the end of the source.
                is_open, end = following is None and query.name.text == ast.UNNAMED, len(source.text)
                span = Span(end, end) if is_open else statement.span
                message = "expected `return` or a statement after the pattern"
                hint = "read it with `return { … }`, or write with `update $x set { … }`, `delete $x` or `insert`"
                raise LanguageError(diagnostics=(Diagnostic("Q000", message, source, span, hint),))
        elif pattern is not None and isinstance(statement, ast.Update | ast.Delete):
            verb = statement.verb if isinstance(statement, ast.Update) else "delete"
            message = f"`{verb} {statement.type.text}` cannot be done for each row of the `match` before it"
            hint = f"`{verb}` a variable of the pattern, or put this statement before the `match`"
            raise LanguageError(diagnostics=(Diagnostic("Q000", message, source, statement.span, hint),))


@cache
def read_keywords() -> tuple[str, ...]:
    """Return the keywords of the language, which are the terminals of the grammar that win over names.

    >>> [word for word in read_keywords() if word.startswith("m")]
    ['match', 'matches']
    """
    grammar = resources.files(LANGUAGE.package).joinpath("grammar.lark").read_text("utf-8")
    return tuple(word for words in _KEYWORDS.findall(grammar) for word in words.split("|"))


def is_unfinished(source: Source) -> bool:
    """Return True if a source breaks off in the middle of a query, so that more text may complete it.

    >>> [is_unfinished(Source("q.gq", text)) for text in ("match { $p: Port", "match }", "query q() {")]
    [True, False, True]
    """
    try:
        parse_queries(source)
    except LanguageError as error:
        return error.diagnostics[0].span.start >= len(source.text)
    return False


def _explain(source: Source, offset: int, accepted: frozenset[str]) -> SyntaxFault:
    text = source.text
    walk = _JOINED_WALK.search(text, max(0, offset - _LOOK_BACK), offset)
    if walk is not None:
        # The variable was read as a condition and the word as the next clause; a walk was meant.
        message = f"expected an operator or `.`, but found {quote_token(walk[1])}"
        hint = "`and`, `or` and `not` join conditions; a traversal is a clause of its own"
        return SyntaxFault(message, Span(*walk.span(1)), hint)
    before, before_offset = _token_before(text, offset)
    earlier, _ = _token_before(text, before_offset)
    if accepted == {"LPAR"} and earlier != "query":
        # A bare word was read as a function name, so the parser waits for its parenthesis; a value belongs there.
        offset, before, accepted = before_offset, earlier, frozenset({"VAR", "STRING", "INT", "FLOAT", "BOOL"})
    token = _token_at(text, offset)
    if token == ":" and before.isidentifier():
        # A bare word is read as the name of a column, behind which almost anything may follow.
        accepted = frozenset({"COMPARE", "LESS", "MORE", "LPAR"})
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
    # Another alternative may nearly always follow, and is rarely what was meant, and so are the groups of a limit;
    # system fields stand where names do, and so do edges in parentheses.
    left = set(accepted) - {"_BAR", "FIELD", "_PER"} or set(accepted)
    if "NAME" in left and (before.startswith("$") or before == ":"):
        left -= {"LPAR"}
    if left == {"NAME"}:
        special = {"query": "a query name", "as": "a column name", "|": "an edge", "(": "an edge"}
        return special.get(before, "a property name")
    words: list[str] = []
    for word, required, also in _GROUPS:
        if required <= left:
            words.append("a condition" if word == "an expression" and before in ("and", "or", "not") else word)
            left -= required | also
    # What could continue a complete expression goes without saying, unless nothing else can follow.
    left = left - _ARITHMETIC or left
    closing = sorted(left & {"CLOSE_BRACE", "CLOSE_PAREN", "CLOSE_BRACKET", "$END"})
    fixed = fixed_terminals(LANGUAGE)
    for name in [*sorted(left.difference(closing)), *closing]:
        words.append(_WORDS.get(name) or f"`{fixed.get(name, name.strip('_').lower())}`")
    unique = list(dict.fromkeys(words))
    return join_words(unique[:6]) if unique else "nothing more"


def _hint(token: str, before: str, accepted: frozenset[str], text: str, offset: int) -> str | None:
    foreign = hint_from_other_languages(token, before, text, offset, read_keywords(), accepted)
    if not before:
        if _FILE_NAME.fullmatch(text.strip()):
            return "this looks like a file name; pass the text of the file"
        if foreign:
            return foreign
        return "write `query name() { match { … } return { … } }`, or one body alone: `match { … } return { … }`"
    if token == "*" and "OPEN_BRACE" in accepted and "VAR" in accepted:
        return f"any number of hops is `{{1,}}`: `$a {before}{{1,}} $b`"
    if token == "set" and "UPDATE" in accepted:
        return "say which variable to change: `match { … } update $a set { … }`"
    habit = _habit_hint(token, before, text, offset) or _condition_hint(token, before, accepted, text, offset)
    clause = _stage_hint(token, accepted)
    if token == "where" and "INSERT" in accepted and "_RETURN" not in accepted:
        clause = "put the condition into the `match`"
    if habit or clause or foreign:
        return habit or clause or foreign
    if token == "null":
        return "there is no null value: test with `is null`, or leave the property out"
    if token == "," and "NOT" in accepted:
        return "clauses stand one after the other, without commas"
    if token[:1].isupper() and before.startswith("$") and "NAME" in accepted:
        return f"an edge is traversed with a lower-case first letter: `{token[0].lower()}{token[1:]}`"
    statement = _statement_hint(token, accepted, text, offset)
    if statement:
        return statement
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


def _condition_hint(token: str, before: str, accepted: frozenset[str], text: str, offset: int) -> str | None:
    """Return a hint for a Bool that is not written as a condition."""
    earlier, _ = _token_before(text, _token_before(text, offset)[1])
    if token in ("true", "false") and "is" in (before, earlier) and "NULL" in accepted:
        return f"compare a Bool with `= {token}`; alone it is a condition, and `not` before it the opposite"
    if token == "}" and before.startswith("$") and {"COLON", "COMPARE"} <= accepted:
        return f"a Bool alone goes in parentheses: `({before})`; a node is bound by its type: `{before}: Type`"
    if accepted == {"COLON"} and before.startswith("$") and earlier.startswith("$"):
        edge = f"an edge is bound with its name: `{earlier} {before}:edge $x`"
        return f"{edge}; a Bool alone goes in parentheses: `({earlier})`"
    if accepted == {"COLON"} and before.isidentifier() and token in ("}", ","):
        return f"a property is matched with a value: `{before}: true`"
    if token == "}" and before.isidentifier() and earlier.startswith("$") and "VAR" in accepted:
        return f"an edge leads to another variable: `{earlier} {before} $x`; a property is written `{earlier}.{before}`"
    return None


def _stage_hint(token: str, accepted: frozenset[str]) -> str | None:
    """Return a hint for what cannot follow a `with`."""
    if not {"_RETURN", "_HAVING"} <= accepted:
        return None
    if token == "where":
        return "put the condition into a `match { … }` behind the `with`, or filter groups with `having`"
    if token in ("insert", "create", "upsert", "update", "rename", "delete"):
        return "the pattern of a mutation has no stages: read with a query, and write what it returns"
    return None


def _statement_hint(token: str, accepted: frozenset[str], text: str, offset: int) -> str | None:
    if accepted == {"_WHERE"}:
        return "say which: `where …`, or `where true` for all"
    if accepted == {"_SET"}:
        return "write `update … set { property: value }`, or `rename …` for a key"
    if token == "into":
        return "write the type right after `insert`"
    if "ASSIGNED" in accepted and token.isidentifier() and re.match(r"\w+\s*=", text[offset : offset + _LOOK_BACK]):
        return f"a property is set with a colon: `{token}: …`"
    if {"INSERT", "UPDATE", "DELETE"} <= accepted and token.isidentifier():
        return "a statement is `insert`, `create`, `upsert`, `update`, `rename` or `delete`"
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


LANGUAGE: Final = Language(
    package="omnigraph.lang.query",
    code="Q000",
    builder=Builder(),
    explain=_explain,
    size_hint="split it into several files",
    tokens_max=QUERY_TOKENS_MAX,
)
