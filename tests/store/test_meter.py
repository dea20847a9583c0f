"""The meter counts what storage was asked for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread

from omnigraph.store.objects.backend import NO_METER, Meter, own_requests
from omnigraph.store.objects.uri import Location
from omnigraph.store.store import Store


def test_meter_targets_of_one_kind_share_a_count() -> None:
    meter = Meter()
    for target in ("nodes/a@3", "nodes/b@4", "__manifest@7", "__manifest@8", "_schema.pg"):
        meter.count("open", target)
    assert meter.snapshot() == {"open __manifest": 2, "open _schema.pg": 1, "open nodes": 2}


def test_meter_since_leaves_out_what_did_not_change() -> None:
    meter = Meter()
    meter.count("get", "a")
    before = meter.snapshot()
    meter.count("put", "a")
    assert meter.since(before) == {"put a": 1}


def test_meter_log_keeps_order_and_whole_targets() -> None:
    log: list[tuple[str, str]] = []
    meter = Meter(log)
    meter.count("put", "a/b")
    meter.count("get", "a/b")
    assert log == [("put", "a/b"), ("get", "a/b")]


def test_meter_many_threads_lose_no_count() -> None:
    meter = Meter()

    def count_many(_: int) -> None:
        for _ in range(1000):
            meter.count("get", "a")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count_many, range(8)))
    assert meter.snapshot() == {"get a": 8000}


def test_no_meter_counts_nothing() -> None:
    NO_METER.count("get", "a")
    assert NO_METER.snapshot() == {}


def test_own_requests_leave_out_those_of_other_threads() -> None:
    meter, inside, counted = Meter(), Event(), Event()

    def count_elsewhere() -> None:
        inside.wait()
        meter.count("get", "elsewhere")
        counted.set()

    other = Thread(target=count_elsewhere)
    other.start()
    with own_requests() as own:
        inside.set()
        counted.wait()
        meter.count("get", "here")
    other.join()
    meter.count("get", "later")
    assert own.snapshot() == {"get here": 1}
    assert meter.snapshot() == {"get elsewhere": 1, "get here": 1, "get later": 1}


def test_own_requests_include_what_the_store_asks_in_parallel(tmp_path: Path) -> None:
    store = Store(Location.parse(str(tmp_path)))
    with own_requests() as own:
        store.in_parallel([lambda: store.objects.read_if_exists("a"), lambda: store.objects.read_if_exists("b")])
    store.close()
    assert own.snapshot() == {"get a": 1, "get b": 1}
