"""Checks the names of the whole schema: declared once, endpoints known, none taken by the graph (S25 to S28).

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.lang.diagnostic import Diagnostic
from omnigraph.lang.schema.expand import Draft
from omnigraph.lang.schema.nearest import did_you_mean
from omnigraph.lang.schema.syntax import Declaration
from omnigraph.lang.source import Source


def check_names(draft: Draft) -> Iterator[Diagnostic]:
    """Yield S25 to S28."""
    seen: dict[tuple[str, str], int] = {}
    edge_words: dict[str, str] = {}
    for owner in draft.owners:
        declaration = owner.declaration
        name, kind = declaration.name.text, declaration.kind
        if (kind, name) in seen:
            message = f"{_shown(kind)} `{name}` is declared twice"
            yield Diagnostic("S25", message, draft.source, declaration.name.span, _first(draft, seen[kind, name]))
        elif kind == "edge" and name.lower() in edge_words:
            message = f"edge type `{name}` differs from `{edge_words[name.lower()]}` in case only"
            hint = "traversals spell edges in any case, so the names must differ otherwise"
            yield Diagnostic("S27", message, draft.source, declaration.name.span, hint)
        seen.setdefault((kind, name), declaration.name.span.start)
        if kind == "edge":
            edge_words.setdefault(name.lower(), name)
            yield from _check_endpoints(draft, declaration)
        yield from _check_properties(declaration, draft.source)


def _shown(kind: str) -> str:
    return kind if kind == "interface" else f"{kind} type"


def _first(draft: Draft, offset: int) -> str:
    return f"the first one is at line {draft.source.position(offset).line}; rename or remove one of them"


def _check_endpoints(draft: Draft, declaration: Declaration) -> Iterator[Diagnostic]:
    for word in (declaration.source, declaration.target):
        if word is not None and word.text not in draft.nodes:
            message = f"endpoint `{word.text}` of edge `{declaration.name.text}` is not a node type"
            hint = did_you_mean(word.text, draft.nodes)
            if word.text in draft.interfaces:
                hint = "an interface cannot be an endpoint; declare one edge type for each node type"
            yield Diagnostic("S26", message, draft.source, word.span, hint)


def _check_properties(declaration: Declaration, source: Source) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for property_ in declaration.properties:
        name, span = property_.name.text, property_.name.span
        if name in seen:
            message = f"property `{name}` of `{declaration.name.text}` is declared twice"
            yield Diagnostic("S25", message, source, span, "rename or remove one of them")
        elif name == "id":
            hint = "every node and edge has an `id` already; mark your own identifier with `@key`"
            yield Diagnostic("S28", "a property cannot be called `id`", source, span, hint)
        elif declaration.kind == "edge" and name in ("src", "dst"):
            hint = "every edge has `src` and `dst` already: they are its endpoints"
            yield Diagnostic("S28", f"an edge property cannot be called `{name}`", source, span, hint)
        seen.add(name)
