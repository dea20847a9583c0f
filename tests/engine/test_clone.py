"""Clones: they show all that the source shows, go on when interrupted, and updates copy only the difference."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.clone import capture_contents
from omnigraph.errors import GraphError, OmniGraphError, UsageError
from omnigraph.failpoints import Point
from omnigraph.graph import session_of
from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.objects.uri import Location
from tests.engine.test_moved import BLOB, SCHEMA, doc, make
from tests.support.graph_template import copy_built
from tests.support.s3_server import S3Server, s3_server

__all__ = ["s3_server"]

ALL = "query q() { match { $d: Doc } return { $d.name, $d.text, $d.size } order { $d.name } }"
SEARCH = 'query q() { match { $d: Doc search($d.text, "sea") } return { $d.name } order { $d.name } }'


def show(uri: str) -> dict[str, Any]:
    """Return everything that can be read of a graph: all branches, commits, tags and blobs."""
    with og.open(uri, read_only=True) as graph:
        names = list(graph.branches.list())
        commits = {one.commit_id: one for name in names for one in graph.commits(branch=name)}
        shown: dict[str, Any] = {"branches": sorted(names), "commits": sorted(commits)}
        shown["tags"] = {tag.name: tag.commit_id for tag in graph.tags.list()}
        for name in names:
            shown[f"rows of {name}"] = graph.query(ALL, branch=name).rows()
            shown[f"hits of {name}"] = graph.query(SEARCH, branch=name).rows()
            shown[f"blob of {name}"] = graph.blob("Doc", "d3", "raw", branch=name).read() == BLOB
        for commit_id in commits:
            try:
                shown[f"rows at {commit_id}"] = graph.query(ALL, at=commit_id).rows()
            except OmniGraphError as error:
                shown[f"rows at {commit_id}"] = error.code
        return shown


def clone(source: str, target: str, *, update: bool = False) -> Any:
    with og.open(source, read_only=True) as graph:
        return graph.clone(target, update=update)


def refused(code: str, source: str, target: str, *, update: bool = False) -> None:
    with pytest.raises(GraphError) as caught:
        clone(source, target, update=update)
    assert caught.value.code == code


@pytest.fixture
def source(tmp_path: Path) -> str:
    with copy_built(build, tmp_path / "source.omni") as graph:
        return graph.uri


def build(path: Path) -> og.Graph:
    make(str(path))
    return og.open(path)


@pytest.mark.slow
def test_clone_shows_everything_that_its_source_shows(source: str, tmp_path: Path) -> None:
    target = str(tmp_path / "copies" / "target.omni")
    report = clone(source, target)
    assert show(target) == show(source)
    assert (report.branches, report.tags, report.copied_files) == (2, 1, report.files)
    # Both go their own ways from here on.
    with og.open(target) as copy:
        copy.ingest([doc("only here", "sea", 9)], branch="deep")
        copy.branches.merge("deep")
        copy.maintenance.optimize()
        copy.maintenance.cleanup(keep=1, confirm=True)
        assert len(copy.query(SEARCH)) == 10
        assert copy.maintenance.verify().is_sound
    with og.open(source) as original:
        assert len(original.query(SEARCH)) == 8


@pytest.mark.slow
def test_clone_leaves_out_what_nothing_names(source: str, tmp_path: Path) -> None:
    Objects(Location.parse(source)).write("nodes/stray/data/x.lance", b"stray")
    target = str(tmp_path / "target.omni")
    clone(source, target)
    paths = {info.path for info in Objects(Location.parse(target)).list("")}
    assert not any("stray" in path for path in paths)
    with og.open(target) as copy:
        assert copy.maintenance.verify().unreferenced_files == 0


@pytest.mark.s3
def test_clone_between_disk_and_s3_and_back(source: str, tmp_path: Path, s3_server: S3Server) -> None:
    backup, restored = s3_server.uri("backups/graph"), str(tmp_path / "restored.omni")
    clone(source, backup)
    assert show(backup) == show(source)
    with og.open(source) as graph:
        graph.ingest([doc("later", "sea later", 7, with_blob=True)])
        graph.branches.delete("deep")
    report = clone(source, backup, update=True)
    assert 0 < report.copied_files < report.files
    clone(backup, restored)
    assert show(restored) == show(source)


@pytest.mark.slow
def test_update_copies_only_what_is_new(source: str, tmp_path: Path) -> None:
    target = str(tmp_path / "target.omni")
    first = clone(source, target)
    assert clone(source, target, update=True).copied_files == 0
    with og.open(source) as graph:
        graph.ingest([doc("later", "calm", 7)], branch="dev")
        graph.tags.create("later", branch="dev")
        graph.branches.delete("deep")
        graph.maintenance.optimize()
    report = clone(source, target, update=True)
    assert 0 < report.copied_files < first.files
    assert show(target) == show(source)


@pytest.mark.slow
def test_clone_after_cleanup_of_the_source_is_whole(source: str, tmp_path: Path) -> None:
    target = str(tmp_path / "target.omni")
    clone(source, target)
    with og.open(source) as graph:
        for number in range(3):
            graph.ingest([doc(f"more{number}", "sea", number)])
        graph.maintenance.optimize()
        graph.maintenance.cleanup(keep=1, confirm=True)
    clone(source, target, update=True)
    ours, theirs = show(target), show(source)
    # The clone may know more of the past, never less.
    assert {key: ours[key] for key in theirs if theirs[key] != "graph.version_reclaimed"} == {
        key: value for key, value in theirs.items() if value != "graph.version_reclaimed"
    }


@pytest.mark.slow
def test_interrupted_clone_goes_on_where_it_stopped(source: str, tmp_path: Path) -> None:
    target = str(tmp_path / "target.omni")
    with og.open(source, read_only=True) as graph:
        steps = capture_contents(session_of(graph).kernel).steps
    total = sum(map(len, steps))
    for stop in (1, total // 3, total // 3):
        copies = 0

        def interrupt(detail: str, stop: int = stop) -> None:
            nonlocal copies
            copies += detail.startswith("copy ")
            if copies >= stop:
                raise KeyboardInterrupt

        with failpoints.armed({Point.DURABLE_BEFORE: interrupt}), pytest.raises(KeyboardInterrupt):
            clone(source, target)
        with pytest.raises(GraphError, match="omnigraph init"):
            og.open(target)
    report = clone(source, target)
    assert report.copied_files < report.files
    assert show(target) == show(source)


@pytest.mark.slow
def test_clone_to_a_place_that_is_taken_is_refused(source: str, tmp_path: Path) -> None:
    other, target = str(tmp_path / "other.omni"), str(tmp_path / "target.omni")
    og.init(other, schema=SCHEMA).close()
    refused("graph.already_initialized", source, other)
    refused("graph.not_found", source, target, update=True)
    clone(source, target)
    refused("graph.already_initialized", source, target)
    refused("clone.diverged", other, target, update=True)
    with og.open(target) as copy:
        copy.branches.create("mine")
    refused("clone.diverged", source, target, update=True)


@pytest.mark.slow
@pytest.mark.parametrize("below", ["inside", "nodes/x", ".", "../link/inside"])
def test_clone_into_its_own_source_is_refused(source: str, tmp_path: Path, below: str) -> None:
    (tmp_path / "link").symlink_to(source)
    before = sorted(Path(source).rglob("*"))
    for update in (False, True):
        with pytest.raises(UsageError, match="overlap"):
            clone(source, f"{source}/{below}", update=update)
    assert sorted(Path(source).rglob("*")) == before
    assert og.open(source).maintenance.verify().is_sound


@pytest.mark.slow
def test_clone_around_its_own_source_is_refused(source: str, tmp_path: Path) -> None:
    for target in (tmp_path, tmp_path.parent):
        with pytest.raises(UsageError, match="overlap"):
            clone(source, str(target))


@pytest.mark.slow
def test_clone_inside_on_s3_is_refused_and_beside_is_not(source: str, s3_server: S3Server) -> None:
    inner = s3_server.uri("a/b")
    bucket = inner.removesuffix("/a/b")
    clone(source, inner)
    for target in (f"{inner}/c", inner, f"{bucket}/a", bucket):
        with pytest.raises(UsageError, match="overlap"):
            clone(inner, target, update=True)
    clone(inner, f"{inner}c")
    assert show(f"{inner}c") == show(source)


@pytest.mark.slow
def test_clone_beside_a_writer_is_a_state_of_the_source(source: str, tmp_path: Path) -> None:
    stop = threading.Event()

    def write() -> None:
        with og.open(source) as graph:
            number = 0
            while not stop.is_set():
                graph.ingest([doc(f"w{number}", "sea", number)], branch="dev" if number % 2 else "main")
                number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(2):
            target = str(tmp_path / f"target{number}.omni")
            head = clone(source, target).commit
            with og.open(source, read_only=True) as graph, og.open(target) as copy:
                assert copy.query(ALL).rows() == graph.query(ALL, at=head).rows()
                assert copy.maintenance.verify().is_sound
                copy.ingest([doc("here", "sea", 1)])
    finally:
        stop.set()
        writer.join()
