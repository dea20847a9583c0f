"""Diagnostics: a code, a message, a source position and a hint, rendered as text or JSON.

Pure. Compilers collect `Diagnostic`s; `LanguageError` carries them out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from functools import cached_property
from typing import Final

from omnigraph.errors import Effect, OmniGraphError
from omnigraph.limits import SHOWN_CHARACTERS_MAX, SOURCE_BYTES_MAX, SUGGESTION_NAMES_MAX


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of character offsets."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """Return the span from the start of this one to the end of the other."""
        return Span(self.start, other.end)


@dataclass(frozen=True, slots=True)
class Position:
    """Line and column, both from 1; columns count characters."""

    line: int
    column: int


@dataclass(frozen=True)
class Source:
    """A named text with conversion of offsets to lines and columns.

    >>> Source("s.pg", "node A {\\n}").position(9)
    Position(line=2, column=1)
    """

    name: str
    text: str

    def position(self, offset: int) -> Position:
        starts = self._line_starts
        line = bisect_right(starts, min(offset, len(self.text)))
        return Position(line, min(offset, len(self.text)) - starts[line - 1] + 1)

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a line and column, both from 1."""
        return self._line_starts[line - 1] + column - 1

    def line_text(self, line: int) -> str:
        starts = self._line_starts
        end = starts[line] if line < len(starts) else len(self.text)
        return self.text[starts[line - 1] : end].rstrip("\r\n")

    @cached_property
    def _line_starts(self) -> list[int]:
        # Most sources compile without errors and need no positions, so the table is built on demand.
        return [0, *(index + 1 for index, char in enumerate(self.text) if char == "\n")]


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """An error, warning or remark at a span of a source."""

    code: str
    message: str
    source: Source
    span: Span
    hint: str | None = None
    severity: Severity = Severity.ERROR
    # False if the problem has no position, such as a missing query.
    is_placed: bool = field(default=True, kw_only=True)

    def render(self) -> str:
        """Return the finding with its source line and a caret underline.

        >>> source = Source("s.pg", "node A {}")
        >>> print(Diagnostic("S25", "node type `A` is declared twice", source, Span(5, 6)).render())
        error[S25]: node type `A` is declared twice
          --> s.pg:1:6
           |
         1 | node A {}
           |      ^
        """
        lines, gutter = [f"{self.severity}[{self.code}]: {self.message}"], "  "
        if self.is_placed:
            start = self.source.position(self.span.start)
            line, column = _window(self.source.line_text(start.line), start.column)
            width = min(self.span.end - self.span.start, max(len(line) - column + 1, 1))
            gutter = " " * (len(str(start.line)) + 1)
            # Tabs keep their width under the caret because the padding repeats them.
            padding = "".join("\t" if char == "\t" else " " for char in line[: column - 1])
            lines += [
                f"{gutter}--> {self.source.name}:{start.line}:{start.column}",
                f"{gutter} |",
                f" {start.line} | {line}",
                f"{gutter} | {padding}{'^' * max(width, 1)}",
            ]
        else:
            lines.append(f"{gutter}--> {self.source.name}")
        return "\n".join([*lines, *([f"{gutter} = hint: {self.hint}"] if self.hint else [])])

    def to_json(self) -> dict[str, object]:
        start = self.source.position(self.span.start)
        end = self.source.position(self.span.end)
        return {
            "code": self.code,
            "severity": self.severity.value,
            "message": self.message,
            "hint": self.hint,
            "file": self.source.name,
            "line": start.line,
            "column": start.column,
            "end_line": end.line,
            "end_column": end.column,
            "source_line": _window(self.source.line_text(start.line), start.column)[0],
        }


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnostic of a rule that looks at a single source and leaves naming it to its caller."""

    code: str
    message: str
    span: Span
    hint: str | None = None
    severity: Severity = Severity.ERROR

    def in_source(self, source: Source) -> Diagnostic:
        return Diagnostic(self.code, self.message, source, self.span, self.hint, self.severity)


def _window(line: str, column: int) -> tuple[str, int]:
    """Return the part of a line that a terminal can show around a column, and the column inside that part."""
    start = max(0, min(column - 1 - SHOWN_CHARACTERS_MAX // 2, len(line) - SHOWN_CHARACTERS_MAX))
    return line[start : start + SHOWN_CHARACTERS_MAX], column - start


class LanguageError(OmniGraphError):
    """A source was rejected; `diagnostics` lists all its errors."""

    code = "language.rejected"

    def __init__(
        self,
        message: str = "",
        *,
        effect: Effect = Effect.NONE,
        diagnostics: tuple[Diagnostic, ...] = (),
        **context: object,
    ) -> None:
        first = diagnostics[0].message if diagnostics else "the source was rejected"
        super().__init__(message or first, effect=effect, diagnostics=diagnostics, **context)
        self.diagnostics = diagnostics

    def __str__(self) -> str:
        """Return the first diagnostic with its code, position and hint on a line."""
        if not self.diagnostics:
            return self.message
        first = self.diagnostics[0]
        position = first.source.position(first.span.start)
        hint = f"; {first.hint}" if first.hint else ""
        more = f" (and {len(self.diagnostics) - 1} more)" if len(self.diagnostics) > 1 else ""
        return f"[{first.code}] {self.message} at {first.source.name}:{position.line}:{position.column}{hint}{more}"

    def render(self) -> str:
        """Return all diagnostics as text, each with the source line, a caret and a hint.

        Returns:
            The text.

        Example:
            >>> LanguageError("rejected").render()
            ''
        """
        return "\n\n".join(diagnostic.render() for diagnostic in self.diagnostics)

    def to_json(self) -> dict[str, object]:
        """Return the public JSON form, with all diagnostics.

        Returns:
            The code, the message, the effect and the diagnostics.

        Example:
            >>> LanguageError("rejected").to_json()["code"]
            'language.rejected'
        """
        body: dict[str, object] = {"code": self.code, "error": self.message, "effect": self.effect.value}
        return {**body, "diagnostics": [diagnostic.to_json() for diagnostic in self.diagnostics]}


def decode_source(name: str, data: bytes, code: str) -> Source:
    """Decode a source; raises `LanguageError` with `code` if it is too large or not UTF-8.

    A leading byte order mark, which some editors add, is dropped.

    >>> decode_source("s.pg", b"\\xef\\xbb\\xbfnode A {}", "S1").text
    'node A {}'
    """
    if len(data) > SOURCE_BYTES_MAX:
        message = f"the source is larger than {SOURCE_BYTES_MAX:,} bytes"
        # The text is left out, so that the error stays small.
        raise _source_error(code, message, Source(name, ""), 0, "split it into several files")
    try:
        return Source(name, data.decode("utf-8").removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8").removeprefix("\ufeff")
        readable = Source(name, data.decode("utf-8", errors="replace").removeprefix("\ufeff"))
        message = f"byte 0x{data[error.start]:02x} is not valid UTF-8"
        raise _source_error(code, message, readable, len(before), "save the file as UTF-8") from None


def _source_error(code: str, message: str, source: Source, offset: int, hint: str) -> LanguageError:
    span = Span(offset, min(offset + 1, len(source.text)))
    return LanguageError(diagnostics=(Diagnostic(code, message, source, span, hint),))


_WORD_LENGTH_MAX: Final = 100


def nearest_word(word: str, words: Iterable[str]) -> str | None:
    """Return the known word most similar to `word`, ignoring case, or None if none is similar.

    >>> nearest_word("Vesel", ["Port", "Vessel"]), nearest_word("x", ["Port"])
    ('Vessel', None)
    """
    # Matching is quadratic in the length of a word and linear in the number of words, so both are bounded.
    names = sorted(set(words))
    if len(word) > _WORD_LENGTH_MAX or len(names) > SUGGESTION_NAMES_MAX:
        return None
    by_lower_case = {name.lower(): name for name in reversed(names)}
    matches = get_close_matches(word.lower(), by_lower_case, n=1, cutoff=0.6)
    return by_lower_case[matches[0]] if matches else None


def did_you_mean(word: str, words: Iterable[str], *, prefix: str = "", otherwise: str | None = None) -> str | None:
    """Return a hint that names the nearest known word, or `otherwise` if none is similar.

    >>> did_you_mean("callsat", ["callsAt"]), did_you_mean("sails", ["callsAt"], otherwise="traverse an edge")
    ('did you mean `callsAt`?', 'traverse an edge')
    """
    near = nearest_word(word, words)
    return f"did you mean `{prefix}{near}`?" if near else otherwise


def join_words(words: Iterable[str], *, conjunction: str = "or") -> str:
    """Join words as a sentence does.

    >>> join_words(["a", "b", "c"])
    'a, b or c'
    """
    items = list(words)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {conjunction} {items[-1]}"
