"""Where the word under the cursor is defined: a type or property in the schema, a variable in its query.

Pure.
"""

from __future__ import annotations

from omnigraph.lang.diagnostic import LanguageError, Source, Span
from omnigraph.lang.editor.context import find_meaning
from omnigraph.lang.editor.schema_view import SchemaView, find_declaration
from omnigraph.lang.format import LanguageName
from omnigraph.lang.schema.parser import parse_schema


def find_definition(
    source: Source, language: LanguageName, offset: int, view: SchemaView | None
) -> tuple[Source, Span] | None:
    """Return the source and span of the definition of the word at an offset."""
    meaning = find_meaning(source, language, offset, view)
    if meaning is None:
        return None
    if meaning.kind == "variable" and meaning.variable is not None:
        return source, meaning.variable.span
    if meaning.kind == "type" and language == "pg":
        # A schema that does not compile has no view, but its declarations may still be found.
        span = _find_in_source(source, meaning.name)
    elif view is None:
        span = None
    elif meaning.kind == "type":
        span = view.declared_at(meaning.name)
    else:
        is_property = meaning.kind == "property" and meaning.owner is not None
        span = view.property_at(meaning.owner or "", meaning.name) if is_property else None
    target = source if language == "pg" or view is None else view.source
    return (target, span) if span is not None else None


def _find_in_source(source: Source, name: str) -> Span | None:
    try:
        declaration = find_declaration(parse_schema(source), name)
    except LanguageError:
        return None
    return declaration.name.span if declaration is not None else None
