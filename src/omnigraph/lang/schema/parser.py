"""Parses `.pg` sources to a syntax tree, and words their syntax errors: what was expected and what was probably meant.

Pure. The builder raises `SyntaxFault` for what the grammar accepts and the language does not.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final, TypeAlias

from lark import Token, Transformer, v_args

from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.diagnostic import Source, Span, did_you_mean, join_words
from omnigraph.lang.parsing import (
    SHOWN_TOKEN_MAX,
    Language,
    SyntaxFault,
    parse_source,
    quote_token,
    read_string,
    span_of,
    unclosed_bracket_hint,
)
from omnigraph.lang.schema.ast import Argument, Declaration, Item, PropertyDeclaration, TypeExpression, Word

CONSTRAINT_WORDS: Final = frozenset({"key", "unique", "index", "range", "check"})
_DIGITS_MAX: Final = 10

Words: TypeAlias = tuple[Word, ...]
Items: TypeAlias = tuple[Item, ...]
BodyMember: TypeAlias = PropertyDeclaration | Item
Body: TypeAlias = tuple[BodyMember, ...]


@v_args(inline=True)
class Builder(Transformer[Token, Any]):
    """Lark's parse-time transformer: a method per rule or alias of the grammar, no state between calls."""

    def start(self, *children: Any) -> tuple[Any, ...]:
        return children

    body = items = start

    def interface(self, _keyword: Token, name: Token, *members: BodyMember) -> Declaration:
        properties, constraints = _body(members)
        if constraints:
            raise SyntaxFault(
                f"an interface takes no `@{constraints[0].word}(…)` constraint",
                constraints[0].span,
                "write the property form (`name: String @key`), or move the constraint into the nodes",
            )
        return Declaration("interface", _word(name), properties)

    def node(
        self, _keyword: Token, name: Token, annotations: Items, implements: Words | None, *members: BodyMember
    ) -> Declaration:
        properties, constraints = _body(members)
        for item in annotations:
            _reject_constraint(item, "node")
        return Declaration("node", _word(name), properties, annotations, constraints, implements or ())

    def edge(
        self, _keyword: Token, name: Token, source: Token, target: Token, items: Items, members: Body | None
    ) -> Declaration:
        properties, constraints = _body(members or ())
        cardinality = items[0] if items and _is_cardinality(items[0]) else None
        annotations = items[1:] if cardinality else items
        for item in annotations:
            _reject_constraint(item, "edge")
        return Declaration(
            "edge",
            _word(name),
            properties,
            annotations,
            constraints,
            cardinality=cardinality,
            source=_word(source),
            target=_word(target),
        )

    def implements(self, _keyword: Token, *names: Token) -> Words:
        return tuple(map(_word, names))

    def property(self, name: Token, type_: TypeExpression) -> PropertyDeclaration:
        return PropertyDeclaration(_word(name), type_)

    def type(self, expression: TypeExpression, mark: Token | None) -> TypeExpression:
        return expression if mark is None else replace(expression, type=replace(expression.type, nullable=True))

    def base(self, token: Token) -> TypeExpression:
        return TypeExpression(PropertyType(Scalar(token)), span_of(token))

    def list(self, _opening: Token, token: Token, _closing: Token) -> TypeExpression:
        return TypeExpression(PropertyType(Scalar(token), is_list=True), span_of(token))

    def enum(self, keyword: Token, *tokens: Token) -> TypeExpression:
        type_ = PropertyType(Scalar.STRING, enum_values=tuple(sorted(set(map(str, tokens)))))
        return TypeExpression(type_, span_of(keyword, tokens[-1]), values=tuple(map(_word, tokens)))

    def vector(self, keyword: Token, size: Token) -> TypeExpression:
        # Past ten digits any number is refused by S3 alike, and Python itself refuses to read very long ones.
        digits = size.lstrip("0") or "0"
        dimension = int(digits) if len(digits) <= _DIGITS_MAX else 10**_DIGITS_MAX
        type_ = PropertyType(Scalar.VECTOR, dimension=dimension)
        return TypeExpression(type_, span_of(keyword, size), dimension=_word(size))

    def item(self, at: Token, word: Token, *rest: Any) -> Item:
        *arguments, closing = rest
        if closing is None:
            return Item(str(word), span_of(at, word))
        item = Item(str(word), span_of(at, closing), tuple(arguments))
        _check_arguments(item)
        return item

    def name(self, token: Token) -> Argument:
        return Argument("name", str(token), span_of(token))

    def end(self, at: Token, name: Token) -> Argument:
        return Argument("end", str(name), span_of(at, name))

    def value(self, *tokens: Token | None) -> Argument:
        sign, token = tokens if len(tokens) == 2 else (None, tokens[0])
        assert token is not None
        return _literal(token) if sign is None else Argument("number", f"-{token}", span_of(sign, token))

    def call(self, name: Token, closing: Token) -> Argument:
        return Argument("call", str(name), span_of(name, closing))

    def items_value(self, opening: Token, *rest: Any) -> Argument:
        *values, closing = rest
        items = tuple(item for item in values if item is not None)
        text = f"[{', '.join(item.text for item in items)}]"
        return Argument("list", text, span_of(opening, closing), items=items)

    def keyword(self, key: Token, token: Token) -> Argument:
        return Argument("keyword", _literal(token).text, span_of(key, token), key=str(key))

    def range(self, *children: Any) -> Argument:
        low, dots, high = (None, *children) if isinstance(children[0], Token) else children
        start = low.span.start if low else dots.start_pos
        end = high.span.end if high else dots.end_pos
        return Argument("range", "..", Span(start, end), low=low and low.text, high=high and high.text)

    def bound(self, sign: Token | None, number: Token) -> Word:
        return Word(f"{sign or ''}{number}", span_of(sign or number, number))


