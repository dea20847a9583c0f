"""Blobs: ranges of managed ones, tags that change with the bytes, and names that mean what they mean today."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.authorization import on_branch
from omnigraph.errors import DataError, GraphError, LimitExceeded, PolicyDenied, UsageError
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import BLOB_READ_BYTES_MAX
from omnigraph.store.blobs import cells
from omnigraph.store.read.lookup import blob_sizes
from tests.support.change_fixtures import SCHEMA, copied_graph, image, node, write
from tests.support.policy_recorder import Recorder

LARGE = bytes(range(256)) * 400


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = copied_graph(tmp_path)
    write(
        graph, node("a", image=image(b"hello")), node("b", image=image(LARGE)), node("e", image=image(b"")), node("n")
    )
    return graph


@pytest.mark.parametrize(("key", "raw"), [("a", b"hello"), ("b", LARGE), ("e", b"")])
def test_blob_read_gives_any_range(graph: og.Graph, key: str, raw: bytes) -> None:
    found = graph.blob("P", key, "image")
    assert (found.length, found.snapshot_commit_id) == (len(raw), graph.snapshot().head)
    assert found.read() == raw
    for start, end in ((0, 0), (0, len(raw)), (len(raw), len(raw)), (len(raw) // 2, len(raw))):
        assert found.read(start, end) == raw[start:end]


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (3, 2), (0, 6), (6, None), (6, 6)])
def test_blob_read_outside_of_the_blob_is_refused(graph: og.Graph, start: int, end: int | None) -> None:
    with pytest.raises(GraphError) as caught:
        graph.blob("P", "a", "image").read(start, end)
    assert (caught.value.code, caught.value.kind.http_status) == ("blob.range", 416)
    assert caught.value.context["length"] == 5


@pytest.mark.slow
def test_blob_read_of_too_many_bytes_at_once_is_refused(graph: og.Graph) -> None:
    write(graph, node("big", image=image(bytes(BLOB_READ_BYTES_MAX + 1))))
    found = graph.blob("P", "big", "image")
    assert len(found.read(1)) == BLOB_READ_BYTES_MAX
    with pytest.raises(LimitExceeded) as caught:
        found.read()
    assert caught.value.context["resource"] == "Blob read range bytes"


@pytest.mark.parametrize("key", ["n", "nobody", "a' OR '1'='1"])
def test_blob_that_is_null_or_of_nobody_is_not_found(graph: og.Graph, key: str) -> None:
    with pytest.raises(GraphError) as caught:
        graph.blob("P", key, "image")
    assert (caught.value.code, caught.value.kind.http_status) == ("blob.not_found", 404)


@pytest.mark.parametrize(
    ("type_", "property_", "entity"),
    [("Nope", "image", "node"), ("P", "nope", "node"), ("P", "v", "node"), ("P", "image", "edge"), ("P", "image", "x")],
)
def test_blob_of_something_that_has_none_is_refused(graph: og.Graph, type_: str, property_: str, entity: str) -> None:
    with pytest.raises(UsageError):
        graph.blob(type_, "a", property_, entity=entity)


# -- tags --------------------------------------------------------------------------------------------------------------


def test_blob_tag_is_strong_and_changes_with_the_bytes(graph: og.Graph) -> None:
    before = {key: graph.blob("P", key, "image").etag for key in "abe"}
    assert len(set(before.values())) == 3
    assert all(len(tag) == 34 and tag[0] == tag[-1] == '"' for tag in before.values())
    write(graph, node("a", image=image(b"jello")), node("z"))
    after = {key: graph.blob("P", key, "image").etag for key in "abe"}
    assert [key for key in "abe" if before[key] != after[key]] == ["a"]


def test_blob_tag_outlives_commits_that_leave_the_blob_alone(graph: og.Graph) -> None:
    tag = graph.blob("P", "b", "image").etag
    write(graph, node("z"))
    graph.maintenance.ensure_indices()
    graph.branches.create("x")
    write(graph, node("y"), branch="x")
    assert graph.blob("P", "b", "image").etag == graph.blob("P", "b", "image", branch="x").etag == tag


# -- history -----------------------------------------------------------------------------------------------------------


def test_blob_at_a_commit_is_the_one_of_then(graph: og.Graph) -> None:
    first = graph.snapshot().head
    assert first is not None
    old = graph.blob("P", "a", "image")
    write(graph, node("a", image=image(b"other")))
    assert graph.blob("P", "a", "image", at=first).read() == old.read() == b"hello"
    assert graph.blob("P", "a", "image", at=first).etag == old.etag
    assert graph.blob("P", "a", "image").read() == b"other"


def test_blob_of_a_renamed_type_and_property_has_todays_names(graph: og.Graph) -> None:
    first = graph.snapshot().head
    renamed = SCHEMA.replace("node P {", 'node N @rename_from("P") {').replace("P ->", "N ->").replace("-> P", "-> N")
    graph.schema.apply(renamed.replace("image: Blob?", 'picture: Blob? @rename_from("image")'))
    for at in (None, first):
        assert graph.blob("N", "a", "picture", at=at).read() == b"hello"
    with pytest.raises(UsageError):
        graph.blob("P", "a", "image")


def test_blob_of_a_property_made_anew_does_not_show_the_old_one(graph: og.Graph) -> None:
    first = graph.snapshot().head
    graph.schema.apply(SCHEMA.replace("image: Blob?", ""))
    assert graph.blob("P", "a", "image", at=first, names="then").read() == b"hello"
    with pytest.raises(UsageError, match="has no property `image`"):
        graph.blob("P", "a", "image", at=first)
    graph.schema.apply(SCHEMA)
    with pytest.raises(GraphError, match="is null"):
        graph.blob("P", "a", "image", at=first)
    assert graph.blob("P", "a", "image", at=first, names="then").read() == b"hello"


def test_blob_handle_keeps_its_state_when_the_branch_is_made_anew(graph: og.Graph) -> None:
    graph.branches.create("x")
    write(graph, node("a", image=image(b"on x")), branch="x")
    found = graph.blob("P", "a", "image", branch="x")
    graph.branches.delete("x")
    graph.branches.create("x")
    assert (found.read(), graph.blob("P", "a", "image", branch="x").read()) == (b"on x", b"hello")


# -- damaged -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "described",
    [
        {"kind": 9, "size": 1, "blob_uri": ""},
        {"kind": 0, "size": None, "blob_uri": ""},
        {"kind": 0, "size": 1, "blob_uri": "s3://x"},
        {"kind": 3, "size": 1, "blob_uri": ""},
        {"kind": 3, "size": 0, "blob_uri": "s3://x"},
    ],
)
def test_blob_described_as_nonsense_is_told_as_such(graph: og.Graph, described: dict[str, Any]) -> None:
    dataset = session_of(graph).view().dataset(TypeKey("node:P"))
    with pytest.raises(GraphError) as caught:
        cells._checked_length(dataset, described)
    assert caught.value.code == "blob.integrity"


def test_blob_that_refers_outside_of_the_graph_is_refused_unread() -> None:
    def described(uri: str) -> pa.Array[Any]:
        cells = [{"kind": 0, "size": 1, "blob_uri": ""}, {"kind": 3 if uri else 1, "size": 4, "blob_uri": uri}]
        return pa.array(cells)

    assert blob_sizes(described("")).to_pylist() == [1, 4]
    with pytest.raises(GraphError) as caught:
        blob_sizes(described("file:///etc/passwd"))
    assert caught.value.code == "blob.integrity"


ADDRESSES = ["file:///etc/passwd", "s3://bucket/key", "http://169.254.169.254/", "/etc/passwd", "az://c/b", "data:,x"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_blob_given_as_an_address_is_refused_by_every_write(graph: og.Graph, address: str) -> None:
    head = graph.snapshot().head
    for mode in ("append", "merge", "overwrite"):
        with pytest.raises(DataError, match="external_blobs"):
            graph.ingest([node("z", image=address)], mode=mode)
    insert = "query q($i: Blob) { insert P { k: $i image: $i } }".replace("k: $i", 'k: "z"')
    with pytest.raises(DataError, match="external_blobs"):
        graph.mutate(insert, params={"i": address})
    assert graph.snapshot().head == head


def test_blob_asks_the_policy_of_the_branch_it_is_read_from(graph: og.Graph) -> None:
    policy = Recorder(denies=("read",))
    with pytest.raises(PolicyDenied):
        og.open(graph.uri, actor="ann", policy=policy).blob("P", "a", "image")
    assert policy.asked == [("read", on_branch("main"), "ann")]


def test_blob_stat_reads_no_payload(graph: og.Graph) -> None:
    dataset = session_of(graph).view().dataset(TypeKey("node:P"))
    graph.blob("P", "b", "image")
    dataset.lance.io_stats_incremental()
    found = graph.blob("P", "b", "image")
    assert dataset.lance.io_stats_incremental().read_bytes < len(LARGE) / 2
    found.read(0, 100)
    assert dataset.lance.io_stats_incremental().read_bytes < len(LARGE) / 2
