"""The words of a source, whether or not it parses, and the declaration around a position.

Pure.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from omnigraph.lang.diagnostic import Span

# An unclosed string or comment extends to the end of its line or of the source.
_WORD: Final = re.compile(
    r"""(?P<opaque> "(?:[^"\\\n]|\\.)*"? | //[^\n]* | /\*(?:.*?\*/|.*) )
      | (?P<word> [$@]?[A-Za-z_]\w* | [$@] )
      | \d+(?:\.\d+)? | \.\. | -> | [<>!=]= | \S""",
    re.DOTALL | re.VERBOSE,
)
_CLOSED: Final = re.compile(r'"(?:[^"\\\n]|\\.)*" | /\*.*?\*/', re.DOTALL | re.VERBOSE)
_DECLARATIONS: Final = frozenset({"query", "node", "edge", "interface"})


@dataclass(frozen=True, slots=True)
class Word:
    """A token of a source; `depth` counts the braces around it."""

    text: str
    span: Span
    depth: int
    is_name: bool


@dataclass(frozen=True)
class Words:
    """The tokens of a source without comments and strings, and where those are."""

    words: tuple[Word, ...]
    opaque: tuple[Span, ...]

    def at(self, offset: int) -> int | None:
        """Return the index of the name at an offset, or of the one that ends there."""
        index = bisect_right(self.words, offset, key=lambda word: word.span.start) - 1
        for candidate in (index, index - 1):
            if candidate >= 0 and self.words[candidate].is_name and offset <= self.words[candidate].span.end:
                return candidate
        return None

    def before(self, offset: int) -> int:
        """Return how many words end at an offset or before it."""
        return bisect_right(self.words, offset, key=lambda word: word.span.end)

    def is_opaque(self, offset: int) -> bool:
        """Return True inside a string or comment."""
        return any(span.start < offset < span.end for span in self.opaque)

    def declaration(self, index: int) -> tuple[int, int]:
        """Return the range of the words of the declaration that a word belongs to."""
        starts = [number for number, word in enumerate(self.words) if word.depth == 0 and word.text in _DECLARATIONS]
        next_start = bisect_right(starts, index)
        return (starts[next_start - 1] if next_start else 0), (
            starts[next_start] if next_start < len(starts) else len(self.words)
        )

    def text(self, index: int) -> str:
        return self.words[index].text if 0 <= index < len(self.words) else ""


def split_words(text: str) -> Words:
    """Return the words of a text.

    >>> [word.text for word in split_words('$p: Package // {').words]
    ['$p', ':', 'Package']
    """
    words: list[Word] = []
    opaque: list[Span] = []
    depth = 0
    for match in _WORD.finditer(text):
        span = Span(*match.span())
        if match["opaque"]:
            # A comment lasts to the end of its line, which the cursor may stand at.
            opaque.append(Span(span.start, span.end + (_CLOSED.fullmatch(match[0]) is None)))
            continue
        depth -= match[0] == "}"
        words.append(Word(match[0], span, max(depth, 0), match["word"] is not None))
        depth = max(depth, 0) + (match[0] == "{")
    return Words(tuple(words), tuple(opaque))
