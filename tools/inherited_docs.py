"""Griffe extension for the site: methods show the docstring that `help()` shows for them.

Graphs and their parts inherit documentation from protocols, and functions of the pipeline from methods, some of it
section by section, so it is read from the imported package. Methods of the client, which are built from calls, also get
the signature of the call.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import griffe

CALLS = "client.endpoints"
COMPLETED = "complete_docs"
EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)
BUILT = re.compile(r"^_(blocking|awaitable)(_stream)?\((\w+)\.(\w+)\)$")
GRAPHS = (
    "graph.Graph",
    "graph_reads.GraphReads",
    "graph_reads.GraphHistory",
    "graph_reads.GraphAt",
    "engine.branches.Branches",
    "engine.branches.Tags",
    "engine.schema.Schema",
    "engine.entity_lookup.Blob",
)


class InheritedDocs(griffe.Extension):
    """Completes the classes of graphs after the package was loaded."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        if pkg.name != "omnigraph":
            return
        for class_ in classes_of(pkg):
            kind = getattr(import_module(class_.module.path), class_.name)
            for name, member in list(class_.members.items()):
                if isinstance(member, griffe.Attribute) and (match := BUILT.match(str(member.value))):
                    call = pkg[CALLS][match[3]][match[4]]
                    if call.is_attribute:
                        # A former name, as in `ingest = load`.
                        call = pkg[CALLS][match[3]][str(call.value)]
                    member = build_method(name, call, match[1], match[2])
                    class_.set_member(name, member)
                is_shown = member.is_function or "property" in member.labels
                if is_shown and not member.is_alias and (text := inspect.getdoc(getattr(kind, name))):
                    member.docstring = griffe.Docstring(text)
        for item in walk(pkg):
            if item.is_function and any(COMPLETED in str(decorator.value) for decorator in item.decorators):
                item.docstring.value = inspect.getdoc(getattr(import_module(item.module.path), item.name))
            # Griffe shows code for the plural, and a remark for the singular.
            if item.docstring is not None:
                item.docstring.value = EXAMPLE.sub("Examples:", item.docstring.value)


def walk(item: Any) -> Iterator[Any]:
    """Yield an object and everything that is defined in it."""
    yield item
    for member in item.members.values():
        if not member.is_alias:
            yield from walk(member)


def classes_of(module: griffe.Module) -> Iterator[griffe.Class]:
    """Yield the classes of graphs and their parts, here and on a server."""
    yield from (module[name] for name in GRAPHS)
    yield from (item for item in module["client.graph"].members.values() if not item.is_alias and item.is_class)


def build_method(name: str, call: griffe.Function, kind: str, stream: str | None) -> griffe.Function:
    """Return the method that is built from a call."""
    returned = "Iterator[bytes]" if stream else re.sub(r"^Call\[(.*)\]$", r"\1", str(call.returns))
    if kind == "awaitable":
        returned = f"Async{returned}" if stream else f"Awaitable[{returned}]"
    return griffe.Function(name, parameters=call.parameters, returns=returned, lineno=1, endlineno=1)
