"""Find duplicate members in the objects of a JSON text, which the parser accepts silently.

Pure. They are found by counting; only a text that has such a member is parsed a second time, to name it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_STRING: Final = re.compile(rb'"[^"]*+"')


def find_repeated_member(text: bytes, value: object) -> str | None:
    """Return the name of a member that an object of a JSON text has twice, or None; `value` is the parsed text.

    >>> find_repeated_member(b'{"a": 1, "b": {"a": 2, "a": 3}}', {"a": 1, "b": {"a": 3}})
    'a'
    """
    # Each member has a colon outside of strings, so fewer members than colons means that one was overwritten.
    members = _count_members(value, text)
    if _is_surely_complete(text, members) or count_outside_strings(text, b":") == members:
        return None
    return _repeated_name(text)


def count_outside_strings(text: bytes, characters: bytes) -> int:
    """Return how many of some characters a JSON text has outside of its strings."""
    # Escaped backslashes first: what is left before a quote then escapes it.
    without_escaped_quotes = text.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in text else text
    bare = _STRING.sub(b"", without_escaped_quotes)
    return len(bare) - len(bare.translate(None, characters))


def _is_surely_complete(text: bytes, members: int) -> bool:
    """Return True only if there is no duplicate member; False is inconclusive.

    Where nothing is escaped and no blank stands before a colon, a quote followed by a colon ends the name of a member
    or begins a string. So a text has at least as many of them as members, and equal numbers mean that none was lost.
    """
    is_odd = b"\\" in text or b" :" in text or b"\t:" in text or b"\r:" in text or b"\n:" in text
    return not is_odd and text.count(b'":') == members


def _count_members(value: Any, text: bytes) -> int:
    """Return how many members all objects of a parsed value have."""
    data = value.get("data") if type(value) is dict else None
    if type(data) is dict and text.count(b"{") == 2:
        return len(value) + len(data)
    total, stack = 0, [value]
    while stack:
        item = stack.pop()
        if type(item) is dict:
            total += len(item)
            stack.extend(item.values())
        elif type(item) is list:
            stack.extend(item)
    return total


def _repeated_name(text: bytes) -> str:
    names: list[str] = []

    def note_repeats(members: list[tuple[str, object]]) -> None:
        distinct: set[str] = set()
        for name, _ in members:
            if name in distinct:
                names.append(name)
                break
            distinct.add(name)

    try:
        json.loads(text, object_pairs_hook=note_repeats, parse_int=str, parse_float=str)
    except RecursionError:
        return "…"
    return names[0]
