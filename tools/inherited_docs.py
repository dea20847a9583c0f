"""Griffe extension for the site: methods show the docstring that `help()` shows for them.

Methods of graphs take theirs from `GraphProtocol`, and those of the client, which are built from calls, also the
signature of the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

PROTOCOL = "protocol.GraphProtocol"
CALLS = "client.endpoints"
EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)
BUILT = re.compile(r"^_(blocking|awaitable)(_stream)?\((\w+)\.(\w+)\)$")


class InheritedDocs(griffe.Extension):
    """Completes the classes of graphs after the package was loaded."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        if pkg.name != "omnigraph":
            return
        for item in walk(pkg):
            # Griffe shows code for the plural, and a remark for the singular.
            if item.docstring is not None:
                item.docstring.value = EXAMPLE.sub("Examples:", item.docstring.value)
        protocol = pkg[PROTOCOL]
        for class_ in classes_of(pkg):
            for name, member in list(class_.members.items()):
                if isinstance(member, griffe.Attribute) and (match := BUILT.match(str(member.value))):
                    call = pkg[CALLS][match[3]][match[4]]
                    if call.is_attribute:
                        # A former name, as in `ingest = load`.
                        call = pkg[CALLS][match[3]][str(call.value)]
                    class_.set_member(name, build_method(name, call, match[1], match[2]))
            for name, member in class_.members.items():
                if not member.is_alias and member.is_function and member.docstring is None and name in protocol.members:
                    member.docstring = protocol.members[name].docstring


def walk(item: Any) -> Iterator[Any]:
    """Yield an object and everything that is defined in it."""
    yield item
    for member in item.members.values():
        if not member.is_alias:
            yield from walk(member)


def classes_of(module: griffe.Module) -> Iterator[griffe.Class]:
    """Yield the classes of graphs, here and on a server."""
    for name in ("graph.Graph", "graph_history.GraphHistory", "graph_reads.GraphReads"):
        yield module[name]
    yield from (item for item in module["client.graph"].members.values() if not item.is_alias and item.is_class)


def build_method(name: str, call: griffe.Function, kind: str, stream: str | None) -> griffe.Function:
    """Return the method that is built from a call."""
    returned = "Iterator[bytes]" if stream else re.sub(r"^Call\[(.*)\]$", r"\1", str(call.returns))
    if kind == "awaitable":
        returned = f"Async{returned}" if stream else f"Awaitable[{returned}]"
    method = griffe.Function(name, parameters=call.parameters, returns=returned, lineno=1, endlineno=1)
    method.docstring = call.docstring
    return method
