"""Logs: every acknowledged row is there once, in a few files, whoever appends and folds at the same time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance import LanceDataset

from omnigraph import failpoints
from omnigraph.failpoints import Point
from omnigraph.limits import TAIL_FRAGMENTS_MAX
from omnigraph.store import append_log, dataset_cache
from omnigraph.store.objects.uri import Location
from omnigraph.store.store import Store
from omnigraph.store.write import transaction
from omnigraph.store.write.compaction import fold_tail

pytestmark = pytest.mark.slow

LOG = "__log"


def store_at(folder: Path) -> Store:
    return Store(Location.parse(str(folder)))


def append(store: Store, name: str) -> None:
    append_log.append(store, LOG, pa.table({"name": [name]}))


def names(store: Store) -> list[object]:
    table = append_log.read(store, LOG)
    return table["name"].to_pylist() if table is not None else []


def full_log(folder: Path) -> list[object]:
    """Make a log whose next append folds, and return what is in it."""
    store = store_at(folder)
    for number in range(TAIL_FRAGMENTS_MAX + 1):
        append(store, f"old {number}")
    assert len(store.open_latest(LOG, None).fragments) == TAIL_FRAGMENTS_MAX + 1
    return names(store)


def test_append_many_times_leaves_few_files(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    expected = [f"row {number}" for number in range(300)]
    for name in expected:
        append(store, name)
    assert names(store_at(tmp_path)) == expected
    # Two tiers of at most this many, and what came since the last fold.
    assert len(store.open_latest(LOG, None).fragments) <= 2 * TAIL_FRAGMENTS_MAX + 1


def meet(folder: Path, step: str) -> list[object]:
    """Let another process append whenever this one is about to take the named step; return what is in the log then."""
    other, met = store_at(folder), list[str]()

    def append_too(detail: str) -> None:
        if detail == step and not met:
            met.append(f"other at {step}")
            append(other, met[0])

    with failpoints.armed({Point.DURABLE_BEFORE: append_too}):
        append(store_at(folder), "own")
    assert met
    return names(store_at(folder))


@pytest.mark.parametrize("step", [f"fold {LOG}", f"append {LOG}"])
def test_append_beside_another_that_folds_too_loses_nothing(tmp_path: Path, step: str) -> None:
    expected = full_log(tmp_path)
    assert meet(tmp_path, step) == [*expected, f"other at {step}", "own"]


def test_fold_and_append_as_one_step_would_lose_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle above catches the obvious shortcut: a version two further meets nobody who takes the next one."""
    expected = full_log(tmp_path)
    step, real = f"append {LOG}", append_log._append_once

    def broken(store: Store, path: str, rows: pa.Table) -> None:
        base = store.open_latest(path, None)
        fold = fold_tail(base, TAIL_FRAGMENTS_MAX)
        assert fold is not None
        staged = store.commit(base, [fold, transaction.append(base, rows).following(fold)], {})
        # Whoever is met here appends as it always did.
        monkeypatch.setattr(append_log, "_append_once", real)
        monkeypatch.setattr(append_log, "fold_tail", lambda dataset, fragments_max: None)
        failpoints.hit(Point.DURABLE_BEFORE, step)
        store.take_name(staged)

    monkeypatch.setattr(append_log, "_append_once", broken)
    assert meet(tmp_path, step) == [*expected, "own"]


def test_append_by_many_stores_in_turns_keeps_every_row(tmp_path: Path) -> None:
    stores = [store_at(tmp_path) for _ in range(4)]
    expected = [f"row {number}" for number in range(80)]
    for number, name in enumerate(expected):
        append(stores[number % len(stores)], name)
    assert names(store_at(tmp_path)) == expected


def test_read_log_that_nobody_wrote_is_none(tmp_path: Path) -> None:
    assert append_log.read(store_at(tmp_path), LOG) is None


def test_log_that_another_process_creates_during_an_append_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def open_too_early(*arguments: Any, **options: Any) -> Any:
        opened.append(arguments)
        try:
            return LanceDataset(*arguments, **options)
        finally:
            if len(opened) == 1:
                append(store_at(tmp_path), "theirs")

    monkeypatch.setattr(dataset_cache, "LanceDataset", open_too_early)
    append(store_at(tmp_path), "ours")
    assert names(store_at(tmp_path)) == ["theirs", "ours"]
