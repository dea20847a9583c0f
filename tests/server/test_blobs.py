"""Blobs over HTTP: whole, in ranges, and under conditions."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph import graph as graphs
from omnigraph import wire
from omnigraph.engine.entity_lookup import Blob
from omnigraph.errors import GraphError
from omnigraph.limits import BLOB_READ_BYTES_MAX
from omnigraph.server.handlers import reads
from omnigraph.server.responses import Call
from tests.support.examples import examples
from tests.support.live_server import Live, serving_graph

pytestmark = pytest.mark.slow

BYTES = bytes(range(256)) * 20_000  # more than one read returns
PATH = "/graphs/g/blob?entity=node&type=Person&property=photo&id="


@pytest.fixture
def pictures(graph_uri: str) -> Iterator[Live]:
    assert len(BYTES) > BLOB_READ_BYTES_MAX
    rows = [("pic", BYTES), ("empty", b"")]
    lines = [{"name": name, "photo": f"base64:{b64encode(one).decode()}"} for name, one in rows]
    with graphs.open(graph_uri) as graph:
        graph.ingest(b"\n".join(orjson.dumps({"type": "Person", "data": one}) for one in lines))
    with serving_graph(graph_uri) as live:
        yield live


def test_blob_whole_has_length_tag_and_snapshot(pictures: Live) -> None:
    reply = pictures.get(PATH + "pic")
    assert (reply.status, reply.body == BYTES) == (200, True)
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["content-length"] == str(len(BYTES))
    assert reply.headers["accept-ranges"] == "bytes"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["etag"].startswith('"')
    commit = pictures.get("/graphs/g/snapshot").json()["graph_commit_id"]
    assert reply.headers["omnigraph-snapshot-id"] == commit
    assert pictures.get(f"{PATH}pic&snapshot={commit}").body == BYTES
    assert pictures.get(f"{PATH}pic&snapshot={commit}&branch=main").status == 400


RANGES = [
    ("bytes=0-9", 206, (0, 10)),
    ("bytes=5-", 206, (5, len(BYTES))),
    ("bytes=-7", 206, (len(BYTES) - 7, len(BYTES))),
    ("bytes=0-99999999999", 206, (0, len(BYTES))),
    (f"bytes={len(BYTES)}-", 416, None),
    ("bytes=-0", 416, None),
    ("bytes=9-5", 200, (0, len(BYTES))),
    ("bytes=0-1,3-4", 200, (0, len(BYTES))),
    ("bytes=a-b", 200, (0, len(BYTES))),
    ("rows=0-1", 200, (0, len(BYTES))),
    ("bytes=-", 200, (0, len(BYTES))),
]


def test_blob_range_is_one_plain_range_or_ignored(pictures: Live) -> None:
    for header, status, place in RANGES:
        reply = pictures.get(PATH + "pic", headers={"Range": header})
        assert reply.status == status, header
        if place is None:
            assert reply.headers["content-range"] == f"bytes */{len(BYTES)}"
            assert reply.json()["blob_range"]["length"] == len(BYTES)
            assert reply.json()["code"] == "bad_request"
            assert reply.headers.keys() >= {"etag", "accept-ranges", "omnigraph-snapshot-id"}
            continue
        assert reply.body == BYTES[slice(*place)], header
        if status == 206:
            assert reply.headers["content-range"] == f"bytes {place[0]}-{place[1] - 1}/{len(BYTES)}"
    assert pictures.get(PATH + "empty").body == b""
    assert pictures.get(PATH + "empty", headers={"Range": "bytes=0-"}).status == 416


def test_blob_is_followed_by_other_answers_on_the_same_connection(pictures: Live) -> None:
    connection = pictures.connect()
    try:
        for _ in range(20):
            connection.request("GET", PATH + "pic", headers={"Range": "bytes=0-9"})
            assert connection.getresponse().read() == BYTES[:10]
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
    finally:
        connection.close()


def test_blob_conditions_are_looked_at_in_order(pictures: Live) -> None:
    tag = pictures.get(PATH + "pic").headers["etag"]

    def ask(**headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return pictures.get(PATH + "pic", headers=named).status

    assert ask(If_Match=tag) == ask(If_Match=f'"x", {tag}') == ask(If_Match="*") == 200
    assert ask(If_Match='"x"') == ask(If_Match=f"W/{tag}") == 412
    assert ask(If_None_Match=tag) == ask(If_None_Match=f"W/{tag}") == ask(If_None_Match="*") == 304
    assert ask(If_None_Match='"x"') == 200
    assert ask(If_Match='"x"', If_None_Match=tag) == 412
    assert ask(Range="bytes=0-1", If_Range=tag) == 206
    assert ask(Range="bytes=0-1", If_Range='"x"') == ask(Range="bytes=0-1", If_Range=f"W/{tag}") == 200
    failed = pictures.get(PATH + "pic", headers={"If-Match": '"x"'})
    assert (failed.json()["omnigraph_code"], failed.json()["code"]) == ("blob.changed", "conflict")
    assert "precondition_failure" not in failed.json()
    assert failed.headers["etag"] == tag
    assert failed.headers.keys() >= {"accept-ranges", "omnigraph-snapshot-id"}
    not_modified = pictures.get(PATH + "pic", headers={"If-None-Match": tag})
    assert (not_modified.body, not_modified.headers["etag"]) == (b"", tag)


def test_blob_head_reads_no_byte(pictures: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*given: object) -> bytes:
        raise AssertionError("bytes were read")

    monkeypatch.setattr(Blob, "read", read)
    reply = pictures.ask("HEAD", PATH + "pic", headers={"Range": "bytes=0-1"})
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["content-length"] == str(len(BYTES))
    assert pictures.ask("HEAD", PATH + "pic", headers={"If-None-Match": "*"}).status == 304
    assert pictures.ask("HEAD", PATH + "nobody").status == 404


class Sized:
    def __init__(self, length: int) -> None:
        self.length = length
        self.etag = '"t"'
        self.snapshot_commit_id = None


@settings(max_examples=examples(100))
@given(st.text(max_size=40) | st.from_regex(r"bytes=\d{0,22}-\d{0,22}"), st.integers(0, 50))
def test_range_of_any_text_is_inside_the_blob(text: str, length: int) -> None:
    call: Call[wire.BlobInput] = Call(None, None, None, None, headers={"range": (text,)})  # type: ignore[arg-type]
    try:
        found = reads._requested_range(call, Sized(length))  # type: ignore[arg-type]
    except GraphError as error:
        found = None if error.code == "blob.range" else (-1, -1)
    assert found is None or 0 <= found[0] < found[1] <= length
