"""The page of measurements says what was measured, and nothing about the host."""

from __future__ import annotations

import gc
import platform
import time
from pathlib import Path

import pytest

from benchmarks.page import machine, render_page
from benchmarks.quick.__main__ import report
from benchmarks.quick.pairs import Pair, measure
from benchmarks.quick.record import Record, Verdict
from benchmarks.topic import Measure, Table, Topic, median_ms


def test_render_page_topic_becomes_a_table() -> None:
    topic = Topic("Speed", "How fast.", (Measure("compile", 1.5, 3, 100), Measure("load", 20.0, rounds=5)))
    page = render_page([topic], "1a2b3c4d")
    assert "## Speed\n\nHow fast. Measured on commit 1a2b3c4d.\n" in page
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
    size = Topic("Size", "Small.", (Measure("b", 1.0),))
    first = render_page([Topic("Speed", "Slow.", (Measure("a", 9.0),)), size], "1a")
    again = render_page([Topic("Speed", "Fast.", (Measure("a", 2.0),))], "2b", before=first)
    assert "Slow." not in again
    assert again.index("Fast.") < again.index("Small.")
    assert again.count("on commit 1a") == again.count("on commit 2b") == 1
    assert render_page([size], "1a", before=first) == first


def test_render_page_free_table_keeps_header_and_cells() -> None:
    page = render_page([Topic("Peers", "All.", tables=(Table("Warm.", ("Line", "Ours"), (("point", "1 ms"),)),))], "1a")
    assert "All. Measured on commit 1a.\n\nWarm.\n\n| Line | Ours |\n|---|---|\n| point | 1 ms |\n" in page


RECORD = Record("1a2b3c4d", "2 cores", {"point": 0.4, "scan": 3.0})


def test_report_half_of_the_record_is_no_loss(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(RECORD, {"point": 0.2, "scan": 9.0}, is_whole=True) == 0
    assert capsys.readouterr().out == ""


def test_report_less_than_half_is_a_loss_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(RECORD, {"point": 0.4, "scan": 1.4}, is_whole=True) == 1
    assert capsys.readouterr().out == "below 0.5 of what commit 1a2b3c4d reached: scan\n"


def test_report_line_not_measured_is_said_unless_it_was_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(RECORD, {"point": 0.4}, is_whole=False) == 0
    assert capsys.readouterr().out == ""
    assert report(RECORD, {"point": 0.4}, is_whole=True) == 0
    assert "not measured here" in capsys.readouterr().out


def test_record_survives_its_file(tmp_path: Path) -> None:
    RECORD.write(tmp_path / "recorded.json")
    assert Record.read(tmp_path / "recorded.json") == RECORD


def test_verdict_new_line_is_neither_lost_nor_known() -> None:
    assert not Verdict("new", 1.0, None).is_lost
    assert str(Verdict("new", 1.0, None)).startswith("?")


def test_measure_prepares_ours_and_leaves_the_first_round_out(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    clock = [0.0]
    took = iter([100, 1, 6, 2, 9, 3, 3, 3])

    def work(name: str) -> None:
        calls.append(name)
        clock[0] += next(took)

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    pair = Pair("p", lambda: work("ours"), lambda: work("theirs"), 3, prepare=lambda: calls.append("prepare"))
    assert measure(pair) == 3
    assert calls == ["prepare", "theirs", "ours"] * 4
