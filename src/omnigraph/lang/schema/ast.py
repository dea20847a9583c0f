"""The syntax tree of a `.pg` source: what was written, and where, and each type with its inherited properties.

Pure values, silent about mistakes: nothing here has been checked beyond the grammar.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final, Literal

from omnigraph.lang.catalog import PropertyType
from omnigraph.lang.diagnostic import Source, Span

Kind = Literal["interface", "node", "edge"]
KINDS: Final[tuple[Kind, ...]] = ("interface", "node", "edge")
ArgumentKind = Literal["name", "end", "string", "number", "bool", "range", "keyword", "call", "list"]


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class TypeExpression:
    """A written type; `dimension` and `values` keep the words that the checks point at."""

    type: PropertyType
    span: Span
    dimension: Word | None = None
    values: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an `@item`. `low` and `high` are set on ranges, `key` on keywords, `items` on lists.

    An `end` is `@src` or `@dst`, without its `@`.
    """

    kind: ArgumentKind
    text: str
    span: Span
    low: str | None = None
    high: str | None = None
    key: str | None = None
    items: tuple[Argument, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """An `@word` with or without arguments: an annotation, a constraint or a cardinality, by its place and word."""

    word: str
    span: Span
    arguments: tuple[Argument, ...] = ()

    @property
    def value(self) -> str | None:
        """The first positional argument as text, if there is one."""
        if not self.arguments or self.arguments[0].kind == "keyword":
            return None
        return self.arguments[0].text

    @property
    def keywords(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if argument.kind == "keyword")


class _Annotated:
    __slots__ = ()
    annotations: tuple[Item, ...]

    def annotated(self, word: str) -> tuple[Item, ...]:
        """Return the annotations with this word, in source order."""
        return tuple(item for item in self.annotations if item.word == word)

    def text_of(self, word: str) -> str | None:
        """Return the value of the first annotation with this word."""
        return next((item.value for item in self.annotations if item.word == word), None)


@dataclass(frozen=True, slots=True)
class PropertyDeclaration(_Annotated):
    name: Word
    type: TypeExpression
    annotations: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class Declaration(_Annotated):
    """A declared type. The fields that its kind does not use are empty."""

    kind: Kind
    name: Word
    properties: tuple[PropertyDeclaration, ...]
    annotations: tuple[Item, ...] = ()
    constraints: tuple[Item, ...] = ()
    implements: tuple[Word, ...] = ()
    cardinality: Item | None = None
    source: Word | None = None
    target: Word | None = None


COUNT_MAX: Final = 2**32 - 1
_COUNT_DIGITS_MAX: Final = 10
_EXACT_MAX: Final = 2**53


def parse_bound(text: str) -> int | float | None:
    """Return the bound as an int where that is exact, else as a float; None when it is not a finite float.

    >>> parse_bound("-1.0"), parse_bound("0.5"), parse_bound("9" * 400)
    (-1, 0.5, None)
    """
    value = float(text)
    if not isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) <= _EXACT_MAX else value


def parse_count(digits: str) -> int | None:
    """Return a cardinality bound, or None when it does not fit 32 bits.

    >>> parse_count("007"), parse_count("4294967296"), parse_count("0" * 9_999)
    (7, None, 0)
    """
    # Python refuses to read very long numbers, so leading zeros go first and length decides next.
    significant = digits.lstrip("0") or "0"
    if len(significant) > _COUNT_DIGITS_MAX or int(significant) > COUNT_MAX:
        return None
    return int(significant)


@dataclass(frozen=True, slots=True)
class Member:
    """A property of a type, and the interface word that brought it in, if one did."""

    property: PropertyDeclaration
    via: Word | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """A declaration with all its members; `is_complete` is false when an interface of it is unknown."""

    declaration: Declaration
    members: Mapping[str, Member]
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class AnnotationPosition:
    """The position of an annotation: on a property, or without one on the type itself."""

    kind: Kind
    type_name: str
    property_name: str | None
    word: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A parsed schema, expanded and ready to be checked. A name declared twice means its first declaration.

    `legacy` are the unknown annotations of the accepted schema, which may stay where they are.
    """

    source: Source
    owners: tuple[Owner, ...]
    interfaces: Mapping[str, Owner]
    nodes: Mapping[str, Owner]
    legacy: frozenset[AnnotationPosition] = frozenset()


def expand_interfaces(
    source: Source, declarations: tuple[Declaration, ...], legacy: frozenset[AnnotationPosition] = frozenset()
) -> Draft:
    """Return the draft of a schema, owners in source order."""
    interfaces = _first_by_name(_expand(item, {}) for item in declarations if item.kind == "interface")
    owners = tuple(_expand(declaration, interfaces) for declaration in declarations)
    nodes = _first_by_name(owner for owner in owners if owner.declaration.kind == "node")
    return Draft(source, owners, interfaces, nodes, legacy)


def _first_by_name(owners: Iterable[Owner]) -> dict[str, Owner]:
    named: dict[str, Owner] = {}
    for owner in owners:
        named.setdefault(owner.declaration.name.text, owner)
    return named


def _expand(declaration: Declaration, interfaces: Mapping[str, Owner]) -> Owner:
    members: dict[str, Member] = {}
    for property_ in declaration.properties:
        members.setdefault(property_.name.text, Member(property_))
    known = [word for word in declaration.implements if word.text in interfaces]
    for word in known:
        for name, member in interfaces[word.text].members.items():
            members.setdefault(name, Member(member.property, via=word))
    return Owner(declaration, members, is_complete=len(known) == len(declaration.implements))
