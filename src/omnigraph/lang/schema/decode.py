"""Reads the types of a stored schema IR: the inverse of `encode`.

Pure. Checks the type of every leaf; `SchemaIR.from_json` checks how the parts fit together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from omnigraph.lang.catalog import Cardinality, Embed, MergeRule
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

_TEXT: Final = (str,)
_TEXT_OR_NONE: Final = (str, type(None))
_NUMBER_OR_NONE: Final = (int, float, type(None))
_INTEGER_OR_NONE: Final = (int, type(None))
_MARKS: Final = frozenset({"index", "key", "unique"})
_KINDS: Final = _MARKS | {"range", "check"}


def decode_types(value: Mapping[str, Any]) -> tuple[SchemaShape, Identities]:
    """Return the shape and the identities of a stored schema; a wrong form raises a plain Python error."""
    shape = SchemaShape(
        tuple(InterfaceShape(_leaf(item["name"], _TEXT), _properties(item)) for item in value["interfaces"]),
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
        _leaf(item["name"], _TEXT),
        _properties(item),
        _constraints(item),
        tuple(_leaf(entry["name"], _TEXT) for entry in item["implements"]),
        _leaf(item["description"], _TEXT_OR_NONE),
        _leaf(item["instruction"], _TEXT_OR_NONE),
        _annotations(item),
        _merge(item),
    )


def _edge(item: Mapping[str, Any]) -> EdgeShape:
    cardinality = item["cardinality"]
    return EdgeShape(
        _leaf(item["name"], _TEXT),
        _leaf(item["source"]["name"], _TEXT),
        _leaf(item["target"]["name"], _TEXT),
        _properties(item),
        _constraints(item),
        Cardinality(_leaf(cardinality["min"], (int,)), _leaf(cardinality["max"], _INTEGER_OR_NONE)),
        _leaf(item["description"], _TEXT_OR_NONE),
        _leaf(item["instruction"], _TEXT_OR_NONE),
        _annotations(item),
        _merge(item),
    )


def _properties(item: Mapping[str, Any]) -> tuple[PropertyShape, ...]:
    return tuple(
        PropertyShape(
            _leaf(entry["name"], _TEXT),
            _value_type(entry["type"]),
            tuple(_one_of(mark, _MARKS) for mark in entry["constraints"]),
            _embed(entry["embed"]),
            _leaf(entry["description"], _TEXT_OR_NONE),
            _annotations(entry),
            entry["declared"] == "interface",
            _merge(entry),
        )
        for entry in item["properties"]
    )


def _merge(item: Mapping[str, Any]) -> MergeRule | None:
    return MergeRule(item["merge"]) if "merge" in item else None


def _embed(item: Mapping[str, Any] | None) -> Embed | None:
    if item is None:
        return None
    return Embed(_leaf(item["source"]["name"], _TEXT), _leaf(item["model"], _TEXT_OR_NONE))


def _value_type(item: Mapping[str, Any]) -> PropertyType:
    values = item["enum"]
    return PropertyType(
        Scalar(item["scalar"]),
        _leaf(item["list"], (bool,)),
        _leaf(item["nullable"], (bool,)),
        tuple(_leaf(value, _TEXT) for value in values) if values is not None else None,
        _leaf(item["dimension"], _INTEGER_OR_NONE),
    )


def _constraints(item: Mapping[str, Any]) -> tuple[ConstraintShape, ...]:
    return tuple(
        ConstraintShape(
            _one_of(entry["kind"], _KINDS),
            tuple(_leaf(column["name"], _TEXT) for column in entry["columns"]),
            _leaf(entry.get("min"), _NUMBER_OR_NONE),
            _leaf(entry.get("max"), _NUMBER_OR_NONE),
            _leaf(entry.get("pattern"), _TEXT_OR_NONE),
        )
        for entry in item["constraints"]
    )


def _annotations(item: Mapping[str, Any]) -> tuple[OpaqueAnnotation, ...]:
    return tuple(
        OpaqueAnnotation(
            _leaf(entry["name"], _TEXT),
            _leaf(entry["value"], _TEXT_OR_NONE),
            tuple(sorted((key, _leaf(value, _TEXT)) for key, value in entry["keywords"].items())),
        )
        for entry in item["annotations"]
    )


def _leaf(value: Any, types: tuple[type, ...]) -> Any:
    # An exact match, because a bool is an int to Python.
    if type(value) not in types:
        raise TypeError(f"{value!r} has the wrong type")
    return value


def _one_of(value: Any, known: frozenset[str]) -> Any:
    if value not in known:
        raise ValueError(f"{value!r} is unknown")
    return value
