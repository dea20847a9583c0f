"""Blobs that a change leaves alone: no byte of theirs is read or written, and every state stays right."""

from __future__ import annotations

import os
import random
import shutil
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine.merge import merge as merge_branches
from omnigraph.engine.merge.placement import Placement
from omnigraph.engine.tasks import Threads
from omnigraph.errors import GraphError
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.pipeline import algo
from tests.support.cleanup_world import files_of, named_files
from tests.support.s3_server import S3Server, s3_server

__all__ = ["s3_server"]

pytestmark = pytest.mark.slow

SCHEMA = "node File { name: String @key  n: I32?  body: Blob?  note: Blob  tags: [String]? }\nedge Next: File -> File"
BODY = 4_500_000
# What a change may read and write, far below the blob of any of these.
SMALL = 400_000


def blob_text(raw: bytes) -> str:
    return f"base64:{b64encode(raw).decode()}"


def payload(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def put(graph: Graph, name: str, size: int, branch: str = "main", **others: object) -> None:
    data = {"name": name, "body": blob_text(payload(size, size)), "note": blob_text(b"note"), **others}
    graph.ingest([{"type": "File", "data": data}], branch=branch)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One fragment with blobs in the data file, in a file that they share, in ones of their own, and none."""
    root = tmp_path_factory.mktemp("template") / "g.omni"
    graph = og.init(root, SCHEMA)
    sizes = {"inline": 60_000, "packed": 100_000, "alone": BODY, "larger": BODY + 2_000_000}
    rows = [
        {"name": name, "n": 1, "body": blob_text(payload(size, size)), "note": blob_text(b"note")}
        for name, size in sizes.items()
    ]
    graph.ingest([{"type": "File", "data": one} for one in (*rows, {"name": "none", "note": blob_text(b"")})])
    graph.close()
    return root


@pytest.fixture
def graph(template: Path, tmp_path: Path) -> Graph:
    shutil.copytree(template, tmp_path / "g.omni")
    return og.open(tmp_path / "g.omni")


def update(graph: Graph, change: str, where: str, branch: str = "main") -> None:
    graph.mutate(f"query q() {{ update File set {{{change}}} where {where} }}", branch=branch)


@dataclass
class Cost:
    read: int = 0
    written: int = 0
    new_files: int = 0


def _io() -> tuple[int, int]:
    """Return the bytes that this process has read and written by system calls, all threads together."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"]), int(lines["wchar"])


@contextmanager
def cost_of(graph: Graph) -> Iterator[Cost]:
    root, cost = Path(graph.uri), Cost()
    before, (read, written) = files_of(root), _io()
    yield cost
    after = _io()
    cost.read, cost.written = after[0] - read, after[1] - written
    cost.new_files = sum((root / name).stat().st_size for name in files_of(root) - before)


@contextmanager
def blobs_left_alone(graph: Graph) -> Iterator[None]:
    with cost_of(graph) as cost:
        yield
    assert max(cost.read, cost.written, cost.new_files) < SMALL, cost


def check(
    graph: Graph, branch: str = "main", at: str | None = None, names: tuple[str, ...] = ("alone", "larger")
) -> None:
    """Hold what blobs hold against what was put in."""
    sizes = {"inline": 60_000, "packed": 100_000, "alone": BODY, "larger": BODY + 2_000_000}
    for name in names:
        found = graph.blob("File", name, "body", branch=branch, at=at)
        assert found.length == sizes[name]
        whole = b"".join(
            found.read(start, min(start + 4_000_000, found.length)) for start in range(0, found.length, 4_000_000)
        )
        assert whole == payload(sizes[name], sizes[name])
    assert graph.maintenance.verify().is_sound


def values(graph: Graph, branch: str = "main", at: str | None = None) -> dict[str, int | None]:
    found = graph.query("query q() { match { $f: File } return { $f.name as name, $f.n as n } }", branch=branch, at=at)
    return {row["name"]: row["n"] for row in found.rows()}


# -- updates -----------------------------------------------------------------------------------------------------------


