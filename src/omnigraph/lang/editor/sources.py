"""A source as an editor sees it: its words, whether or not it parses, its diagnostics, types and variables.

Pure. Variables are read from the forms of a pattern (`$v: Type`, `$a edge $b`, `$a $e:(edge | edge) $b`), which also
works on a query that is still being typed. Types that only the compiler could find stay unknown.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

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


# An unclosed string or comment extends to the end of its line or of the source.
_WORD: Final = re.compile(
    r"""(?P<opaque> "(?:[^"\\\n]|\\.)*"? | //[^\n]* | /\*(?:.*?\*/|.*) )
      | (?P<word> [$@]?[A-Za-z_]\w* | [$@] )
      | \d+(?:\.\d+)? | \.\. | -> | [<>!=]= | \S""",
    re.DOTALL | re.VERBOSE,
)
_CLOSED: Final = re.compile(r'"(?:[^"\\\n]|\\.)*" | /\*.*?\*/', re.DOTALL | re.VERBOSE)
_DECLARATIONS: Final = frozenset({"query", "node", "edge", "interface"})


@dataclass(frozen=True, slots=True)
class Word:
    """A token of a source; `depth` counts the braces around it."""

    text: str
    span: Span
    depth: int
    is_name: bool


@dataclass(frozen=True)
class Words:
    """The tokens of a source without comments and strings, and where those are."""

    words: tuple[Word, ...]
    opaque: tuple[Span, ...]

    def at(self, offset: int) -> int | None:
        """Return the index of the name at an offset, or of the one that ends there."""
        index = bisect_right(self.words, offset, key=lambda word: word.span.start) - 1
        for candidate in (index, index - 1):
            if candidate >= 0 and self.words[candidate].is_name and offset <= self.words[candidate].span.end:
                return candidate
        return None

    def before(self, offset: int) -> int:
        """Return how many words end at an offset or before it."""
        return bisect_right(self.words, offset, key=lambda word: word.span.end)

    def is_opaque(self, offset: int) -> bool:
        """Return True inside a string or comment."""
        return any(span.start < offset < span.end for span in self.opaque)

    def declaration(self, index: int) -> tuple[int, int]:
        """Return the range of the words of the declaration that a word belongs to."""
        starts = [number for number, word in enumerate(self.words) if word.depth == 0 and word.text in _DECLARATIONS]
        position = bisect_right(starts, index)
        bounds = [0, *starts, len(self.words)]
        return bounds[position], bounds[position + 1]

    def text(self, index: int) -> str:
        return self.words[index].text if 0 <= index < len(self.words) else ""


def split_words(text: str) -> Words:
    """Return the words of a text.

    >>> [word.text for word in split_words('$p: Package // {').words]
    ['$p', ':', 'Package']
    """
    words: list[Word] = []
    opaque: list[Span] = []
    depth = 0
    for match in _WORD.finditer(text):
        span = Span(*match.span())
        if match["opaque"]:
            # A comment lasts to the end of its line, which the cursor may stand at.
            opaque.append(Span(span.start, span.end + (_CLOSED.fullmatch(match[0]) is None)))
            continue
        depth -= match[0] == "}"
        words.append(Word(match[0], span, max(depth, 0), match["word"] is not None))
        depth = max(depth, 0) + (match[0] == "{")
    return Words(tuple(words), tuple(opaque))


VariableKind = Literal["parameter", "node", "edge", "hops", "unknown"]
# Types pass along walks from variable to variable; patterns are shorter than this.
_ROUNDS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable: its kind, its type as written or inferred, and where it is first bound."""

    name: str
    kind: VariableKind
    type: str | None
    span: Span


# A variable, an edge or alternatives, and a variable, with what may stand around the edge; a space sets words apart.
_WALK: Final = re.compile(
    r"""(?<!\S) (?= (\$\S*)\ (?:\$\S*\ :\ )? (?:[<(]\ )? ([a-z]\w*(?:\ \|\ [a-z]\w*)*)\ (?:[>)]\ )?
        (?:\{\ (?:\S+\ ){0,4}?\}\ )? (\$\S*) )""",
    re.VERBOSE,
)
Walk: TypeAlias = tuple[str, list[str], str]


def find_variables(words: Sequence[Word], view: SchemaView | None) -> dict[str, Variable]:
    """Return the variables of the words of one query by name."""
    variables: dict[str, Variable] = {}
    body = next((index for index, word in enumerate(words) if word.text == "{"), len(words))
    for index, word in enumerate(words):
        if not word.text.startswith("$") or word.text == "$_" or len(word.text) == 1:
            continue
        known = variables.get(word.text)
        variable = _read_variable(words, index, is_parameter=index < body)
        if known is None or (known.kind == "unknown" and variable.kind != "unknown"):
            variables[word.text] = variable
    if view is not None:
        _infer_types(variables, _find_walks(words), view)
    return variables


def _read_variable(words: Sequence[Word], index: int, *, is_parameter: bool) -> Variable:
    word = words[index]
    following = [item.text for item in words[index + 1 : index + 4]]
    if is_parameter:
        return Variable(word.text, "parameter", _read_parameter_type(words, index + 2), word.span)
    if following[:1] == [":"] and len(following) > 1:
        name = following[2] if following[1] in ("<", "(") and len(following) > 2 else following[1]
        return Variable(word.text, "node" if name[:1].isupper() else "edge", name, word.span)
    if index and words[index - 1].text == "as":
        return Variable(word.text, "hops", "I64", word.span)
    return Variable(word.text, "unknown", None, word.span)


def _read_parameter_type(words: Sequence[Word], start: int) -> str | None:
    """Return the type of a parameter as it is written."""
    texts: list[str] = []
    depth = 0
    for word in words[start:]:
        depth += word.text in "([" if len(word.text) == 1 else 0
        if depth == 0 and word.text in (",", ")"):
            break
        depth -= word.text in ")]" if len(word.text) == 1 else 0
        texts.append(word.text)
    return "".join(texts) or None


def _find_walks(words: Sequence[Word]) -> list[Walk]:
    """Return the traversals, as a variable, the alternative edges, and a variable."""
    matches = _WALK.findall(" ".join(word.text for word in words))
    return [(left, edges.split(" | "), right) for left, edges, right in matches]


def _infer_types(variables: dict[str, Variable], walks: Sequence[Walk], view: SchemaView) -> None:
    """Give the ends of walks the types that their edges join."""
    for _ in range(_ROUNDS_MAX):
        is_changed = False
        for left, words, right in walks:
            edges = [view.catalog.edge_by_word(word) for word in words]
            # Alternatives between other types lead to several types, which only the compiler knows.
            if len({edge and (edge.source, edge.target) for edge in edges}) == 1 and edges[0] is not None:
                is_changed |= _infer_ends(variables, left, edges[0], right)
        if not is_changed:
            return


def _infer_ends(variables: dict[str, Variable], start: str, edge: EdgeType, end: str) -> bool:
    left, right = variables.get(start), variables.get(end)
    is_reversed = (left is not None and left.type == edge.target != edge.source) or (
        right is not None and right.type == edge.source != edge.target
    )
    ends = (edge.target, edge.source) if is_reversed else (edge.source, edge.target)
    is_changed = False
    for variable, type_name in zip((left, right), ends, strict=True):
        if variable is not None and variable.kind == "unknown":
            variables[variable.name] = replace(variable, kind="node", type=type_name)
            is_changed = True
    return is_changed
