"""The page of measurements says what was measured, and nothing about the host."""

from __future__ import annotations

import gc
import platform

import pytest

from benchmarks.page import machine, render_page
from benchmarks.topic import Measure, Table, Topic, median_ms


def test_render_page_topic_becomes_a_table() -> None:
    topic = Topic("Speed", "How fast.", (Measure("compile", 1.5, 3, 100), Measure("load", 20.0, rounds=5)))
    page = render_page([topic])
    assert "## Speed\n\nHow fast.\n" in page
    assert "| compile | 1.50 ms | 3 ms | 0.50 | 100 |\n| load | 20.00 ms |  |  | 5 |\n" in page
    assert "`make bench`" in page


def test_machine_names_cores_and_python_but_no_host() -> None:
    assert platform.python_version() in machine()
    assert "cores" in machine()
    assert platform.node() not in machine() or not platform.node()


def test_median_ms_calls_warm_up_and_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: 0)
    assert median_ms(lambda: calls.append(1), rounds=4, warm_up=2) >= 0
    assert len(calls) == 6


def test_render_page_rerun_topic_replaces_its_section_alone() -> None:
    first = render_page([Topic("Speed", "Slow.", (Measure("a", 9.0),)), Topic("Size", "Small.", (Measure("b", 1.0),))])
    again = render_page([Topic("Speed", "Fast.", (Measure("a", 2.0),))], before=first)
    assert "Slow." not in again
    assert again.index("Fast.") < again.index("Small.")
    assert render_page([Topic("Size", "Small.", (Measure("b", 1.0),))], before=first) == first


def test_render_page_free_table_keeps_header_and_cells() -> None:
    page = render_page([Topic("Peers", "All.", tables=(Table("Warm.", ("Line", "Ours"), (("point", "1 ms"),)),))])
    assert "All.\n\nWarm.\n\n| Line | Ours |\n|---|---|\n| point | 1 ms |\n" in page