def test_update_leaves_large_blobs_where_they_are(graph: Graph) -> None:
    tags = {name: graph.blob("File", name, "body").etag for name in ("packed", "alone", "larger")}
    first = str(graph.snapshot().head)
    for number, where in enumerate(('name = "alone"', 'name != "x"', 'name = "larger"', "n > 0"), start=2):
        with blobs_left_alone(graph):
            update(graph, f"n: {number}", where)
    assert values(graph) == {"inline": 5, "packed": 5, "alone": 5, "larger": 5, "none": 5}
    assert values(graph, at=first) == {"inline": 1, "packed": 1, "alone": 1, "larger": 1, "none": None}
    check(graph, names=("inline", "packed", "alone", "larger"))
    check(graph, at=first, names=("inline", "packed", "alone", "larger"))
    # The bytes are where they were, and their tags say so.
    assert {name: graph.blob("File", name, "body").etag for name in tags} == tags


def test_update_of_one_blob_leaves_the_other_alone(graph: Graph) -> None:
    with blobs_left_alone(graph):
        graph.mutate(
            'query q($b: Blob) { update File set {note: $b} where name = "alone" }', params={"b": blob_text(b"new")}
        )
    assert graph.blob("File", "alone", "note").read() == b"new"
    assert graph.blob("File", "larger", "note").read() == b"note"
    check(graph)
    graph.mutate(
        'query q($b: Blob) { update File set {body: $b} where name = "alone" }', params={"b": blob_text(b"short")}
    )
    assert graph.blob("File", "alone", "body").read() == b"short"
    assert graph.blob("File", "alone", "note").read() == b"new"


def test_update_and_insert_in_one_mutation_keep_what_is_last(graph: Graph) -> None:
    source = """query q($b: Blob) {
        update File set {n: 7} where name != "none"
        insert File {name: "alone" note: $b}
        insert File {name: "fresh" note: $b body: $b}
        update File set {n: 8} where name != "larger"
        update File set {body: $b} where name = "packed"
    }"""
    graph.mutate(source, params={"b": blob_text(b"b")})
    assert values(graph) == {"inline": 8, "packed": 8, "alone": 8, "larger": 7, "none": 8, "fresh": 8}
    assert [graph.blob("File", name, "body").read() for name in ("packed", "fresh")] == [b"b", b"b"]
    with pytest.raises(GraphError):
        graph.blob("File", "alone", "body")
    check(graph, names=("inline", "larger"))


def test_updates_of_many_rows_one_by_one_keep_few_fragments(graph: Graph) -> None:
    names = [f"f{number:02}" for number in range(20)]
    rows = [{"name": name, "body": blob_text(payload(1, 70_000)), "note": blob_text(b"")} for name in names]
    graph.ingest([{"type": "File", "data": one} for one in rows])
    blobs = {name for name in files_of(Path(graph.uri)) if name.endswith(".blob")}
    for number, name in enumerate(names):
        update(graph, f"n: {number}", f'name = "{name}"')
    assert len(session_of(graph).view().dataset(TypeKey("node:File")).fragments) <= 7
    # Folding small fragments would write their blobs again, which is left to `optimize`.
    assert {name for name in files_of(Path(graph.uri)) if name.endswith(".blob")} == blobs
    found = values(graph)
    assert [found[name] for name in names] == list(range(20))
    assert all(graph.blob("File", name, "body").read() == payload(1, 70_000) for name in names)
    assert graph.maintenance.verify().is_sound


def test_update_on_a_branch_shares_what_the_branch_inherits(graph: Graph) -> None:
    graph.branches.create("b")
    for number in (2, 3):
        with blobs_left_alone(graph):
            update(graph, f"n: {number}", 'name = "alone"', branch="b")
    check(graph, "b")
    check(graph)
    assert (values(graph)["alone"], values(graph, "b")["alone"]) == (1, 3)


# -- merges ------------------------------------------------------------------------------------------------------------


