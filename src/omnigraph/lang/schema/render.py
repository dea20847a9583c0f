"""Writes a schema as `.pg` source, as merges do, and as a Mermaid or Graphviz diagram.

Pure. Declarations that one side of a merge has as they are keep their text and comments; the others are written again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from omnigraph.lang.catalog import Cardinality, Catalog, EdgeType, MergeRule, NodeType, Property
from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Source, Span
from omnigraph.lang.schema.ast import Kind
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.schema.ir import KINDS, SchemaIR
from omnigraph.lang.schema.parser import parse_schema
from omnigraph.lang.schema.shape import EdgeShape, InterfaceShape, NodeShape, OpaqueAnnotation, PropertyShape, TypeShape

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
    tokens = [match for match in _TOKEN.finditer(text) if match[1] is None]
    starts = [max(match.start() for match in tokens if match.start() < item.name.span.start) for item in declarations]
    cuts = [0]
    for start in starts[1:]:
        end = max(match.end() for match in tokens if match.start() < start)
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
        return f"interface {shape.name} {_block(lines)}"
    lines += map(str, shape.constraints)
    if isinstance(shape, NodeShape):
        implements = f" implements {', '.join(shape.implements)}" if shape.implements else ""
        return f"node {shape.name}{_head(shape)}{implements} {_block(lines)}"
    count = "" if shape.cardinality == Cardinality() else f" {shape.cardinality}"
    head = f"edge {shape.name}: {shape.source} -> {shape.target}{count}{_head(shape)}"
    return f"{head} {_block(lines)}" if lines else head


def _block(lines: Sequence[str]) -> str:
    return "{\n" + "".join(f"  {line}\n" for line in lines) + "}"


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
        properties = "".join(f"{_record_text(_property_text(node, item))}\\l" for item in node.properties.values())
        lines.append(f'  "{node.name}" [label="{{{node.name}|{properties}}}"];')
    lines += [f'  "{e.source}" -> "{e.target}" [label="{_edge_label(e)}"];' for e in catalog.edges.values()]
    return "\n".join([*lines, "}"]) + "\n"


def _property_text(node: NodeType, item: Property) -> str:
    return f"{item.name}: {item.type}{' @key' if item.name in node.key else ''}"


def _record_text(text: str) -> str:
    """Escape what has a meaning in the label of a record."""
    return "".join(f"\\{character}" if character in '\\"{}|<> ' else character for character in text)


def _edge_label(edge: EdgeType) -> str:
    properties = ", ".join(edge.properties)
    return f"{edge.name} ({properties})" if properties else edge.name
