"""Parses `.pg` sources, and words their syntax errors: what was expected, what was found, and what was probably meant.

Pure.
"""

from __future__ import annotations

import re
from typing import Final

from omnigraph.lang.diagnostic import Source, Span, did_you_mean, join_words
from omnigraph.lang.parsing import (
    SHOWN_TOKEN_MAX,
    Language,
    Stop,
    SyntaxFault,
    parse_source,
    quote_token,
    unclosed_bracket_hint,
)
from omnigraph.lang.schema.ast import Declaration
from omnigraph.lang.schema.ast_builder import Builder

_TOKEN: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_]*|[0-9]+(?:\.[0-9]+)?|->|\.\.|==|--|/\*|//|.", re.DOTALL)

# Terminals that the parser may accept and their description, in the order in which messages list them.
_WORDS: Final = (
    ({"NODE", "EDGE", "INTERFACE"}, "a declaration (`node`, `edge` or `interface`)"),
    ({"BASE", "ENUM", "VECTOR"}, "a type"),
    ({"TYPE_NAME"}, "a type name"),
    ({"PROPERTY"}, "a property name"),
    ({"ANNOTATION"}, "an annotation name"),
    ({"ENUM_VALUE"}, "an enum value"),
    ({"NAME"}, "an argument"),
    ({"DOTDOT"}, "`..`"),
    ({"IMPLEMENTS"}, "`implements`"),
    ({"COLON"}, "`:`"),
    ({"__ANON_0"}, "`->`"),
    ({"COMMA"}, "`,`"),
    ({"LBRACE"}, "`{`"),
    ({"RBRACE"}, "`}`"),
    ({"LPAR"}, "`(`"),
    ({"RPAR"}, "`)`"),
    ({"RSQB"}, "`]`"),
)
_TYPES: Final = (
    "String",
    "Blob",
    "Bool",
    "I32",
    "I64",
    "U32",
    "U64",
    "F32",
    "F64",
    "Date",
    "DateTime",
    "Vector",
    "enum",
)
_FOREIGN_TYPES: Final = {
    **dict.fromkeys(("int", "integer", "number", "i32"), "`I32` or `I64`"),
    **dict.fromkeys(("long", "bigint", "int64", "i64"), "`I64`"),
    **dict.fromkeys(("float", "double", "real", "f64"), "`F64`"),
    **dict.fromkeys(("str", "text", "varchar", "uuid"), "`String`"),
    "timestamp": "`DateTime`",
    **dict.fromkeys(("bytes", "binary"), "`Blob`"),
    **dict.fromkeys(("list", "array"), "`[String]`, a base type in brackets"),
}
# Types that the language lacks, and how to keep such values.
_MISSING_TYPES: Final = {
    **dict.fromkeys(
        ("decimal", "numeric", "money"),
        "there is no decimal type; keep exact amounts as `I64` in the smallest unit, or as `String`",
    ),
    "time": "there is no type for a time of day; keep it as `String`, or a full timestamp as `DateTime`",
    "json": "there is no type for JSON; keep it as `String`, or declare its fields as properties",
}
_FOREIGN_KEYWORDS: Final = {
    **dict.fromkeys(("type", "class", "entity", "vertex", "table", "struct"), "`node`"),
    **dict.fromkeys(("relation", "relationship", "link", "rel"), "`edge`"),
    **dict.fromkeys(("trait", "mixin", "abstract"), "`interface`"),
}


def parse_schema(source: Source) -> tuple[Declaration, ...]:
    """Return the declarations of a source in written order; raises `LanguageError` with one S1.

    >>> [declaration.name.text for declaration in parse_schema(Source("s.pg", "node A {} edge E: A -> A"))]
    ['A', 'E']
    """
    declarations: tuple[Declaration, ...] = parse_source(source, LANGUAGE)
    return declarations


def _explain(source: Source, stop: Stop) -> SyntaxFault:
    match = _TOKEN.match(source.text, stop.offset)
    token = match[0] if match else ""
    subject = quote_token(token) if token else "the end of the source"
    message = f"expected {_describe_expected(stop.accepted)}, found {subject}"
    return SyntaxFault(message, Span(stop.offset, stop.offset + len(token)), _hint(token, stop.accepted, source))


