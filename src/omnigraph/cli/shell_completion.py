"""Completes what is typed in `omnigraph shell`: commands, branches, names of the schema, and words of the language."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from omnigraph.cli.options import Format
from omnigraph.errors import OmniGraphError
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.editor.completion import complete as complete_query
from omnigraph.lang.editor.sources import SchemaView
from omnigraph.lang.query.functions import FUNCTION_NAMES
from omnigraph.lang.query.parser import read_keywords

if TYPE_CHECKING:
    from omnigraph.cli.shell import Session

# A word of the language, a command, a variable with or without a property, or a name with slashes, as branches have.
_WORD: Final = re.compile(r"[:$@]?[\w/.@-]*\Z")
_PROPERTY: Final = re.compile(r"(\$\w+\.)@?\w*\Z")


def completions(before: str, session: Session, commands: Sequence[str]) -> tuple[str, list[str]]:
    """Return the last word of a text, and what may be typed in its place."""
    match = _WORD.search(before)
    word = match[0] if match is not None else ""
    return word, [candidate for candidate in complete(before, session, commands) if candidate.startswith(word)]


def complete(before: str, session: Session, commands: Sequence[str]) -> Sequence[str]:
    """Return the words that may follow a text; the prompt keeps those that begin as the last word does."""
    word, space, _ = before.lstrip().partition(" ")
    if before.lstrip().startswith(":") and not space:
        return commands
    # What a server does not show must not disturb typing.
    with suppress(OmniGraphError):
        if word in (":branch", ":at"):
            tags = [tag.name for tag in session.graph.tags.list()] if word == ":at" else []
            return [*session.graph.branches.list(), *tags]
        if word == ":format":
            return list(Format)
        if word == ":run":
            return session.query_names
        access = _PROPERTY.search(before)
        if access is not None:
            return [f"{access[1]}{name}" for name in _property_names(before, session)]
        return _language_words(session)
    return read_keywords()


def _property_names(before: str, session: Session) -> list[str]:
    """Return the properties of the variable before the last dot; those of all types if its type is not known."""
    view = SchemaView(Source("schema.pg", ""), session.catalog, ())
    known = [item.label for item in complete_query(Source("shell.gq", before), "gq", len(before), view)]
    if any(not name.startswith("@") for name in known):
        return known
    types = (*session.catalog.nodes.values(), *session.catalog.edges.values())
    return sorted({name for type_ in types for name in type_.properties})


def _language_words(session: Session) -> list[str]:
    nodes, edges = session.catalog.nodes, session.catalog.edges
    properties = {name for types in (nodes, edges) for type_ in types.values() for name in type_.properties}
    walks = {edge.word for edge in edges.values()}
    return sorted({*read_keywords(), *FUNCTION_NAMES, *nodes, *edges, *properties, *walks, *session.sources})
