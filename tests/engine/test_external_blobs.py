"""External blobs: copied from allowed bases while a write runs, refused from everywhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine import external_blobs
from omnigraph.engine.external_blobs import BlobBase, BlobRules
from omnigraph.errors import DataError, GraphError, LimitExceeded, UsageError
from omnigraph.graph import session_of
from omnigraph.public_values import Mode
from tests.support.s3_server import S3Server, s3_server

__all__ = ["s3_server"]
SCHEMA = "node Photo { name: String @key  image: Blob? }"
INSERT = "query add($image: Blob) { insert Photo { name: $name  image: $image } }".replace("$name", '"m"')


@pytest.fixture
def media(tmp_path: Path) -> Path:
    folder = tmp_path / "media"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "private").write_bytes(b"secret")
    return folder


@pytest.fixture
def graph(tmp_path: Path, media: Path) -> Iterator[og.Graph]:
    with og.init(tmp_path / "g.omni", SCHEMA) as graph:
        session_of(graph).external_blobs = BlobRules((BlobBase.parse(str(media), "embedded_only"),))
        yield graph


def photo(name: str, image: str) -> dict[str, object]:
    return {"type": "Photo", "data": {"name": name, "image": image}}


def image(graph: og.Graph, name: str) -> bytes:
    return graph.blob("Photo", name, "image").read()


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_allowed_address_is_copied_and_does_not_change_later(graph: og.Graph, media: Path, mode: Mode) -> None:
    graph.ingest([photo("a", f"{media}/a.png"), photo("b", f"file://{media}/a.png")], mode=mode)
    graph.mutate(INSERT, params={"image": f"{media}/a.png"})
    (media / "a.png").write_bytes(b"replaced")
    assert [image(graph, name) for name in "abm"] == [b"\x89PNG"] * 3


def test_address_in_many_lines_is_read_once(graph: og.Graph, media: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    read = external_blobs._read

    def count(uri: str, source: tuple[BlobBase, str]) -> bytes:
        reads.append(uri)
        return read(uri, source)

    monkeypatch.setattr(external_blobs, "_read", count)
    lines = "\n".join(f'{{"type":"Photo","data":{{"name":"{n}","image":"{media}/a.png"}}}}' for n in range(300))
    graph.ingest(lines.encode())
    assert reads == [f"{media}/a.png"]
    assert image(graph, "299") == b"\x89PNG"


@pytest.mark.parametrize(
    "address", ["{media}/../private", "{media}/link", "{media}", "{media}x/a", "s3://media/a", "http://host/a", "a.png"]
)
def test_address_outside_the_bases_is_rejected(graph: og.Graph, media: Path, address: str) -> None:
    os.symlink(media.parent / "private", media / "link")
    head = graph.snapshot().head
    with pytest.raises(DataError, match=r"line 1: .*external_blobs"):
        graph.ingest(f'{{"type":"Photo","data":{{"name":"x","image":"{address.format(media=media)}"}}}}'.encode())
    with pytest.raises(DataError, match="external_blobs"):
        graph.mutate(INSERT, params={"image": address.format(media=media)})
    assert graph.snapshot().head == head


def test_unreadable_source_fails_the_write(graph: og.Graph, media: Path) -> None:
    os.mkfifo(media / "pipe")
    for name in ("missing", "pipe"):
        with pytest.raises(GraphError) as caught:
            graph.ingest([photo("x", f"{media}/{name}")])
        assert (caught.value.code, caught.value.kind.http_status) == ("blob.source_unreadable", 424)


def test_size_is_charged_before_anything_is_read(graph: og.Graph, media: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_blobs, "EXTERNAL_BLOB_BYTES_MAX", 3)
    monkeypatch.setattr(external_blobs, "_read", lambda *_: pytest.fail("it was read"))
    with pytest.raises(LimitExceeded):
        graph.ingest([photo("x", f"{media}/a.png")])


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("media", "embedded_only"),
        ("s3://bucket/a/../b", "server_safe"),
        ("s3://bucket/a//b", "server_safe"),
        ("s3://key:secret@bucket/a", "server_safe"),
        ("s3://bucket/a?versionId=1", "server_safe"),
        ("file:///media", "server_safe"),
        ("/media", "server_safe"),
        ("https://host/media", "server_safe"),
    ],
)
def test_base_must_be_canonical_and_safe_in_its_scope(text: str, scope: str) -> None:
    with pytest.raises(UsageError) as caught:
        BlobBase.parse(text, scope)
    assert "secret" not in str(caught.value)


@pytest.mark.s3
def test_blob_is_copied_from_a_bucket(tmp_path: Path, s3_server: S3Server) -> None:
    from omnigraph.store.objects.control_objects import Objects
    from omnigraph.store.objects.uri import Location

    base = s3_server.uri("media")
    Objects(Location.parse(base)).write("2024/a.png", b"\x89PNG")
    with og.init(tmp_path / "g.omni", SCHEMA) as graph:
        session_of(graph).external_blobs = BlobRules((BlobBase.parse(base, "server_safe"),))
        graph.ingest([photo("a", f"{base}/2024/a.png")])
        assert image(graph, "a") == b"\x89PNG"
        with pytest.raises(GraphError, match="no such object"):
            graph.ingest([photo("b", f"{base}/2024/b.png")])
