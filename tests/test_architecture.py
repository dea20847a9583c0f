"""The architecture page: its generated parts are current, and every function that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from tests.support.syntax_trees import syntax_tree

ROOT = Path(__file__).parent.parent


def load_tool() -> Any:
    spec = spec_from_file_location("architecture", ROOT / "tools" / "architecture.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = load_tool()


@cache
def source_modules() -> Any:
    return TOOL.modules()


PAGE: str = TOOL.PAGE.read_text(encoding="utf-8")
NAMED = re.findall(r"^- `([\w/]+\.py): ([\w.]+)`", PAGE, re.MULTILINE)


def definitions(tree: ast.AST, prefix: str = "") -> set[str]:
    """Return the qualified names of all functions, methods and classes of a module."""
    names: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names |= {f"{prefix}{node.name}", *definitions(node, f"{prefix}{node.name}.")}
    return names


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tree", "layers"])
def test_generated_part_is_current(name: str) -> None:
    made = getattr(TOOL, f"render_{name}")(source_modules())
    assert f"<!-- generated: {name} -->\n{made}\n<!-- end of {name} -->" in PAGE, "run `python tools/architecture.py`"


def test_parts_that_import_each_other_have_no_order() -> None:
    assert TOOL.order_parts({"a": set(), "c": {"b"}, "b": {"a"}}) == ["a", "b", "c"]
    with pytest.raises(ValueError, match=r"\['b', 'c'\]"):
        TOOL.order_parts({"a": set(), "c": {"b"}, "b": {"a", "c"}})


def test_functions_on_the_data_paths_exist() -> None:
    source = ROOT / "src" / "omnigraph"
    assert [(file, name) for file, name in NAMED if name not in definitions(syntax_tree(source / file))] == []


def test_page_names_functions_of_four_paths() -> None:
    assert len(NAMED) > 20
    assert len({file.split("/")[0] for file, _ in NAMED}) > 5


def contributing_paths() -> list[str]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tasks = text.partition("## Five tasks")[2].partition("\n## ")[0]
    return sorted(set(re.findall(r"`((?:[\w.-]+/)+(?:[\w-]+\.\w+)?|[A-Z]+\.md)`", tasks)))


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
        "pipeline",
        "tests",
    }
