"""What kept versions need stays, whatever kind of file it is; where two computations disagree, nothing goes."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import ReachabilityDisputed, StorageError
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import BLOB_READ_BYTES_MAX
from omnigraph.store.files import manifest_file, reachability
from omnigraph.store.files.manifest_file import NamedFile, UnknownManifest, decode_manifest
from omnigraph.store.files.reachability import NeededFiles, StoredManifest, TrackedFiles
from tests.support.maintenance_fixtures import hours_later

SCHEMA = "node Doc { name: String @key  body: Blob?  text: String? @index  place: Vector(4)? @index }"
# Lance keeps a blob inside of the data file, in a file that several share, or in one of its own.
SIZES = (100, 70_000, 5_000_000)


def content(seed: int, size: int) -> bytes:
    return bytes([seed % 256]) * size


def put(graph: Graph, name: str, seed: int, size: int, branch: str = "main") -> None:
    body = f"base64:{base64.b64encode(content(seed, size)).decode()}"
    data = {"name": name, "body": body, "text": f"word{seed} sea", "place": [float(seed), 1.0, 2.0, 3.0]}
    graph.ingest([{"type": "Doc", "data": data}], branch=branch)


def blob(graph: Graph, name: str, branch: str = "main", at: str | None = None) -> bytes:
    handle = og.open(graph.uri).blob("Doc", name, "body", branch=branch, at=at)
    step = BLOB_READ_BYTES_MAX
    parts = [handle.read(start, min(start + step, handle.length)) for start in range(0, handle.length, step)]
    return b"".join(parts)


def stored(graph: Graph, pattern: str = "*") -> set[str]:
    return {str(path.relative_to(graph.uri)) for path in Path(graph.uri).rglob(pattern) if path.is_file()}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "my graph.omni", SCHEMA)
    for seed, size in enumerate(SIZES):
        put(graph, f"d{size}", seed, size)
    return graph


@pytest.mark.slow
def test_cleanup_live_blobs_stay(graph: Graph) -> None:
    assert stored(graph, "*.blob")
    # The staged name of the last commit's catalog may be there; it goes with the next commit.
    assert graph.maintenance.verify().unreferenced_bytes < SIZES[1]
    with hours_later():
        assert graph.maintenance.cleanup(keep=1000, dry_run=True).swept.bytes_removed < SIZES[1]
        graph.maintenance.cleanup(keep=1, confirm=True)
    assert [blob(graph, f"d{size}") for size in SIZES] == [content(seed, size) for seed, size in enumerate(SIZES)]


@pytest.mark.slow
def test_cleanup_blob_of_a_tag_and_of_a_fork_stays(graph: Graph) -> None:
    graph.tags.create("v1")
    graph.branches.create("x")
    put(graph, "x", 7, 90_000, "x")
    put(graph, "d70000", 8, 80_000)
    graph.maintenance.optimize()
    with hours_later():
        graph.maintenance.cleanup(keep=1, confirm=True)
    assert blob(graph, "d70000") == content(8, 80_000)
    assert blob(graph, "d70000", at="v1") == blob(graph, "d70000", "x") == content(1, 70_000)
    assert blob(graph, "x", "x") == content(7, 90_000)


@pytest.mark.slow
def test_cleanup_blobs_that_nothing_keeps_go(graph: Graph) -> None:
    old = stored(graph, "*.blob")
    graph.mutate('query q() { delete Doc where name = "d70000" }')
    put(graph, "d5000000", 9, 5_000_001)
    graph.maintenance.optimize()
    with hours_later():
        graph.maintenance.cleanup(keep=1, confirm=True)
        graph.maintenance.cleanup(keep=1, confirm=True)
    assert not old & stored(graph, "*.blob")
    assert not [one for one in Path(graph.uri).rglob("data/*") if one.is_dir() and not any(one.iterdir())]
    assert blob(graph, "d5000000") == content(9, 5_000_001)


# -- the safety net ----------------------------------------------------------------------------------------------


def without_blobs(fragment: bytes) -> list[NamedFile]:
    return [one for one in manifest_file.decode_fragment(fragment) if not one.path.endswith("/")]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", ["blobs", "indexes"])
def test_cleanup_first_computation_that_forgets_is_stopped(
    graph: Graph, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.maintenance.ensure_indices()
    if mutant == "indexes":
        monkeypatch.setattr(manifest_file, "_indexes", lambda section: iter(()))
    else:
        monkeypatch.setattr(reachability, "decode_fragment", without_blobs)
    before = stored(graph)
    with hours_later():
        report = graph.maintenance.cleanup(keep=1, confirm=True)
    (row,) = (one for one in report.datasets if one.type_key == "node:Doc")
    assert row.error_code == "storage.reachability"
    assert "nothing of" in str(row.error)
    assert {one for one in before - stored(graph) if one.startswith("nodes/")} == set()


def test_cleanup_both_computations_blind_is_what_the_net_is_for(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "decode_fragment", without_blobs)
    monkeypatch.setattr(TrackedFiles, "reaches", lambda self, path: path in self.paths)
    with hours_later():
        graph.maintenance.cleanup(keep=1, confirm=True)
    assert not stored(graph, "*.blob")


def test_cleanup_manifest_of_a_newer_lance_is_left_alone(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if Lance had begun to write the field with which it refers to row ids in a file of their own.
    monkeypatch.setattr(manifest_file, "_FRAGMENT_PLAIN", frozenset({4, 7, 9}))
    before = stored(graph)
    with hours_later(), pytest.raises(ReachabilityDisputed, match="no version was removed"):
        graph.maintenance.cleanup(keep=1, confirm=True)
    assert stored(graph) == before


@pytest.mark.slow
def test_sweep_that_disagrees_leaves_the_dataset_alone(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.orphan_sweep import sweep

    monkeypatch.setattr(reachability, "decode_fragment", without_blobs)
    before = stored(graph)
    with hours_later():
        report = sweep(session_of(graph).kernel)
    assert report.disputed == [graph.snapshot().state.pins[TypeKey("node:Doc")].path]
    assert {one for one in before - stored(graph) if one.startswith("nodes/")} == set()


# -- the decoder -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_decoder_and_lance_name_the_same_files(graph: Graph) -> None:
    graph.maintenance.ensure_indices()
    graph.branches.create("x")
    put(graph, "x", 7, 90_000, "x")
    graph.mutate('query q() { delete Doc where name = "d100" }', branch="x")
    graph.ingest([{"type": "Doc", "data": {"name": f"n{n}"}} for n in range(50)])
    graph.mutate('query q() { delete Doc where name = "n7" }')
    store, checked = session_of(graph).kernel.store, set()
    for branch in ("main", "x"):
        dataset = session_of(graph).kernel.dataset(graph.snapshot(branch), TypeKey("node:Doc"))
        for version in range(1, dataset.version + 1):
            ref = dataset.ref.at(version)
            if not store.has_version(ref):
                continue
            needed = NeededFiles()
            needed.add(StoredManifest.of(ref), store.objects.read(ref.manifest_path))
            tracked, _, _ = reachability.list_tracked(store, ref.path, ref.branch, {version}, ())
            assert {one for one in tracked.paths if not needed.covers(one)} == set()
            assert needed.files <= tracked.paths
            checked |= {
                kind
                for kind in ("_transactions/", "/data/", "_indices/", "_deletions/")
                for one in tracked.paths
                if kind in one
            }
    assert checked == {"_transactions/", "/data/", "_indices/", "_deletions/"}


@pytest.mark.parametrize("damage", ["cut", "end", "flip"])
def test_decoder_damaged_manifest_is_unknown(graph: Graph, damage: str) -> None:
    raw = session_of(graph).kernel.store.objects.read(
        graph.snapshot().state.pins[TypeKey("node:Doc")].ref.manifest_path
    )
    if damage == "flip":
        position = int.from_bytes(raw[-16:-8], "little") + 4
        raw = raw[:position] + b"\xfb" + raw[position + 1 :]
    with pytest.raises(UnknownManifest):
        decode_manifest(raw[:-40] if damage == "cut" else raw[:-1] if damage == "end" else raw)


def test_inherited_place_outside_of_its_dataset_is_unknown() -> None:
    with pytest.raises(UnknownManifest):
        reachability.inherited_directory("nodes/1", "/a/g/nodes/2")


@pytest.mark.slow
def test_cleanup_of_a_moved_graph_keeps_what_its_branches_read(graph: Graph, tmp_path: Path) -> None:
    graph.maintenance.ensure_indices()
    graph.branches.create("x")
    put(graph, "x", 7, 90_000, "x")
    put(graph, "d70000", 8, 80_000)
    graph.maintenance.optimize()
    graph.close()
    moved = og.open(shutil.move(graph.uri, tmp_path / "elsewhere.omni"))
    with hours_later():
        report = moved.maintenance.cleanup(keep=1, confirm=True)
    assert [one.error for one in report.datasets if one.error] == []
    assert blob(moved, "d70000", "x") == content(1, 70_000)
    assert blob(moved, "d70000") == content(8, 80_000)


def test_decoder_takes_zeros_for_no_manifest() -> None:
    with pytest.raises(UnknownManifest, match="empty"):
        decode_manifest(bytes(12) + b"LANC")


def test_tracked_files_of_batches_with_other_dictionaries_are_listed() -> None:
    """Lance encodes names by dictionaries of their own for each version, in which a fork has more places than one."""

    def batch(version: int, *bases: str) -> pa.RecordBatch:
        names = [f"data/{base[-1]}.lance" for base in bases]
        texts = [list(bases), names, ["data file"] * len(bases)]
        encoded = [pa.array(column, pa.string()).dictionary_encode() for column in texts]
        versions = pa.array([version] * len(bases))
        return pa.RecordBatch.from_arrays([versions, *encoded], ["version", "base_uri", "path", "type"])

    tracked = TrackedFiles()
    for rows in reachability._gathered([batch(1, "/g/nodes/1"), batch(2, "/g/nodes/1/tree/f", "/g/nodes/1")]):
        tracked.add(rows, "nodes/1")
    assert tracked.paths == {"nodes/1/data/1.lance", "nodes/1/tree/f/data/f.lance"}


def test_staged_manifest_linked_meanwhile_is_read_in_its_final_place(tmp_path: Path) -> None:
    store = session_of(og.init(tmp_path / "g.omni", "node A { k: String @key }")).kernel.store
    store.objects.write("nodes/x/_versions/7.manifest", b"bytes")
    assert reachability._read_manifest(store, "nodes/x/_versions/7.manifest-0a1b") == b"bytes"
    for missing in ("nodes/x/_versions/8.manifest", "nodes/x/_versions/8.manifest-0a1b"):
        with pytest.raises(StorageError):
            reachability._read_manifest(store, missing)
