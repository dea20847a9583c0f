"""The layout of formatted source: gaps between tokens, and a printer that fits groups of tokens into lines.

Pure. After Wadler's "A prettier printer": a group is printed on one line if it fits, otherwise all its lines break.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from omnigraph.lang.format.syntax_tokens import SyntaxToken

INDENT: Final = 2
# Tokens that follow, or precede, another one without a gap.
_NO_GAP_BEFORE: Final = frozenset({")", "]", ",", ".", "..", ":", "?"})
_NO_GAP_AFTER: Final = frozenset({"(", "[", ".", "..", "@"})
_PREFIXES: Final = frozenset({"-", "+", "!", "~"})
_ARROW_BRACKETS: Final = frozenset({"<", ">"})
_COUNTS: Final = frozenset({"INT", "VAR", "COMMA"})


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


def gap_between(tokens: Sequence[SyntaxToken], index: int) -> Gap:
    """Return the gap before a token that is not the first."""
    token, previous = tokens[index], tokens[index - 1]
    if token.text in _NO_GAP_BEFORE or previous.text in _NO_GAP_AFTER or _is_prefix(previous):
        return Gap.NOTHING
    if previous.text == ":":
        return _gap_after_colon(tokens, index)
    # `model="text-small"` in a schema; a comparison in a query has another terminal.
    if "=" in (token.text, previous.text) and "EQUAL" in (token.terminal, previous.terminal):
        return Gap.NOTHING
    if token.text in ("(", "[") and _follows_name(token, previous):
        return Gap.NOTHING
    if token.text == "{" and is_quantifier(tokens, index):
        return Gap.NOTHING
    if (previous.text == "<" and _is_arrow_bracket(previous)) or (token.text == ">" and _is_arrow_bracket(token)):
        return Gap.NOTHING
    return Gap.SPACE


def is_quantifier(tokens: Sequence[SyntaxToken], opening: int) -> bool:
    """Return True for the brace of a hop range, such as `{1,3}`: it holds nothing but bounds."""
    brace = tokens[opening]
    inner = tokens[opening + 1 : brace.closing]
    is_own_rule = brace.text == "{" and brace.is_first_in_parent
    return is_own_rule and bool(inner) and all(token.terminal in _COUNTS for token in inner)


def _is_prefix(token: SyntaxToken) -> bool:
    return token.text in _PREFIXES and token.is_first_in_parent


def _gap_after_colon(tokens: Sequence[SyntaxToken], index: int) -> Gap:
    """Return the gap after a colon: `name: String`, but `$w:maintains` for an edge variable."""
    is_after_variable = index > 1 and tokens[index - 2].text.startswith("$")
    is_type = tokens[index].text[:1].isupper() or tokens[index].text == "["
    return Gap.NOTHING if is_after_variable and not is_type else Gap.SPACE


def _follows_name(token: SyntaxToken, previous: SyntaxToken) -> bool:
    """Return True if a bracket belongs to the word before it: a call, a type with arguments, an element of a list."""
    if token.text == "(" and previous.text.startswith("$"):
        # Edges in parentheses stand between two variables.
        return False
    if not token.is_first_in_parent:
        return not previous.is_keyword or previous.parent is token.parent
    # A rule of its own for arguments looks like a group; then the author's writing decides.
    return token.is_glued and not previous.is_keyword and previous.text[:1].isalpha()


def _is_arrow_bracket(token: SyntaxToken) -> bool:
    siblings = {child.text for child in token.parent.children if isinstance(child, SyntaxToken)}
    return siblings >= _ARROW_BRACKETS
