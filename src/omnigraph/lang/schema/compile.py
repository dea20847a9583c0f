"""Compiles a `.pg` source: parse, expand, check, assign identities, resolve.

Pure. The only entry point of the schema language.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from omnigraph.errors import UsageError
from omnigraph.lang.catalog import Catalog, CheckRule, EdgeType, MergeRule, NodeType, Property, RangeRule
from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Source
from omnigraph.lang.schema.ast import KINDS, AnnotationPosition, expand_interfaces
from omnigraph.lang.schema.checks import check_draft, note_draft
from omnigraph.lang.schema.ir import DOMAIN, SchemaIR, allocate_identities, resolve_names
from omnigraph.lang.schema.lower import Origins, lower_draft
from omnigraph.lang.schema.parser import parse_schema
from omnigraph.lang.schema.shape import EdgeShape, NodeShape, SchemaShape, TypeIds, shape_hash
from omnigraph.limits import DIAGNOSTICS_MAX


def catalog_of(ir: SchemaIR) -> Catalog:
    """Return the catalog of a schema; a key also counts among the indexes of its type."""
    return Catalog(
        nodes={shape.name: _node(shape, ir.identities.nodes[shape.name]) for shape in ir.shape.nodes},
        edges={shape.name: _edge(shape, ir.identities.edges[shape.name]) for shape in ir.shape.edges},
        interfaces=tuple(shape.name for shape in ir.shape.interfaces),
        ir_hash=ir.hash,
    )


def _node(shape: NodeShape, ids: TypeIds) -> NodeType:
    return NodeType(
        **_members(shape, ids),
        index=tuple(sorted({*_column_sets(shape, "index"), *_column_sets(shape, "key")})),
        ranges=tuple(
            RangeRule(item.columns[0], item.minimum, item.maximum) for item in shape.constraints if item.kind == "range"
        ),
        checks=tuple(
            CheckRule(item.columns[0], item.pattern) for item in shape.constraints if item.pattern is not None
        ),
        implements=shape.implements,
    )


def _edge(shape: EdgeShape, ids: TypeIds) -> EdgeType:
    return EdgeType(
        **_members(shape, ids),
        source=shape.source,
        target=shape.target,
        cardinality=shape.cardinality,
        index=_column_sets(shape, "index"),
    )


def _members(shape: NodeShape | EdgeShape, ids: TypeIds) -> dict[str, Any]:
    """Return what node and edge types have in common."""
    keys = _column_sets(shape, "key")
    # Renames must not change ids, so a key is ordered by what a rename cannot touch. The endpoints of an edge have no
    # identity and no rename; they come first.
    ranks = {"src": -2, "dst": -1, **ids.property_ids}
    return {
        "name": shape.name,
        "type_id": ids.type_id,
        "incarnation_id": ids.incarnation_id,
        "properties": _properties(shape, ids),
        "key": tuple(sorted(keys[0], key=ranks.__getitem__)) if keys else (),
        "unique": _column_sets(shape, "unique"),
        "description": shape.description,
        "instruction": shape.instruction,
        "merge": shape.merge or MergeRule.FAIL,
    }


def _properties(shape: NodeShape | EdgeShape, ids: TypeIds) -> Mapping[str, Property]:
    return {
        item.name: Property(
            item.name, item.type, ids.property_ids[item.name], item.description, item.embed, item.merge, item.default
        )
        for item in shape.properties
    }


def _column_sets(shape: NodeShape | EdgeShape, kind: Literal["key", "unique", "index"]) -> tuple[tuple[str, ...], ...]:
    marked = {(item.name,) for item in shape.properties if kind in item.marks}
    return tuple(sorted(marked | {item.columns for item in shape.constraints if item.kind == kind}))


@dataclass(frozen=True, slots=True)
class CompiledSchema:
    """A schema that passed every check. `notes` are remarks that did not stop it; `origins` point into the source."""

    source: Source
    shape: SchemaShape
    shape_hash: str
    ir: SchemaIR
    catalog: Catalog
    notes: tuple[Diagnostic, ...]
    origins: Origins


def compile_schema(
    source: Source, *, domain: str, accepted: SchemaIR | None = None, identity_space: int = 0
) -> CompiledSchema:
    """Compile a schema for a new graph, or as the successor of the accepted one; raises `LanguageError`.

    `domain` is the graph's identity domain, an upper-case ULID; `identity_space` is that of the branch, 0 for main.

    >>> source = Source("s.pg", "node Person { name: String @key }")
    >>> compile_schema(source, domain="01JAZ5V9X0000000000000000A").catalog.nodes["Person"].key
    ('name',)
    """
    if not DOMAIN.fullmatch(domain):
        raise UsageError(f"identity domain `{domain}` is not an upper-case ULID", domain=domain)
    if accepted is not None and accepted.domain != domain:
        raise UsageError("the accepted schema belongs to another graph", domain=domain, accepted=accepted.domain)
    draft = expand_interfaces(source, parse_schema(source), legacy_annotations(accepted))
    errors = check_draft(draft)
    if errors:
        raise LanguageError(diagnostics=errors)
    shape, origins = lower_draft(draft)
    resolution = resolve_names(shape, origins, source, accepted)
    if resolution.errors:
        raise LanguageError(diagnostics=tuple(resolution.errors[:DIAGNOSTICS_MAX]))
    ir = allocate_identities(shape, resolution, domain, identity_space)
    notes = (*note_draft(draft), *resolution.notes)
    return CompiledSchema(source, shape, shape_hash(shape), ir, catalog_of(ir), notes, origins)


def legacy_annotations(accepted: SchemaIR | None) -> frozenset[AnnotationPosition]:
    """Return the unknown annotations of an accepted schema; earlier releases took any word."""
    if accepted is None:
        return frozenset()
    return frozenset(
        AnnotationPosition(kind, name, property_name, item.name)
        for kind in KINDS
        for name, shape in accepted.types(kind).items()
        for property_name, annotations in [
            (None, shape.annotations),
            *((item.name, item.annotations) for item in shape.properties),
        ]
        for item in annotations
    )
