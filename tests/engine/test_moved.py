"""A graph that was copied whole opens at its new place with its branches, indexes, blobs and history."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.objects.uri import Location
from tests.support.s3_server import S3Server, s3_server

__all__ = ["s3_server"]

SCHEMA = "node Doc { name: String @key  text: String @index  size: I64 @index  raw: Blob? }"
BLOB = bytes(range(256)) * 400


def doc(name: str, text: str, size: int, *, with_blob: bool = False) -> dict[str, object]:
    raw = "base64:" + base64.b64encode(BLOB).decode() if with_blob else None
    return {"type": "Doc", "data": {"name": name, "text": text, "size": size, "raw": raw}}


def make(uri: str) -> None:
    with og.init(uri, schema=SCHEMA) as graph:
        graph.ingest([doc(f"d{number}", f"sea {number}", number, with_blob=True) for number in range(8)])
        graph.maintenance.ensure_indices()
        graph.branches.create("dev")
        graph.ingest([doc("dev", "sea dev", 100)], branch="dev")
        graph.maintenance.optimize(branch="dev")
        graph.branches.create("deep", "dev")
        graph.ingest([doc("deep", "calm", 101), doc("d1", "calm sea", 1)], branch="deep")
        graph.tags.create("before", branch="dev")


def copy_whole(source: str, target: str) -> None:
    old, new = Objects(Location.parse(source)), Objects(Location.parse(target))
    for info in old.list(""):
        new.write(info.path, old.read(info.path))
        old.delete(info.path)


def check(uri: str) -> None:
    with og.open(uri) as graph:
        search = 'query q() { match { $d: Doc search($d.text, "sea") } return { $d.name } }'
        found = {branch: len(graph.query(search, branch=branch)) for branch in ("main", "dev", "deep")}
        assert found == {"main": 8, "dev": 9, "deep": 9}
        assert len(graph.query(search, at="before")) == 9
        assert graph.blob("Doc", "d3", "raw", branch="deep").read() == BLOB
        graph.ingest([doc("new", "sea new", 200)], branch="deep")
        assert graph.branches.merge("deep").commit is not None
        assert len(graph.query(search)) == 10
        graph.maintenance.optimize(branch="deep")
        graph.maintenance.cleanup(keep=1, confirm=True)
        assert len(graph.query(search, branch="deep")) == 10
        assert [finding for finding in graph.maintenance.verify().findings if finding.severity == "error"] == []


@pytest.mark.slow
def test_graph_copied_on_disk_opens_with_its_branches(tmp_path: Path) -> None:
    make(str(tmp_path / "a.omni"))
    copy_whole(str(tmp_path / "a.omni"), str(tmp_path / "b.omni"))
    check(str(tmp_path / "b.omni"))


@pytest.mark.s3
def test_graph_copied_between_disk_and_s3_opens_with_its_branches(tmp_path: Path, s3_server: S3Server) -> None:
    make(str(tmp_path / "a.omni"))
    copy_whole(str(tmp_path / "a.omni"), s3_server.uri("first"))
    copy_whole(s3_server.uri("first"), s3_server.uri("second"))
    check(s3_server.uri("second"))
    copy_whole(s3_server.uri("second"), str(tmp_path / "c.omni"))
    with og.open(str(tmp_path / "c.omni")) as graph:
        assert len(graph.query("query q() { match { $d: Doc } return { $d.name } }", branch="deep")) == 11
