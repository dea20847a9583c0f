"""Members that come twice in one object of a JSON text, held against a parse that sees every pair."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import orjson
import pytest

from omnigraph.engine.json_text import count_outside_strings, find_repeated_member

NAMES = ['"a"', '"b"', '"\\""', '"\\\\"', '"\\\\\\":"', '":"', '"{a:"', '"\\u0061"', '"é:"', '""']
SPACES = ["", "", " ", "\n", "\t"]


def make_text(random: Random, depth: int = 0) -> str:
    """Return a JSON text with odd names, strings and spaces, of whose objects some have a member twice."""
    kind = random.randrange(4 if depth < 4 else 2)
    if kind < 2:
        return random.choice([*NAMES, "1", "-2.5e3", "null", "[]", "{}", "9" * 30])
    parts = []
    for _ in range(random.randrange(4)):
        name = random.choice(NAMES) + random.choice(SPACES) + ":" + random.choice(SPACES) if kind == 2 else ""
        parts.append(name + make_text(random, depth + 1))
    inner = ("," + random.choice(SPACES)).join(parts)
    return "{" + inner + "}" if kind == 2 else "[" + inner + "]"


def repeats_of(text: str) -> set[str]:
    """Return all names that come twice in an object, from the definition."""
    repeats: set[str] = set()

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in members]
        repeats.update(name for name in names if names.count(name) > 1)
        return dict(members)

    json.loads(text, object_pairs_hook=pairs)
    return repeats


@pytest.mark.parametrize("seed", range(20))
def test_repeated_member_is_found_wherever_it_is(seed: int) -> None:
    random = Random(seed)
    outcomes = set()
    for _ in range(200):
        text = make_text(random)
        repeats = repeats_of(text)
        name = find_repeated_member(text.encode(), orjson.loads(text))
        assert name in repeats if repeats else name is None, text
        outcomes.add(name is None)
    assert outcomes == {True, False}


def test_repeated_member_below_the_depth_of_a_second_parse_is_found() -> None:
    text = b'{"a":' * 1000 + b'{"b":1,"b":2}' + b"}" * 1000
    assert find_repeated_member(text, orjson.loads(text)) is not None


def test_repeated_member_among_many_is_found_in_linear_time() -> None:
    text = b"{" + b",".join(b'"m%d":0' % number for number in range(60_000)) + b',"m59999":1}'
    assert find_repeated_member(text, orjson.loads(text)) == "m59999"


def test_count_outside_strings_knows_escapes() -> None:
    assert count_outside_strings(rb'{"a\\": ":", "b\":": "\\\":", "c": 1}', b":") == 3
