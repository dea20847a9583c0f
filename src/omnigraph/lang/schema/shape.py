"""The shape of a schema: its content, expanded and in canonical order; shapes and identities as JSON.

Pure values. Source order, comments and rename hints leave no trace here, so equal shapes have equal hashes. One writer
serves the shape hash and the schema IR: identities, where there are any, are written beside the names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

from omnigraph.lang.catalog import Cardinality, Default, Embed, MergeRule, PropertyType, RangeRule, Scalar
from omnigraph.lang.schema.ast import KINDS, Kind

ConstraintKind = Literal["key", "unique", "index", "range", "check"]
# The constraints that a property may carry itself.
MARKS: Final = ("index", "key", "unique")


@dataclass(frozen=True, slots=True, order=True)
class OpaqueAnnotation:
    """An annotation that the language keeps without knowing its meaning."""

    name: str
    value: str | None = None
    keywords: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PropertyShape:
    """A property. `marks` are its property-form constraints; `is_injected` if an interface supplied it."""

    name: str
    type: PropertyType
    marks: tuple[str, ...] = ()
    embed: Embed | None = None
    description: str | None = None
    annotations: tuple[OpaqueAnnotation, ...] = ()
    is_injected: bool = False
    merge: MergeRule | None = None
    default: Default | None = None


@dataclass(frozen=True, slots=True)
class ConstraintShape:
    """A body constraint over columns in name order; bounds and pattern belong to `range` and `check`."""

    kind: ConstraintKind
    columns: tuple[str, ...]
    minimum: int | float | None = None
    maximum: int | float | None = None
    pattern: str | None = None

    @property
    def sort_key(self) -> tuple[str, tuple[str, ...], str]:
        return self.kind, self.columns, f"{self.minimum} {self.maximum} {self.pattern}"

    def __str__(self) -> str:
        if self.kind == "range":
            return str(RangeRule(self.columns[0], self.minimum, self.maximum))
        if self.kind == "check":
            return f"@check({self.columns[0]}, {json.dumps(self.pattern, ensure_ascii=False)})"
        return f"@{self.kind}({', '.join(self.columns)})"


@dataclass(frozen=True, slots=True)
class InterfaceShape:
    name: str
    properties: tuple[PropertyShape, ...]
    constraints: ClassVar[tuple[ConstraintShape, ...]] = ()
    annotations: ClassVar[tuple[OpaqueAnnotation, ...]] = ()


@dataclass(frozen=True, slots=True)
class NodeShape:
    name: str
    properties: tuple[PropertyShape, ...]
    constraints: tuple[ConstraintShape, ...] = ()
    implements: tuple[str, ...] = ()
    description: str | None = None
    instruction: str | None = None
    annotations: tuple[OpaqueAnnotation, ...] = ()
    merge: MergeRule | None = None


@dataclass(frozen=True, slots=True)
class EdgeShape:
    name: str
    source: str
    target: str
    properties: tuple[PropertyShape, ...]
    constraints: tuple[ConstraintShape, ...]
    cardinality: Cardinality
    description: str | None = None
    instruction: str | None = None
    annotations: tuple[OpaqueAnnotation, ...] = ()
    merge: MergeRule | None = None


TypeShape: TypeAlias = InterfaceShape | NodeShape | EdgeShape


@dataclass(frozen=True, slots=True)
class SchemaShape:
    """All types, each kind in name order."""

    interfaces: tuple[InterfaceShape, ...]
    nodes: tuple[NodeShape, ...]
    edges: tuple[EdgeShape, ...]

    def of(self, kind: Kind) -> tuple[TypeShape, ...]:
        types: tuple[TypeShape, ...] = getattr(self, f"{kind}s")
        return types


def canonical_hash(value: object) -> str:
    """Return `sha256:` and the digest of a JSON value, independent of the order of its keys.

    >>> canonical_hash({"a": 1, "b": 2}) == canonical_hash({"b": 2, "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


Json: TypeAlias = dict[str, object]


@dataclass(frozen=True, slots=True)
class TypeIds:
    """The identities of a type; an interface has no table, so no incarnation."""

    type_id: int
    incarnation_id: int | None
    property_ids: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Identities:
    """The identities of all types, by kind and name."""

    interfaces: Mapping[str, TypeIds]
    nodes: Mapping[str, TypeIds]
    edges: Mapping[str, TypeIds]

    def of(self, kind: Kind) -> Mapping[str, TypeIds]:
        ids: Mapping[str, TypeIds] = getattr(self, f"{kind}s")
        return ids


def encode_shape(shape: SchemaShape, identities: Identities | None = None) -> Json:
    """Return the types as JSON, each with its identities when there are any."""
    ids = identities or Identities({}, {}, {})
    return {
        f"{kind}s": [_encode_type(type_, ids.of(kind).get(type_.name), ids) for type_ in shape.of(kind)]
        for kind in KINDS
    }


def shape_hash(shape: SchemaShape) -> str:
    """Return the digest of a shape, independent of its identities."""
    return canonical_hash(encode_shape(shape))


def _encode_type(shape: TypeShape, type_ids: TypeIds | None, ids: Identities) -> Json:
    property_ids = type_ids.property_ids if type_ids is not None else {}
    encoded: Json = {"name": shape.name}
    if type_ids is not None:
        encoded["type_id"] = type_ids.type_id
        if type_ids.incarnation_id is not None:
            encoded["table_incarnation_id"] = type_ids.incarnation_id
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
    if shape.default is not None:
        encoded["default"] = _encode_default(shape.default)
    if shape.name in property_ids:
        encoded["property_id"] = property_ids[shape.name]
    if shape.embed is not None:
        source = _property_reference(shape.embed.source, property_ids)
        encoded["embed"] = {"source": source, "model": shape.embed.model}
    return encoded


def _encode_default(default: Default) -> Json:
    if default.kind != "value":
        return {"kind": default.kind}
    return {"kind": "value", "value": list(default.value) if isinstance(default.value, tuple) else default.value}


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


_TEXT: Final = (str,)
_CONSTANTS: Final = (str, int, float, bool)
_TEXT_OR_NONE: Final = (str, type(None))
_NUMBER_OR_NONE: Final = (int, float, type(None))
_INTEGER_OR_NONE: Final = (int, type(None))


def decode_types(value: Mapping[str, Any]) -> tuple[SchemaShape, Identities]:
    """Return the shape and the identities of a stored schema; a wrong form raises a plain Python error."""
    shape = SchemaShape(
        tuple(InterfaceShape(_leaf(item["name"], _TEXT), _properties(item)) for item in value["interfaces"]),
        tuple(_node(item) for item in value["nodes"]),
        tuple(_edge(item) for item in value["edges"]),
    )
    ids = ({item["name"]: _type_ids(item) for item in value[f"{kind}s"]} for kind in KINDS)
    return shape, Identities(*ids)


def _type_ids(item: Mapping[str, Any]) -> TypeIds:
    properties = {entry["name"]: entry["property_id"] for entry in item["properties"]}
    return TypeIds(item["type_id"], item.get("table_incarnation_id"), properties)


def _node(item: Mapping[str, Any]) -> NodeShape:
    return NodeShape(implements=tuple(_leaf(entry["name"], _TEXT) for entry in item["implements"]), **_members(item))


def _edge(item: Mapping[str, Any]) -> EdgeShape:
    cardinality = item["cardinality"]
    return EdgeShape(
        source=_leaf(item["source"]["name"], _TEXT),
        target=_leaf(item["target"]["name"], _TEXT),
        cardinality=Cardinality(_leaf(cardinality["min"], (int,)), _leaf(cardinality["max"], _INTEGER_OR_NONE)),
        **_members(item),
    )


def _members(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return what node and edge types have in common."""
    return {
        "name": _leaf(item["name"], _TEXT),
        "properties": _properties(item),
        "constraints": _constraints(item),
        "description": _leaf(item["description"], _TEXT_OR_NONE),
        "instruction": _leaf(item["instruction"], _TEXT_OR_NONE),
        "annotations": _annotations(item),
        "merge": _merge(item),
    }


def _properties(item: Mapping[str, Any]) -> tuple[PropertyShape, ...]:
    return tuple(
        PropertyShape(
            _leaf(entry["name"], _TEXT),
            _value_type(entry["type"]),
            tuple(_one_of(mark, MARKS) for mark in entry["constraints"]),
            _embed(entry["embed"]),
            _leaf(entry["description"], _TEXT_OR_NONE),
            _annotations(entry),
            entry["declared"] == "interface",
            _merge(entry),
            _default(entry["default"]) if "default" in entry else None,
        )
        for entry in item["properties"]
    )


def _merge(item: Mapping[str, Any]) -> MergeRule | None:
    return MergeRule(item["merge"]) if "merge" in item else None


def _default(item: Mapping[str, Any]) -> Default:
    kind = _one_of(item["kind"], ("value", "now", "uuid"))
    value = item["value"] if kind == "value" else None
    if isinstance(value, list):
        return Default(kind, tuple(_leaf(element, _CONSTANTS) for element in value))
    return Default(kind, None if kind != "value" else _leaf(value, _CONSTANTS))


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
            _one_of(entry["kind"], get_args(ConstraintKind)),
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


def _one_of(value: Any, allowed: Collection[str]) -> Any:
    if value not in allowed:
        raise ValueError(f"{value!r} is unknown")
    return value
