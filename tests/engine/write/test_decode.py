"""Many lines at once against one by one: the fast way into an ingest takes and refuses what the slow one does."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.write.records import Reader
from omnigraph.errors import OmniGraphError
from tests.rules.tables import catalog

TYPES = catalog("node A { k: String @key  n: I32?  t: DateTime? } node B { x: String? } edge E: A -> B { w: F64? }")
TEXTS = st.sampled_from(["a", "b:c", ":", '"', "\\", '":', " :", "{", "é", "2024-01-01T00:00:00Z", ""])
NUMBERS = st.one_of(st.none(), st.integers(-5, 5), st.floats(0, 1), TEXTS)
DATA = st.dictionaries(st.sampled_from(["k", "n", "t", "x", "w", "id", "zip"]), NUMBERS, max_size=4)
RECORDS = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["A", "B", "C"]), "data": DATA}),
    st.fixed_dictionaries({"type": st.just("A"), "data": st.fixed_dictionaries({"k": TEXTS, "n": st.integers(0, 9)})}),
    st.fixed_dictionaries(
        {"edge": st.sampled_from(["E", "e"]), "from": TEXTS, "to": TEXTS, "data": st.just({"w": 1.5})}
    ),
    st.fixed_dictionaries({"edge": st.just("E"), "from": NUMBERS, "to": TEXTS}),
)
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")])


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Return one line: usually a record, sometimes with a member twice, sometimes no JSON at all."""
    text = json.dumps(draw(RECORDS), separators=draw(SEPARATORS), ensure_ascii=draw(st.booleans()))
    damage = draw(st.integers(0, 9))
    if damage == 0:
        return draw(st.sampled_from(["", "{", "[1]", text + text, text + "\r", "  " + text]))
    if damage == 1:
        return text.replace("{", '{"k" :":",', 1)
    if damage == 2:
        return text.replace("{", '{"n":1,"n":2,', 2).replace('{"n":1,"n":2,', "{", 1)
    return text


def outcome(data: bytes) -> Any:
    """Return the tables that an input gives, without fresh ids, or all that is wrong with it."""
    try:
        loaded = Reader(TYPES, "strict", "line", is_bounded=True).read(data)
    except OmniGraphError as error:
        return error.context.get("violations", error.message)
    return {
        key: (
            one.lines.tolist(),
            [[value for name, value in row.items() if name != "id"] for row in one.rows.to_pylist()],
        )
        for key, one in loaded.items()
    }


@given(st.lists(lines(), max_size=4))
def test_lines_that_pass_hold_no_member_twice(texts: list[str]) -> None:
    for text in texts:
        repeated: list[bool] = []

        def pairs(members: list[tuple[str, object]]) -> dict[str, object]:
            repeated.append(len(dict(members)) < len(members))  # noqa: B023 - read before the next round
            return dict(members)

        try:
            json.loads(text, object_pairs_hook=pairs)
        except ValueError:
            continue
        found = outcome(text.encode())
        codes = [one["rule"] for one in found] if isinstance(found, list) else []
        assert ("N2" in codes) == any(repeated), text
