"""Rules of the house: names of tests that can be read, and files, of the package and of the tests, about one thing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.conftest import leave_all_but_samples

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "src" / "omnigraph"
NAME_MAX = 69
LINES_MAX = 600


def long_names(source: str) -> Iterator[str]:
    if not re.search(rf"def test_\w{{{NAME_MAX - 4},}}", source):
        return
    tree = ast.parse(source)
    classes = [node.body for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in chain(tree.body, *classes):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and len(node.name) > NAME_MAX:
            yield node.name


def test_names_of_tests_are_short() -> None:
    assert [name for path in TESTS.rglob("test_*.py") for name in long_names(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("prefix", ["", "class TestX:\n  "])
def test_long_name_is_noticed(prefix: str) -> None:
    assert [*long_names(f"{prefix}def test_{'x' * NAME_MAX}(): ...\ndef test_x(): ...")] == [f"test_{'x' * NAME_MAX}"]


def long_files(folder: Path) -> dict[str, int]:
    texts = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}
    return {name: text.count("\n") for name, text in texts.items() if text.count("\n") > LINES_MAX}


def test_files_of_tests_are_short() -> None:
    assert long_files(TESTS) == {}


def test_files_of_the_package_are_short() -> None:
    assert long_files(PACKAGE) == {}


def test_long_file_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("pass\n" * (LINES_MAX + 1))
    (tmp_path / "short.py").write_text("pass\n" * LINES_MAX)
    assert long_files(tmp_path) == {"long.py": LINES_MAX + 1}


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
