"""Rules of the house for the tests themselves: names that can be read, and files that are about one thing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.conftest import leave_all_but_samples

TESTS = Path(__file__).parent
NAME_MAX = 69
LINES_MAX = 600


def long_names(tree: ast.Module) -> Iterator[str]:
    classes = [node.body for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in chain(tree.body, *classes):
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


@pytest.mark.parametrize(("kept", "expected"), [(1, [0]), (3, [0, 4, 7]), (9, [*range(8)])])
def test_sampled_test_keeps_cases_that_are_spread_over_all(kept: int, expected: list[int]) -> None:
    def item(place: int) -> Mock:
        marks = {"sampled": pytest.mark.sampled(kept).mark} | ({"long": pytest.mark.long.mark} if place == 4 else {})
        case = Mock(spec=pytest.Function, nodeid=f"test_x[{place}]", get_closest_marker=marks.get)
        case.iter_markers = lambda name: [marks[name]]
        case.callspec = Mock(indices={"x": place})
        return case

    items = [item(place) for place in (5, 3, 8, 1, 0, 7, 2, 6, 4)]
    leave_all_but_samples([*items])
    left = sorted(int(case.nodeid[7:-1]) for case in items if not case.add_marker.called)
    # The fifth is left to the long campaign anyway.
    assert [place - (place > 4) for place in left if place != 4] == expected
