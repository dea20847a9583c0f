"""Syntax errors in words: what was found, what was expected, and what is usually meant by it.

Pure. Knows the terminals of the grammar by name and turns them into the words of the manual.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from omnigraph.limits import SUGGESTION_NAMES_MAX

AGGREGATES: Final = frozenset({"count", "sum", "avg", "min", "max"})
RANKS: Final = frozenset({"nearest", "bm25", "rrf"})
TEXT_PREDICATES: Final = frozenset({"search", "fuzzy", "match_text"})

# Function -> the fewest and the most arguments it takes.
FUNCTIONS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "now": (0, 0),
        "date": (1, 1),
        "datetime": (1, 1),
        "count": (1, 1),
        "sum": (1, 1),
        "avg": (1, 1),
        "min": (1, 1),
        "max": (1, 1),
        "nearest": (2, 2),
        "bm25": (2, 2),
        "rrf": (2, 3),
        "search": (2, 2),
        "match_text": (2, 2),
        "fuzzy": (2, 3),
    }
)


def nearest_word(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like the given one, if any is like it at all.

    >>> nearest_word("Vesel", ["Port", "Vessel"]), nearest_word("x", ["Port"])
    ('Vessel', None)
    """
    # Matching is quadratic in word length and linear in words, so an absurd schema or word is not matched at all.
    names = sorted(set(known))
    if len(word) > 100 or len(names) > SUGGESTION_NAMES_MAX:
        return None
    folded = {name.lower(): name for name in reversed(names)}
    found = get_close_matches(word.lower(), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def suggestion(word: str, known: Iterable[str], *, prefix: str = "", otherwise: str | None = None) -> str | None:
    """Return a hint naming the nearest known word, or the fallback.

    >>> suggestion("sails", ["callsAt"], otherwise="traverse an edge"), suggestion("callsat", ["callsAt"])
    ('traverse an edge', 'did you mean `callsAt`?')
    """
    near = nearest_word(word, known)
    return f"did you mean `{prefix}{near}`?" if near else otherwise


def listed(words: Iterable[str], *, conjunction: str = "or") -> str:
    """Join words as a sentence does.

    >>> listed(["a", "b", "c"])
    'a, b or c'
    """
    items = list(words)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {conjunction} {items[-1]}"


# The first groups that a state accepts as a whole stand for all their terminals, so that messages stay short.
_GROUPS: Final[tuple[tuple[str, set[str], set[str]], ...]] = (
    ("a clause", {"NOT", "OPTIONAL", "VAR", "NAME"}, {"LPAR", "STRING", "INT", "FLOAT", "BOOL", "OPEN_BRACKET"}),
    ("an operator", {"COMPARE", "LESS", "MORE"}, {"CONTAINS", "STARTS_WITH", "IS", "IN"}),
    ("a condition", {"VAR", "NAME", "STRING", "LPAR"}, {"INT", "FLOAT", "BOOL", "OPEN_BRACKET"}),
    ("an expression", {"VAR", "NAME", "STRING"}, {"INT", "FLOAT", "BOOL", "OPEN_BRACKET"}),
    ("a literal", {"STRING", "INT", "FLOAT", "BOOL"}, {"NAME", "OPEN_BRACKET"}),
    ("a property name", {"NAME", "AS", "IS"}, {"ASC", "DESC", "AND", "OR", "IN", "NOT", "OPTIONAL", "CONTAINS"}
        | {"STARTS_WITH", "BOOL", "INSERT", "UPDATE", "DELETE"}),
    ("a statement", {"INSERT", "UPDATE", "DELETE"}, set()),
)  # fmt: skip

_WORDS: Final = {
    "TYPE": "a type name",
    "VAR": "a variable",
    "NAME": "a name",
    "META": "`@description`",
    "INT": "a whole number",
    "FLOAT": "a number",
    "STRING": "a string",
    "BOOL": "`true` or `false`",
    "STAR": "`*`",
    "OPTIONAL_MARK": "`?`",
    "LESS": "`<`",
    "MORE": "`>`",
    "COMPARE": "`=`",
    "LPAR": "`(`",
    "CLOSE_PAREN": "`)`",
    "OPEN_BRACE": "`{`",
    "CLOSE_BRACE": "`}`",
    "OPEN_BRACKET": "`[`",
    "CLOSE_BRACKET": "`]`",
    "COLON": "`:`",
    "COMMA": "`,`",
    "DOT": "`.`",
    "$END": "the end of the source",
}

# What people write out of habit, by the text they wrote, and what the language wants.
_HABITS: Final = {
    "'": "strings take double quotes",
    "==": "equality is one `=`",
    "!": "write `!=` to compare, or `not { … }` around a pattern",
    "&": "write `and`, or simply put the filters one after the other",
    "|": "write `or`",
    ";": "leave it out: nothing ends in a semicolon",
    "#": "comments start with `//`",
    "-": "a sign stands directly before its number; arithmetic does not exist",
    "+": "numbers take no `+`; arithmetic does not exist",
    "*": "only `count(*)` takes a star",
    "`": "names take no quotes",
}

_TOKEN: Final = re.compile(
    r"[$@]?[A-Za-z_][A-Za-z0-9_]*|[0-9]+(?:\.[0-9]+)?[A-Za-z0-9_]*|\"[^\"\n]{0,40}\"?|[=!<>]=|\S"
)
_FILE_NAME: Final = re.compile(r"[^\s{}]+\.(?:gq|txt|pg)")
_FOUND_MAX: Final = 40
_LOOK_BACK: Final = 200


def found_at(text: str, offset: int) -> str:
    """Return the token-like text at an offset, empty at the end of the source.

    >>> found_at("a == b", 2), found_at("a ", 2)
    ('==', '')
    """
    match = _TOKEN.match(text, offset)
    return match[0][:_FOUND_MAX] if match else ""


def before_at(text: str, offset: int) -> tuple[str, int]:
    """Return the token-like text that ends before an offset, and where it starts."""
    start = max(0, offset - _LOOK_BACK)
    tokens = list(_TOKEN.finditer(text, start, offset))
    return (tokens[-1][0], tokens[-1].start()) if tokens else ("", offset)


def describe_expected(accepts: set[str], before: str) -> str:
    """Return in words what a state accepts; `before` is the token just read."""
    left = set(accepts)
    if left == {"NAME"}:
        special = {"query": "a query name", "as": "a column name"}
        return special.get(before, "a property name")
    words: list[str] = []
    for word, required, also in _GROUPS:
        if required <= left:
            words.append(word)
            left -= required | also
    closing = sorted(left & {"CLOSE_BRACE", "CLOSE_PAREN", "CLOSE_BRACKET", "$END"})
    for name in [*sorted(left.difference(closing)), *closing]:
        words.append(_WORDS.get(name) or f"`{name.strip('_').lower()}`")
    unique = list(dict.fromkeys(words))
    return listed(unique[:6]) if unique else "nothing more"


def hint_for(found: str, before: str, accepts: set[str], text: str, offset: int) -> str | None:
    """Return what is usually meant by this mistake, if it is a usual one."""
    if not before:
        if _FILE_NAME.fullmatch(text.strip()):
            return "this looks like the name of a file; give the text that it holds"
        return "a source holds queries: `query name() { match { … } return { … } }`"
    if found in ("and", "or") and accepts & {"INSERT", "UPDATE", "DELETE"}:
        return "the `where` of a mutation takes one comparison; write a statement for each"
    habit = _habit(found, before, text, offset)
    if habit:
        return habit
    if found == "null":
        return "there is no null value: test with `is null`, or leave the property out"
    if found == "," and "NOT" in accepts:
        return "clauses stand one after the other, without commas"
    if found[:1].isupper() and before.startswith("$") and "NAME" in accepts:
        return f"an edge is traversed with a lower-case first letter: `{found[0].lower()}{found[1:]}`"
    if found[:1].islower() and "TYPE" in accepts:
        return f"type names begin with an upper-case letter: `{found[0].upper()}{found[1:]}`"
    if found == ":" and "LPAR" in accepts:
        return f"variables begin with `$`: `${before}`"
    if found == "}" and accepts == {"NAME"} and before in ("{", ","):
        return "leave the braces out, or name a property"
    if found == "}" and before.isdigit() and "COMMA" in accepts:
        return f"a hop range has two bounds: `{{{before},{before}}}`"
    if found in ("order", "skip", "limit") and "CLOSE_BRACE" in accepts:
        return "the order is `order { … }`, then `skip`, then `limit`"
    if found.isidentifier() and accepts & {"VAR", "STRING"} and "NAME" not in accepts:
        return f"variables begin with `$`: `${found}`"
    return None


def _habit(found: str, before: str, text: str, offset: int) -> str | None:
    if found == "." and (before.isdigit() or text[offset + 1 : offset + 2].isdigit()):
        return "a number with a point has digits on both sides of it"
    if found == "=" and before == "=" and text[offset - 1 : offset] == "=":
        return _HABITS["=="]
    if found[:1].isdigit() and re.match(r"[0-9.]+[eE]", text[offset : offset + 60]):
        return "numbers have no exponent: write all digits"
    if found[:1] == "$" and len(found) == 1:
        return "a variable is `$` and a lower-case name, with no gap"
    if found.startswith("$") and found[1:2].isupper():
        return f"variables begin with a lower-case letter: `${found[1].lower()}{found[2:]}`"
    return _HABITS.get(found) or (_HABITS.get(found[:1]) if found else None)
