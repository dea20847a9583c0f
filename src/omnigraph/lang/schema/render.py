"""Writes a schema as `.pg` source or as a diagram, whole or without hidden types and properties.

Pure. Declarations that one side of a merge has as they are keep their text and comments; the others are written again.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from omnigraph.lang.catalog import (
    Cardinality,
    Catalog,
    EdgeType,
    MergeRule,
    NodeType,
    Property,
    PropertyType,
    render_block,
)
from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Source, Span
from omnigraph.lang.schema.ast import KINDS, Kind
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.schema.ir import SchemaIR
from omnigraph.lang.schema.parser import parse_schema
from omnigraph.lang.schema.shape import (
    EdgeShape,
    Identities,
    InterfaceShape,
    NodeShape,
    OpaqueAnnotation,
    PropertyShape,
    SchemaShape,
    TypeIds,
    TypeShape,
)

_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_COMMENT: Final = re.compile(rf"({_STRING})|[ \t]*(?:(//[^\n]*)|/\*.*?\*/)", re.DOTALL)
_BLANK_LINES: Final = re.compile(rf"({_STRING})|\n(?:[ \t]*\r?\n)+", re.DOTALL)


def with_their_edges(catalog: Catalog, hidden: Set[str]) -> frozenset[str]:
    """Return the hidden types and all edge types with a hidden endpoint."""
    edges = (edge.name for edge in catalog.edges.values() if edge.source in hidden or edge.target in hidden)
    return frozenset(hidden).union(edges)


def restrict_ir(ir: SchemaIR, hidden: Set[str]) -> SchemaIR:
    """Return an IR without some node and edge types; identities stay the same."""

    def keep(type_: TypeShape, ids: TypeIds) -> tuple[TypeShape, TypeIds] | None:
        is_hidden = type_.name in hidden and not isinstance(type_, InterfaceShape)
        return None if is_hidden else (type_, ids)

    return _change_types(ir, keep)


def with_property_types(ir: SchemaIR, types: Mapping[int, PropertyType]) -> SchemaIR:
    """Return an IR in which some properties, by identity, have other types."""

    def retype(type_: TypeShape, ids: TypeIds) -> tuple[TypeShape, TypeIds]:
        properties = (
            replace(item, type=types.get(ids.property_ids[item.name], item.type)) for item in type_.properties
        )
        return replace(type_, properties=tuple(properties)), ids

    return _change_types(ir, retype)


def without_properties(ir: SchemaIR, property_ids: Set[int]) -> SchemaIR:
    """Return an IR without some properties, and without the constraints and embeddings that name one of them."""

    def reduce(type_: TypeShape, ids: TypeIds) -> tuple[TypeShape, TypeIds]:
        removed = {name for name, property_id in ids.property_ids.items() if property_id in property_ids}
        if not removed or isinstance(type_, InterfaceShape):
            return type_, ids
        reduced = replace(
            type_,
            properties=tuple(
                replace(item, embed=None) if item.embed is not None and item.embed.source in removed else item
                for item in type_.properties
                if item.name not in removed
            ),
            constraints=tuple(item for item in type_.constraints if not removed & set(item.columns)),
        )
        kept = {name: id_ for name, id_ in ids.property_ids.items() if name not in removed}
        return reduced, replace(ids, property_ids=kept)

    return _change_types(ir, reduce) if property_ids else ir


def _change_types(ir: SchemaIR, change: Callable[[TypeShape, TypeIds], tuple[TypeShape, TypeIds] | None]) -> SchemaIR:
    """Return an IR with each type as `change` returns it, without those for which that is None."""
    changed = {
        kind: [pair for name, shape in ir.types(kind).items() if (pair := change(shape, ir.ids(kind)[name]))]
        for kind in KINDS
    }
    shapes: Any = (tuple(shape for shape, _ in changed[kind]) for kind in KINDS)
    ids = ({shape.name: ids for shape, ids in changed[kind]} for kind in KINDS)
    return SchemaIR(ir.domain, ir.next_identity_id, SchemaShape(*shapes), Identities(*ids))


def restrict_source(text: str, hidden: Set[str]) -> str:
    """Return a schema without some node and edge types, and without comments, which may mention them.

    >>> restrict_source("// of B\\nnode A {}\\nnode B {} // and A\\nedge E: A -> A\\n", {"B"})
    'node A {}\\nedge E: A -> A\\n'
    """
    plain = _COMMENT.sub(lambda match: match[1] or ("" if match[2] else " "), text)
    parts = [
        text.strip() + "\n"
        for (kind, name), text in _declarations(plain).items()
        if kind == "interface" or name not in hidden
    ]
    return _BLANK_LINES.sub(lambda match: match[1] or "\n", "".join(parts))


_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|(//[^\n]*|/\*.*?\*/)|\w+|[^\w\s]', re.DOTALL)
_FILE: Final = "merged schema"


def write_source(merged: SchemaIR, sides: Sequence[tuple[str, SchemaIR]]) -> str:
    """Return the source of a merged schema; raises `LanguageError` if the merged schema breaks a rule.

    `sides` are sources with their schemas; the first that has a declaration in its merged form gives the text.
    """
    composed = _compose(merged, sides)
    with suppress(LanguageError):
        if _compiles_to(composed, merged):
            return composed
    text = "\n\n".join(render_type(shape) for kind in KINDS for shape in merged.types(kind).values()) + "\n"
    if not _compiles_to(text, merged):
        message = "the two schemas are valid on their own, but do not fit together"
        raise LanguageError(diagnostics=(Diagnostic("OG-MF-100", message, Source(_FILE, text), Span(0, 0)),))
    return text


def _compiles_to(text: str, merged: SchemaIR) -> bool:
    return compile_schema(Source(_FILE, text), domain=merged.domain, accepted=merged).shape == merged.shape


def _compose(merged: SchemaIR, sides: Sequence[tuple[str, SchemaIR]]) -> str:
    """Return the declarations in the order of the sides, each with the text of a side that has it so."""
    texts: dict[tuple[Kind, str], str] = {}
    order: dict[tuple[Kind, str], None] = {}
    for source, ir in sides:
        declarations = _declarations(source)
        order.update(dict.fromkeys(declarations))
        for (kind, name), text in declarations.items():
            shape = merged.types(kind).get(name)
            if shape is not None and shape == ir.types(kind).get(name):
                texts.setdefault((kind, name), text)
    for kind in KINDS:
        for name, shape in merged.types(kind).items():
            texts.setdefault((kind, name), render_type(shape))
            order.setdefault((kind, name))
    return "\n".join(texts[key].strip("\n") + "\n" for key in order if key in texts)


def _declarations(text: str) -> dict[tuple[Kind, str], str]:
    """Return the text of each declaration, with the comments above it and behind its end."""
    declarations = parse_schema(Source(_FILE, text))
    tokens = [match.span() for match in _TOKEN.finditer(text) if match[1] is None]
    cuts = [0]
    for item in declarations[1:]:
        keyword = bisect_left(tokens, (item.name.span.start, 0)) - 1
        start, end = tokens[keyword][0], tokens[keyword - 1][1]
        newline = text.find("\n", end, start)
        cuts.append(start if newline < 0 else newline + 1)
    cuts.append(len(text))
    return {
        (item.kind, item.name.text): text[begin:end]
        for item, begin, end in zip(declarations, cuts, cuts[1:], strict=False)
    }


def render_type(shape: TypeShape) -> str:
    """Return the declaration of a type.

    >>> from omnigraph.lang.schema.shape import NodeShape
    >>> render_type(NodeShape("Port", ()))
    'node Port {\\n}'
    """
    # An interface supplies its properties itself.
    lines = [_render_property(item) for item in shape.properties if not item.is_injected]
    if isinstance(shape, InterfaceShape):
        return f"interface {shape.name} {render_block(lines)}"
    lines += map(str, shape.constraints)
    if isinstance(shape, NodeShape):
        implements = f" implements {', '.join(shape.implements)}" if shape.implements else ""
        return f"node {shape.name}{_head(shape)}{implements} {render_block(lines)}"
    count = "" if shape.cardinality == Cardinality() else f" {shape.cardinality}"
    head = f"edge {shape.name}: {shape.source} -> {shape.target}{count}{_head(shape)}"
    return f"{head} {render_block(lines)}" if lines else head


def _head(shape: NodeShape | EdgeShape) -> str:
    texts = {"description": shape.description, "instruction": shape.instruction}
    words = [f"@{word}({_quote(text)})" for word, text in texts.items() if text is not None]
    return "".join(f" {word}" for word in [*words, *_merge(shape.merge), *map(_opaque, shape.annotations)])


def _render_property(item: PropertyShape) -> str:
    words = [f"@{mark}" for mark in item.marks]
    if item.embed is not None:
        words.append(str(item.embed))
    if item.description is not None:
        words.append(f"@description({_quote(item.description)})")
    if item.default is not None:
        words.append(str(item.default))
    words += [*_merge(item.merge), *map(_opaque, item.annotations)]
    return " ".join([f"{item.name}: {item.type}", *words])


def _merge(rule: MergeRule | None) -> list[str]:
    return [] if rule is None else [f"@merge({rule})"]


def _opaque(annotation: OpaqueAnnotation) -> str:
    arguments = [] if annotation.value is None else [_quote(annotation.value)]
    arguments += [f"{key}={_quote(value)}" for key, value in annotation.keywords]
    return f"@{annotation.name}" + (f"({', '.join(arguments)})" if arguments else "")


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def render_mermaid(catalog: Catalog) -> str:
    """Return an entity-relationship diagram; a relation reads from the source of an edge to its target."""
    lines = ["erDiagram"]
    for node in catalog.nodes.values():
        lines.append(f"  {node.name} {{")
        lines += [f"    {_mermaid_attribute(node, item)}" for item in node.properties.values()]
        lines.append("  }")
    for edge in catalog.edges.values():
        targets = {(0, 1): "o|", (1, 1): "||", (1, None): "|{"}.get(
            (edge.cardinality.minimum, edge.cardinality.maximum), "o{"
        )
        lines.append(f'  {edge.source} }}o--{targets} {edge.target} : "{_edge_label(edge)}"')
    return "\n".join(lines) + "\n"


def _mermaid_attribute(node: NodeType, item: Property) -> str:
    # Mermaid takes a type as one word that begins with a letter, and has no mark for what may be missing.
    type_ = item.type
    word = "enum" if type_.enum_values is not None else type_.scalar.value
    word = f"{word}({type_.dimension})" if type_.dimension is not None else word
    key = " PK" if item.name in node.key else " UK" if (item.name,) in node.unique else ""
    return f"{word}{'[]' if type_.is_list else ''} {item.name}{key}" + (' "optional"' if type_.nullable else "")


def render_dot(catalog: Catalog) -> str:
    """Return a Graphviz graph: node types as records of their properties, edge types as arrows."""
    lines = ["digraph {", "  node [shape=record];"]
    for node in catalog.nodes.values():
        texts = (f"{name}: {item.type}{' @key' * (name in node.key)}" for name, item in node.properties.items())
        properties = "".join(f"{_record_text(text)}\\l" for text in texts)
        lines.append(f'  "{node.name}" [label="{{{node.name}|{properties}}}"];')
    lines += [f'  "{e.source}" -> "{e.target}" [label="{_edge_label(e)}"];' for e in catalog.edges.values()]
    return "\n".join([*lines, "}"]) + "\n"


def _record_text(text: str) -> str:
    """Escape what has a meaning in the label of a record."""
    return "".join(f"\\{character}" if character in '\\"{}|<> ' else character for character in text)


def _edge_label(edge: EdgeType) -> str:
    properties = ", ".join(edge.properties)
    return f"{edge.name} ({properties})" if properties else edge.name