def test_merge_of_an_update_leaves_blobs_alone(graph: Graph) -> None:
    graph.branches.create("b")
    update(graph, "n: 2", 'name = "alone"', branch="b")
    with blobs_left_alone(graph):
        graph.branches.merge("b")
    assert values(graph)["alone"] == 2
    check(graph)


def test_merge_of_two_updates_of_an_entity_leaves_blobs_alone(graph: Graph) -> None:
    graph.branches.create("b")
    update(graph, "n: 2", 'name = "alone"', branch="b")
    graph.mutate('query q() { update File set {tags: ["x"]} where name = "alone" }')
    update(graph, "n: 3", 'name = "larger"')
    with blobs_left_alone(graph):
        graph.branches.merge("b")
    assert (values(graph)["alone"], values(graph)["larger"]) == (2, 3)
    check(graph)


def test_merge_takes_a_blob_that_their_side_changed(graph: Graph) -> None:
    graph.branches.create("b")
    raw = payload(9, 200_000)
    graph.mutate(
        'query q($b: Blob) { update File set {body: $b} where name = "alone" }',
        params={"b": blob_text(raw)},
        branch="b",
    )
    put(graph, "fresh", 150_000, "b")
    update(graph, "n: 3", 'name = "alone"')
    graph.branches.merge("b")
    assert graph.blob("File", "alone", "body").read() == raw
    assert graph.blob("File", "fresh", "body").read() == payload(150_000, 150_000)
    assert values(graph)["alone"] == 3
    check(graph, names=("larger", "packed"))


def test_merge_of_the_same_blob_from_both_sides_is_no_conflict(graph: Graph) -> None:
    graph.branches.create("b")
    for branch in ("main", "b"):
        graph.mutate(
            'query q($b: Blob) { update File set {body: $b} where name = "alone" }',
            params={"b": blob_text(payload(9, 200_000))},
            branch=branch,
        )
        put(graph, "both", 100_001, branch)
    graph.branches.merge("b")
    assert graph.blob("File", "alone", "body").read() == payload(9, 200_000)


def test_merge_conflict_about_a_large_blob_shows_and_settles(graph: Graph) -> None:
    graph.branches.create("b")
    raws = {"main": payload(1, 100_000), "b": payload(2, 100_000)}
    for branch, raw in raws.items():
        graph.mutate(
            'query q($b: Blob) { update File set {body: $b} where name = "alone" }',
            params={"b": blob_text(raw)},
            branch=branch,
        )
    dry = graph.branches.merge("b", dry_run=True)
    [conflict] = [one.to_json() for one in dry.conflicts]
    assert conflict["ours"]["body"] == blob_text(raws["main"])
    assert conflict["base"]["body"] == blob_text(payload(BODY, BODY))
    resolution = {**conflict, "take": "theirs"}
    graph.branches.merge("b", resolutions=[resolution])
    assert graph.blob("File", "alone", "body").read() == raws["b"]
    check(graph, names=("larger",))


def test_merge_after_optimize_writes_no_blob(graph: Graph) -> None:
    graph.branches.create("b")
    update(graph, "n: 2", 'name = "alone"', branch="b")
    put(graph, "more", 10)
    graph.maintenance.optimize()
    with cost_of(graph) as cost:
        graph.branches.merge("b")
    assert max(cost.written, cost.new_files) < SMALL, cost
    check(graph)


def test_revert_and_cherry_pick_leave_blobs_alone(graph: Graph) -> None:
    graph.branches.create("b")
    update(graph, "n: 2", 'name = "alone"')
    commit = str(graph.snapshot().head)
    with blobs_left_alone(graph):
        graph.cherry_pick(commit, branch="b")
    with blobs_left_alone(graph):
        graph.revert(commit)
    assert (values(graph)["alone"], values(graph, "b")["alone"]) == (1, 2)
    check(graph)
    check(graph, "b")


def test_revert_of_a_delete_brings_the_blob_back(graph: Graph) -> None:
    graph.mutate('query q() { delete File where name = "alone" }')
    graph.revert(str(graph.snapshot().head))
    check(graph)
    graph.mutate("query q() { delete File where n > 0 }")
    graph.revert(str(graph.snapshot().head))
    check(graph, names=("inline", "packed", "alone", "larger"))


