"""The tokens of a source with their comments, their brackets and their places in the parse tree.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from lark import Token, Tree

from omnigraph.lang.diagnostic import Source
from omnigraph.lang.parsing import Language, parse_tree, span_of, tree_parser

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")
# Words that no grammar has as keywords; a terminal that matches one of them is the terminal of names.
_MADE_UP_WORDS: Final = ("zqx", "Zqx", "$zqx", "@zqx")
_WORD: Final = re.compile(r"[$@]?[A-Za-z_]\w*")
_LOOKAHEAD: Final = re.compile(r"\(\?[=!]")


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment; `is_after_blank` if an empty line precedes it."""

    text: str
    is_after_blank: bool = False

    @property
    def ends_line(self) -> bool:
        return self.text.startswith("//") or "\n" in self.text


@dataclass(slots=True, eq=False)
class Node:
    """A rule of the grammar as it was applied."""

    parent: Node | None
    children: list[Node | SyntaxToken] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class SyntaxToken:
    """A token and what precedes it.

    `newlines_before` counts the line ends right before the token, `has_newline_before` those among comments, too.
    `leading` are comments on lines of their own before the token, `trailing` those behind it on its line. `begins` are
    the nodes whose first token it is. `closing` is the index of the bracket that closes an opening one.
    """

    text: str
    terminal: str
    start: int
    end: int
    parent: Node
    is_keyword: bool
    begins: list[Node] = field(default_factory=list)
    newlines_before: int = 0
    has_newline_before: bool = False
    is_glued: bool = False
    leading: list[Comment] = field(default_factory=list)
    trailing: list[Comment] = field(default_factory=list)
    closing: int = -1

    @property
    def is_first_in_parent(self) -> bool:
        return self.parent.children[0] is self


def read_tokens(source: Source, language: Language) -> tuple[list[SyntaxToken], Node, list[Comment]]:
    """Return the tokens of a source, the root of its tree, and the comments after its last token.

    Raises `LanguageError` for a source that its grammar does not accept.
    """
    root = Node(None)
    tokens = _collect_tokens(parse_tree(source, language), root, name_terminals(language))
    end = 0
    for previous, token in zip([None, *tokens], tokens, strict=False):
        _attach_comments(source.text[end : token.start], previous, token)
        end = token.end
    last = SyntaxToken("", "$END", len(source.text), len(source.text), root, False)
    _attach_comments(source.text[end:], tokens[-1] if tokens else None, last)
    _match_brackets(tokens)
    return tokens, root, last.leading


def _collect_tokens(tree: Tree[Token], root: Node, names: frozenset[str]) -> list[SyntaxToken]:
    tokens: list[SyntaxToken] = []
    begun: list[Node] = []
    stack: list[tuple[Node, Tree[Token] | Token]] = [(root, child) for child in reversed(tree.children)]
    while stack:
        parent, item = stack.pop()
        if isinstance(item, Token):
            text = _join_words(str(item))
            is_keyword = item.type not in names and all(map(_WORD.fullmatch, text.split(" ")))
            span = span_of(item)
            token = SyntaxToken(text, item.type, span.start, span.end, parent, is_keyword, begun)
            parent.children.append(token)
            tokens.append(token)
            begun = []
        elif item.children:
            node = Node(parent)
            parent.children.append(node)
            begun.append(node)
            stack += [(node, child) for child in reversed(item.children)]
    return tokens


def _join_words(text: str) -> str:
    """Return a token of several words, such as `not in`, with single spaces; one with a comment stays as it is."""
    words = text.split()
    return " ".join(words) if len(words) > 1 and all(map(_WORD.fullmatch, words)) else text


def _attach_comments(gap: str, previous: SyntaxToken | None, token: SyntaxToken) -> None:
    """Give each comment between two tokens to the one before, if it stands on its line, or to the one after."""
    end = 0
    is_same_line = previous is not None
    for match in _COMMENT.finditer(gap):
        newlines = gap.count("\n", end, match.start())
        is_same_line = is_same_line and newlines == 0
        text = match[0].rstrip() if match[0].startswith("//") else match[0]
        if is_same_line and previous is not None:
            previous.trailing.append(Comment(text))
        else:
            is_first = previous is None and not token.leading
            token.leading.append(Comment(text, newlines > 1 and not is_first))
        end = match.end()
    token.newlines_before = gap.count("\n", end)
    token.has_newline_before = "\n" in gap
    token.is_glued = not gap


def _match_brackets(tokens: Sequence[SyntaxToken]) -> None:
    opened: list[SyntaxToken] = []
    for index, token in enumerate(tokens):
        if token.text in _OPENING:
            opened.append(token)
        elif token.text in _CLOSING:
            opened.pop().closing = index


@cache
def name_terminals(language: Language) -> frozenset[str]:
    """Return the terminals that match any name, as opposed to keywords."""
    patterns = {terminal.name: re.compile(terminal.pattern.to_regexp()) for terminal in tree_parser(language).terminals}

    def matches(pattern: re.Pattern[str], word: str) -> bool:
        # A terminal may look ahead for the colon behind a name.
        match = pattern.match(f"{word}:")
        return match is not None and match.end() == len(word)

    return frozenset(
        name for name, pattern in patterns.items() if any(matches(pattern, word) for word in _MADE_UP_WORDS)
    )


@cache
def keywords_by_terminal(language: Language) -> Mapping[str, tuple[str, ...]]:
    """Return the words that a grammar lists, by terminal.

    A keyword's terminal is its word, or several words, and then what may or may not follow.
    """
    words: dict[str, tuple[str, ...]] = {}
    for terminal in tree_parser(language).terminals:
        pattern = _LOOKAHEAD.split(terminal.pattern.value)[0]
        alternatives = tuple(pattern.removeprefix("(?:").removesuffix(")").split("|"))
        if terminal.name not in name_terminals(language) and all(map(_WORD.fullmatch, alternatives)):
            words[terminal.name] = alternatives
    return words


def keywords(language: Language) -> tuple[str, ...]:
    """Return all words that a grammar lists, sorted."""
    return tuple(sorted({word for words in keywords_by_terminal(language).values() for word in words}))
