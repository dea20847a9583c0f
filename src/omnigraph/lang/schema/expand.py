"""Expands every declared type to its full set of properties: declared, then inherited from interfaces.

Pure, and silent about mistakes: the rules look at the result and report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.lang.diagnostic import Source
from omnigraph.lang.schema.ast import Declaration, Kind, PropertyDeclaration, Word


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
    interfaces: dict[str, Owner] = {}
    for declaration in declarations:
        if declaration.kind == "interface":
            interfaces.setdefault(declaration.name.text, Owner(declaration, _direct_members(declaration)))
    owners = tuple(_expand(declaration, interfaces) for declaration in declarations)
    nodes: dict[str, Owner] = {}
    for owner in owners:
        if owner.declaration.kind == "node":
            nodes.setdefault(owner.declaration.name.text, owner)
    return Draft(source, owners, interfaces, nodes, legacy)


def _direct_members(declaration: Declaration) -> dict[str, Member]:
    members: dict[str, Member] = {}
    for property_ in declaration.properties:
        members.setdefault(property_.name.text, Member(property_))
    return members


def _expand(declaration: Declaration, interfaces: Mapping[str, Owner]) -> Owner:
    members = _direct_members(declaration)
    is_complete = True
    for word in declaration.implements:
        interface = interfaces.get(word.text)
        if interface is None:
            is_complete = False
            continue
        for name, member in interface.members.items():
            members.setdefault(name, Member(member.property, via=word))
    return Owner(declaration, members, is_complete)
