"""A source as an editor compiles it: its diagnostics, and the types of a schema with their positions.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from omnigraph.lang.catalog import Catalog, EdgeType, NodeType, Property
from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Source, Span
from omnigraph.lang.format import LanguageName
from omnigraph.lang.query import lint_queries
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.ast import Declaration
from omnigraph.lang.schema.parser import parse_schema

# An editor has no graph, so any identity domain does.
DOMAIN: Final = "00000000000000000000000000"


@dataclass(frozen=True, slots=True)
class SchemaView:
    """A schema that compiles, and the declarations of its source."""

    source: Source
    catalog: Catalog
    declarations: tuple[Declaration, ...]

    def find_type(self, word: str) -> NodeType | EdgeType | None:
        """Return a type by its name, or an edge type by its name in a traversal, in any case."""
        return self.catalog.nodes.get(word) or self.catalog.edge_by_word(word)

    def find_property(self, type_name: str | None, name: str) -> Property | None:
        type_ = self.find_type(type_name) if type_name is not None else None
        return type_.properties.get(name) if type_ is not None else None

    def declared_at(self, type_name: str) -> Span | None:
        """Return where the name of a type is declared."""
        declaration = find_declaration(self.declarations, type_name)
        return declaration.name.span if declaration is not None else None

    def property_at(self, type_name: str, name: str) -> Span | None:
        """Return where a property is declared: in its type, or in an interface of the type."""
        declaration = find_declaration(self.declarations, type_name)
        if declaration is None:
            return None
        declared = next((item.name.span for item in declaration.properties if item.name.text == name), None)
        if declared is not None:
            return declared
        inherited = (self.property_at(interface.text, name) for interface in declaration.implements)
        return next((span for span in inherited if span is not None), None)


def find_declaration(declarations: tuple[Declaration, ...], name: str) -> Declaration | None:
    """Return the declaration of a type; names of edges may be in any case."""
    exact = next((item for item in declarations if item.name.text == name), None)
    edges = (item for item in declarations if item.kind == "edge" and item.name.text.lower() == name.lower())
    return exact or next(edges, None)


def read_schema(source: Source) -> SchemaView | None:
    """Return the view of a schema, or None if it does not compile."""
    try:
        return SchemaView(source, compile_schema(source, domain=DOMAIN).catalog, parse_schema(source))
    except LanguageError:
        return None


def check_source(source: Source, language: LanguageName, catalog: Catalog | None) -> tuple[Diagnostic, ...]:
    """Return the errors, warnings and notes of a source; without a catalog, only the syntax of queries is checked."""
    try:
        if language == "pg":
            return compile_schema(source, domain=DOMAIN).notes
        if catalog is not None:
            return tuple(lint_queries([source], catalog).findings)
        parse_queries(source)
    except LanguageError as error:
        return error.diagnostics
    return ()
