"""Hints for queries that begin in another language: Cypher, SQL, or `.gq` with the words of either.

Pure. A hint shows the `.gq` form of what was probably meant; it never changes what is an error.
"""

from __future__ import annotations

import re
from typing import Final

from omnigraph.lang.query.functions import FUNCTION_NAMES

_AHEAD: Final = 200
_BEHIND: Final = 60

_MATCH_FORM: Final = "`match { $a: Person $a knows $b } return { $b.name }`"
_SELECT: Final = re.compile(r"(?:select\s+(?P<columns>[\w\s,.*]*?)\s+)?from\s+(?P<type>\w+)", re.IGNORECASE)
_IN_SUBQUERY: Final = re.compile(r"\b(?:exists|count)\s*\{\s*match\s*$", re.IGNORECASE)
_ARROW: Final = re.compile(r"-\[|\]-|->|<-|--")

# What is not a word here, whatever follows it.
_WORDS: Final = {
    "where": "conditions stand in the `match`: `match { $p: Person $p.age > 3 } return { $p.name }`",
    "between": "write both bounds: `$p.age >= 3 and $p.age <= 5`",
    "like": 'write `starts_with "a"`, `ends_with "a"`, `contains "a"`, or `matches "^a.*"` for a regular expression',
    "ilike": 'write `lower($p.name) contains "a"`',
    "rlike": 'a regular expression is `matches`: `$p.name matches "^a.*"`',
    "regexp": 'a regular expression is `matches`: `$p.name matches "^a.*"`',
    "group": "rows are grouped by the columns that are not aggregates: `return { $p.country, count(*) as n }`",
    "offset": "write `skip 20`, before the `limit`",
    "top": "write `limit 10` behind the `return { … }`",
    "fetch": "write `limit 10` behind the `return { … }`",
    "select": "write `match { $p: Person } return { $p.name }`",
    "from": "write `match { $p: Person } return { $p.name }`",
    "join": "a join is a walk along an edge, `$a knows $b`, or a condition: `$a.city = $b.city`",
    "xor": "write `a != b` for two conditions `a` and `b`",
    "detach": "`delete $a` deletes the edges of a node, too",
    "merge": 'write `upsert Person { name: "ada" }`, or `create`, which refuses an existing key',
    "foreach": "what follows a `match` is done for each of its rows: `match { … } update $a set { … }`",
    "unwind": "it is a clause of the `match`: `match { $p: Person unwind $p.tags as $tag }`",
    "call": "functions stand in expressions: `return { lower($p.name) as name }`",
    "values": 'write `insert Person { name: "ada", age: 36 }`',
}  # fmt: skip

# The form of a keyword, for those who write it in capitals.
_FORMS: Final = {
    "match": _MATCH_FORM,
    "return": "`return { $p.name as name }`",
    "order": "`order { $p.name desc }`",
    "limit": "`limit 10`",
    "skip": "`skip 20`",
    "with": "`with { $p, count(*) as $n }`",
    "unwind": "`unwind $p.tags as $tag`, inside the `match`",
    "optional": "`optional { $p knows $q }`, inside the `match`",
    "union": "`union`, or `union all`",
    "insert": '`insert Person { name: "ada" }`',
    "create": '`create Person { name: "ada" }`',
    "update": '`update Person set { age: 37 } where name = "ada"`',
    "delete": '`delete Person where name = "ada"`',
}


def hint_from_other_languages(
    token: str, before: str, text: str, offset: int, keywords: tuple[str, ...], accepted: frozenset[str]
) -> str | None:
    """Return the `.gq` form of what stands at an offset, if it is a habit of Cypher or SQL."""
    word, ahead = token.lower(), text[offset : offset + _AHEAD]
    if (not before or "INSERT" in accepted) and (hint := _whole_query_hint(word, ahead)):
        return hint
    if token == "(" and before.lower() == "match":
        return f"a pattern stands in braces, its variables begin with `$`: {_MATCH_FORM}"
    if token == "{" and before.lower() == "match" and _IN_SUBQUERY.search(text, max(0, offset - _BEHIND), offset):
        return "the pattern stands in the braces alone: `exists { $a knows $b }`, `count { $a knows $b }`"
    return (
        _symbol_hint(token, before, text, offset)
        or _clause_hint(word, before, text, offset, accepted)
        or _word_hint(token, keywords)
    )


