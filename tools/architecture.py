"""The parts of the page about the architecture that follow from the code: the tree, the layers and the figures."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "omnigraph"
# Counted by the same rules: files, lines, median lines of a file, functions, mean and 95th percentile of their lines,
# comment lines in a hundred.
ANCHORS = {
    "pyiceberg 0.12": "82 | 39,198 | 211 | 8.8 / 33 | 5.3",
    "sqlglot 30": "183 | 86,049 | 177 | 15.5 / 49 | 3.7",
    "starlette 1.10": "36 | 7,075 | 147 | 10.5 / 40 | 2.6",
    "httpx 0.28": "23 | 8,828 | 248 | 14.2 / 47 | 4.0",
    "lancedb 0.40": "78 | 38,322 | 184 | 16.6 / 55 | 2.6",
    "ibis 12": "178 | 93,597 | 339 | 15.1 / 57 | 3.0",
    "SQLAlchemy 2.1": "218 | 229,916 | 431 | 16.1 / 57 | 4.2",
}


@cache
def modules() -> dict[str, ast.Module]:
    """Return the syntax tree of every module by its path below the package."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def render_tree() -> str:
    """Return a table with the first sentence of every folder, and of every module that stands beside the folders."""
    rows = ["| Part | What it is for |", "|---|---|"]
    for path, tree in sorted(modules().items()):
        is_folder = path.endswith("/__init__.py")
        if path == "__init__.py" or not (is_folder or "/" not in path):
            continue
        name = path.removesuffix("__init__.py")
        sentence = (ast.get_docstring(tree) or "").split("\n\n")[0].replace("\n", " ")
        rows.append(f"| `{name}` | {sentence} |")
    return "\n".join(rows)


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield the parts of the package that a module imports, also inside of functions, but not for types alone."""
    for_types = (
        node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    skipped = {inner for node in for_types for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "omnigraph":
            steps = node.module.split(".")
            yield from [steps[1]] if len(steps) > 1 else [alias.name for alias in node.names]


def render_layers() -> str:
    """Return a table of the imports between parts, without those that follow from others."""
    edges = import_edges(modules())
    parts = order_parts(edges)
    reached = {part: _reachable(edges, part) for part in parts}
    lines = ["| Part | Imports |", "|---|---|"]
    for part in reversed(parts):
        indirect = set().union(*(reached[other] for other in edges[part])) if edges[part] else set()
        direct = sorted(edges[part] - indirect, key=parts.index)
        lines.append(f"| `{part}` | {', '.join(f'`{other}`' for other in direct) or 'nothing'} |")
    return "\n".join(lines)


def import_edges(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Return for every part of the package the other parts that it imports.

    A part is a folder, or a module beside the folders that imports one; all other modules are ground, which all parts
    stand on.
    """
    folders = {path.split("/")[0] for path in trees if "/" in path}
    imported: dict[str, set[str]] = {}
    for path, tree in trees.items():
        if not path.startswith("__"):
            imported.setdefault(path.split("/")[0].removesuffix(".py"), set()).update(imports(tree))
    parts = folders | {part for part, others in imported.items() if others & folders}
    return {part: {other for other in imported[part] if other in parts and other != part} for part in parts}


def order_parts(edges: Mapping[str, set[str]]) -> list[str]:
    """Return the parts from the ground up; raises `ValueError` if some of them import each other."""
    ordered: list[str] = []
    while len(ordered) < len(edges):
        ready = sorted(part for part, others in edges.items() if part not in ordered and others <= set(ordered))
        if not ready:
            raise ValueError(f"these parts import each other: {sorted(set(edges) - set(ordered))}")
        ordered += ready
    return ordered


def _reachable(edges: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [*edges[start]]
    while waiting:
        part = waiting.pop()
        if part not in seen:
            seen.add(part)
            waiting += edges[part]
    return seen


def render_figures() -> str:
    """Return the size of files and functions beside those of packages that we hold up as models."""
    texts = [path.read_text(encoding="utf-8").splitlines() for path in sorted(PACKAGE.rglob("*.py"))]
    lengths = [len(text) for text in texts]
    functions = sorted(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    comments = sum(line.lstrip().startswith("#") for text in texts for line in text)
    ours = (
        f"{len(texts)} | {sum(lengths):,} | {statistics.median(lengths):.0f}"
        f" | {statistics.mean(functions):.1f} / {functions[len(functions) * 95 // 100]}"
        f" | {100 * comments / sum(lengths):.1f}"
    )
    header = "| Package | files | lines | median file | function mean / p95 | comments per 100 lines |"
    rows = [header, "|---|---|---|---|---|---|", f"| **omnigraph** | {ours} |"]
    return "\n".join([*rows, *(f"| {name} | {figures} |" for name, figures in ANCHORS.items())])
