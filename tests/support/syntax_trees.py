"""The syntax trees of Python files, for guards of the source.

They are not kept: to parse a file again costs less than what its nodes, which live on, add to each garbage collection.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def syntax_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def syntax_nodes(path: Path, *words: str) -> Iterator[ast.AST]:
    """Yield all nodes of a file in the order of `ast.walk`; none of a file that lacks one of some words."""
    text = path.read_text(encoding="utf-8")
    if all(word in text for word in words):
        yield from ast.walk(ast.parse(text))
