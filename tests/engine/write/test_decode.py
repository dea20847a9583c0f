"""Decoding: many lines at once give what single lines give: values, ids, lines and violations, whatever the bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.json
import pytest

from omnigraph.engine.input.ndjson import blocks, fast_path
from omnigraph.engine.input.ndjson import reader as decoding
from omnigraph.engine.input.ndjson.fast_path import Scanner
from omnigraph.engine.input.ndjson.reader import decode, read_compatible
from omnigraph.lang.catalog import FLOATS, PropertyType, TypeKey
from omnigraph.rules import coerce
from omnigraph.rules.delta import Findings
from tests.engine.write.ndjson_generator import TYPES, text

pytestmark = pytest.mark.slow

SEEDS = range(2)
FILES = 500
GOOD = b'{"type":"A","data":{"k":"%d","at":"2024-01-01T00:00:00Z"}}\n'


def outcome(data: bytes) -> Any:
    """Return all that an input gives, fresh ids aside. Spelled out, so that a negative zero differs from zero."""
    findings = Findings(1_000_000)
    loaded = decode(data, TYPES, first_line=1, findings=findings)
    rows = {}
    for key, one in loaded.items():
        table = one.in_order().rows
        table.validate()
        columns = {
            name: plain(column.combine_chunks()).to_pylist()
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
        columns["id"] = ["" if len(value) == 26 else value for value in columns["id"]]
        rows[key] = (one.in_order().numbers.tolist(), columns)
    violations = sorted(findings.violations, key=lambda one: one.line or 0)
    return repr(({key: one for key, one in rows.items() if one[0]}, violations))


def plain(column: Any) -> Any:
    """Return dates as the numbers that are stored; Python has no word for some of them."""
    stored = {pa.date32(): pa.int32(), pa.date64(): pa.int64()}.get(column.type)
    return column if stored is None else column.view(stored)


@contextmanager
def eager() -> Iterator[None]:
    """Let the fast way try as few as two lines, and blocks be small."""
    with (
        patch.object(fast_path, "DECODE_ODD_LINES", 1),
        patch.object(decoding, "DECODE_ODD_LINES", 1),
        patch.object(blocks, "DECODE_BLOCK_BYTES", 600),
    ):
        yield


@contextmanager
def slow() -> Iterator[None]:
    with patch.object(Scanner, "scan", lambda self, block: ([], [block])):
        yield


def compare(seed: int, files: int) -> int:
    """Compare both ways on generated files; return how many lines went the fast one."""
    random, fast = Random(seed), 0
    scan = Scanner.scan

    def counted(self: Scanner, block: blocks.Lines) -> Any:
        nonlocal fast
        parts, odd = scan(self, block)
        fast += sum(part.rows.num_rows for part in parts)
        return parts, odd

    for _ in range(files):
        data = text(random)
        with slow():
            expected = outcome(data)
        with eager(), patch.object(Scanner, "scan", counted):
            assert outcome(data) == expected, data
    return fast


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.sampled(1)
def test_decode_of_many_lines_gives_what_single_lines_give(seed: int) -> None:
    assert compare(seed, FILES) > FILES


def test_decode_of_many_lines_quickly_gives_what_single_lines_give() -> None:
    assert compare(99, 60) > 60


@pytest.mark.long
def test_decode_of_very_many_lines_gives_what_single_lines_give() -> None:
    assert compare(12345, 20_000) > 20_000


def _forgiving(**options: Any) -> Any:
    return PARSE_OPTIONS(**options | {"unexpected_field_behavior": "ignore"})


def _narrow(type_: PropertyType, dates: coerce.DateInput = "string") -> pa.DataType:
    return pa.float32() if type_.scalar in FLOATS and not type_.is_list else READER_TYPE(type_, dates)


def _unescaped(texts: Any, column: Any, name: bytes) -> bool:
    missing = texts.filter(column.is_null()).to_pylist()
    return not any(name in one for one in missing)


PARSE_OPTIONS = pyarrow.json.ParseOptions
READER_TYPE = coerce.reader_type
MUTANTS: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "any bytes are Unicode": (fast_path, "is_unicode", lambda texts: True),
    "null counts as absent": (fast_path, "_is_absent", lambda texts, column, name: True),
    "an escaped name is overlooked": (fast_path, "_is_absent", _unescaped),
    "zeros keep any sign": (fast_path, "has_negative_zero", lambda column: False),
    "any number of values is right": (fast_path, "_is_one_each", lambda texts, table: True),
    "required values may be missing": (fast_path, "_is_missing", lambda column, item: False),
    "ids need not be those of keys": (fast_path, "_is_same", lambda given, spelled: True),
    "lines may end in any way": (fast_path, "_is_everywhere", lambda byte, data, places: True),
    "numbers may be infinite": (coerce, "is_finite", lambda numbers: True),
    "members may be unknown": (pyarrow.json, "ParseOptions", _forgiving),
    "floats are rounded once": (fast_path, "reader_type", _narrow),
}


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.sampled(3)
def test_decode_without_a_check_is_caught(name: str) -> None:
    target, attribute, mutant = MUTANTS[name]
    with patch.object(target, attribute, mutant), pytest.raises((AssertionError, ValueError)):
        compare(0, len(SEEDS) * FILES)


def test_decode_plain_lines_takes_the_fast_way() -> None:
    data = b"".join(GOOD % number for number in range(300))
    with patch.object(decoding, "parse_lines", side_effect=AssertionError("the slow way")):
        loaded = decode(data, TYPES, first_line=11, findings=Findings())[TypeKey("node:A")]
    assert loaded.in_order().numbers.tolist() == list(range(11, 311))
    assert loaded.in_order().rows.column("id").to_pylist() == [str(number) for number in range(300)]


def test_decode_bad_lines_leaves_the_others_and_tells_each() -> None:
    texts = [GOOD % number for number in range(1_000)]
    bad = {3: b'{"type":"A","data":{"k":1}}\n', 500: b"{\n", 999: b'{"type":"Z"}\n'}
    for place, line in bad.items():
        texts[place] = line
    findings = Findings()
    loaded = decode(b"".join(texts), TYPES, first_line=1, findings=findings)[TypeKey("node:A")]
    assert [(one.rule, one.line) for one in sorted(findings.violations, key=lambda one: one.line or 0)] == [
        ("N10", 4),
        ("N1", 501),
        ("N4", 1000),
    ]
    assert loaded.in_order().numbers.tolist() == [place + 1 for place in range(1_000) if place not in bad]
    assert loaded.in_order().rows.column("k").to_pylist() == [str(place) for place in range(1_000) if place not in bad]


@pytest.mark.parametrize("values", ["1704067200000", "null"])
def test_decode_dates_as_numbers_takes_the_fast_way(values: str) -> None:
    data = b"".join(GOOD.replace(b'"2024-01-01T00:00:00Z"', values.encode()) % number for number in range(300))
    with patch.object(decoding, "parse_lines", side_effect=AssertionError("the slow way")):
        entities = decode(data, TYPES, first_line=1, findings=Findings())[TypeKey("node:A")].in_order()
        [found] = set(entities.rows.column("at").to_pylist())
    assert str(found) == ("None" if values == "null" else "2024-01-01")


def test_read_compatible_counts_records_not_lines() -> None:
    findings = Findings()
    data = b'{"type":"A"}{"type":"B"}\n{"type":"Q"}'
    assert [number for number, _ in read_compatible(data, findings)] == [1, 2, 3]
    assert not findings.violations


def test_decode_takes_any_buffer() -> None:
    data = GOOD % 1 + GOOD % 2
    for buffer in (data, memoryview(data), pa.py_buffer(data)):
        assert len(decode(buffer, TYPES, first_line=1, findings=Findings())[TypeKey("node:A")].in_order().numbers) == 2


def test_member_twice_is_found_at_any_depth() -> None:
    random = Random(5)
    for _ in range(500):
        for raw in text(random).split(b"\n"):
            repeated: list[bool] = []

            def pairs(found: list[tuple[str, object]]) -> dict[str, object]:
                repeated.append(len(dict(found)) < len(found))  # noqa: B023 - read before the next round
                return dict(found)

            try:
                json.loads(raw, object_pairs_hook=pairs, parse_constant=lambda word: 1 / 0)
            except (ValueError, ZeroDivisionError):
                continue
            findings = Findings()
            decode(raw, TYPES, first_line=2, findings=findings)
            codes = [one.rule for one in findings.violations]
            assert "N1" in codes or ("N2" in codes) == any(repeated), raw
