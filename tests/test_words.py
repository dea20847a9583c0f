"""Words that hide what is meant: names and sentences of the package use the terms that the field has for it."""

from __future__ import annotations

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


def test_no_module_has_a_banned_word() -> None:
    modules = sorted((ROOT / "src").rglob("*.py"))
    assert [(str(path), *word) for path in modules for word in findings(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("source", ["nobody = 1", "# whoever comes", '"""Tell whether."""', "is_anew = 2"])
def test_banned_word_is_found(source: str) -> None:
    assert len([*findings(source)]) == 1


def test_no_page_has_a_banned_word() -> None:
    words = {path.name: BANNED_IN_PAGES.findall(path.read_text(encoding="utf-8")) for path in PAGES}
    assert {name: banned for name, banned in words.items() if banned} == {}


def test_banned_word_in_a_page_is_found() -> None:
    assert BANNED_IN_PAGES.findall("Nobody is told what it speaks of.") == ["Nobody", "is told", "speaks of"]
