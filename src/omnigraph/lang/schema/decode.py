"""Reads the types of a stored schema IR: the inverse of `encode`.

Pure, and credulous: `SchemaIR.from_json` checks what was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph.lang.catalog import Cardinality, Embed
from omnigraph.lang.schema.encode import Identities, TypeIds
from omnigraph.lang.schema.shape import (
    ConstraintShape,
    EdgeShape,
    InterfaceShape,
    NodeShape,
    OpaqueAnnotation,
    PropertyShape,
    SchemaShape,
)
from omnigraph.lang.types import PropertyType, Scalar


def decode_types(value: Mapping[str, Any]) -> tuple[SchemaShape, Identities]:
    """Return the shape and the identities of a stored schema; a wrong form raises a plain Python error."""
    shape = SchemaShape(
        tuple(InterfaceShape(item["name"], _properties(item)) for item in value["interfaces"]),
        tuple(_node(item) for item in value["nodes"]),
        tuple(_edge(item) for item in value["edges"]),
    )
    identities = Identities(
        {item["name"]: _type_ids(item) for item in value["interfaces"]},
        {item["name"]: _type_ids(item) for item in value["nodes"]},
        {item["name"]: _type_ids(item) for item in value["edges"]},
    )
    return shape, identities


def _type_ids(item: Mapping[str, Any]) -> TypeIds:
    properties = {entry["name"]: entry["property_id"] for entry in item["properties"]}
    return TypeIds(item["type_id"], item.get("table_incarnation_id"), properties)


def _node(item: Mapping[str, Any]) -> NodeShape:
    return NodeShape(
        item["name"],
        _properties(item),
        _constraints(item),
        tuple(entry["name"] for entry in item["implements"]),
        item["description"],
        item["instruction"],
        _annotations(item),
    )


def _edge(item: Mapping[str, Any]) -> EdgeShape:
    cardinality = item["cardinality"]
    return EdgeShape(
        item["name"],
        item["source"]["name"],
        item["target"]["name"],
        _properties(item),
        _constraints(item),
        Cardinality(cardinality["min"], cardinality["max"]),
        item["description"],
        item["instruction"],
        _annotations(item),
    )


def _properties(item: Mapping[str, Any]) -> tuple[PropertyShape, ...]:
    return tuple(
        PropertyShape(
            entry["name"],
            _value_type(entry["type"]),
            tuple(entry["constraints"]),
            Embed(entry["embed"]["source"]["name"], entry["embed"]["model"]) if entry["embed"] is not None else None,
            entry["description"],
            _annotations(entry),
            entry["declared"] == "interface",
        )
        for entry in item["properties"]
    )


def _value_type(item: Mapping[str, Any]) -> PropertyType:
    values = item["enum"]
    enum_values = tuple(values) if values is not None else None
    return PropertyType(Scalar(item["scalar"]), item["list"], item["nullable"], enum_values, item["dimension"])


def _constraints(item: Mapping[str, Any]) -> tuple[ConstraintShape, ...]:
    return tuple(
        ConstraintShape(
            entry["kind"],
            tuple(column["name"] for column in entry["columns"]),
            entry.get("min"),
            entry.get("max"),
            entry.get("pattern"),
        )
        for entry in item["constraints"]
    )


def _annotations(item: Mapping[str, Any]) -> tuple[OpaqueAnnotation, ...]:
    return tuple(
        OpaqueAnnotation(entry["name"], entry["value"], tuple(sorted(entry["keywords"].items())))
        for entry in item["annotations"]
    )