def _describe_expected(accepted: frozenset[str]) -> str:
    # An argument may also be a range, so `..` adds nothing where any argument fits.
    described = accepted - {"DOTDOT"} if "NAME" in accepted else accepted
    words = [word for terminals, word in _WORDS if terminals & described]
    if not words and "STRING" in accepted:
        words = ["a quoted string, a number, `true` or `false`"]
    elif "INT" in accepted and "NAME" not in accepted:
        words.insert(0, "a number")
    if not words:
        return "the end of the source"
    return join_words(words)


def _hint(token: str, accepted: frozenset[str], source: Source) -> str | None:
    if not token:
        return unclosed_bracket_hint(source)
    if token in "'`“”":
        return 'strings stand in double quotes: "…"'
    if token in ("#", "--"):
        return "a comment starts with `//` or stands between `/*` and `*/`"
    if token in ",;" and accepted & {"PROPERTY", "NODE"}:
        return f"members and declarations need no separator: remove the `{token}`"
    if "DOTDOT" in accepted and "INT" not in accepted and "STRING" not in accepted:
        return "a range is written `low..high`, `low..` or `..high`"
    if "BASE" in accepted:
        return _type_hint(token, accepted)
    if token == "?" and "RSQB" in accepted:
        return "the `?` goes behind the bracket: `[String]?`"
    if token == "@" and accepted == {"COMMA", "LBRACE"}:
        return "annotations of a node come before `implements`"
    if token[0].isalpha() or token[0] == "_":
        return _word_hint(token, accepted)
    return _symbol_hint(token, accepted)


def _type_hint(token: str, accepted: frozenset[str]) -> str | None:
    if "ENUM" not in accepted:
        return "a list holds a base type such as `[String]` or `[I64]`; no list, vector or enum"
    if token.lower() in _MISSING_TYPES:
        return _MISSING_TYPES[token.lower()]
    if token.lower() in _FOREIGN_TYPES:
        return f"use {_FOREIGN_TYPES[token.lower()]}"
    if not token[0].isalpha():
        return "a type is a word such as `String`, a list `[I64]`, `Vector(3)` or `enum(a, b)`"
    return did_you_mean(token, _TYPES) or f"the types are {', '.join(_TYPES)}"


def _word_hint(token: str, accepted: frozenset[str]) -> str | None:
    if "NODE" in accepted:
        if token.lower() in _FOREIGN_KEYWORDS:
            return f"use {_FOREIGN_KEYWORDS[token.lower()]}"
        return did_you_mean(token, ("node", "edge", "interface"))
    if "TYPE_NAME" in accepted:
        return f"type names start with an upper-case letter: `{token[0].upper()}{token[1:]}`"
    if "PROPERTY" in accepted and "RPAR" not in accepted and token[0].isupper():
        return f"property names start with a lower-case letter: `{token[0].lower()}{token[1:]}`"
    if "STRING" in accepted and token[0].isupper():
        return f'put it in quotes: "{token}"' if len(token) <= SHOWN_TOKEN_MAX else "put it in quotes"
    return None


def _symbol_hint(token: str, accepted: frozenset[str]) -> str | None:
    if token == ")" and "NAME" in accepted:
        return "write the name without parentheses when it has no arguments"
    if token == "-" and "STRING" in accepted:
        return "only the bounds of a `@range` may be negative"
    if token == "=" and "COLON" in accepted:
        return "a property is written `name: Type`"
    if token[0].isdigit() and accepted & {"TYPE_NAME", "PROPERTY"}:
        return "names start with a letter"
    if token == "(" and "PROPERTY" in accepted:
        return "only `Vector`, `enum` and `@` words take parentheses"
    return None


LANGUAGE: Final = Language(
    package="omnigraph.lang.schema",
    code="S1",
    builder=Builder(),
    explain=_explain,
    size_hint="a schema describes types, not data: load data from NDJSON",
)
