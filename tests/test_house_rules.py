"""Rules of the house for the tests themselves: names that can be read, and files that are about one thing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
NAME_MAX = 69
LINES_MAX = 600


def long_names(tree: ast.Module) -> Iterator[str]:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in (child for parent in (tree, *classes) for child in parent.body):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and len(node.name) > NAME_MAX:
            yield node.name


def test_names_of_tests_are_short() -> None:
    assert [name for path in TESTS.rglob("test_*.py") for name in long_names(ast.parse(path.read_bytes()))] == []


@pytest.mark.parametrize("prefix", ["", "class TestX:\n  "])
def test_long_name_is_noticed(prefix: str) -> None:
    assert [*long_names(ast.parse(f"{prefix}def test_{'x' * NAME_MAX}(): ...\ndef test_x(): ..."))] == [
        f"test_{'x' * NAME_MAX}"
    ]


def test_files_of_tests_are_short() -> None:
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in TESTS.rglob("*.py")}
    assert {name: count for name, count in lengths.items() if count > LINES_MAX} == {}