def test_merge_in_tasks_leaves_blobs_alone(graph: Graph) -> None:
    graph.branches.create("b")
    update(graph, "n: 2", 'name != "none"', branch="b")
    put(graph, "fresh", 150_000, "b")
    graph.mutate('query q() { update File set {tags: ["x"]} where name = "alone" }')
    placement = Placement(Threads(), 1, 1)
    with cost_of(graph) as cost:
        merge_branches(session_of(graph), "b", "main", placement=placement)
    # All but the blob that is new to the target, which is also compared with what was written.
    assert cost.new_files < SMALL + 150_000, cost
    assert cost.read < SMALL + 4 * 150_000, cost
    assert values(graph) == {"inline": 2, "packed": 2, "alone": 2, "larger": 2, "none": None, "fresh": None}
    assert graph.blob("File", "fresh", "body").read() == payload(150_000, 150_000)
    check(graph, names=("inline", "packed", "alone", "larger"))


def test_merge_in_ranges_crossed_histories_leaves_blobs_alone(graph: Graph) -> None:
    graph.branches.create("b")
    update(graph, "n: 2", 'name = "alone"', branch="b")
    update(graph, "n: 3", 'name = "larger"')
    # Each side takes over what the other had before, so they have two best common ancestors.
    graph.branches.create("main-then", "main")
    graph.branches.create("b-then", "b")
    graph.branches.merge("b-then")
    graph.branches.merge("main-then", into="b")
    update(graph, "n: 4", 'name = "alone"', branch="b")
    with blobs_left_alone(graph):
        graph.branches.merge("b")
    assert (values(graph)["alone"], values(graph)["larger"]) == (4, 3)
    check(graph)


# -- other writers ---------------------------------------------------------------------------------------------------


def test_embed_leaves_blobs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    graph = og.init(
        tmp_path / "e.omni", "node Doc { name: String @key  text: String  v: Vector(4)? @embed(text)  raw: Blob }"
    )
    raw = {"a": payload(1, 2_000_000), "b": payload(2, 2_000_000), "c": b"small"}
    graph.ingest([{"type": "Doc", "data": {"name": one, "text": one, "raw": blob_text(raw[one])}} for one in raw])
    with blobs_left_alone(graph):
        graph.embed()
    for name, own in raw.items():
        assert graph.blob("Doc", name, "raw").read() == own
    [vectors] = [[row["v"] for row in graph.query("query q() { match { $d: Doc } return { $d.v as v } }").rows()]]
    assert all(vectors)
    assert graph.maintenance.verify(data=True).is_sound


def test_measured_values_leave_blobs_alone(graph: Graph) -> None:
    graph.ingest([{"edge": "Next", "from": "alone", "to": "larger"}])
    with blobs_left_alone(graph):
        algo.degree(graph, write_to="n", engine="local")
    assert (values(graph)["alone"], values(graph)["none"]) == (1, 0)
    check(graph)


def test_update_on_s3_reads_and_writes_no_blob(s3_server: S3Server) -> None:
    graph = og.init(s3_server.uri("g"), SCHEMA)
    put(graph, "alone", BODY, n=1)
    put(graph, "packed", 100_000, n=1)
    graph.branches.create("b")
    objects = session_of(graph).kernel.store.objects
    for number, branch in ((2, "main"), (3, "b"), (4, "b")):
        before = {info.path for info in objects.list("")}
        update(graph, f"n: {number}", "n > 0", branch)
        assert sum(info.size_bytes for info in objects.list("") if info.path not in before) < SMALL
    graph.branches.merge(
        "b",
        resolutions=[{"type_key": "node:File", "entity_id": name, "take": "theirs"} for name in ("alone", "packed")],
    )
    assert sum(info.size_bytes for info in objects.list("nodes")) < BODY + 100_000 + SMALL
    fresh = og.open(s3_server.uri("g"))
    assert set(values(fresh).values()) == {4}
    check(fresh, names=("alone", "packed"))
    assert fresh.maintenance.verify(data=True).is_sound


