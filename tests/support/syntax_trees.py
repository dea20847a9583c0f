"""The syntax trees of Python files, which several guards walk: each file is parsed once in a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def syntax_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def syntax_nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file in the order of `ast.walk`."""
    return tuple(ast.walk(syntax_tree(path)))
