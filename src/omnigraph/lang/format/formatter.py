"""Formats a source: gaps between the tokens of its parse tree, and groups of tokens that fit into lines.

Pure. No token is added, removed or changed, so the meaning of a program stays as it is. After Wadler's "A prettier
printer": a group is printed on one line if it fits, otherwise all its lines break.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from omnigraph.lang.diagnostic import Source
from omnigraph.lang.format.syntax_tokens import Comment, Node, SyntaxToken, read_tokens
from omnigraph.lang.parsing import Language
from omnigraph.lang.query.parser import LANGUAGE as QUERY_LANGUAGE
from omnigraph.lang.schema.parser import CONSTRAINT_WORDS
from omnigraph.lang.schema.parser import LANGUAGE as SCHEMA_LANGUAGE

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


# A gap alone does not depend on the width of the line.
Document: TypeAlias = str | Gap | SoftLine | Indented | Group


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
            case Gap():
                pending = max(pending, document)
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
        if isinstance(document, Gap):
            pending = max(pending, document)
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
    is_after_prefix = previous.text in _PREFIXES and previous.is_first_in_parent
    if token.text in _NO_GAP_BEFORE or previous.text in _NO_GAP_AFTER or is_after_prefix:
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


LanguageName: TypeAlias = Literal["pg", "gq"]
LANGUAGES: Final[dict[LanguageName, Language]] = {"pg": SCHEMA_LANGUAGE, "gq": QUERY_LANGUAGE}
LINE_WIDTH: Final = 120
# A long line may break before these; if it has branches, then only before those.
_BREAK_BEFORE: Final = frozenset({"and", "or"})
_BRANCHES: Final = frozenset({"when", "else"})
# Keywords that continue a statement after a block; any other keyword there begins a line.
_CONTINUATIONS: Final = frozenset(
    {"and", "as", "asc", "desc", "else", "end", "in", "is", "on", "or", "set", "then", "when", "where"}
)
# Keywords that begin a section without a rule of their own.
_SECTIONS: Final = frozenset({"match", "return"})


def format_source(source: Source, language: LanguageName) -> str:
    """Return a source in the layout of the formatter; raises `LanguageError` if it does not parse.

    >>> print(format_source(Source("s.pg", "node Person{name:String@key age:I32 ?}  // people"), "pg"), end="")
    node Person {
      name: String @key
      age: I32?
    } // people
    """
    tokens, root, final = read_tokens(source, LANGUAGES[language])
    body = _unnamed_body(root)
    parts = _Formatter(tokens).format_items(0, len(tokens), body or root, is_top=body is None)
    parts += _lines_of(final)
    text = print_document(parts, LINE_WIDTH)
    return f"{text}\n" if text else ""


class _Formatter:
    """Turns ranges of tokens into documents, bracket by bracket."""

    def __init__(self, tokens: Sequence[SyntaxToken]) -> None:
        self._tokens = tokens

    def format_items(self, start: int, stop: int, owner: Node, *, is_top: bool = False) -> list[Document]:
        """Return the items of a range on lines of their own."""
        parts: list[Document] = []
        starts = self._item_starts(start, stop, owner)
        for first, end in pairwise([*starts, stop]):
            token = self._tokens[first]
            # Declarations that share a line are set apart.
            is_apart = first > start and (token.newlines_before > 1 or (is_top and token.newlines_before == 0))
            if token.leading:
                is_above_apart = is_top and not token.has_newline_before
                parts += [Gap.BLANK_LINE if is_above_apart else Gap.LINE, *_lines_of(token.leading)]
                is_apart = token.newlines_before > 1
            parts += [Gap.BLANK_LINE if is_apart else Gap.LINE, *self._format_item(first, end)]
        return parts

    def _item_starts(self, start: int, stop: int, owner: Node) -> list[int]:
        """Return the indexes of the tokens with which the items of a block begin."""
        owners = _list_owners(owner)
        has_sections = owner.parent is not None and start < stop and self._tokens[start].is_keyword
        starts: list[int] = []
        previous: SyntaxToken | None = None
        for index in self._top_level(start, stop):
            token = self._tokens[index]
            is_section = has_sections and previous is not None and _begins_section(previous, token)
            if previous is None or previous.text == "," or is_section or _begins_item(token, owners):
                starts.append(index)
            previous = token if token.closing < 0 else self._tokens[token.closing]
        return starts

    def _top_level(self, start: int, stop: int) -> Iterator[int]:
        """Yield the indexes of the tokens of a range that stand in no bracket inside it."""
        index = start
        while index < stop:
            yield index
            index = max(self._tokens[index].closing, index) + 1

    def _format_item(self, start: int, stop: int) -> list[Document]:
        """Return an item: runs of tokens that may break as one, with the blocks between them."""
        parts: list[Document] = []
        run_start = start
        for index in self._top_level(start, stop):
            token = self._tokens[index]
            if token.text == "{" and not is_quantifier(self._tokens, index):
                parts += self._format_run(run_start, index, is_item_start=run_start == start)
                parts += self._format_block(index, is_item_start=index == start)
                run_start = token.closing + 1
        return [*parts, *self._format_run(run_start, stop, is_item_start=run_start == start)]

    def _format_run(self, start: int, stop: int, *, is_item_start: bool) -> list[Document]:
        """Return tokens as a group that breaks before annotations and logical operators."""
        if start == stop:
            return []
        parts: list[Document] = []
        breaks = self._break_words(start, stop)
        is_broken = has_soft_line = False
        for index in self._top_level(start, stop):
            token = self._tokens[index]
            is_line_start = is_item_start and index == start
            inner: list[Document] = []
            if not is_line_start:
                is_soft = index > start and _is_break_point(token, breaks)
                has_soft_line = has_soft_line or is_soft
                inner += self._gap_before(index, is_soft=is_soft)
                is_broken = is_broken or bool(token.leading)
            if token.closing >= 0:
                bracket = self._format_bracket(index)
                parts += [Indented((*inner, bracket))] if has_soft_line else [Indented(tuple(inner)), bracket]
            else:
                text = [token.text, *_trailing(token)]
                parts += [*inner, *text] if is_line_start else [Indented((*inner, *text))]
            last = self._tokens[max(token.closing, index)]
            is_broken = is_broken or (max(token.closing, index) + 1 < stop and _ends_line(last))
        return [group(parts, is_broken=is_broken)]

    def _break_words(self, start: int, stop: int) -> frozenset[str]:
        """Return the keywords before which the tokens of a range may break."""
        tokens = (self._tokens[index] for index in self._top_level(start, stop))
        has_branches = any(token.is_keyword and token.text in _BRANCHES for token in tokens)
        return _BRANCHES if has_branches else _BREAK_BEFORE

    def _gap_before(self, index: int, *, is_soft: bool = False) -> list[Document]:
        """Return what separates a token from the one before it, with the comments on lines of their own between."""
        token, previous = self._tokens[index], self._tokens[index - 1]
        gap = Gap.SPACE if previous.trailing else gap_between(self._tokens, index)
        before: list[Document] = [SoftLine(gap) if is_soft else gap]
        return [*before, Gap.LINE, *_lines_of(token.leading)] if token.leading else before

    def _format_bracket(self, opening: int) -> Document:
        """Return a list in parentheses or brackets: on one line, or an element on each."""
        closing = self._tokens[opening].closing
        if is_quantifier(self._tokens, opening):
            return self._format_quantifier(opening, closing)
        inner: list[Document] = [SoftLine(Gap.NOTHING)]
        breaks = self._break_words(opening + 1, closing)
        for index in self._top_level(opening + 1, closing):
            token = self._tokens[index]
            if index > opening + 1:
                after_comma = self._tokens[index - 1].text == ","
                inner += self._gap_before(index, is_soft=after_comma or _is_break_point(token, breaks))
            else:
                inner += _lines_of(token.leading)
            if token.text == "{" and not is_quantifier(self._tokens, index):
                inner += self._format_block(index, is_item_start=True)
            elif token.closing >= 0:
                inner.append(self._format_bracket(index))
            else:
                inner += [token.text, *_trailing(token)]
        return self._close(opening, inner, Gap.NOTHING, is_broken=False)

    def _format_quantifier(self, opening: int, closing: int) -> Document:
        parts: list[Document] = [self._tokens[opening].text, *_trailing(self._tokens[opening])]
        for index in range(opening + 1, closing + 1):
            token = self._tokens[index]
            parts += [*_lines_of(token.leading), token.text, *_trailing(token)]
        return group(parts)

    def _format_block(self, opening: int, *, is_item_start: bool) -> list[Document]:
        """Return a block in braces: on one line if its items are separated by commas and fit, or on lines."""
        token = self._tokens[opening]
        closing = token.closing
        before = [] if is_item_start else [Indented(tuple(self._gap_before(opening)))]
        starts = self._item_starts(opening + 1, closing, token.parent)
        is_separated = all(self._tokens[index - 1].text == "," for index in starts[1:])
        is_open = self._tokens[opening + 1].has_newline_before and bool(starts)
        if not is_separated or is_open:
            items = self.format_items(opening + 1, closing, token.parent)
            # The first line of a block follows its brace.
            return [*before, self._close(opening, [Gap.LINE, *items], Gap.SPACE, is_broken=True)]
        inner: list[Document] = []
        for first, end in pairwise([*starts, closing]):
            inner += [SoftLine(Gap.SPACE), *_lines_of(self._tokens[first].leading), *self._format_item(first, end)]
        return [*before, self._close(opening, inner, Gap.SPACE if starts else Gap.NOTHING, is_broken=False)]

    def _close(self, opening: int, inner: Sequence[Document], gap: Gap, *, is_broken: bool) -> Document:
        """Return a bracket around its content, with the comments that precede the closing one."""
        first, last = self._tokens[opening], self._tokens[self._tokens[opening].closing]
        rest = self._tokens[opening + 1 : first.closing]
        has_comment = _ends_line(first) or any(token.leading or _ends_line(token) for token in rest) or last.leading
        content = [*inner, *([Gap.LINE, *_lines_of(last.leading)] if last.leading else [])]
        return group(
            [first.text, *_trailing(first), Indented(tuple(content)), SoftLine(gap), last.text, *_trailing(last)],
            is_broken=is_broken or bool(has_comment),
        )


def _unnamed_body(root: Node) -> Node | None:
    """Return the node of a source that is the body of a query alone; a declaration begins with a token of its own."""
    first = root.children[0] if len(root.children) == 1 else None
    return first if isinstance(first, Node) and isinstance(first.children[0], Node) else None


def _list_owners(owner: Node) -> list[Node]:
    """Return the nodes whose children are the items of a block: its own node, and a list that it holds."""
    return [owner, *(child for child in owner.children if isinstance(child, Node) and _is_list(child))]


def _is_list(node: Node) -> bool:
    return len(node.children) > 1 and all(isinstance(child, Node) or child.text == "," for child in node.children)


def _begins_item(token: SyntaxToken, owners: Sequence[Node]) -> bool:
    if not any(node.parent is owner for node in token.begins for owner in owners):
        return False
    if token.text != "@":
        return True
    # In a schema a constraint has a line of its own, and an annotation follows its property.
    item = token.parent.children
    word = item[1]
    return isinstance(word, SyntaxToken) and word.text in CONSTRAINT_WORDS and len(item) > 2


def _begins_section(previous: SyntaxToken, token: SyntaxToken) -> bool:
    """Return True for the keyword of another section of a query, such as `return` after the block of `match`."""
    if not token.is_keyword or previous.is_keyword or token.text in _CONTINUATIONS:
        return False
    ends_operand = previous.text[-1].isalnum() or previous.text[-1] in '_")]?'
    return previous.text == "}" or (ends_operand and (bool(token.begins) or token.text in _SECTIONS))


def _is_break_point(token: SyntaxToken, words: frozenset[str]) -> bool:
    return token.text.startswith("@") or (token.is_keyword and token.text in words)


def _ends_line(token: SyntaxToken) -> bool:
    return any(comment.ends_line for comment in token.trailing)


def _trailing(token: SyntaxToken) -> Iterator[Document]:
    for comment in token.trailing:
        yield from (Gap.SPACE, comment.text)
        if comment.ends_line:
            yield Gap.LINE


def _lines_of(comments: Sequence[Comment]) -> Iterator[Document]:
    for comment in comments:
        yield from (Gap.BLANK_LINE if comment.is_after_blank else Gap.LINE, comment.text, Gap.LINE)
