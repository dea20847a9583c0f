"""Words that hide what is meant: names and sentences of the package use the terms that the field has for it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Each with what to write instead.
BANNED = {
    r"whoever|nobody|somebody": "the caller, another process, no one",
    r"anew": "again",
    r"tells? whether": "return True if",
    r"whole number": "integer",
    r"of ours": "of this package, or the thing's name",
}
# The same for the pages, where a reader stumbles over them; the command line and measurements are generated.
BANNED_IN_PAGES = re.compile(
    r"\b(?:whoever|nobody|somebody|anybody|anew|speaks? of|(?:is|are) told|stands? back|in spite of|for ever)\b",
    re.IGNORECASE,
)
PAGES = [
    path
    for path in sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
    if path.name not in ("cli.md", "benchmarks.md")
]
# Filler that says nothing about what a variable, an argument or a field holds.
BANNED_NAMES = frozenset(
    {"found", "given", "held", "made", "one", "own", "place", "seen", "taken", "told", "wanted", "whole"}
)
ANY_BANNED_NAME = re.compile(rf"\b(?:{'|'.join(BANNED_NAMES)})\b")
BINDERS = (ast.Name, ast.arg, ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.FunctionDef, ast.AsyncFunctionDef)
ANY_BANNED = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)


def findings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of comments, strings and names that hold a banned word, with the advice."""
    if not ANY_BANNED.search(source.replace("_", " ")):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING, tokenize.NAME):
            for pattern, advice in BANNED.items():
                for match in re.finditer(rf"\b(?:{pattern})\b", token.string.replace("_", " "), re.IGNORECASE):
                    yield token.start[0], f"`{match.group()}`; write: {advice}"


def bound_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield what code binds: variables, fields, arguments, the names of `match` patterns, and functions."""
    for node in ast.walk(tree):
        if not isinstance(node, BINDERS):
            continue
        match node:
            case ast.Name(id=str(name), ctx=ast.Store()) | ast.arg(arg=str(name)):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name


def filler_names(source: str) -> list[tuple[int, str]]:
    """Return the bound names that say nothing."""
    if not ANY_BANNED_NAME.search(source):
        return []
    return [(line, name) for line, name in bound_names(ast.parse(source)) if name in BANNED_NAMES]


def test_no_module_has_a_banned_word() -> None:
    modules = sorted((ROOT / "src").rglob("*.py"))
    assert [(str(path), *word) for path in modules for word in findings(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("source", ["nobody = 1", "# whoever comes", '"""Tell whether."""', "is_anew = 2"])
def test_banned_word_is_found(source: str) -> None:
    assert len([*findings(source)]) == 1


def test_no_module_binds_a_filler_name() -> None:
    modules = sorted((ROOT / "src").rglob("*.py"))
    assert [(str(path), *name) for path in modules for name in filler_names(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "source",
    [
        "found = 1",
        "for one in (): pass",
        "def f(given): pass",
        "def f(*, own=1): pass",
        "lambda place: 1",
        "class A:\n    seen: int",
        "match 1:\n    case told: pass",
        "with open('a') as held: pass",
        "(wanted := 1)",
        "def taken(): pass",
    ],
)
def test_filler_name_is_found(source: str) -> None:
    assert len(filler_names(source)) == 1


def test_filler_word_inside_a_name_is_not_found() -> None:
    assert filler_names("found_rows = one_array(own_intent)\ncall(given=1)") == []


def test_no_page_has_a_banned_word() -> None:
    words = {path.name: BANNED_IN_PAGES.findall(path.read_text(encoding="utf-8")) for path in PAGES}
    assert {name: banned for name, banned in words.items() if banned} == {}


def test_banned_word_in_a_page_is_found() -> None:
    assert BANNED_IN_PAGES.findall("Nobody is told what it speaks of.") == ["Nobody", "is told", "speaks of"]
