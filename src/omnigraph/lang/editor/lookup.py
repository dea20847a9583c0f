"""The word under the cursor: what it means, the text that an editor shows about it, and where it is defined.

Pure. The words themselves come from the grammars; a word without a text here is still completed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from omnigraph.lang.diagnostic import LanguageError, Source, Span
from omnigraph.lang.editor.sources import SchemaView, Variable, Words, find_declaration, find_variables, split_words
from omnigraph.lang.format import LANGUAGES, LanguageName
from omnigraph.lang.format.syntax_tokens import keywords
from omnigraph.lang.query.functions import AGGREGATES, FUNCTIONS, show_forms
from omnigraph.lang.scalars import LITERAL_CALLS, TIME_FORMS, Scalar
from omnigraph.lang.schema.ast import Declaration
from omnigraph.lang.schema.parser import parse_schema

QUERY_WORDS: Final[Mapping[str, str]] = {
    "query": "Declares a query: `query name($parameter: Type) { … }`.",
    "match": "The pattern: every combination of entities that satisfies all clauses is a row.",
    "return": "The columns of the result. With an aggregate, the other columns are the group key.",
    "with": "Ends a stage: `with { $v, count(*) as $n }` passes variables and values on to the next `match`.",
    "union": "Puts the rows of two blocks one after the other, equal rows once; `union all` keeps them all.",
    "distinct": "Returns equal rows once; in an aggregate, takes equal values once.",
    "on": "`distinct on (key, …)`: returns the first row of each key, in the order of the query.",
    "having": "Filters groups by their keys, aggregates and columns.",
    "order": "Sorts the rows: `order { column desc, other }`.",
    "skip": "Leaves out the first rows.",
    "limit": "Returns at most this many rows.",
    "unwind": "`unwind $v.tags as $tag`: each element of a list, a row each.",
    "per": "`limit 3 per { key }`: the first rows of each group, in the order of the query.",
    "optional": "A block that keeps a row without inner solutions, with nulls.",
    "not": "`not { … }` keeps a row if the block has no solution.",
    "exists": "`exists { … }`: true if the pattern matches beside the row.",
    "count": "`count { … }`: in how many ways the pattern matches. `count(x)`, `count(*)`: an aggregate.",
    "as": "Names a column, or binds the hops of a traversal or a value of a `with`.",
    "asc": "Ascending; nulls first.",
    "desc": "Descending; nulls last.",
    "and": "True if both conditions are; unknown if one is unknown and none is false.",
    "or": "True if a condition is; unknown if one is unknown and none is true.",
    "in": "True if a value equals an item of a list; `$v in nodes($p)` binds the nodes of a path.",
    "is": "`is null` and `is not null` test for a missing value.",
    "contains": "True if a text contains a text, or a list an item.",
    "starts_with": "True if a text begins with a text.",
    "insert": "Inserts an entity; a node of an existing key is replaced.",
    "update": "Changes properties: `update Type set { … } where property = value`.",
    "rename": "Changes keys, and takes the edges of nodes along: `rename Type set { key: … } where key = …`.",
    "delete": "Deletes entities, and with nodes their edges.",
    "set": "The properties that an update changes.",
    "where": "Which entities a mutation changes, or what `any` and `all` test.",
}
# Functions with special rules; the others are described where they are defined.
_SPECIAL_FUNCTIONS: Final[Mapping[str, str]] = {
    "now": "`now()`: the instant at which the query runs, one for all rows.",
    **{word: f'`{word}("{TIME_FORMS[scalar].example}")`: a {scalar}.' for word, scalar in LITERAL_CALLS.items()},
    "cast": "`cast(x as Type)`: a value as another type.",
    "type": "`type($x)`: the type of a node of several types.",
    "nodes": "`nodes($p)`: the ids of the nodes of a path, in order.",
    "edges": "`edges($p)`: the ids of the edges of a path, in order.",
    "cost": "`cost($p)`: the weight of a path that was found `by` an edge property.",
    "any": "`any($item in list where condition)`: true if the condition holds for an item.",
    "all": "`all($item in list where condition)`: true if the condition holds for every item.",
    "search": "`search(text, words)`: true if a text has any of the words.",
    "match_text": "`match_text(text, words)`: the same as `search`.",
    "fuzzy": "`fuzzy(text, words, edits)`: like `search`, but forgives misspellings.",
    "bm25": "`bm25(text, words)`: the relevance of a text; ranks, best first.",
    "nearest": "`nearest(vector, other)`: the Euclidean distance; ranks, closest first.",
    "rrf": "`rrf(first, second, k, window)`: fuses the best of two rankings by their ranks.",
    **{item.name: f"`{item.usage}`: {item.text}" for item in AGGREGATES.values()},
}
SCHEMA_WORDS: Final[Mapping[str, str]] = {
    "node": "Declares a node type: `node Name { property: Type }`.",
    "edge": "Declares an edge type: `edge Name: Source -> Target { property: Type }`.",
    "interface": "Declares properties that several node types share.",
    "implements": "Takes over the properties of interfaces.",
    "enum": "One of the listed words: `enum(a, b)`.",
    **{scalar.value: scalar.facts.meaning for scalar in Scalar},
}
ANNOTATIONS: Final[Mapping[str, str]] = {
    "key": "The identity of a node or edge. Several members: `@key(a, b)`, `@key(@src, @dst)`.",
    "unique": "No two entities have the same value; nulls are exempt.",
    "index": "An index for fast lookup, or for words of a text.",
    "range": "`@range(property, low..high)`: inclusive bounds of a number.",
    "check": '`@check(property, "pattern")`: a pattern that a text must match.',
    "card": "`@card(min..max)`: how many edges of the type may leave a node.",
    "description": "A text that explains a type, property or query.",
    "instruction": "A text that tells agents how to use a type or query.",
    "embed": '`@embed(source, model="…")`: where the vectors come from.',
    "default": "`@default(value)`, `@default(now())`, `@default(uuid())`: stored where a write leaves it out.",
    "mixed": "A mutation that may insert, update and delete: `query name() @mixed { … }`.",
    "rename_from": "The name before a migration.",
    "merge": "`@merge(rule)`: ours, theirs, max, min, union or fail.",
}
SYSTEM_FIELDS: Final[Mapping[str, str]] = {
    "@id": "The id of a node or edge, a String.",
    "@type": "The name of the type of a node or edge, a String; the same as `type($v)`.",
    "@src": "The id of the node that an edge starts from, a String.",
    "@dst": "The id of the node that an edge leads to, a String.",
}
ENDS: Final = ("@src", "@dst")
QUERY_ANNOTATIONS: Final = ("description", "instruction", "mixed")


def describe_function(name: str) -> str | None:
    """Return what a function does, with its forms; None if there is none of that name.

    >>> describe_function("now")
    '`now()`: the instant at which the query runs, one for all rows.'
    """
    if name in _SPECIAL_FUNCTIONS:
        return _SPECIAL_FUNCTIONS[name]
    if name not in FUNCTIONS:
        return None
    return f"{FUNCTIONS[name].text} {show_forms(FUNCTIONS[name].signatures)}"


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
        if words.text(position) in ("update", "rename", "delete"):
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
        return _code("pg", str(type_)) if type_ is not None else SCHEMA_WORDS.get(meaning.name)
    if meaning.kind == "property":
        property_ = view.find_property(meaning.owner, meaning.name) if view is not None else None
        return _code("pg", f"{meaning.owner}.{property_}") if property_ is not None else None
    if meaning.kind == "function":
        return describe_function(meaning.name)
    if meaning.kind == "annotation":
        return ANNOTATIONS.get(meaning.name) or SYSTEM_FIELDS.get(f"@{meaning.name}")
    words = SCHEMA_WORDS if language == "pg" else {**SCHEMA_WORDS, **QUERY_WORDS}
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
    span = None
    if meaning.kind == "type":
        # A schema that does not compile has no view, but its declarations may still be found.
        declarations = (
            _parse_declarations(source) if language == "pg" else view.declarations if view is not None else ()
        )
        declaration = find_declaration(declarations, meaning.name)
        span = declaration.name.span if declaration is not None else None
    elif view is not None and meaning.kind == "property" and meaning.owner is not None:
        span = view.property_at(meaning.owner, meaning.name)
    target = source if language == "pg" or view is None else view.source
    return (target, span) if span is not None else None


def _parse_declarations(source: Source) -> tuple[Declaration, ...]:
    with suppress(LanguageError):
        return parse_schema(source)
    return ()
