"""Builds the catalog from a schema IR.

Pure. The catalog is what engines and the query compiler ask; the IR is what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from omnigraph.lang.catalog import Catalog, CheckRule, EdgeType, MergeRule, NodeType, Property, RangeRule
from omnigraph.lang.schema.encode import TypeIds
from omnigraph.lang.schema.ir import SchemaIR
from omnigraph.lang.schema.shape import EdgeShape, NodeShape

Columns = tuple[str, ...]


def catalog_of(ir: SchemaIR) -> Catalog:
    """Return the catalog of a schema; a key also counts among the indexes of its type."""
    return Catalog(
        nodes={shape.name: _node(shape, ir.identities.nodes[shape.name]) for shape in ir.shape.nodes},
        edges={shape.name: _edge(shape, ir.identities.edges[shape.name]) for shape in ir.shape.edges},
        interfaces=tuple(shape.name for shape in ir.shape.interfaces),
        ir_hash=ir.hash,
    )


def _node(shape: NodeShape, ids: TypeIds) -> NodeType:
    assert ids.incarnation_id is not None
    keys = _column_sets(shape, "key")
    # Renames must not change ids, so a key is ordered by what a rename cannot touch.
    key = tuple(sorted(keys[0], key=ids.property_ids.__getitem__)) if keys else ()
    return NodeType(
        name=shape.name,
        type_id=ids.type_id,
        incarnation_id=ids.incarnation_id,
        properties=_properties(shape, ids),
        key=key,
        unique=_column_sets(shape, "unique"),
        index=tuple(sorted({*_column_sets(shape, "index"), *keys})),
        ranges=tuple(
            RangeRule(item.columns[0], item.minimum, item.maximum) for item in shape.constraints if item.kind == "range"
        ),
        checks=tuple(
            CheckRule(item.columns[0], item.pattern) for item in shape.constraints if item.pattern is not None
        ),
        implements=shape.implements,
        description=shape.description,
        instruction=shape.instruction,
        merge=shape.merge or MergeRule.FAIL,
    )


def _edge(shape: EdgeShape, ids: TypeIds) -> EdgeType:
    assert ids.incarnation_id is not None
    return EdgeType(
        name=shape.name,
        type_id=ids.type_id,
        incarnation_id=ids.incarnation_id,
        source=shape.source,
        target=shape.target,
        properties=_properties(shape, ids),
        cardinality=shape.cardinality,
        unique=_column_sets(shape, "unique"),
        index=_column_sets(shape, "index"),
        description=shape.description,
        instruction=shape.instruction,
        merge=shape.merge or MergeRule.FAIL,
    )


def _properties(shape: NodeShape | EdgeShape, ids: TypeIds) -> Mapping[str, Property]:
    return {
        item.name: Property(item.name, item.type, ids.property_ids[item.name], item.description, item.embed, item.merge)
        for item in shape.properties
    }


def _column_sets(shape: NodeShape | EdgeShape, kind: Literal["key", "unique", "index"]) -> tuple[Columns, ...]:
    marked = {(item.name,) for item in shape.properties if kind in item.marks}
    return tuple(sorted(marked | {item.columns for item in shape.constraints if item.kind == kind}))
