"""Writes shapes as JSON, with or without identities.

Pure. One writer serves the shape hash and the schema IR: identities, where there are any, ride beside the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from omnigraph.lang.catalog import MergeRule
from omnigraph.lang.schema.shape import (
    ConstraintShape,
    EdgeShape,
    InterfaceShape,
    NodeShape,
    OpaqueAnnotation,
    PropertyShape,
    SchemaShape,
    TypeShape,
    canonical_hash,
)
from omnigraph.lang.types import PropertyType

Json: TypeAlias = dict[str, object]


@dataclass(frozen=True, slots=True)
class TypeIds:
    """The identities of one type; an interface has no table, so no incarnation."""

    type_id: int
    incarnation_id: int | None
    property_ids: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Identities:
    """The identities of all types, by kind and name."""

    interfaces: Mapping[str, TypeIds]
    nodes: Mapping[str, TypeIds]
    edges: Mapping[str, TypeIds]


def encode_shape(shape: SchemaShape, identities: Identities | None = None) -> Json:
    """Return the types as JSON, each with its identities when there are any."""
    ids = identities or Identities({}, {}, {})
    return {
        "interfaces": [_encode_type(type_, ids.interfaces.get(type_.name), ids) for type_ in shape.interfaces],
        "nodes": [_encode_type(type_, ids.nodes.get(type_.name), ids) for type_ in shape.nodes],
        "edges": [_encode_type(type_, ids.edges.get(type_.name), ids) for type_ in shape.edges],
    }


def shape_hash(shape: SchemaShape) -> str:
    """Name what a schema says, whoever accepted it and whatever identities it got."""
    return canonical_hash(encode_shape(shape))


def _encode_type(shape: TypeShape, own: TypeIds | None, ids: Identities) -> Json:
    property_ids = own.property_ids if own is not None else {}
    encoded: Json = {"name": shape.name}
    if own is not None:
        encoded["type_id"] = own.type_id
        if own.incarnation_id is not None:
            encoded["table_incarnation_id"] = own.incarnation_id
    encoded["properties"] = [_encode_property(item, property_ids) for item in shape.properties]
    if isinstance(shape, InterfaceShape):
        return encoded
    encoded["constraints"] = [_encode_constraint(item, property_ids) for item in shape.constraints]
    encoded["description"] = shape.description
    encoded["instruction"] = shape.instruction
    encoded["annotations"] = [_encode_annotation(item) for item in shape.annotations]
    _encode_merge(encoded, shape.merge)
    if isinstance(shape, NodeShape):
        encoded["implements"] = [_type_reference(name, ids.interfaces) for name in shape.implements]
    if isinstance(shape, EdgeShape):
        encoded["source"] = _type_reference(shape.source, ids.nodes)
        encoded["target"] = _type_reference(shape.target, ids.nodes)
        encoded["cardinality"] = {"min": shape.cardinality.minimum, "max": shape.cardinality.maximum}
    return encoded


def _encode_property(shape: PropertyShape, property_ids: Mapping[str, int]) -> Json:
    encoded: Json = {
        "name": shape.name,
        "type": _encode_value_type(shape.type),
        "constraints": list(shape.marks),
        "embed": None,
        "description": shape.description,
        "annotations": [_encode_annotation(item) for item in shape.annotations],
        "declared": "interface" if shape.is_injected else "direct",
    }
    _encode_merge(encoded, shape.merge)
    if shape.name in property_ids:
        encoded["property_id"] = property_ids[shape.name]
    if shape.embed is not None:
        source = _property_reference(shape.embed.source, property_ids)
        encoded["embed"] = {"source": source, "model": shape.embed.model}
    return encoded


def _encode_merge(encoded: Json, rule: MergeRule | None) -> None:
    # Schemas that were accepted before there were merge rules keep their form, and with it their hash.
    if rule is not None:
        encoded["merge"] = rule.value


def _encode_value_type(type_: PropertyType) -> Json:
    return {
        "scalar": type_.scalar.value,
        "list": type_.is_list,
        "nullable": type_.nullable,
        "enum": list(type_.enum_values) if type_.enum_values is not None else None,
        "dimension": type_.dimension,
    }


def _encode_constraint(shape: ConstraintShape, property_ids: Mapping[str, int]) -> Json:
    columns = [_property_reference(name, property_ids) for name in shape.columns]
    encoded: Json = {"kind": shape.kind, "columns": columns}
    if shape.kind == "range":
        encoded |= {"min": shape.minimum, "max": shape.maximum}
    if shape.kind == "check":
        encoded["pattern"] = shape.pattern
    return encoded


def _encode_annotation(annotation: OpaqueAnnotation) -> Json:
    return {"name": annotation.name, "value": annotation.value, "keywords": dict(annotation.keywords)}


def _type_reference(name: str, types: Mapping[str, TypeIds]) -> Json:
    return {"name": name, "type_id": types[name].type_id} if name in types else {"name": name}


def _property_reference(name: str, property_ids: Mapping[str, int]) -> Json:
    # The endpoints `src` and `dst` of an edge are columns without an identity, and so is any name in a bare shape.
    return {"name": name, "property_id": property_ids[name]} if name in property_ids else {"name": name}
