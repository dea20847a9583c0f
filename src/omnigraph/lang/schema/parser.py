"""Turns `.pg` text into declarations, or into one S1 diagnostic.

Pure. Bounds are checked before the grammar sees the text.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any, Final

from lark import Lark, UnexpectedInput

from omnigraph.lang.diagnostic import Diagnostic, LanguageError
from omnigraph.lang.schema.ast import Declaration
from omnigraph.lang.schema.ast_builder import Builder, SyntaxFault
from omnigraph.lang.schema.suggestions import did_you_mean
from omnigraph.lang.source import Source, Span
from omnigraph.limits import SOURCE_BYTES_MAX, SOURCE_NESTING_MAX

_FOUND: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_]*|[0-9]+(?:\.[0-9]+)?|->|\.\.|==|--|/\*|//|.", re.DOTALL)
# An unclosed string or comment swallows the rest, so that a scan for brackets stays linear.
BRACKET: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|//[^\n]*|/\*(?:.*?\*/|.*)|([(\[{])|([)\]}])', re.DOTALL)
_SHOWN_MAX: Final = 40

# What the parser may wait for, in the order in which it is said; the first word of a group speaks for the group.
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
# What the language has no type for, and how such values are kept.
_MISSING_TYPES: Final = {
    **dict.fromkeys(
        ("decimal", "numeric", "money"),
        "there is no decimal type; keep exact amounts as `I64` in the smallest unit, or as `String`",
    ),
    "time": "there is no type for a time of day; keep it as `String`, or a whole moment as `DateTime`",
    "json": "there is no type for JSON; keep it as `String`, or declare its members as properties",
}
_FOREIGN_KEYWORDS: Final = {
    **dict.fromkeys(("type", "class", "entity", "vertex", "table", "struct"), "`node`"),
    **dict.fromkeys(("relation", "relationship", "link", "rel"), "`edge`"),
    **dict.fromkeys(("trait", "mixin", "abstract"), "`interface`"),
}


def explain_unexpected(error: UnexpectedInput, source: Source) -> SyntaxFault:
    """Return the fault for a refused text, at the token that the parser could not take."""
    text = source.text
    # Lark points to the end of the last token when the text runs out; people look at the end of the text.
    position: int | None = getattr(error, "pos_in_stream", None)
    start = len(text) if position is None or _is_at_end(error) else min(position, len(text))
    match = _FOUND.match(text, start)
    found = match[0] if match else ""
    accepted = _accepted(error)
    span = Span(start, start + len(found)) if found else Span(len(text), len(text))
    if found in ('"', "/*"):
        what = "string" if found == '"' else "comment"
        if found == "/*" or "STRING" in accepted:
            return SyntaxFault(f"this {what} is never closed", span)
    message = f"expected {_expected(accepted)}, found {_shown(found)}"
    return SyntaxFault(message, span, _hint(found, accepted, source))


def _is_at_end(error: UnexpectedInput) -> bool:
    token = getattr(error, "token", None)
    return token is not None and token.type == "$END"


def _accepted(error: UnexpectedInput) -> frozenset[str]:
    # The table of a LALR state lists more than the whole stack would take, so the stack itself is asked.
    parser = getattr(error, "interactive_parser", None)
    return frozenset(parser.accepts()) if parser is not None else frozenset()


def _expected(accepted: frozenset[str]) -> str:
    # An argument may also be a range, so `..` adds nothing where any argument fits.
    said = accepted - {"DOTDOT"} if "NAME" in accepted else accepted
    words = [word for terminals, word in _WORDS if terminals & said]
    if not words and "STRING" in accepted:
        words = ["a quoted string, a number, `true` or `false`"]
    elif "INT" in accepted and "NAME" not in accepted:
        words.insert(0, "a number")
    if not words:
        return "the end of the source"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _shown(found: str) -> str:
    if not found:
        return "the end of the source"
    if not found.isprintable():
        return f"the character U+{ord(found[0]):04X}"
    return f"`{found if len(found) <= _SHOWN_MAX else found[:_SHOWN_MAX] + '…'}`"


def _hint(found: str, accepted: frozenset[str], source: Source) -> str | None:
    if not found:
        return _unclosed(source)
    if found in "'`“”":
        return 'strings stand in double quotes: "…"'
    if found in ("#", "--"):
        return "a comment starts with `//` or stands between `/*` and `*/`"
    if found in ",;" and accepted & {"PROPERTY", "NODE"}:
        return f"members and declarations need no separator: remove the `{found}`"
    if "DOTDOT" in accepted and "INT" not in accepted and "STRING" not in accepted:
        return "a range is written `low..high`, `low..` or `..high`"
    if "BASE" in accepted:
        return _type_hint(found, accepted)
    if found == "?" and "RSQB" in accepted:
        return "the `?` goes behind the bracket: `[String]?`"
    if found == "@" and accepted == {"COMMA", "LBRACE"}:
        return "annotations of a node come before `implements`"
    if found[0].isalpha() or found[0] == "_":
        return _word_hint(found, accepted)
    return _symbol_hint(found, accepted)


def _type_hint(found: str, accepted: frozenset[str]) -> str | None:
    if "ENUM" not in accepted:
        return "a list holds a base type such as `[String]` or `[I64]`; no list, vector or enum"
    if found.lower() in _MISSING_TYPES:
        return _MISSING_TYPES[found.lower()]
    if found.lower() in _FOREIGN_TYPES:
        return f"use {_FOREIGN_TYPES[found.lower()]}"
    if not found[0].isalpha():
        return "a type is a word such as `String`, a list `[I64]`, `Vector(3)` or `enum(a, b)`"
    return did_you_mean(found, _TYPES) or f"the types are {', '.join(_TYPES)}"


def _word_hint(found: str, accepted: frozenset[str]) -> str | None:
    if "NODE" in accepted:
        if found.lower() in _FOREIGN_KEYWORDS:
            return f"use {_FOREIGN_KEYWORDS[found.lower()]}"
        return did_you_mean(found, ("node", "edge", "interface"))
    if "TYPE_NAME" in accepted:
        return f"type names start with an upper-case letter: `{found[0].upper()}{found[1:]}`"
    if "PROPERTY" in accepted and "RPAR" not in accepted and found[0].isupper():
        return f"property names start with a lower-case letter: `{found[0].lower()}{found[1:]}`"
    if "STRING" in accepted and found[0].isupper():
        return f'put it in quotes: "{found}"' if len(found) <= _SHOWN_MAX else "put it in quotes"
    return None


def _symbol_hint(found: str, accepted: frozenset[str]) -> str | None:
    if found == ")" and "NAME" in accepted:
        return "write the name without parentheses when it has no arguments"
    if found == "-" and "STRING" in accepted:
        return "only the bounds of a `@range` may be negative"
    if found == "=" and "COLON" in accepted:
        return "a property is written `name: Type`"
    if found[0].isdigit() and accepted & {"TYPE_NAME", "PROPERTY"}:
        return "names start with a letter"
    if found == "(" and "PROPERTY" in accepted:
        return "only `Vector`, `enum` and `@` words take parentheses"
    return None


def _unclosed(source: Source) -> str | None:
    opened: list[re.Match[str]] = []
    for match in BRACKET.finditer(source.text):
        if match[1]:
            opened.append(match)
        elif match[2] and opened:
            opened.pop()
    if not opened:
        return None
    place = source.position(opened[-1].start())
    return f"the `{opened[-1][0]}` at line {place.line}, column {place.column} is never closed"


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
