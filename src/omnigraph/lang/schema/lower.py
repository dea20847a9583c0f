"""Lowers a checked draft to its canonical shape, and records the source position of every part.

Pure. Runs only on drafts without errors, so it asks no questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from omnigraph.lang.catalog import Cardinality, Default, Embed, MergeRule
from omnigraph.lang.diagnostic import Span
from omnigraph.lang.schema import ast
from omnigraph.lang.schema.checks.annotations import KNOWN_ANNOTATIONS, read_default
from omnigraph.lang.schema.shape import (
    MARKS,
    ConstraintKind,
    ConstraintShape,
    EdgeShape,
    InterfaceShape,
    NodeShape,
    OpaqueAnnotation,
    PropertyShape,
    SchemaShape,
    TypeShape,
)


@dataclass(frozen=True, slots=True)
class PropertyOrigin:
    """`span` is the name, `type_span` the type; `hint` is the old name a `@rename_from` gives."""

    span: Span
    type_span: Span
    hint: ast.Word | None = None
    is_injected: bool = False


@dataclass(frozen=True, slots=True)
class TypeOrigin:
    """`constraints` maps the text of a body constraint to its place."""

    span: Span
    properties: Mapping[str, PropertyOrigin]
    constraints: Mapping[str, Span]
    hint: ast.Word | None = None


Origins = Mapping[tuple[ast.Kind, str], TypeOrigin]


def lower_draft(draft: ast.Draft) -> tuple[SchemaShape, Origins]:
    """Return the canonical shape of a draft and the source position of each part."""
    shapes = sorted((_lower_owner(owner) for owner in draft.owners), key=lambda shape: shape.name)
    schema = SchemaShape(
        tuple(shape for shape in shapes if isinstance(shape, InterfaceShape)),
        tuple(shape for shape in shapes if isinstance(shape, NodeShape)),
        tuple(shape for shape in shapes if isinstance(shape, EdgeShape)),
    )
    origins = {(owner.declaration.kind, owner.declaration.name.text): _origin(owner) for owner in draft.owners}
    return schema, origins


def _lower_owner(owner: ast.Owner) -> TypeShape:
    declaration = owner.declaration
    name = declaration.name.text
    properties = tuple(_lower_property(owner.members[key]) for key in sorted(owner.members))
    if declaration.kind == "interface":
        return InterfaceShape(name, properties)
    constraints = {_lower_constraint(item) for item in declaration.constraints}
    members: dict[str, Any] = {
        "name": name,
        "properties": properties,
        "constraints": tuple(sorted(constraints, key=lambda constraint: constraint.sort_key)),
        "description": declaration.text_of("description"),
        "instruction": declaration.text_of("instruction"),
        "annotations": _opaque(declaration.annotations),
        "merge": _merge(declaration),
    }
    if declaration.kind == "node":
        return NodeShape(**members, implements=tuple(sorted({word.text for word in declaration.implements})))
    assert declaration.source is not None
    assert declaration.target is not None
    cardinality = _lower_cardinality(declaration.cardinality)
    return EdgeShape(**members, source=declaration.source.text, target=declaration.target.text, cardinality=cardinality)


def _lower_property(member: ast.Member) -> PropertyShape:
    declared = member.property
    embeds = declared.annotated("embed")
    embed = None
    if embeds:
        model = next((keyword.text for keyword in embeds[0].keywords), None)
        embed = Embed(embeds[0].value or "", model)
    return PropertyShape(
        name=declared.name.text,
        type=declared.type.type,
        marks=tuple(mark for mark in MARKS if declared.annotated(mark)),
        embed=embed,
        description=declared.text_of("description"),
        annotations=_opaque(declared.annotations),
        is_injected=member.via is not None,
        merge=_merge(declared),
        default=_default(declared),
    )


def _lower_constraint(item: ast.Item) -> ConstraintShape:
    columns = tuple(sorted({argument.text for argument in item.arguments if argument.kind in ("name", "end")}))
    kind, last = cast(ConstraintKind, item.word), item.arguments[-1]
    if kind == "range":
        low, high = (None if text is None else ast.parse_bound(text) for text in (last.low, last.high))
        return ConstraintShape(kind, columns, minimum=low, maximum=high)
    return ConstraintShape(kind, columns, pattern=last.text if kind == "check" else None)


def _lower_cardinality(item: ast.Item | None) -> Cardinality:
    if item is None:
        return Cardinality()
    low, high = item.arguments[0].low, item.arguments[0].high
    return Cardinality(ast.parse_count(low or "0") or 0, None if high is None else ast.parse_count(high))


def _merge(declared: ast.Declaration | ast.PropertyDeclaration) -> MergeRule | None:
    word = declared.text_of("merge")
    return MergeRule(word) if word is not None else None


def _default(declared: ast.PropertyDeclaration) -> Default | None:
    items = declared.annotated("default")
    return read_default(items[0].arguments[0], declared.type.type) if items else None


def _opaque(items: tuple[ast.Item, ...]) -> tuple[OpaqueAnnotation, ...]:
    return tuple(
        sorted(
            {
                OpaqueAnnotation(item.word, item.value, tuple(sorted((k.key or "", k.text) for k in item.keywords)))
                for item in items
                if item.word not in KNOWN_ANNOTATIONS
            },
            key=repr,
        )
    )


def _hint(declared: ast.Declaration | ast.PropertyDeclaration) -> ast.Word | None:
    items = declared.annotated("rename_from")
    return ast.Word(items[0].value or "", items[0].span) if items else None


def _origin(owner: ast.Owner) -> TypeOrigin:
    properties = {
        name: PropertyOrigin(
            member.property.name.span, member.property.type.span, _hint(member.property), member.via is not None
        )
        for name, member in owner.members.items()
    }
    constraints = {str(_lower_constraint(item)): item.span for item in owner.declaration.constraints}
    return TypeOrigin(owner.declaration.name.span, properties, constraints, _hint(owner.declaration))