# -- what else looks at files ------------------------------------------------------------------------------------------


def _aged(graph: Graph) -> None:
    root = Path(graph.uri)
    for name in files_of(root):
        os.utime(root / name, (1_000_000_000, 1_000_000_000))


def test_cleanup_keeps_files_that_are_shared_and_removes_them_last(graph: Graph) -> None:
    update(graph, "n: 2", 'name = "alone"')
    graph.mutate('query q() { delete File where name != "alone" }')
    for _ in range(2):
        _aged(graph)
        assert not [one.error for one in graph.maintenance.cleanup(keep=1, confirm=True).datasets if one.error]
    check(graph, names=("alone",))
    assert any(name.endswith(".blob") for name in files_of(Path(graph.uri)))
    graph.mutate('query q() { delete File where name = "alone" }')
    for _ in range(2):
        _aged(graph)
        graph.maintenance.cleanup(keep=1, confirm=True)
    assert not [name for name in files_of(Path(graph.uri)) if name.endswith(".blob")]
    left = {name for name in files_of(Path(graph.uri)) if not name.startswith("__recovery/")}
    assert left <= named_files(og.open(graph.uri))


@pytest.mark.parametrize("of", ["File.n", "File.body"])
def test_hard_drop_after_an_update_leaves_no_bytes_behind(graph: Graph, of: str) -> None:
    update(graph, "n: 2", 'name = "alone"')
    gone = of.partition(".")[2]
    kept = SCHEMA.replace("n: I32?" if gone == "n" else "body: Blob?", "")
    graph.schema.apply(kept, allow_data_loss=True)
    _aged(graph)
    report = graph.maintenance.cleanup(keep=100, confirm=True)
    assert [one.error for one in report.purged] == [None]
    assert graph.maintenance.verify(data=True).is_sound
    if gone == "n":
        check(graph)
    else:
        raw = payload(BODY, BODY)[:200]
        assert not [name for name in files_of(Path(graph.uri)) if raw in (Path(graph.uri) / name).read_bytes()]
        assert graph.blob("File", "alone", "note").read() == b"note"


def test_optimize_export_diff_and_clone_read_shared_blobs(graph: Graph, tmp_path: Path) -> None:
    first = str(graph.snapshot().head)
    update(graph, "n: 2", 'name = "alone"')
    second = str(graph.snapshot().head)
    with blobs_left_alone(graph):
        assert [row["id"] for row in graph.diff(first, second).changes.to_pylist()] == ["alone"]
    before = b"".join(graph.export())
    graph.clone(str(tmp_path / "copy.omni"))
    copy = og.open(tmp_path / "copy.omni")
    assert b"".join(copy.export()) == before
    assert copy.maintenance.verify(data=True).is_sound
    graph.maintenance.optimize()
    assert b"".join(graph.export()) == before
    check(graph, at=second)
    assert graph.maintenance.verify(data=True).is_sound


def test_verify_finds_a_shared_blob_that_is_missing(graph: Graph) -> None:
    update(graph, "n: 2", 'name = "alone"')
    [file] = [name for name in files_of(Path(graph.uri)) if (Path(graph.uri) / name).stat().st_size == BODY]
    (Path(graph.uri) / file).unlink()
    assert not og.open(graph.uri).maintenance.verify().is_sound


def test_checksums_cover_what_updates_wrote(graph: Graph) -> None:
    update(graph, "n: 2", 'name = "alone"')
    for name in sorted(files_of(Path(graph.uri))):
        if "/data/" in name or "/_deletions/" in name:
            file = Path(graph.uri) / name
            raw = file.read_bytes()
            file.write_bytes(raw[:20] + bytes([raw[20] ^ 1]) + raw[21:])
            assert not og.open(graph.uri).maintenance.verify(data=True).is_sound, name
            file.write_bytes(raw)
    assert og.open(graph.uri).maintenance.verify(data=True).is_sound
