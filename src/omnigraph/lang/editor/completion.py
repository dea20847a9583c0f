"""Completion: the words that the grammar accepts at a position, and the names that fit there.

Pure. The parser says which terminals may follow, so that new rules of a grammar are completed without a change here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from omnigraph.lang.catalog import EdgeType, Scalar, Type
from omnigraph.lang.diagnostic import Source, Span
from omnigraph.lang.editor import lookup
from omnigraph.lang.editor.lookup import block_owner, is_edge_place
from omnigraph.lang.editor.sources import SchemaView, Variable, Words, find_variables, split_words
from omnigraph.lang.format import LANGUAGES, LanguageName
from omnigraph.lang.format.syntax_tokens import keywords_by_terminal
from omnigraph.lang.parsing import accepted_terminals
from omnigraph.lang.query.functions import FUNCTION_NAMES

CompletionKind = Literal["keyword", "type", "edge", "property", "variable", "function", "annotation"]
_PARTIAL: Final = re.compile(r"[$@]?\w*\Z")
_MUTATIONS: Final = frozenset({"insert", "update", "rename", "delete", "create", "upsert"})


@dataclass(frozen=True, slots=True)
class Completion:
    """A word that may be typed over a span, with its type or a text about it."""

    label: str
    kind: CompletionKind
    span: Span
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _Position:
    """A place in a source: the words before it, what the grammar accepts, and what is in scope."""

    words: Words
    index: int
    span: Span
    accepted: frozenset[str]
    variables: Mapping[str, Variable]
    view: SchemaView | None

    def before(self, back: int = 1) -> str:
        return self.words.text(self.index - back)

    def find_type(self, name: str | None) -> Type | None:
        return self.view.find_type(name) if self.view is not None and name is not None else None

    @property
    def is_in_body(self) -> bool:
        start, _ = self.words.declaration(self.index - 1) if self.index else (0, 0)
        return any(word.text == "{" for word in self.words.words[start : self.index])


def complete(source: Source, language: LanguageName, offset: int, view: SchemaView | None) -> tuple[Completion, ...]:
    """Return what may stand at an offset, sorted by kind of use; the editor filters by what was typed."""
    match = _PARTIAL.search(source.text[:offset])
    start = match.start() if match is not None else offset
    words = split_words(source.text)
    if words.is_opaque(offset):
        return ()
    index = words.before(start)
    first, last = words.declaration(max(index - 1, 0))
    begin = words.words[first].span.start if index else start
    position = _Position(
        words,
        index,
        Span(start, offset),
        accepted_terminals(source.text[begin:start], LANGUAGES[language]) if begin <= start else frozenset(),
        find_variables(words.words[first:last], view) if language == "gq" else {},
        view,
    )
    names = _complete_schema(position) if language == "pg" else _complete_query(position)
    return tuple({item.label: item for item in [*names, *_keywords(position, language)]}.values())


def _complete_query(position: _Position) -> Iterator[Completion]:
    if position.before() == ".":
        variable = position.variables.get(position.before(2))
        yield from _properties(position, variable.type if variable is not None else None)
        if variable is not None and variable.kind in ("node", "edge", "unknown"):
            yield from _system_fields(position, has_ends=variable.kind != "node")
        return
    if "VAR" in position.accepted or not position.accepted:
        for variable in position.variables.values():
            yield Completion(variable.name, "variable", position.span, variable.type or variable.kind)
    if "TYPE" in position.accepted:
        is_entity = position.is_in_body and position.before() != "as"
        yield from _types(position) if is_entity else _scalars(position)
    if position.accepted & {"NAME", "ASSIGNED"}:
        yield from _names(position)
    if "META" in position.accepted:
        for word in lookup.QUERY_ANNOTATIONS:
            yield Completion(f"@{word}", "annotation", position.span, lookup.ANNOTATIONS[word])


def _names(position: _Position) -> Iterator[Completion]:
    """Yield edges after a variable, properties in the block of a type, and functions elsewhere."""
    before = position.before()
    owner = block_owner(position.words, position.index) if before in ("{", ",") or before[:1] != "$" else None
    if owner is not None and position.view is not None and before in ("{", ","):
        yield from _properties(position, owner)
        if isinstance(position.find_type(owner), EdgeType):
            yield from (Completion(end, "property", position.span, "the id of a node") for end in ("from", "to"))
        return
    if before == "where":
        name = position.before(2) if position.before(2)[:1].isupper() else None
        yield from _properties(position, name)
        type_ = position.find_type(name)
        if type_ is not None:
            yield from _system_fields(position, has_ends=isinstance(type_, EdgeType))
        return
    is_edge = is_edge_place(position.words, position.index)
    if before.startswith("$") or is_edge:
        yield from _edges(position)
    # What follows a variable may also begin the next clause.
    if before not in ("query", "as") and not is_edge:
        for function in sorted(FUNCTION_NAMES):
            yield Completion(function, "function", position.span, lookup.describe_function(function) or "")


def _properties(position: _Position, type_name: str | None) -> Iterator[Completion]:
    type_ = position.find_type(type_name)
    if type_ is not None:
        for name, item in type_.properties.items():
            yield Completion(name, "property", position.span, str(item.type))


def _system_fields(position: _Position, *, has_ends: bool) -> Iterator[Completion]:
    for field, text in lookup.SYSTEM_FIELDS.items():
        if has_ends or field not in lookup.ENDS:
            yield Completion(field, "property", position.span, text)


def _edges(position: _Position) -> Iterator[Completion]:
    """Yield the edges that fit the variable before the position, or all if its type is not known."""
    if position.view is None:
        return
    variable = position.variables.get(position.before())
    type_name = variable.type if variable is not None and variable.kind == "node" else None
    for _, edge in sorted(position.view.catalog.edges.items()):
        if type_name is None or type_name in (edge.source, edge.target):
            detail = f"{edge.source} -> {edge.target}"
            yield Completion(edge.word, "edge", position.span, detail)


def _types(position: _Position) -> Iterator[Completion]:
    if position.view is None:
        return
    for name in sorted(position.view.catalog.nodes):
        yield Completion(name, "type", position.span, "node")
    if position.before() in _MUTATIONS:
        for name in sorted(position.view.catalog.edges):
            yield Completion(name, "type", position.span, "edge")


def _scalars(position: _Position) -> Iterator[Completion]:
    for scalar in Scalar:
        yield Completion(scalar.value, "type", position.span, lookup.SCHEMA_WORDS.get(scalar.value, ""))


def _complete_schema(position: _Position) -> Iterator[Completion]:
    words = position.words.words
    if {"AT", "NAME"} <= position.accepted:
        start, _ = position.words.declaration(max(position.index - 1, 0))
        for end in lookup.ENDS if position.words.text(start) == "edge" else ():
            yield Completion(end, "property", position.span, lookup.SYSTEM_FIELDS[end])
    elif "ANNOTATION" in position.accepted or "AT" in position.accepted:
        for word, text in lookup.ANNOTATIONS.items():
            label = word if position.before() == "@" else f"@{word}"
            yield Completion(label, "annotation", position.span, text)
    if "TYPE_NAME" in position.accepted and position.before() not in ("node", "edge", "interface"):
        kind = "interface" if position.before() in ("implements", ",") else "node"
        for index, keyword in enumerate(words[:-1]):
            if keyword.depth == 0 and keyword.text == kind:
                yield Completion(words[index + 1].text, "type", position.span, kind)
    if position.accepted & {"NAME", "ASSIGNED"}:
        start, stop = position.words.declaration(max(position.index - 1, 0))
        for name, colon in pairwise(words[start:stop]):
            if name.depth == 1 and colon.text == ":" and name.text[:1].islower():
                yield Completion(name.text, "property", position.span, "")


def _keywords(position: _Position, language: LanguageName) -> Iterator[Completion]:
    """Yield the keywords that the grammar accepts, or all if what precedes does not parse."""
    texts = lookup.SCHEMA_WORDS if language == "pg" else lookup.QUERY_WORDS
    if position.before() in (".", "@"):
        return
    for terminal, words in keywords_by_terminal(LANGUAGES[language]).items():
        if terminal in position.accepted or not position.accepted:
            for word in words:
                yield Completion(word, "keyword", position.span, texts.get(word, ""))
