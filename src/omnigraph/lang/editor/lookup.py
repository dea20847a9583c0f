"""The word under the cursor: what it means, the text that an editor shows about it, and where it is defined.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from omnigraph.lang.diagnostic import LanguageError, Source, Span
from omnigraph.lang.editor import vocabulary
from omnigraph.lang.editor.compiled_source import SchemaView, find_declaration
from omnigraph.lang.editor.variables import Variable, find_variables
from omnigraph.lang.editor.words import Words, split_words
from omnigraph.lang.format import LANGUAGES, LanguageName
from omnigraph.lang.format.syntax_tokens import keywords
from omnigraph.lang.schema.parser import parse_schema

MeaningKind = Literal["variable", "type", "property", "function", "annotation", "keyword"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """A word and what it is; `owner` is the type of a property."""

    kind: MeaningKind
    name: str
    span: Span
    owner: str | None = None
    variable: Variable | None = None


def find_meaning(source: Source, language: LanguageName, offset: int, view: SchemaView | None) -> Meaning | None:
    """Return what stands at an offset, or None for punctuation, numbers, strings and comments."""
    words = split_words(source.text)
    index = None if words.is_opaque(offset) else words.at(offset)
    if index is None:
        return None
    word = words.words[index]
    if word.text.startswith("@") or (language == "pg" and words.text(index - 1) == "@"):
        return Meaning("annotation", word.text.removeprefix("@"), word.span)
    if language == "pg":
        return _meaning_in_schema(words, index, view)
    return _meaning_in_query(words, index, view)


def _meaning_in_schema(words: Words, index: int, view: SchemaView | None) -> Meaning | None:
    word = words.words[index]
    start, _ = words.declaration(index)
    owner = words.text(start + 1)
    if word.text[:1].isupper():
        is_word = word.text in keywords(LANGUAGES["pg"])
        return Meaning("keyword" if is_word and word.depth else "type", word.text, word.span)
    is_declared = view is not None and view.find_property(owner, word.text) is not None
    if word.depth and (words.text(index + 1) == ":" or is_declared):
        return Meaning("property", word.text, word.span, owner)
    return Meaning("keyword", word.text, word.span) if word.text in keywords(LANGUAGES["pg"]) else None


def _meaning_in_query(words: Words, index: int, view: SchemaView | None) -> Meaning | None:
    word, before, after = words.words[index], words.text(index - 1), words.text(index + 1)
    start, stop = words.declaration(index)
    variables = find_variables(words.words[start:stop], view)
    if word.text.startswith("$"):
        variable = variables.get(word.text)
        return Meaning("variable", word.text, word.span, variable=variable) if variable is not None else None
    if word.text[:1].isupper():
        return Meaning("type" if word.depth else "keyword", word.text, word.span)
    if before == ".":
        variable = variables.get(words.text(index - 2))
        return Meaning("property", word.text, word.span, variable.type if variable is not None else None)
    if after == ":" and (owner := block_owner(words, index)) is not None:
        return Meaning("property", word.text, word.span, owner)
    if after == "(" and words.text(index - 1) != "query":
        return Meaning("function", word.text, word.span)
    if before == "where" and (owner := _mutated_type(words, index, start)) is not None:
        return Meaning("property", word.text, word.span, owner)
    is_after_variable = before.startswith("$") or is_edge_place(words, index)
    if is_after_variable and view is not None and view.catalog.edge_by_word(word.text) is not None:
        return Meaning("type", word.text, word.span)
    return Meaning("keyword", word.text, word.span) if word.text in keywords(LANGUAGES["gq"]) else None


def is_edge_place(words: Words, index: int) -> bool:
    """Return True where the edge of a traversal stands: behind `$e:`, `<`, an opening parenthesis or a `|`."""
    opening = words.text(index - 1)
    before = words.text(index - 2)
    if opening == "|":
        return before[:1].islower()
    if opening in ("(", "<"):
        return before.startswith("$") or (before == ":" and words.text(index - 3).startswith("$"))
    return opening == ":" and before.startswith("$")


def block_owner(words: Words, index: int) -> str | None:
    """Return the type whose properties the block around a word lists: `Type { … }`, `Type set { … }`."""
    depth = words.words[index].depth if index < len(words.words) else None
    for position in range(index - 1, -1, -1):
        word = words.words[position]
        if word.text == "{" and (depth is None or word.depth < depth):
            before = words.text(position - 1)
            name = words.text(position - 2) if before == "set" else before
            return name if name[:1].isupper() else None
    return None


def _mutated_type(words: Words, index: int, start: int) -> str | None:
    for position in range(index - 1, start, -1):
        if words.text(position) in ("update", "delete"):
            name = words.text(position + 1)
            return name if name[:1].isupper() else None
    return None


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
        return vocabulary.ANNOTATIONS.get(meaning.name) or vocabulary.SYSTEM_FIELDS.get(f"@{meaning.name}")
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