def _word(token: Token) -> Word:
    return Word(str(token), span_of(token))


def _literal(token: Token) -> Argument:
    if token.type == "STRING":
        return Argument("string", read_string(token), span_of(token))
    return Argument("number" if token.type in ("INT", "FLOAT") else "bool", str(token), span_of(token))


def _check_arguments(item: Item) -> None:
    for position, argument in enumerate(item.arguments):
        if item.word in CONSTRAINT_WORDS:
            if argument.kind == "keyword":
                raise SyntaxFault(f"`@{item.word}` takes no keyword arguments", argument.span)
        elif argument.kind == "end":
            raise SyntaxFault(
                f"`@{item.word}` is an annotation and takes no `@{argument.text}`",
                argument.span,
                "`@src` and `@dst` belong to `@key`, `@unique` and `@index` in the body of an edge",
            )
        elif argument.kind == "range" and item.word != "card":
            raise SyntaxFault(
                f"`@{item.word}` is an annotation and takes no range",
                argument.span,
                "ranges belong to `@range(property, low..high)` and `@card(min..max)`",
            )
        elif position > 0 and argument.kind != "keyword":
            raise SyntaxFault(
                f"`@{item.word}` takes one value; what follows must be `name=literal`",
                argument.span,
            )
        elif position == 0 and argument.kind == "keyword":
            raise SyntaxFault(f"`@{item.word}` needs a value before its first keyword argument", argument.span)


def _is_cardinality(item: Item) -> bool:
    if item.word != "card" or not item.arguments or item.arguments[0].kind != "range":
        return False
    bounds = item.arguments[0]
    if bounds.low is None or not bounds.low.isdecimal() or not (bounds.high or "0").isdecimal():
        raise SyntaxFault(
            "a cardinality is written `min..max` or `min..`, in integers",
            bounds.span,
            "write `@card(0..3)` for at most three, `@card(1..)` for at least one",
        )
    if len(item.arguments) > 1:
        raise SyntaxFault("`@card` takes one range and nothing else", item.arguments[1].span)
    return True


def _reject_constraint(item: Item, kind: str) -> None:
    if item.word in CONSTRAINT_WORDS and item.arguments:
        raise SyntaxFault(
            f"the constraint `@{item.word}(…)` stands outside the body",
            item.span,
            f"move it between the braces of the {kind}",
        )
    _reject_cardinality(item)


def _reject_cardinality(item: Item) -> None:
    if item.word == "card" and item.arguments and item.arguments[0].kind == "range":
        raise SyntaxFault(
            "`@card(…)` is out of place",
            item.span,
            "it stands once, right after the target type of an edge: `edge E: A -> B @card(0..1)`",
        )


def _body(members: Body) -> tuple[tuple[PropertyDeclaration, ...], Items]:
    properties: list[PropertyDeclaration] = []
    constraints: list[Item] = []
    is_after_property = False
    for member in members:
        if isinstance(member, PropertyDeclaration):
            properties.append(member)
            is_after_property = True
        elif member.word in CONSTRAINT_WORDS and member.arguments:
            constraints.append(member)
            is_after_property = False
        elif is_after_property:
            _reject_cardinality(member)
            properties[-1] = replace(properties[-1], annotations=(*properties[-1].annotations, member))
        else:
            raise SyntaxFault(
                f"the annotation `@{member.word}` has no property in front of it",
                member.span,
                "annotations follow the type of their property, before any constraint"
                if member.word not in CONSTRAINT_WORDS
                else f"as a constraint of the type it needs arguments: `@{member.word}(property)`",
            )
    return tuple(properties), tuple(constraints)


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
_TYPES: Final = (*Scalar, "enum")
_FOREIGN_TYPES: Final = {
    name: join_words([f"`{scalar}`" for scalar in Scalar if name in scalar.facts.other_names])
    for name in sorted({name for scalar in Scalar for name in scalar.facts.other_names})
} | dict.fromkeys(("list", "array"), "`[String]`, a base type in brackets")
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


def _explain(source: Source, offset: int, accepted: frozenset[str]) -> SyntaxFault:
    match = _TOKEN.match(source.text, offset)
    token = match[0] if match else ""
    subject = quote_token(token) if token else "the end of the source"
    message = f"expected {_describe_expected(accepted)}, found {subject}"
    return SyntaxFault(message, Span(offset, offset + len(token)), _hint(token, accepted, source))


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
