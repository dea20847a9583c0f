"""Diagnostics: a code, a message, a source position and a hint, rendered as text or JSON.

Pure. Compilers collect `Diagnostic`s; `LanguageError` carries them out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from omnigraph.errors import Effect, OmniGraphError
from omnigraph.lang.source import Source, Span
from omnigraph.limits import SHOWN_CHARACTERS_MAX, SOURCE_BYTES_MAX


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
        if not self.is_placed:
            lines = [f"{self.severity}[{self.code}]: {self.message}", f"  --> {self.source.name}"]
            return "\n".join([*lines, *([f"   = hint: {self.hint}"] if self.hint else [])])
        start = self.source.position(self.span.start)
        line, column = _window(self.source.line_text(start.line), start.column)
        width = min(self.span.end - self.span.start, max(len(line) - column + 1, 1))
        gutter = " " * (len(str(start.line)) + 1)
        # Tabs keep their width under the caret because the padding repeats them.
        padding = "".join("\t" if char == "\t" else " " for char in line[: column - 1])
        lines = [
            f"{self.severity}[{self.code}]: {self.message}",
            f"{gutter}--> {self.source.name}:{start.line}:{start.column}",
            f"{gutter} |",
            f" {start.line} | {line}",
            f"{gutter} | {padding}{'^' * max(width, 1)}",
        ]
        if self.hint:
            lines.append(f"{gutter} = hint: {self.hint}")
        return "\n".join(lines)

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
        return "\n\n".join(diagnostic.render() for diagnostic in self.diagnostics)

    def to_json(self) -> dict[str, object]:
        shown: dict[str, object] = {"code": self.code, "error": self.message, "effect": self.effect.value}
        return {**shown, "diagnostics": [diagnostic.to_json() for diagnostic in self.diagnostics]}


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
        shown = Source(name, data.decode("utf-8", errors="replace").removeprefix("\ufeff"))
        message = f"byte 0x{data[error.start]:02x} is not valid UTF-8"
        raise _source_error(code, message, shown, len(before), "save the file as UTF-8") from None


def _source_error(code: str, message: str, source: Source, offset: int, hint: str) -> LanguageError:
    span = Span(offset, min(offset + 1, len(source.text)))
    return LanguageError(diagnostics=(Diagnostic(code, message, source, span, hint),))
