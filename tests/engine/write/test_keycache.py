"""Key caches: exact for every version, bounded, and good enough that a warm write scans nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.engine.write import keycache
from omnigraph.engine.write.keycache import KeyCache, Keys, key_cache
from omnigraph.store.dataset import DatasetRef
from omnigraph.store.meter import Meter
from tests.engine.write.graphs import create, load, rows, run

SCHEMA = "node N { k: String @key  v: I32? } edge E: N -> N"
IDS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=4)


@given(IDS, st.lists(st.tuples(IDS, IDS), max_size=6))
def test_keys_agree_with_a_set_and_leave_older_versions_alone(
    base: list[str], commits: list[tuple[list[str], list[str]]]
) -> None:
    every = pa.array(list("abcdefgh"))
    keys, expected = Keys(frozenset(base)), set(base)
    versions = [(keys, set(expected))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keycache, "_OVERLAY_MAX", 3)
        for added, removed in commits:
            keys = keys.changed(pa.array(added, pa.string()), pa.array(removed, pa.string()))
            expected = (expected - set(removed)) | set(added)
            versions.append((keys, set(expected)))
    for version, held in versions:
        assert set(version.existing(every).to_pylist()) == held


def test_cache_forgets_what_exceeds_its_bound() -> None:
    cache = KeyCache(entities_max=3)
    refs = [DatasetRef(f"nodes/{number}", None, 1) for number in range(3)]
    for ref in refs:
        cache.replace(ref, pa.array(["a", "b"]))
    assert [cache._get(ref) is not None for ref in refs] == [False, False, True]


def test_warm_writes_of_known_types_scan_nothing(tmp_path: Path) -> None:
    create(tmp_path / "g", SCHEMA, '{"type":"N","data":{"k":"a"}}').close()
    log: list[tuple[str, str]] = []
    graph = og.open(tmp_path / "g", meter=Meter(log))
    for body in ('insert N {k: "b"}', 'insert E {from: "a" to: "b"}'):
        run(graph, body)
    log.clear()
    for number in range(5):
        run(graph, f'insert N {{k: "k{number}"}} insert E {{from: "k{number}" to: "a"}}')
        load(graph, f'{{"type":"N","data":{{"k":"l{number}"}}}}', mode="merge")
    assert [one for one in log if one[0] in ("scan", "open", "take") and "__manifest" not in one[1]] == []
    assert len(rows(graph, "node:N")) == 12


def test_commits_of_others_are_seen(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", SCHEMA)
    foreign = og.open(tmp_path / "g")
    run(graph, 'insert N {k: "a" v: 1}')
    run(foreign, 'insert N {k: "b"}')
    run(graph, 'insert N {k: "b" v: 2} insert E {from: "b" to: "a"}')
    run(foreign, 'delete N where k = "a"')
    run(graph, 'insert N {k: "a" v: 3}')
    assert {key: row["v"] for key, row in rows(graph, "node:N").items()} == {"a": 3, "b": 2}


def test_large_types_are_looked_up_id_by_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keycache, "KEY_CACHE_BUILD_ENTITIES_MAX", 1)
    graph = create(tmp_path / "g", SCHEMA, *(f'{{"type":"N","data":{{"k":"k{number}"}}}}' for number in range(3)))
    reopened = og.open(tmp_path / "g")
    run(reopened, 'insert N {k: "k1" v: 7} insert N {k: "new"}')
    assert rows(graph, "node:N")["k1"]["v"] == 7
    assert len(rows(graph, "node:N")) == 4
    assert key_cache(reopened.core.kernel)._entries == {}


def test_branches_have_keys_of_their_own(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", SCHEMA, '{"type":"N","data":{"k":"a"}}')
    graph.branches.create("x", from_="main")
    graph.mutate('query q() { insert N {k: "b"} }', branch="x")
    graph.mutate('query q() { delete N where k = "a" }', branch="x")
    run(graph, 'insert N {k: "b" v: 1} insert N {k: "a" v: 1}')
    graph.mutate('query q() { insert N {k: "a" v: 2} insert N {k: "b" v: 2} }', branch="x")
    assert {row["v"] for row in rows(graph, "node:N").values()} == {1}
    assert {row["v"] for row in rows(graph, "node:N", "x").values()} == {2}
