"""The gap between two neighbouring tokens on one line.

Pure. The default is a space; the exceptions follow from the tokens and from their places in the parse tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from omnigraph.lang.format.layout import Gap
from omnigraph.lang.format.syntax_tokens import SyntaxToken

# Tokens that follow, or precede, another one without a gap.
_NO_GAP_BEFORE: Final = frozenset({")", "]", ",", ".", "..", ":", "?"})
_NO_GAP_AFTER: Final = frozenset({"(", "[", ".", "..", "@"})
_PREFIXES: Final = frozenset({"-", "+", "!", "~"})
_ARROW_BRACKETS: Final = frozenset({"<", ">"})
_COUNTS: Final = frozenset({"INT", "VAR", "COMMA"})


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
    if not token.is_first_in_parent:
        return not previous.is_keyword or previous.parent is token.parent
    # A rule of its own for arguments looks like a group; then the author's writing decides.
    return token.is_glued and not previous.is_keyword and previous.text[:1].isalpha()


def _is_arrow_bracket(token: SyntaxToken) -> bool:
    siblings = {child.text for child in token.parent.children if isinstance(child, SyntaxToken)}
    return siblings >= _ARROW_BRACKETS
