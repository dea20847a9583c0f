"""Which of the arguments of a command is the graph: it comes first, and may be left out if an option names it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from typer.models import ArgumentInfo

from omnigraph.cli.options import is_query_text
from omnigraph.errors import UsageError

# An argument that is a file to load, and not a graph.
_DATA_FILE: Final = re.compile(r"\.(ndjson|jsonl|json|csv|tsv|parquet|parq)(\.\w+)?$|^-$")


def place_arguments(positionals: Sequence[str], values: dict[str, Any], last: str | None) -> str | None:
    """Give the arguments of a command their places, and return the graph; `last` is what came after all of them."""
    for names, sort in _SORTERS.items():
        if names[0] in positionals:
            filled = [values[name] for name in names] + [last]
            lists = (value if isinstance(value, list | tuple) else [value] for value in filled)
            graph, *placed = sort([text for text in chain.from_iterable(lists) if text is not None])
            values.update(zip(names, placed, strict=True))
            return None if graph is None else str(graph)
    return _take_from_front(positionals, values, last) if positionals else last


def _take_from_front(positionals: Sequence[str], values: dict[str, Any], last: str | None) -> str | None:
    """Take the graph from the first argument if there is one more than the command has of its own.

    Arguments fill their places from the left, so the place of the graph, the last, holds the last argument.
    """
    if last is None:
        return None
    first = str(values[positionals[0]])
    arguments = [values[name] for name in positionals[1:]] + [last]
    values.update((name, type(values[name])(text)) for name, text in zip(positionals, arguments, strict=True))
    return first


def sort_query_arguments(arguments: Sequence[str]) -> tuple[str | None, str | None, str | None]:
    """Return the graph, the query (a file or its text) and the name of a query among arguments.

    The graph comes first. A single argument beside a query file or text is the graph before it, and the name after it;
    without such a neighbour, it is the graph if it cannot be the name of a query.

    >>> sort_query_arguments(["graph.omni", "queries.gq", "ecosystems"])
    ('graph.omni', 'queries.gq', 'ecosystems')
    >>> sort_query_arguments(["graph", "match { … }"]), sort_query_arguments(["queries.gq", "ecosystems"])
    (('graph', 'match { … }', None), (None, 'queries.gq', 'ecosystems'))
    >>> sort_query_arguments(["ecosystems"]), sort_query_arguments(["graph.omni"])
    ((None, None, 'ecosystems'), ('graph.omni', None, None))
    """
    queries = [text for text in arguments if is_query(text)]
    others = [text for text in arguments if not is_query(text)]
    is_graph_first = bool(others) and (
        len(others) > 1 or is_graph_address(others[0]) or (bool(queries) and arguments[0] == others[0])
    )
    graph, *names = others if is_graph_first else [None, *others]
    if len(queries) > 1 or len(names) > 1:
        first, second = (queries if len(queries) > 1 else names)[:2]
        noun = "queries" if len(queries) > 1 else "names of queries"
        raise UsageError(f"`{first}` and `{second}` are two {noun}; give one of them")
    return graph, next(iter(queries), None), next(iter(names), None)


def sort_load_arguments(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the graph, which comes first, and the files to load; a file that comes first leaves the graph out.

    >>> sort_load_arguments(["graph.omni", "a.ndjson", "more/"]), sort_load_arguments(["a.ndjson.gz"])
    (('graph.omni', ['a.ndjson', 'more/']), (None, ['a.ndjson.gz']))
    """
    if not arguments or _DATA_FILE.search(arguments[0]):
        return None, list(arguments)
    return arguments[0], list(arguments[1:])


def sort_two_arguments(is_graph: Callable[[str], bool], arguments: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the graph, which comes first, and the other argument; either may be left out.

    >>> sort_two_arguments(is_graph_address, ["graph", "crm"]), sort_two_arguments(is_graph_address, ["graph.omni"])
    (('graph', 'crm'), ('graph.omni', None))
    >>> sort_two_arguments(is_graph_address, ["crm"]), sort_two_arguments(is_graph_address, [])
    ((None, 'crm'), (None, None))
    """
    if len(arguments) == 1:
        return (arguments[0], None) if is_graph(arguments[0]) else (None, arguments[0])
    graph, other = arguments or (None, None)
    return graph, other


def is_query(text: str) -> bool:
    """Return True for the text of a query, a `.gq` file, and `-`, which is standard input.

    >>> [is_query(text) for text in ("queries.gq", "match { $p: A }", "delete A where k = 1", "graph.omni")]
    [True, True, True, False]
    """
    return is_query_text(text) or text.endswith(".gq") or text == "-"


def is_graph_address(text: str) -> bool:
    """Return True for a text that names a graph and cannot be the name of a query or pipeline.

    >>> is_graph_address("graph.omni"), is_graph_address("s3://lake/graph"), is_graph_address("ecosystems")
    (True, True, False)
    """
    return not text.isidentifier()


# By the places of a command's own arguments. What may be left out is told by its look.
_SORTERS: Final[Mapping[tuple[str, ...], Callable[[Sequence[str]], tuple[Any, ...]]]] = {
    ("query", "name"): sort_query_arguments,
    ("files",): sort_load_arguments,
    ("pipeline_name",): partial(sort_two_arguments, is_graph_address),
    ("schema_file",): partial(sort_two_arguments, lambda text: not text.endswith(".pg")),
}


def reject_graph_alone(path: str, values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Say what to write where a graph takes the place of another argument, because one is missing."""
    texts = [text for text in values.values() if isinstance(text, str)]
    graph = next((text for text in texts if "://" in text or text.endswith(".omni") or os.path.isdir(text)), None)
    if graph is None:
        return
    names = [
        str(item.metavar)
        for name in values
        for item in getattr(hints[name], "__metadata__", ())
        if isinstance(item, ArgumentInfo)
    ]
    other_texts = [text for text in texts if text != graph]
    words = " ".join([*other_texts, *names[len(other_texts) :]])
    raise UsageError(
        f"`{graph}` is the graph, so an argument is missing; write `{path} {graph} {words}`", command=path, graph=graph
    )
