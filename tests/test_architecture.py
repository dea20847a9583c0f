"""The architecture page: the parts of the package have an order, and every function that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.syntax_trees import syntax_tree
from tools import architecture

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED = re.findall(r"^- `([\w/]+\.py): ([\w.]+)`", PAGE, re.MULTILINE)


def definitions(tree: ast.AST, prefix: str = "") -> set[str]:
    """Return the qualified names of all functions, methods and classes of a module."""
    names: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names |= {f"{prefix}{node.name}", *definitions(node, f"{prefix}{node.name}.")}
    return names


def test_parts_that_import_each_other_have_no_order() -> None:
    assert architecture.order_parts({"a": set(), "c": {"b"}, "b": {"a"}}) == ["a", "b", "c"]
    with pytest.raises(ValueError, match=r"\['b', 'c'\]"):
        architecture.order_parts({"a": set(), "c": {"b"}, "b": {"a", "c"}})


def test_functions_on_the_data_paths_exist() -> None:
    source = ROOT / "src" / "omnigraph"
    assert [(file, name) for file, name in NAMED if name not in definitions(syntax_tree(source / file))] == []


def test_page_names_functions_of_four_paths() -> None:
    assert len(NAMED) > 20
    assert len({file.split("/")[0] for file, _ in NAMED}) > 5


def typical_changes() -> dict[str, list[str]]:
    """Return the files and folders that each typical change names."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    changes = text.partition("\n## Typical changes")[2].partition("\n## ")[0].split("\n### ")[1:]
    named = re.compile(r"`((?:[\w.-]+/)+(?:[\w-]+\.\w+)?|[A-Z]+\.md)`")
    return {change.partition("\n")[0]: named.findall(change) for change in changes}


def contributing_paths() -> list[str]:
    return sorted({path for paths in typical_changes().values() for path in paths})


def test_every_typical_change_names_its_files_and_its_tests() -> None:
    changes = typical_changes()
    assert len(changes) > 10
    for title, paths in changes.items():
        assert len(paths) > 2, title
        assert any(path.startswith("tests/") for path in paths) or title.startswith("Follow"), title


@pytest.mark.parametrize("path", contributing_paths())
def test_file_that_a_task_names_exists(path: str) -> None:
    folder = ROOT if path.split("/")[0] in ("tests", "docs", "CHANGELOG.md", "src") else ROOT / "src" / "omnigraph"
    assert (folder / path).exists()


def test_tasks_name_files_of_all_layers() -> None:
    assert {path.split("/")[0] for path in contributing_paths()} >= {
        "lang",
        "rules",
        "cli",
        "server",
        "spark",
        "tests",
    }
