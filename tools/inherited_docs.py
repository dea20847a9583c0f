"""Griffe extension for the site: methods show the docstring that `help()` shows for them.

Graphs and their parts inherit documentation from protocols, and functions of the pipeline from methods, some of it
section by section, so it is read from the imported package. Methods of the client, which are made from endpoints, also
get the signature of the protocol.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import griffe

COMPLETED = "complete_docs"
EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)
ON_ENGINE = re.compile(r"^(of_graph|anywhere)\(")
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
            for name, member in vars(kind).items():
                if not name.startswith("_") and (protocol := getattr(member, "__wrapped__", None)):
                    class_.set_member(name, build_method(name, pkg, protocol, member))
            for name, member in class_.members.items():
                is_shown = member.is_function or "property" in member.labels
                if is_shown and not member.is_alias and (text := inspect.getdoc(getattr(kind, name))):
                    member.docstring = griffe.Docstring(text)
        pipeline = pkg["pipeline"]
        for name, member in list(pipeline.members.items()):
            if isinstance(member, griffe.Attribute) and ON_ENGINE.match(str(member.value)):
                pipeline.set_member(name, build_function(getattr(import_module(pipeline.path), name)))
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


def build_function(function: Any) -> griffe.Function:
    """Return a function as it is when it runs, because its arguments are put together then."""
    shown = inspect.signature(function)
    parameters = [
        griffe.Parameter(
            item.name,
            annotation=str(item.annotation),
            kind=griffe.ParameterKind(item.kind.description),
            default=None if item.default is item.empty else repr(item.default),
        )
        for item in shown.parameters.values()
    ]
    docstring = griffe.Docstring(inspect.getdoc(function) or "")
    name, returns = function.__name__, str(shown.return_annotation)
    return griffe.Function(name, parameters=griffe.Parameters(*parameters), returns=returns, docstring=docstring)


def build_method(name: str, package: griffe.Module, documented: Any, method: Any) -> griffe.Function:
    """Return a method that is made from an endpoint: the parameters of the protocol, and its own result."""
    path = f"{documented.__module__.partition('.')[2]}.{documented.__qualname__}"
    parameters, returned = package[path].parameters, inspect.signature(method).return_annotation
    return griffe.Function(name, parameters=parameters, returns=returned, lineno=1, endlineno=1)
