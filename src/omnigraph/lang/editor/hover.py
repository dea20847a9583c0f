"""The text that an editor shows about the word under the cursor, as Markdown.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.lang.diagnostic import Source, Span
from omnigraph.lang.editor import vocabulary
from omnigraph.lang.editor.context import Meaning, find_meaning
from omnigraph.lang.editor.schema_view import SchemaView
from omnigraph.lang.format import LanguageName


@dataclass(frozen=True, slots=True)
class Hover:
    """A text about a span of a source."""

    text: str
    span: Span


def describe(source: Source, language: LanguageName, offset: int, view: SchemaView | None) -> Hover | None:
    """Return what is known of the word at an offset."""
    meaning = find_meaning(source, language, offset, view)
    text = _describe(meaning, language, view) if meaning is not None else None
    return Hover(text, meaning.span) if meaning is not None and text is not None else None


def _describe(meaning: Meaning, language: LanguageName, view: SchemaView | None) -> str | None:
    if meaning.kind == "variable":
        return _describe_variable(meaning, view)
    if meaning.kind == "type":
        type_ = view.find_type(meaning.name) if view is not None else None
        return _code("pg", str(type_)) if type_ is not None else vocabulary.SCHEMA_WORDS.get(meaning.name)
    if meaning.kind == "property":
        property_ = view.find_property(meaning.owner, meaning.name) if view is not None else None
        return _code("pg", f"{meaning.owner}.{property_}") if property_ is not None else None
    if meaning.kind == "function":
        return vocabulary.describe_function(meaning.name)
    if meaning.kind == "annotation":
        return vocabulary.ANNOTATIONS.get(meaning.name)
    words = vocabulary.SCHEMA_WORDS if language == "pg" else {**vocabulary.SCHEMA_WORDS, **vocabulary.QUERY_WORDS}
    return words.get(meaning.name)


def _describe_variable(meaning: Meaning, view: SchemaView | None) -> str | None:
    variable = meaning.variable
    assert variable is not None
    kind = f"({variable.kind}) " if variable.kind != "unknown" else ""
    head = _code("gq", f"{kind}{variable.name}{f': {variable.type}' if variable.type is not None else ''}")
    type_ = view.find_type(variable.type) if view is not None and variable.type is not None else None
    is_entity = variable.kind in ("node", "edge")
    return f"{head}\n\n{_code('pg', str(type_))}" if type_ is not None and is_entity else head


def _code(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"
