"""Compiles a `.pg` source: parse, expand, check, give identities, resolve.

Pure. The one entry to the schema language.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.errors import UsageError
from omnigraph.lang.catalog import Catalog
from omnigraph.lang.diagnostic import Diagnostic, LanguageError
from omnigraph.lang.schema.allocate import allocate_identities
from omnigraph.lang.schema.encode import shape_hash
from omnigraph.lang.schema.expand import AnnotationPlace, expand_interfaces
from omnigraph.lang.schema.identity import resolve_names
from omnigraph.lang.schema.integrity import DOMAIN
from omnigraph.lang.schema.ir import KINDS, SchemaIR
from omnigraph.lang.schema.lower import lower_draft
from omnigraph.lang.schema.origin import Origins
from omnigraph.lang.schema.parser import parse_schema
from omnigraph.lang.schema.resolve import catalog_of
from omnigraph.lang.schema.rules import check_draft, note_draft
from omnigraph.lang.schema.shape import SchemaShape
from omnigraph.lang.source import Source
from omnigraph.limits import DIAGNOSTICS_MAX


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


def compile_schema(source: Source, *, domain: str, accepted: SchemaIR | None = None) -> CompiledSchema:
    """Compile a schema for a new graph, or as the successor of the accepted one; raises `LanguageError`.

    `domain` is the graph's identity domain, an upper-case ULID.

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
    ir = allocate_identities(shape, resolution, domain)
    notes = (*note_draft(draft), *resolution.notes)
    return CompiledSchema(source, shape, shape_hash(shape), ir, catalog_of(ir), notes, origins)


def legacy_annotations(accepted: SchemaIR | None) -> frozenset[AnnotationPlace]:
    """Return the unknown annotations of an accepted schema; earlier releases took any word."""
    if accepted is None:
        return frozenset()
    places: set[AnnotationPlace] = set()
    for kind in KINDS:
        for name, shape in accepted.types(kind).items():
            places.update(AnnotationPlace(kind, name, None, item.name) for item in getattr(shape, "annotations", ()))
            for property_ in shape.properties:
                places.update(AnnotationPlace(kind, name, property_.name, item.name) for item in property_.annotations)
    return frozenset(places)