def hint_for_word(word: str) -> str | None:
    """Return the `.gq` form of a word of another language that was read as a name."""
    return _WORDS.get(word.lower())


def _whole_query_hint(word: str, ahead: str) -> str | None:
    """Return a hint for a source that begins like a query of another language."""
    if re.match(r"match\s*\(", ahead, re.IGNORECASE):
        return f"a pattern stands in braces, its variables begin with `$`: {_MATCH_FORM}"
    if re.match(r"(?:create|merge)\s*\(", ahead, re.IGNORECASE):
        return 'write `insert Person { name: "ada" }`, and for an edge `insert Knows { from: "ada" to: "bob" }`'
    select = _SELECT.match(ahead)
    if select is not None:
        type_name = select["type"]
        names = [name.split(".")[-1] for name in re.split(r"[\s,]+", select["columns"] or "*")]
        columns = ", ".join("$x.*" if name == "*" else f"$x.{name}" for name in names if name)
        return f"write `match {{ $x: {type_name[0].upper()}{type_name[1:]} }} return {{ {columns} }}`"
    return _WORDS["select"] if word == "select" else None


def _symbol_hint(token: str, before: str, text: str, offset: int) -> str | None:
    if token == ">" and text[offset - 1 : offset] == "<":
        return "write `!=`"
    if _is_arrow(text, offset):
        return "an edge is walked by its name, between two variables: `$a knows $b`"
    if token == "." and before.isidentifier():
        name = re.match(r"\.\s*(\w*)", text[offset : offset + _AHEAD])
        return f"variables begin with `$`: `${before}.{name[1] if name else 'name'}`"
    if token == "," and re.search(r"\bin\s*\([^()]*$", text[max(0, offset - _BEHIND) : offset], re.IGNORECASE):
        return "a list stands in brackets: `in [1, 2]`"
    return None


def _is_arrow(text: str, offset: int) -> bool:
    """True if an arrow of Cypher ends, begins or lies at an offset."""
    start = max(0, offset - 3)
    return any(start + match.start() <= offset for match in _ARROW.finditer(text[start : offset + 2]))


def _clause_hint(word: str, before: str, text: str, offset: int, accepted: frozenset[str]) -> str | None:
    """Return a hint for a clause that is written without its braces, or in two words."""
    if before == "order" and ("OPEN_BRACE" in accepted or word == "by"):
        return "the keys stand in braces: `order { $p.name desc }`"
    if (before == "per" and "OPEN_BRACE" in accepted) or (word == "by" and "_PER" in accepted):
        return "the first rows of each group are `limit 3 per { $p.country }`, behind the `order`"
    if before in ("return", "with", "distinct") and "OPEN_BRACE" in accepted and word != "distinct":
        form = "`with { $p, count(*) as $n }`" if before == "with" else "`return { $p.name as name }`"
        return f"the columns stand in braces: {form}"
    if before == "set" and "OPEN_BRACE" in accepted:
        return 'the properties stand in braces, with colons: `set { age: 37, city: "Ghent" }`'
    if word == "with" and before.lower() in ("starts", "ends"):
        return f"this is one word: `{before.lower()}_with`"
    if word == "optional" and re.match(r"optional\s+match\b", text[offset : offset + _AHEAD], re.IGNORECASE):
        return "what may be missing stands inside the `match`: `optional { $p knows $q }`"
    if word == "from" and before.lower() == "delete":
        return f"write {_FORMS['delete']}"
    return None


def _word_hint(token: str, keywords: tuple[str, ...]) -> str | None:
    word = token.lower()
    if word in _WORDS:
        return _WORDS[word]
    if word in ("starts", "ends"):
        return f"this is one word: `{word}_with`"
    if token == word:
        return None
    if word in FUNCTION_NAMES:
        return f"functions are written in lower case: `{word}(…)`"
    if word in keywords or word in ("null", "true", "false"):
        return f"keywords are written in lower case: {_FORMS.get(word, f'`{word}`')}"
    return None
