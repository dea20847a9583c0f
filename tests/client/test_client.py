"""The client against a real server: values, streams, blobs, and that both kinds of it do the same."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import client
from omnigraph.client import endpoints
from omnigraph.client.graph import AsyncBranches, AsyncSchema, AsyncTags, Branches, Schema, Tags
from omnigraph.engine.branches import Branches as StoredBranches
from omnigraph.engine.branches import Tags as StoredTags
from omnigraph.engine.schema import Schema as StoredSchema
from omnigraph.errors import Effect, GraphError, OmniGraphError, UsageError
from omnigraph.limits import SERVER_LOAD_SECONDS_MAX
from tests.support.live_server import ADD, PEOPLE, Live, serving_graph

SCHEMA = """
node Thing {
    key: String @key
    small: I32?
    large: I64?
    unsigned: U64?
    half: F32?
    whole: F64?
    is_on: Bool?
    day: Date?
    instant: DateTime?
    words: [String]?
    place: Vector(3)?
    file: Blob?
}
"""
THING = {
    "small": 1,
    "large": 2**53 + 1,
    "unsigned": 2**63 - 1,
    "half": 0.1,
    "whole": 0.1,
    "is_on": True,
    "day": "1969-12-31",
    "instant": "2026-01-02T03:04:05.678Z",
    "words": ["a", "ü"],
    "place": [1.0, 0.5, 0.25],
    "file": "base64:" + "aGVsbG8h" * 10,
}
ALL = """query all() {
  match { $t: Thing }
  return {
    $t.key as key, $t.small, $t.large, $t.unsigned, $t.half, $t.whole, $t.is_on, $t.day, $t.instant, $t.words, $t.place
  }
  order { key asc }
}"""
SMALL = "query small($key: String) { match { $t: Thing { key: $key } } return { $t.small as small } }"


@pytest.fixture
def things(tmp_path: Path) -> str:
    uri = str(tmp_path / "things.omni")
    with og.init(uri, SCHEMA) as graph:
        graph.ingest([{"type": "Thing", "data": {"key": "a", **THING}}, {"type": "Thing", "data": {"key": "b"}}])
        graph.ingest([{"type": "Thing", "data": {"key": "empty", "file": "base64:"}}])
    return uri


@pytest.fixture
def live(things: str) -> Iterator[Live]:
    with serving_graph(things) as server:
        yield server


def address(live: Live) -> str:
    return f"http://{live.host}:{live.port}"


def test_query_columns_of_every_type_are_those_of_the_library(things: str, live: Live) -> None:
    with og.connect(address(live), graph="g") as served, og.open(things) as opened:
        ours, theirs = served.query(ALL), opened.query(ALL)
        assert ours.to_arrow().schema == theirs.to_arrow().schema
        assert ours.to_arrow().combine_chunks() == theirs.to_arrow().combine_chunks()
        assert ours.rows() == theirs.rows()
        assert (ours.query_name, ours.branch, ours.graph_commit_id) == ("all", "main", theirs.graph_commit_id)
        assert len(served.query('query n() { match { $t: Thing { key: "z" } } return { $t.key } }')) == 0


def test_query_at_versions_and_times_reads_the_past(live: Live) -> None:
    with og.connect(address(live), graph="g") as served:
        newest, older, _ = served.commits()
        assert len(served.query(ALL, at=older.commit_id)) == 2
        assert len(served.query(ALL, at=older.manifest_version)) == 2
        before = datetime.fromtimestamp((newest.created_at_us - 1) / 1e6, UTC)
        assert len(served.query(ALL, at=before)) == 2
        assert len(served.query(ALL)) == 3


def test_blob_ranges_are_those_of_the_state_it_was_found_in(live: Live) -> None:
    with og.connect(address(live), graph="g") as served:
        found = served.blob("Thing", "a", "file")
        assert (found.length, len(found.etag) > 10) == (60, True)
        served.ingest([{"type": "Thing", "data": {"key": "a", "file": "base64:eHg="}}])
        assert found.read(0, 6) == b"hello!"
        assert found.read() == b"hello!" * 10
        assert found.read(3, 3) == b""
        assert served.blob("Thing", "a", "file").read() == b"xx"
        assert served.blob("Thing", "empty", "file").read() == b""
        with pytest.raises(GraphError) as caught:
            found.read(0, 61)
        assert caught.value.code == "blob.range"
        with pytest.raises(GraphError) as caught:
            served.blob("Thing", "b", "file")
        assert caught.value.code == "blob.not_found"


def test_export_comes_back_as_an_ingest(live: Live, tmp_path: Path) -> None:
    with og.connect(address(live), graph="g") as served, og.init(tmp_path / "copy.omni", SCHEMA) as copy:
        chunks = list(served.export())
        assert all(chunk.endswith(b"\n") for chunk in chunks)
        copy.ingest(b"".join(chunks))
        assert copy.query(ALL).to_json_rows() == served.query(ALL).to_json_rows()


def test_ingest_takes_dictionaries_as_the_library_does(things: str, live: Live) -> None:
    with og.connect(address(live), graph="g") as served, og.open(things) as opened:
        for graph, key in ((served, "s"), (opened, "o")):
            graph.ingest([{"type": "Thing", "data": {"key": key, "file": b"bytes"}}])
            assert served.blob("Thing", key, "file").read() == b"bytes"
        for graph in (served, opened):
            with pytest.raises(UsageError) as caught:
                graph.ingest(5)
            assert caught.value.context == {"argument": "data"}
        with pytest.raises(UsageError) as caught:
            served.ingest([{"type": "Thing", "data": {"key": object()}}])
        assert "cannot be encoded as JSON" in caught.value.message


@pytest.mark.slow
def test_async_graph_answers_as_the_blocking_one(live: Live) -> None:
    async def ask() -> list[object]:
        async with og.connect_async(address(live), graph="g") as served:
            rows = [one.to_json_rows() for one in await asyncio.gather(*(served.query(ALL) for _ in range(4)))]
            blob = await served.blob("Thing", "a", "file")
            exported = b"".join([chunk async for chunk in served.export()])
            with pytest.raises(GraphError) as caught:
                await served.commits("nowhere")
            return [*rows, await blob.read(0, 5), exported, await served.schema.source, caught.value.to_json()]

    with og.connect(address(live), graph="g") as served:
        rows = served.query(ALL).to_json_rows()
        with pytest.raises(GraphError) as caught:
            served.commits("nowhere")
        expected = [rows] * 4 + [b"hello", b"".join(served.export()), served.schema.source, caught.value.to_json()]
    assert asyncio.run(ask()) == expected


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(client.Graph, og.Graph), (Branches, StoredBranches), (Tags, StoredTags), (Schema, StoredSchema)],
)
def test_served_methods_take_what_those_of_an_opened_graph_take(ours: type, theirs: type) -> None:
    # A budget, an embedder and a target size belong to the process that does the work; a server has its own queries.
    apart = {"queries", "budget", "embedder", "bytes_max", "dialect"}
    # A request is repeated by its own key, and its load answers with what it rejects instead of writing a report.
    apart |= {"job_id", "on_error", "max_errors", "report", "embed"}
    shared = [name for name in vars(ours) if not name.startswith("_") and callable(vars(theirs).get(name))]
    assert len(shared) >= 2
    for name in shared:
        mine = {one.name: one.default for one in signature(getattr(ours, name)).parameters.values()}
        other = {one.name: one.default for one in signature(getattr(theirs, name)).parameters.values()}
        assert list(mine) == [one for one in other if one not in apart], name
        # Where nothing is said, the server says it.
        assert all(default in (None, other[one]) for one, default in mine.items()), name


@pytest.mark.parametrize(
    ("awaited", "blocking"),
    [(client.AsyncGraph, client.Graph), (AsyncBranches, Branches), (AsyncTags, Tags), (AsyncSchema, Schema)],
)
def test_async_methods_are_those_of_the_blocking_graph(awaited: type, blocking: type) -> None:
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert public(awaited) == public(blocking)


def test_connect_nobody_listens_is_an_error_without_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.client.transport.CLIENT_BACKOFF_MILLISECONDS", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with og.connect(url, graph="g") as served, pytest.raises(OmniGraphError) as caught:
            served.mutate(ADD, params={"name": "x"})
    assert (caught.value.code, caught.value.effect) == ("server.unreachable", Effect.NONE)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("timeout", "read"),
    [(3, SERVER_LOAD_SECONDS_MAX), (SERVER_LOAD_SECONDS_MAX + 1, SERVER_LOAD_SECONDS_MAX + 1), (None, None)],
)
def test_load_extends_the_read_timeout_and_no_other(
    is_async: bool, timeout: float | None, read: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts: list[dict[str, float | None]] = []

    def handle(self: object, request: httpx.Request) -> httpx.Response:
        timeouts.append(request.extensions["timeout"])
        refusal = {"omnigraph_code": "request.unauthorized", "error": "no token", "effect": "none", "context": {}}
        return httpx.Response(401, json=refusal)

    async def handle_async(self: object, request: httpx.Request) -> httpx.Response:
        return handle(self, request)

    async def load_async() -> None:
        async with og.connect_async("http://localhost", graph="g", timeout=timeout) as served:
            await served.load(b"{}")

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", handle)
    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", handle_async)
    with og.connect("http://localhost", graph="g", timeout=timeout) as served, pytest.raises(GraphError):
        asyncio.run(load_async()) if is_async else served.load(b"{}")
    assert timeouts == [{"connect": timeout, "read": read, "write": timeout, "pool": timeout}]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "no response from the server"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}\n{}\n", "the stream was interrupted"),
    ],
)
def test_export_that_fails_says_whether_it_had_begun(answer: bytes, says: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up() -> None:
            for _ in range(2):
                asked, _ = listening.accept()
                with asked:
                    asked.recv(65_536)
                    asked.sendall(answer)

        url = f"http://127.0.0.1:{listening.getsockname()[1]}"

        async def ask() -> None:
            async with og.connect_async(url, graph="g") as served:
                async for _ in served.export():
                    pass

        thread = threading.Thread(target=hang_up)
        thread.start()
        with og.connect(url, graph="g") as served, pytest.raises(GraphError) as caught:
            list(served.export())
        with pytest.raises(GraphError) as later:
            asyncio.run(ask())
        thread.join()
    for error in (caught.value, later.value):
        assert (error.code, error.effect) == ("server.unreachable", Effect.NONE)
        assert error.message.startswith(says)


def test_connect_server_that_is_none_of_ours_is_told(live: Live) -> None:
    with og.connect(f"{address(live)}/elsewhere", graph="g") as served, pytest.raises(OmniGraphError) as caught:
        served.query(PEOPLE)
    assert caught.value.code in ("request.no_route", "server.unreachable")


def test_connect_wrong_address_says_what_to_write() -> None:
    # An address without its scheme is a path to `og.connect`.
    with pytest.raises(UsageError, match="http://localhost:8080"):
        client.connect("localhost:8080", graph="g")
    with pytest.raises(UsageError, match="name one with `graph=`"):
        og.connect_async("http://localhost:8080")


def test_query_as_json_has_the_same_rows(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    with og.connect(address(live), graph="g") as served:
        arrow = served.query(SMALL, params={"key": "a"})
        monkeypatch.setitem(endpoints._ROWS, "accept", "application/json")
        plain = served.query(SMALL, params={"key": "a"})
    assert plain.to_json_rows() == arrow.to_json_rows() == [{"small": 1}]
    assert isinstance(plain.to_arrow(), pa.Table)


@pytest.mark.slow
def test_past_is_read_with_todays_names_or_those_of_then(things: str, live: Live) -> None:
    with og.open(things) as opened:
        first = str(opened.snapshot().head)
        opened.schema.apply(SCHEMA.replace("node Thing", 'node Item @rename_from("Thing")'))
    then = "query q() { match { $t: Thing } return { count($t) as n } }"
    now = then.replace("Thing", "Item")
    with og.connect(address(live), graph="g") as served:
        assert served.query(now, at=first).to_json_rows() == [{"n": 3}]
        assert served.query(then, at=first, names="then").to_json_rows() == [{"n": 3}]
        with pytest.raises(OmniGraphError):
            served.query(then, at=first)
        assert (
            served.blob("Item", "a", "file", at=first).read()
            == served.blob("Thing", "a", "file", at=first, names="then").read()
        )
        assert b'"type":"Item"' in b"".join(served.export(at=first))
        assert b'"type":"Thing"' in b"".join(served.export(at=first, names="then"))
        assert served.diff(first, "main").changes.num_rows == 0
        assert served.commit_changes(first, names="then").to_json() != served.commit_changes(first).to_json()


def test_served_entity_and_past_state_are_those_of_an_opened_graph(things: str) -> None:
    with (
        og.open(things) as opened,
        serving_graph(things) as live,
        og.connect(f"http://{live.host}:{live.port}", graph="g") as served,
    ):
        opened.ingest([{"type": "Thing", "data": {"key": "a", "small": 7}}], message="Shrink")
        key = opened.query(ALL).rows()[0]["key"]
        for at in (None, "HEAD", "HEAD~1", 2, datetime(2999, 1, 1, tzinfo=UTC)):
            assert served.get("Thing", key, at=at) == opened.get("Thing", key, at=at)
        assert served.get("Thing", "nothing") is None
        past, stored = served.at("HEAD~1"), opened.at("HEAD~1")
        assert past.commit_id == stored.commit_id
        assert past.get("Thing", key) == stored.get("Thing", key)
        assert past.query(ALL).rows() == stored.query(ALL).rows()
        assert past.snapshot() == stored.snapshot().public()
        assert b"".join(past.export()) == b"".join(stored.export())
        assert past.explain(ALL).to_json() == stored.explain(ALL).to_json()
        assert [str(kind) for kind in served.schema.types] == [str(kind) for kind in opened.schema.types]
        assert served.schema.nodes.keys() == opened.schema.nodes.keys()
        assert served.log("Thing", key) == opened.log("Thing", key)
        assert served.blame("Thing", key) == opened.blame("Thing", key)
        assert served.diff("HEAD~1", "HEAD", images=True) == opened.diff("HEAD~1", "HEAD", images=True)
        assert len(served.diff("HEAD~1", "HEAD", images=True).images) == 1

        async def ask() -> object:
            async with og.connect_async(f"http://{live.host}:{live.port}", graph="g") as awaited:
                before = await awaited.at("HEAD~1")
                assert [str(kind) for kind in await awaited.schema.types] == [str(k) for k in opened.schema.types]
                return await before.get("Thing", key)

        assert asyncio.run(ask()) == stored.get("Thing", key)


def test_conflicts_between_schemas_are_resolved_over_http(live: Live) -> None:
    with og.connect(address(live), graph="g") as served:
        served.branches.create("review")
        for branch in ("main", "review"):
            served.schema.apply(SCHEMA.replace("small: I32?", f'{branch}: I32? @rename_from("small")'), branch=branch)
        found = served.branches.merge("review", dry_run=True).conflicts
        assert [(one.kind, one.properties, one.entity_id) for one in found] == [("DivergentSchema", ("main",), None)]
        served.branches.merge("review", resolutions=[found[0].to_json() | {"take": "theirs"}])
        assert "review: I32?" in served.schema.read()
