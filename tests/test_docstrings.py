"""`help()` of everything public: each callable has a Google-style docstring with an example that runs."""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Iterator
from pydoc import render_doc
from types import ModuleType
from typing import Any

import omnigraph as og
from omnigraph import client, pipeline
from omnigraph.client import graph as client_graph
from omnigraph.engine.branches import Branches, Tags
from omnigraph.engine.maintain.maintenance import Maintenance

# The parts of a graph that are attributes of it; a test below finds new ones.
PARTS = {"branches": Branches, "tags": Tags, "schema": og.Schema, "maintenance": Maintenance}
SERVED_PARTS = [
    getattr(client_graph, f"{prefix}{name}")
    for prefix in ("", "Async")
    for name in ("Branches", "Tags", "Schema", "Blob")
]
# What only reads a value in memory cannot fail.
NEVER_RAISES = {
    "load_arguments",
    "cancel",
    "close",
    "to_json",
    "from_json",
    "json_chunks",
    "stats",
    "render",
    "rows",
    "to_list",
    "to_arrow",
} | {"to_json_rows"}
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Example):\n((?:(?: .*)?\n)*)", re.MULTILINE)


def public_names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name in module.__all__:
        item = getattr(module, name)
        if isinstance(item, ModuleType):
            yield from public_names(item) if hasattr(item, "__all__") else ()
        else:
            yield f"{module.__name__}.{name}", item


def public_classes() -> dict[str, type]:
    items = [item for module in (og, pipeline, client) for item in public_names(module)]
    parts = [(f"{part.__module__}.{part.__name__}", part) for part in (*PARTS.values(), *SERVED_PARTS)]
    return {name: item for name, item in [*items, *parts] if inspect.isclass(item)}


def public_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the methods and properties that the class or a base of this package defines."""
    for name in dir(kind):
        owner = next((base for base in kind.__mro__ if name in vars(base)), object)
        if not name.startswith("_") and owner.__module__.startswith("omnigraph"):
            item = vars(owner)[name]
            yield name, item.__func__ if isinstance(item, classmethod | staticmethod) else item


def public_callables() -> dict[str, Any]:
    items = [item for module in (og, pipeline, client) for item in public_names(module)]
    functions = {name: item for name, item in items if inspect.isfunction(item)}
    for owner, kind in public_classes().items():
        functions |= {f"{owner}.{name}": item for name, item in public_members(kind) if inspect.isfunction(item)}
    return functions


def sections(text: str) -> dict[str, str]:
    return {match[1]: match[2] for match in SECTION.finditer(text + "\n")}


def missing_parts(name: str, item: Any) -> list[str]:
    """Return what the docstring lacks: sections, arguments, and errors that exist."""
    signature, parts = inspect.signature(item), sections(inspect.getdoc(item) or "")
    arguments = [argument for argument in signature.parameters if argument not in ("self", "cls")]
    documented = re.findall(r"^    \*{0,2}(\w+): ", parts.get("Args", ""), re.MULTILINE)
    missing = [f"Args {argument}" for argument in arguments if argument not in documented]
    missing += [f"no argument {argument}" for argument in documented if argument not in arguments]
    if str(signature.return_annotation) not in ("None", "Awaitable[None]") and "Returns" not in parts:
        missing.append("Returns")
    errors = re.findall(r"^    (\w+): ", parts.get("Raises", ""), re.MULTILINE)
    if not errors and name.rpartition(".")[2] not in NEVER_RAISES:
        missing.append("Raises")
    missing += [f"no error {error}" for error in errors if not is_error(error)]
    if not re.search(r"^    (>>> |await |\(await )", parts.get("Example", ""), re.MULTILINE):
        missing.append("Example")
    return missing


def is_error(name: str) -> bool:
    kind = getattr(og, name, None) if name in og.__all__ else getattr(builtins, name, None)
    return inspect.isclass(kind) and issubclass(kind, Exception)


CALLABLES = public_callables()
CLASSES = public_classes()


def test_docstrings_have_every_part() -> None:
    missing = {name: missing_parts(name, item) for name, item in CALLABLES.items()}
    assert {name: parts for name, parts in missing.items() if parts} == {}


def test_classes_and_their_properties_are_described() -> None:
    properties = (
        (f"{name}.{member}", item)
        for name, kind in CLASSES.items()
        for member, item in public_members(kind)
        if isinstance(item, property)
    )
    assert [name for name, item in properties if not inspect.getdoc(item)] == []
    # Dataclasses describe only their fields by themselves.
    assert [
        name for name, kind in CLASSES.items() if (kind.__doc__ or "(").startswith((f"{kind.__name__}(", "("))
    ] == []


def test_walk_finds_the_public_interface() -> None:
    assert len(CALLABLES) > 150
    assert {"omnigraph.Graph.query", "omnigraph.spark.algo.pagerank", "omnigraph.client.Graph.invoke"} <= {*CALLABLES}
    # Public attributes of a graph are its parts, each of which is walked.
    graph = {name for name, kind in inspect.get_annotations(og.Graph).items() if not name.startswith("_")}
    assert graph == PARTS.keys()


def test_missing_part_is_noticed() -> None:
    def load(data: str, *, mode: str) -> int:
        """Load.

        Args:
            data: What to load.
            more: What is not there.

        Raises:
            NoSuchError: Never.
        """
        return len(data + mode)

    missing = ["Args mode", "no argument more", "Returns", "no error NoSuchError", "Example"]
    assert missing_parts("load", load) == missing
    assert missing_parts("close", test_walk_finds_the_public_interface) == ["Example"]


def test_help_shows_inherited_docstrings_and_results() -> None:
    shown = render_doc(og.Graph.commits) + render_doc(client.Graph.query)
    assert "Return the commits of a branch, newest first" in shown
    assert "-> 'Result'" in shown
    assert "Call[" not in shown
