"""The words of a Spark SQL statement: which views it reads, and whether it asks for more than a transform may.

No parser: Spark has one. Strings and comments are left out, so what is in them is neither a view nor a function.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

# Spark ends a line comment at the line end, unless a backslash is before it; brackets of comments may be nested.
_TOKEN: Final = re.compile(
    r"""
    (?P<comment>--(?:\\\n|[^\n])*|/\*.*?\*/)
    |(?P<string>'(?:''|\\.|[^'\\])*'|"(?:""|\\.|[^"\\])*")
    |`(?P<quoted>(?:``|[^`])*)`
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<other>\S)
    """,
    re.VERBOSE | re.DOTALL,
)
# Functions that call any Java method, and so read the environment, files and memory of the process.
_JAVA_CALLS: Final = frozenset({"reflect", "java_method", "try_reflect"})


def tokens_of(statement: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each token: `word`, `quoted`, `string` or `other`.

    >>> list(tokens_of("SELECT `a b` -- all"))
    [('word', 'SELECT'), ('quoted', 'a b')]
    """
    for match in _TOKEN.finditer(statement):
        kind = str(match.lastgroup)
        if kind != "comment":
            yield kind, match[kind].replace("``", "`")


def find_views(statement: str, views: Iterable[str]) -> set[str]:
    """Return the views whose names a statement has; Spark ignores their case.

    >>> sorted(find_views("SELECT a FROM Orders WHERE b = 'people' -- items", ["orders", "people", "items"]))
    ['orders']
    """
    names = {text.lower() for kind, text in tokens_of(statement) if kind in ("word", "quoted")}
    return {view for view in views if view.lower() in names}


def find_inputs(transforms: Mapping[str, str], sources: Iterable[str]) -> dict[str, set[str]]:
    """Return the sources that each view reads, directly or through earlier transforms.

    >>> find_inputs({"a": "SELECT * FROM s", "b": "SELECT * FROM a"}, ["s", "t"])["b"]
    {'s'}
    """
    inputs: dict[str, set[str]] = {source: {source} for source in sources}
    for view, statement in transforms.items():
        inputs[view] = set[str]().union(*(inputs[name] for name in find_views(statement, inputs)))
    return inputs


# What makes a row of several, or would have to take the column in several places.
_NOT_ROW_BY_ROW: Final = frozenset(
    {"DISTINCT", "GROUP", "HAVING", "UNION", "INTERSECT", "EXCEPT", "MINUS", "WITH", "PIVOT", "UNPIVOT"}
)


def add_column(statement: str, column: str) -> str | None:
    """Return a query with one more column; None unless it is a single SELECT that makes a row of a row.

    >>> add_column("SELECT a, (SELECT max(b) FROM t) FROM s WHERE a > 1", "c")
    'SELECT a, (SELECT max(b) FROM t) , c FROM s WHERE a > 1'
    """
    depth, position, selects = 0, None, 0
    for match in _TOKEN.finditer(statement):
        word = (match["word"] or "").upper()
        depth += (match["other"] == "(") - (match["other"] == ")")
        if depth == 0 and word in _NOT_ROW_BY_ROW:
            return None
        selects += depth == 0 and word == "SELECT"
        if depth == 0 and word == "FROM":
            if position is not None:
                return None
            position = match.start()
    if position is None or selects != 1:
        return None
    return f"{statement[:position]}, {column} {statement[position:]}"


def find_forbidden(statement: str) -> str | None:
    """Return what a statement must not ask for, in words; None if there is nothing.

    >>> find_forbidden("SELECT reflect('java.lang.System', 'getenv')")
    '`reflect` calls Java'
    >>> find_forbidden("SELECT a, 'reflect(' FROM s JOIN t USING (a)")
    """
    tokens = list(tokens_of(statement))
    for (kind, text), following in zip(tokens, [*tokens[1:], ("other", "")], strict=True):
        if kind in ("word", "quoted") and text.lower() in _JAVA_CALLS and following[1] == "(":
            return f"`{text}` calls Java"
        if kind == "word" and text.upper() == "USING" and following[0] == "string":
            return "`USING` with a command runs a program"
    return None
