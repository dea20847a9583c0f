"""Documents of text and possible line breaks, and the printer that fits them into lines.

Pure. After Wadler's "A prettier printer": a group is printed on one line if it fits, otherwise all its lines break.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

INDENT: Final = 2


class Gap(IntEnum):
    """What separates two texts; of several gaps in a row the largest counts."""

    NOTHING = 0
    SPACE = 1
    LINE = 2
    BLANK_LINE = 3


@dataclass(frozen=True, slots=True)
class Separator:
    """A gap that does not depend on the width of the line."""

    gap: Gap


@dataclass(frozen=True, slots=True)
class SoftLine:
    """A line break if the group around it is broken, otherwise the gap `flat`."""

    flat: Gap


@dataclass(frozen=True, slots=True)
class Indented:
    parts: tuple[Document, ...]


@dataclass(frozen=True, slots=True)
class Group:
    parts: tuple[Document, ...]
    is_broken: bool


Document: TypeAlias = str | Separator | SoftLine | Indented | Group
SPACE: Final = Separator(Gap.SPACE)
LINE: Final = Separator(Gap.LINE)
BLANK_LINE: Final = Separator(Gap.BLANK_LINE)


@dataclass(frozen=True, slots=True)
class _Command:
    indent: int
    is_broken: bool
    document: Document


def group(parts: Sequence[Document], *, is_broken: bool = False) -> Group:
    """Return a group; a broken group inside it breaks it, too, so that a second run decides the same."""
    return Group(tuple(parts), is_broken or any(map(_has_broken_group, parts)))


def _has_broken_group(document: Document) -> bool:
    if isinstance(document, Indented):
        return any(map(_has_broken_group, document.parts))
    return isinstance(document, Group) and document.is_broken


def print_document(parts: Sequence[Document], width: int) -> str:
    """Return the text of a document.

    >>> words = group(["{", Indented((SoftLine(Gap.SPACE), "a,", SoftLine(Gap.SPACE), "b")), SoftLine(Gap.SPACE), "}"])
    >>> print_document([words], 10)
    '{ a, b }'
    >>> print_document([words], 5)
    '{\\n  a,\\n  b\\n}'
    """
    texts: list[str] = []
    column, pending = 0, Gap.NOTHING
    commands = [_Command(0, True, part) for part in reversed(parts)]
    while commands:
        command = commands.pop()
        document = command.document
        match document:
            case str():
                texts.append(_write_gap(pending, command.indent) if texts else "")
                column = _column_after(column, texts[-1] + document)
                texts.append(document)
                pending = Gap.NOTHING
            case Separator():
                pending = max(pending, document.gap)
            case SoftLine():
                pending = max(pending, Gap.LINE if command.is_broken else document.flat)
            case Indented():
                commands += _push(document.parts, command.indent + INDENT, command.is_broken)
            case Group():
                flat = _push(document.parts, command.indent, False)
                start = command.indent if pending >= Gap.LINE else column + pending
                is_flat = not document.is_broken and _fits(flat, commands, width - start)
                commands += flat if is_flat else _push(document.parts, command.indent, True)
    return "".join(texts)


def _push(parts: Sequence[Document], indent: int, is_broken: bool) -> list[_Command]:
    return [_Command(indent, is_broken, part) for part in reversed(parts)]


def _write_gap(gap: Gap, indent: int) -> str:
    if gap is Gap.SPACE:
        return " "
    return "\n" * (gap - 1) + " " * indent if gap else ""


def _column_after(column: int, text: str) -> int:
    newline = text.rfind("\n")
    return column + len(text) if newline < 0 else len(text) - newline - 1


def _fits(commands: Sequence[_Command], rest: Sequence[_Command], width: int) -> bool:
    """Return True if what follows fits into `width` characters up to its first line break."""
    pending = Gap.NOTHING
    for command in _walk(commands, rest):
        document = command.document
        if isinstance(document, Separator):
            pending = max(pending, document.gap)
        elif isinstance(document, SoftLine):
            pending = max(pending, Gap.LINE if command.is_broken else document.flat)
        elif isinstance(document, str):
            if pending >= Gap.LINE:
                return True
            line, newline, _ = document.partition("\n")
            width -= pending + len(line)
            pending = Gap.NOTHING
            if width < 0 or newline:
                return width >= 0
    return True


def _walk(commands: Sequence[_Command], rest: Sequence[_Command]) -> Iterator[_Command]:
    """Yield the texts, separators and lines of two stacks of commands in the order of printing."""
    below = len(rest)
    stack = list(commands)
    while stack or below:
        if not stack:
            below -= 1
            stack.append(rest[below])
        command = stack.pop()
        if isinstance(command.document, Indented | Group):
            stack += _push(command.document.parts, command.indent, command.is_broken)
        else:
            yield command
