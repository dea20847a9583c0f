"""Verify by checksums: any flipped bit in any file of a graph is found, and a sound graph has none.

The files that nothing vouches for are listed here, with the reason.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

import omnigraph as og
from omnigraph.errors import GraphError, OmniGraphError
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest import encoding, history, publish
from omnigraph.store.read.dataset import Dataset, manifest_name
from omnigraph.store.write.compaction import detached_version
from omnigraph.store.write.schema_change import reshape
from omnigraph.store.write.transaction import Change
from tests.support.s3_server import BUCKET, S3Server, s3_server

__all__ = ["s3_server"]

SCHEMA = """
node Person { name: String @key  age: I32?  note: String? @index  v: Vector(4)? @index  face: Blob? }
edge Knows: Person -> Person
"""
BLOB = "base64:" + "QUJD" * 30_000


def build(uri: str) -> og.Graph:
    """Make a graph with every sort of file: forks, deletions, indexes, blobs, a tag, and a commit log."""
    graph = og.init(uri, SCHEMA)
    people = [{"name": f"p{n}", "note": f"some words {n}", "v": [n, 1, 2, 3], "face": BLOB} for n in range(6)]
    graph.ingest([{"type": "Person", "data": one} for one in people])
    graph.ingest([{"edge": "Knows", "from": "p1", "to": "p2"}])
    graph.mutate('query q() { delete Person where name = "p5" }')
    graph.maintenance.ensure_indices()
    graph.tags.create("then")
    graph.branches.create("review")
    graph.ingest([{"type": "Person", "data": {"name": "r", "age": 3}}], branch="review")
    for number in range(4):
        graph.ingest([{"type": "Person", "data": {"name": f"q{number}"}}])
    return graph


def is_vouched_for(path: str, root: Path) -> bool:
    """Tell whether a checksum or a copy covers a file."""
    if not any(f"/{part}/" in path for part in ("data", "_deletions", "_indices", "_versions", "_transactions")):
        # Copies for people, and what Lance keeps for itself: names of forks, and hints.
        return False
    if path.endswith(".txn"):
        # A chain of changes is published as its last version; the transactions before it are leftovers. Of the two with
        # which a fork begins, the first is Lance's own.
        folder, read = (root / path).parent.with_name("_versions"), int(Path(path).name.partition("-")[0])
        begins = "/tree/" in path and not (folder / manifest_name(read - 1)).exists()
        return (folder / manifest_name(read + 1)).exists() and not begins
    if "/_versions/" not in path:
        # Text indexes are written as parts first; those that Lance leaves behind belong to nothing.
        return "/staging/" not in path and "__manifest/tree" not in path
    folder = (root / path).parent
    newest = min(file.name for file in folder.glob("*.manifest"))
    first = max(file.name for file in folder.glob("*.manifest"))
    name = Path(path).name
    # The newest version of a catalog has a seal of its metadata alone, logs vouch for their rows alone, and Lance makes
    # the first version of a fork.
    is_catalog_head = path.startswith("__manifest/") and name == newest
    is_log = path.startswith(("__commit_log/", "_graph_commit_recoveries"))
    return name.endswith(".manifest") and not (is_catalog_head or is_log or ("/tree/" in path and name == first))


def findings_of(uri: str) -> set[str | None]:
    """Return the files or types that `verify` finds something about; none if the graph cannot be opened at all."""
    try:
        return {finding.type_key for finding in og.open(uri, read_only=True).maintenance.verify(data=True).findings}
    except GraphError:
        return set()


def found(root: Path | str) -> bool:
    try:
        return not og.open(str(root), read_only=True).maintenance.verify(data=True).is_sound
    except OmniGraphError:
        return True


def test_verify_data_takes_no_leftover_for_the_transaction_of_a_version(tmp_path: Path) -> None:
    root = tmp_path / "g.omni"
    build(str(root)).close()
    logs = sorted(root.glob("nodes/*/tree/*/_transactions/*.txn"))
    assert logs
    for log in logs:
        # The version has lost its file, and that of a writer who died stands beside it.
        log.rename(log.with_name(f"{log.name.partition('-')[0]}-00000000-0000-0000-0000-000000000000.txn"))
    assert not found(root)


@pytest.mark.slow
@pytest.mark.parametrize("share", [pytest.param(0.1, id="sample"), pytest.param(1.0, id="all", marks=pytest.mark.long)])
def test_verify_data_finds_any_flipped_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    monkeypatch.setattr(publish, "COMMIT_WINDOW_ROWS", 3)
    root = tmp_path / "g.omni"
    build(str(root)).close()
    og.open(str(root)).close()
    report = og.open(str(root)).maintenance.verify(data=True)
    assert [one for one in report.findings if one.severity == "error"] == []
    assert (report.checked_files or 0) > 20
    dice = random.Random(7)
    files = sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.is_file())
    files = [path for path in files if is_vouched_for(path, root)]
    missed = []
    for path in dice.sample(files, int(share * len(files))):
        before = (root / path).read_bytes()
        damaged = bytearray(before)
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        (root / path).write_bytes(damaged)
        if not found(root):
            missed.append(path)
        (root / path).write_bytes(before)
    assert missed == []
    assert not found(root)


@pytest.mark.slow
@pytest.mark.parametrize("metadata", ["{", "{}", "7"])
def test_commits_of_a_damaged_log_are_corruption(tmp_path: Path, metadata: str) -> None:
    commit = build(str(tmp_path / "g.omni")).snapshot().head_commit
    table = encoding.as_table([encoding.commit_row(commit)])
    place = table.schema.get_field_index("metadata")
    damaged = table.set_column(place, table.schema.field(place), pa.array([metadata]))
    with pytest.raises(GraphError) as caught:
        history._decode(damaged)
    assert caught.value.code == "graph.corrupt"


def test_verify_data_counts_files_without_a_checksum(tmp_path: Path) -> None:
    formats = Path(__file__).parents[1] / "formats" / "format-7.tar.gz"
    shutil.unpack_archive(formats, tmp_path, filter="data")
    (root,) = [one for one in tmp_path.iterdir() if one.is_dir()]
    report = og.open(str(root)).maintenance.verify(data=True)
    assert report.is_sound
    assert (report.checked_files, bool(report.unchecked_files)) == (0, True)
    assert report.to_json()["unchecked_files"] == report.unchecked_files


@contextmanager
def stranded_version(graph: og.Graph) -> Iterator[str]:
    """Leave a detached version in `_versions`, as `optimize` holds one, and a killed writer leaves one behind."""
    kernel = session_of(graph).kernel
    dataset = kernel.dataset(kernel.snapshot("main"), TypeKey("node:Person"))
    with detached_version(dataset, relax_columns(dataset)) as held:
        yield f"{dataset.ref.directory}/_versions/d{held.ref.version}.manifest"


def relax_columns(dataset: Dataset) -> Change:
    change = reshape(dataset, add=[pa.field("spare", pa.int32())], drop=[], rename={}, relax=[])
    assert change is not None
    return change


WORK: dict[str, Callable[[og.Graph], object]] = {
    "verify": lambda graph: graph.maintenance.verify(data=True),
    "cleanup": lambda graph: graph.maintenance.cleanup(keep=1, confirm=True),
    "dry cleanup": lambda graph: graph.maintenance.cleanup(keep=1, dry_run=True),
    "repair": lambda graph: graph.maintenance.repair(),
    "optimize": lambda graph: graph.maintenance.optimize(),
    "reconcile": lambda graph: graph.maintenance.reconcile(),
    "write": lambda graph: graph.mutate('insert Person { name: "z" }'),
    "clone": lambda graph: graph.clone(f"{graph.uri}.clone"),
}


@pytest.mark.slow
@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_detached_version_is_in_nobodys_way(tmp_path: Path, work: Callable[[og.Graph], object]) -> None:
    graph = build(str(tmp_path / "g.omni"))
    with stranded_version(graph) as path:
        assert (tmp_path / "g.omni" / path).exists()
        # A name that no release has given, by a tool of the future or a person.
        (tmp_path / "g.omni" / path).with_name("notes.manifest").write_bytes(b"")
        work(graph)
        report = graph.maintenance.verify(data=True)
    assert [item for item in report.findings if item.severity == "error"] == []


def damage(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.slow
def test_verify_finds_a_damaged_schema_of_a_blob(tmp_path: Path) -> None:
    build(str(tmp_path / "g")).close()
    for file in (tmp_path / "g").rglob("_versions/*.manifest"):
        damage(file, lambda data: data.replace(b"\x03uri", b"\x03qri"))
    findings = og.open(str(tmp_path / "g"), read_only=True).maintenance.verify(data=True).findings
    assert any("Lance cannot interpret what is stored" in finding.message for finding in findings)


@pytest.mark.slow
def test_verify_finds_an_index_that_cannot_be_read(tmp_path: Path) -> None:
    build(str(tmp_path / "g")).close()
    file = next(one for one in sorted((tmp_path / "g").rglob("_indices/*/page_lookup.lance")))
    damage(file, lambda data: data[: len(data) // 2])
    messages = [
        one.message for one in og.open(str(tmp_path / "g")).maintenance.verify().findings if one.severity == "error"
    ]
    assert any("the index" in one and "cannot be read" in one for one in messages)


@pytest.mark.slow
@pytest.mark.parametrize("change", [lambda data: data[:300_000], None], ids=["short", "missing"])
def test_verify_finds_blobs_that_lack_bytes(tmp_path: Path, change: Callable[[bytes], bytes] | None) -> None:
    build(str(tmp_path / "g")).close()
    file = next((tmp_path / "g").rglob("*.blob"))
    damage(file, change) if change else file.unlink()
    messages = [
        one.message for one in og.open(str(tmp_path / "g")).maintenance.verify().findings if one.severity == "error"
    ]
    assert any("blobs" in one for one in messages)


@pytest.mark.slow
def test_verify_finds_tags_and_beginnings_of_branches_that_cannot_be_read(tmp_path: Path) -> None:
    graph = build(str(tmp_path / "g"))
    state = session_of(graph).kernel.snapshot().state
    for version in (state.tags["then"].manifest_version, state.branches["review"].parent_version):
        Path(graph.uri, "__manifest", "_versions", manifest_name(version)).unlink()
    messages = [one.message for one in graph.maintenance.verify().findings if one.severity == "error"]
    assert any(one.startswith("tag `then` cannot be read") for one in messages)
    assert any(one.startswith("the beginning of branch `review` cannot be read") for one in messages)


@pytest.mark.s3
def test_verify_data_finds_objects_that_were_replaced(s3_server: S3Server) -> None:
    graph = build(s3_server.uri("g"))
    graph.close()
    report = og.open(s3_server.uri("g")).maintenance.verify(data=True)
    assert [one for one in report.findings if one.severity == "error"] == []
    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    for part in ("nodes/", "__manifest/data"):
        keys = sorted(backend.get_bucket(BUCKET).keys)
        key = next(one for one in keys if part in one and one.endswith(".lance"))
        data = bytearray(backend.get_object(BUCKET, key).value)  # type: ignore[union-attr]  # it was just listed
        data[len(data) // 2] ^= 1
        backend.put_object(BUCKET, key, bytes(data))
        # The flipped bit may hit what every reader needs: then nothing but the damage can be told.
        assert key.removeprefix("g/") in findings_of(s3_server.uri("g")) or part == "__manifest/data"
        assert found(s3_server.uri("g"))
