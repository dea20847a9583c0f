"""Formats: what each of the five makes of the same rows."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest

from omnigraph.cli.options import Format
from omnigraph.cli.output import render, table
from omnigraph.display import display_width
from omnigraph.limits import TABLE_CELL_CHARACTERS_MAX

COLUMNS = ["name", "n", "tags"]
ROWS: list[dict[str, Any]] = [
    {"name": "ann", "n": 5, "tags": ["a", "b"]},
    {"name": 'x, "y"\nz', "n": None, "tags": None},
]
METADATA = {"query_name": "q", "target": {"branch": "main"}, "row_count": 2, "graph_commit_id": "C"}


def lines(shape: Format) -> list[str]:
    return "\n".join(render(shape, COLUMNS, ROWS, METADATA)).split("\n")


def test_table_is_aligned_and_counts_its_rows() -> None:
    assert lines(Format.TABLE) == [
        "name      n     tags",
        "--------  ----  ----------",
        'ann          5  ["a", "b"]',
        'x, "y" z  null  null',
        "(2 rows)",
    ]


def test_table_without_rows_still_has_its_header() -> None:
    assert list(render(Format.TABLE, ["a"], [], {"row_count": 0})) == ["a", "-", "(0 rows)"]


def test_table_wide_characters_take_two_places() -> None:
    assert list(table(["a", "b"], [["船", 1], ["x", 2]])) == ["a   b", "--  -", "船  1", "x   2"]


def test_table_long_value_is_cut() -> None:
    _, _, line = table(["a"], [["x" * 500]])
    assert (len(line), line[-1]) == (TABLE_CELL_CHARACTERS_MAX, "…")


def test_kv_is_one_block_a_row() -> None:
    text = "\n".join(lines(Format.KV))
    assert text == 'name  ann\nn     5\ntags  ["a", "b"]\n\nname  x, "y"\nz\nn     null\ntags  null'


def test_csv_reads_back() -> None:
    found = list(csv.reader("\n".join(lines(Format.CSV)).splitlines(keepends=True)))
    assert found == [COLUMNS, ["ann", "5", '["a", "b"]'], ['x, "y"\nz', "", ""]]


def test_jsonl_is_one_row_a_line() -> None:
    assert [json.loads(line) for line in lines(Format.JSONL)] == ROWS


@pytest.mark.parametrize("places", [15, 20, 30, 50, 80])
def test_table_fits_the_width_of_the_terminal(places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(places))
    rows: list[list[object]] = [["a", "b" * 30, "日本語" * 8], ["c", "d" * 70, 5]]
    shown = list(table(["name", "long", "wide"], rows))
    assert max(map(display_width, shown)) <= places
    assert any("…" in line for line in shown)
    assert len(shown) == 4


def test_table_in_a_pipe_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    columns = [f"column_{number}" for number in range(40)]
    assert next(table(columns, [])).split() == columns


def test_json_is_one_document() -> None:
    assert json.loads("\n".join(lines(Format.JSON))) == {**METADATA, "columns": COLUMNS, "rows": ROWS}


@pytest.mark.parametrize(("shape", "text"), [(Format.KV, ""), (Format.CSV, "name,n,tags")])
def test_format_without_rows_says_only_what_it_must(shape: Format, text: str) -> None:
    assert "\n".join(render(shape, COLUMNS, [], {**METADATA, "row_count": 0})) == text
