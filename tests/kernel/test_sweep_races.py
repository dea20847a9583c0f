"""Sweeps beside a writer that publishes while storage is being looked at."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from omnigraph import failpoints
from omnigraph.failpoints import Point
from omnigraph.limits import RESIDUE_AGE_SECONDS
from omnigraph.manifest import file_removal
from omnigraph.store.files import reachability
from tests.support.fleet_operations import ParkFirst, in_thread, stranger
from tests.support.kernel_fixtures import PERSON, check_invariants, create, ids_of, insert, open_graph
from tests.support.orphan_sweep import sweep

pytestmark = pytest.mark.slow


def test_sweep_spares_a_version_published_after_it_listed_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "graph.omni")
    kernel, other = create(root), stranger(root)
    insert(kernel, {PERSON: ["first"]})
    kernel.close()
    folder = Path(root, kernel.snapshot().state.pins[PERSON].path, "data")
    for path in (folder / "left behind.lance", Path(root, "__manifest", "data", "left behind.lance")):
        path.write_bytes(b"x")
        old = path.stat().st_mtime - 2 * RESIDUE_AGE_SECONDS
        os.utime(path, (old, old))
    real, park = reachability.list_tracked, ParkFirst()

    with failpoints.armed({Point.PUBLISH_BEFORE: park}):
        writing = in_thread(lambda: insert(other, {PERSON: ["second"]}))
        assert park.park.arrived.wait(30)

        def publish_first(*args: Any) -> Any:
            park.park.release()
            writing.result(30)
            return real(*args)

        monkeypatch.setattr(file_removal, "list_tracked", publish_first)
        report = sweep(open_graph(root))
    assert (report.files_removed, report.disputed) == (2, [])
    fresh = open_graph(root)
    assert ids_of(fresh, PERSON) == ["first", "second"]
    check_invariants(fresh)
