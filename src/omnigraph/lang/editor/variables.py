"""The variables of a query and their types, from its words and a schema.

Pure. Reads the forms of a pattern (`$v: Type`, `$a edge $b`, `$a $e:(edge | edge) $b`), so that it also works on a
query that is still being typed. Types that only the compiler could find stay unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from omnigraph.lang.catalog import EdgeType
from omnigraph.lang.diagnostic import Span
from omnigraph.lang.editor.compiled_source import SchemaView
from omnigraph.lang.editor.words import Word

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


@dataclass(frozen=True, slots=True)
class _Walk:
    left: str
    edges: tuple[str, ...]
    right: str


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


def _find_walks(words: Sequence[Word]) -> list[_Walk]:
    """Return the traversals: a variable, an edge, and a variable, with what may stand around the edge left out."""
    walks: list[_Walk] = []
    texts = [word.text for word in words]
    for index, text in enumerate(texts):
        if not text.startswith("$"):
            continue
        position = index + 1
        if (
            texts[position : position + 1]
            and texts[position].startswith("$")
            and texts[position + 1 : position + 2] == [":"]
        ):
            position += 2
        position += texts[position : position + 1] in (["<"], ["("])
        edges = texts[position : position + 1]
        position += 1
        while texts[position : position + 1] == ["|"]:
            edges += texts[position + 1 : position + 2]
            position += 2
        position += texts[position : position + 1] in ([">"], [")"])
        if texts[position : position + 1] == ["{"] and "}" in texts[position : position + 6]:
            position = texts.index("}", position) + 1
        right = texts[position] if position < len(texts) else ""
        if all(edge[:1].islower() for edge in edges) and right.startswith("$"):
            walks.append(_Walk(text, tuple(edges), right))
    return walks


def _infer_types(variables: dict[str, Variable], walks: Sequence[_Walk], view: SchemaView) -> None:
    """Give the ends of walks the types that their edges join."""
    for _ in range(_ROUNDS_MAX):
        is_changed = False
        for walk in walks:
            edges = [view.catalog.edge_by_word(word) for word in walk.edges]
            first = edges[0]
            # Alternatives between other types lead to several types, which only the compiler knows.
            if first is not None and all(
                edge is not None and (edge.source, edge.target) == (first.source, first.target) for edge in edges
            ):
                is_changed |= _infer_ends(variables, walk, first)
        if not is_changed:
            return


def _infer_ends(variables: dict[str, Variable], walk: _Walk, edge: EdgeType) -> bool:
    left, right = variables.get(walk.left), variables.get(walk.right)
    is_reversed = (left is not None and left.type == edge.target != edge.source) or (
        right is not None and right.type == edge.source != edge.target
    )
    ends = (edge.target, edge.source) if is_reversed else (edge.source, edge.target)
    is_changed = False
    for variable, type_name in zip((left, right), ends, strict=True):
        if variable is not None and variable.kind == "unknown":
            variables[variable.name] = Variable(variable.name, "node", type_name, variable.span)
            is_changed = True
    return is_changed
