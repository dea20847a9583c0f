"""Loads whose keys no process holds at once: cut into ranges, they are judged and done as if they were not."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from omnigraph.engine.key_buckets import files as key_files
from omnigraph.engine.key_buckets.files import build_key_arrays
from omnigraph.engine.key_buckets.hashes import find_duplicates, find_superseded_rows, is_known_key, sum_degrees
from omnigraph.engine.load import key_matcher, matching
from omnigraph.errors import DataError, OmniGraphError
from omnigraph.graph import Graph, session_of
from omnigraph.limits import VIOLATIONS_MAX
from tests.support.pipeline_fixtures import contents, lines_of, load_bytes, splits_of, world

pytestmark = pytest.mark.slow


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return world(tmp_path / "g.omni")


def _load(graph: Graph, records: list[dict[str, Any]], folder: Path, mode: str, **options: Any) -> Any:
    """Load in many splits and many ranges."""
    with splits_of(2_000), patch.object(key_matcher, "LOAD_BUCKET_KEYS", 20):
        return load_bytes(graph, lines_of(records), folder, mode, **options)


def _people(count: int, **values: object) -> list[dict[str, Any]]:
    return [{"type": "Person", "data": {"name": f"p{one}", "email": f"p{one}@x", **values}} for one in range(count)]


def _taking(count: int) -> list[dict[str, Any]]:
    """Return people who come again as they are, and one who takes the value of somebody who does not."""
    return [*_people(count), {"type": "Person", "data": {"name": "thief", "email": "ann@x"}}]


def test_merge_of_many_kept_values_still_finds_a_duplicate(graph: Graph, tmp_path: Path) -> None:
    _load(graph, _people(3 * VIOLATIONS_MAX), tmp_path, "append")
    with pytest.raises(DataError, match="`ann` and `thief` both hold"):
        _load(graph, _taking(3 * VIOLATIONS_MAX), tmp_path, "merge")


def test_merge_that_confuses_kept_and_new_values_misses_a_duplicate(graph: Graph, tmp_path: Path) -> None:
    _load(graph, _people(3 * VIOLATIONS_MAX), tmp_path, "append")
    with patch.object(matching.HashBucket, "released", lambda self, *place: np.zeros(0, np.uint64)):
        _load(graph, _taking(3 * VIOLATIONS_MAX), tmp_path, "merge")


def test_merge_in_ranges_replaces_every_row_once(graph: Graph, tmp_path: Path) -> None:
    _load(graph, _people(400), tmp_path, "append")
    _load(graph, _people(300, role="lead"), tmp_path, "merge")
    people = [one["data"] for one in contents(graph) if one.get("type") == "Person"]
    assert len(people) == 402
    assert sum(one.get("role") == "lead" for one in people) == 300


def test_merge_with_one_id_in_every_split_keeps_the_last(graph: Graph, tmp_path: Path) -> None:
    notes = [{"type": "Note", "data": {"id": f"n{one % 7}", "text": f"{one:03}"}} for one in range(700)]
    with splits_of(500), patch.object(key_matcher, "LOAD_BUCKET_KEYS", 5):
        report = load_bytes(graph, lines_of(notes), tmp_path, "merge")
    assert report.nodes == {"Note": 7}
    texts = sorted(one["data"]["text"] for one in contents(graph) if one.get("type") == "Note")
    assert texts == [f"{one:03}" for one in range(693, 700)]


def test_load_of_many_edges_at_one_node_fills_no_range(graph: Graph, tmp_path: Path) -> None:
    """A key that every row has counts once a file."""
    records = [*_people(500), *({"edge": "Knows", "from": f"p{one}", "to": "ann"} for one in range(500))]
    seen: list[int] = []
    plain = matching.read_hash_range

    def noted(job: Any, piles: Any, name: str, arrays: Any, within: Any) -> Any:
        found = plain(job, piles, name, arrays, within)
        seen.append(len(found["hash"]) if name == "dst" else 0)
        return found

    with patch.object(matching, "read_hash_range", noted):
        _load(graph, records, tmp_path, "append")
    files = len(lines_of(records)) // 2_000 + 1
    assert 0 < max(seen) <= files


def test_load_in_ranges_rejects_what_an_unranged_load_rejects(tmp_path: Path) -> None:
    records = [
        *_people(60),
        *_people(10, level=1),
        *({"edge": "Wrote", "from": f"p{one % 20}", "to": "n1"} for one in range(90)),
        *({"edge": "Knows", "from": f"p{one}", "to": f"p{one + 30}"} for one in range(60)),
    ]
    outcomes = []
    for name, keys in (("one", 1_000_000), ("many", 20)):
        graph = world(tmp_path / f"{name}.omni")
        with splits_of(1_500), patch.object(key_matcher, "LOAD_BUCKET_KEYS", keys):
            report = load_bytes(
                graph, lines_of(records), tmp_path, "append", on_error="quarantine", report=tmp_path / name
            )
        rejected = [(one.line, one.violation.rule, one.violation.message) for one in report.rejected]
        outcomes.append((rejected, contents(graph)))
    assert outcomes[0] == outcomes[1]
    assert len(outcomes[0][0]) > 50


def test_overwrite_that_leaves_edges_behind_is_refused_in_ranges(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(OmniGraphError) as caught:
        _load(graph, _people(100), tmp_path, "overwrite")
    assert isinstance(caught.value, DataError)
    assert "would lose its source" in caught.value.message


# -- the pieces ------------------------------------------------------------------------------------------------


def test_read_keys_of_all_ranges_are_all_keys(graph: Graph, tmp_path: Path) -> None:
    store = session_of(graph).kernel.store
    hashes = np.random.default_rng(1).integers(0, 2**64, 1_000, np.uint64)
    run = build_key_arrays(np.concatenate([hashes, hashes[:10]]), np.arange(1_010), {})
    pile = key_files.write_keys(store, "side", {"id": run})
    assert pile.keys == 1_000
    parts = [
        key_files.read_keys(store, pile.path, "id", ("hash", "row"), key_files.HashRange(number, 16))
        for number in range(16)
    ]
    assert np.concatenate([part["hash"] for part in parts]).tolist() == sorted(hashes.tolist())
    assert sorted(np.concatenate([part["row"] for part in parts]).tolist()) == list(range(1_000))
    for number, part in enumerate(parts):
        assert len(key_files.HashRange(number, 16).select(hashes)) == len(part["hash"])
    assert len(key_files.read_keys(store, pile.path, "src", ("hash",))["hash"]) == 0


def test_is_matched_same_hash_other_key_is_told_apart() -> None:
    known, checks = np.array([5, 5, 9], np.uint64), np.array([1, 2, 3], np.uint64)
    asked, asked_checks = np.array([5, 5, 5, 9, 7], np.uint64), np.array([2, 1, 3, 3, 1], np.uint64)
    assert is_known_key(asked, asked_checks, known, checks).tolist() == [True, True, False, True, False]
    run = build_key_arrays(known, np.arange(3), {"check": checks})
    assert run["check"].tolist() == [1, 2, 3]


def test_superseded_and_later_rows_keep_the_last_and_the_first() -> None:
    hashes, checks = np.array([4, 4, 6, 4], np.uint64), np.array([1, 2, 1, 1], np.uint64)
    rows = np.array([10, 30, 40, 20], np.int64)
    assert find_superseded_rows(hashes, checks, rows).tolist() == [10]
    found = find_duplicates(hashes, rows, 5)
    assert (found.rows.tolist(), found.marks.tolist()) == ([20, 30], [10, 10])


def test_degrees_count_all_sides_without_what_is_taken_away() -> None:
    array = partial(np.array, dtype=np.uint64)
    sources, held = sum_degrees(
        [(array([1, 2, 1]), array([1, 2, 1])), (array([2]), array([3]))], (array([2]), array([4]))
    )
    assert (sources.tolist(), held.tolist()) == ([1, 2], [2, 1])
