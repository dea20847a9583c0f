"""Sources of the corpus, and the same programs with other whitespace and with comments between their tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Final

from omnigraph.lang.diagnostic import Source, Span
from omnigraph.lang.format import LanguageName
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema.parser import parse_schema
from tests.support.case_file import CASES, read_cases

ROOT: Final = Path(__file__).parents[2]
_LANGUAGE_OF_STEP: Final[dict[str, LanguageName]] = {
    "schema": "pg",
    "accepted": "pg",
    "migrate": "pg",
    "query": "gq",
    "mutate": "gq",
    "lint": "gq",
}
# Written from the lexical part of the language pages, not from the grammars.
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN: Final = re.compile(
    r"""
    (?P<gap> (?: \s | //[^\n]*+ | /\*.*?\*/ )*+ )
    (?P<token> "(?:[^"\\]|\\.)*" | [$@]?[A-Za-z_]\w* | \d+\.\d+ | \d[\w]* | \.\. | -> | [<>!]= | . )
    """,
    re.DOTALL | re.VERBOSE,
)
GAPS: Final = (
    " ",
    "\n",
    "\t ",
    "\r\n",
    "\n\n\n",
    " // a comment \n",
    "\n  // {\n",
    " /* a */ ",
    "\n/* b\n  c */\n",
    "//\n\n// d\n",
)


def read_programs() -> Iterator[tuple[str, LanguageName, str]]:
    """Yield the name, language and text of every source in the cases, examples and documents."""
    for path in sorted(CASES.glob("*.case")):
        for case in read_cases(path):
            for step in case.steps:
                if step.verb in _LANGUAGE_OF_STEP:
                    yield f"{path.name}:{step.line}", _LANGUAGE_OF_STEP[step.verb], step.body
    for language in ("pg", "gq"):
        for path in sorted([*ROOT.glob(f"examples/**/*.{language}"), *CASES.glob(f"fixtures/*.{language}")]):
            yield str(path.relative_to(ROOT)), language, path.read_text(encoding="utf-8")
        for path in sorted(ROOT.glob("docs/**/*.md")):
            blocks = re.findall(rf"```{language}[^\n]*\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
            for number, block in enumerate(blocks):
                yield f"{path.name}:{number}", language, block


def read_meaning(text: str, language: LanguageName) -> object:
    """Return the syntax tree of a source without its positions; raises `LanguageError`."""
    source = Source(f"program.{language}", text)
    return strip_spans(parse_schema(source) if language == "pg" else parse_queries(source))


def strip_spans(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        values = [(field.name, getattr(value, field.name)) for field in fields(value)]
        return type(value).__name__, [(name, strip_spans(part)) for name, part in values if not isinstance(part, Span)]
    if isinstance(value, tuple | list):
        return [strip_spans(part) for part in value if not isinstance(part, Span)]
    return value


def list_tokens(text: str) -> list[str]:
    return [match["token"] for match in _TOKEN.finditer(text) if match["token"].strip()]


def list_comments(text: str) -> list[str]:
    """Return the comments of a source in order; the end of a line comment does not count."""
    gaps = (match["gap"] for match in _TOKEN.finditer(f"{text}\n;"))
    return [comment.rstrip() for gap in gaps for comment in _COMMENT.findall(gap)]


def scatter(text: str, below: Callable[[int], int]) -> str:
    """Return a source with other gaps between its tokens; `below(n)` decides."""
    parts: list[str] = []
    previous = ""
    for match in _TOKEN.finditer(text):
        gap, token = match["gap"], match["token"]
        if token.strip():
            # A sign belongs to its number, and a bracket behind a value to the value.
            is_bound = previous == "-" or token in ("=", ".", ":", "-", "[")
            is_free = bool(gap) or (not is_bound and below(4) == 0)
            parts += [GAPS[below(len(GAPS))] if is_free else gap, token]
            previous = token
    return "".join([*parts, GAPS[below(len(GAPS))]])
