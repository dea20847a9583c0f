"""Loads over HTTP of any size: in one write, in bulk, and from a file that the body is written to while it arrives."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

import omnigraph as og
from omnigraph.errors import GraphError
from omnigraph.limits import WRITE_ENTITIES_MAX
from omnigraph.server import admission, service
from omnigraph.server.admission import BodyTooLarge, spool_body
from omnigraph.wire import NDJSON, OPERATION_ID
from tests.support.live_server import Live

G = "/graphs/g"
COUNT = "query count() { match { $p: Person } return { count($p) as people } }"
MANY = WRITE_ENTITIES_MAX + 1


def people(count: int, prefix: str = "new") -> bytes:
    return b"".join(orjson.dumps({"type": "Person", "data": {"name": f"{prefix}{n}"}}) + b"\n" for n in range(count))


def load(live: Live, body: bytes, **headers: str) -> Any:
    return live.ask("POST", f"{G}/load/ndjson?mode=merge", body, headers={"Content-Type": NDJSON, **headers})


def count(live: Live) -> int:
    return int(live.post(f"{G}/query", {"query": COUNT}).json()["rows"][0]["people"])


def spools() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("omnigraph-body-*"))


def test_load_of_more_than_one_write_is_one_commit(live: Live) -> None:
    before = count(live)
    reply = load(live, people(MANY))
    assert reply.status == 200
    assert reply.json()["commit"]["kind"] == "load"
    assert count(live) == before + MANY
    as_text = live.post(f"{G}/load", {"data": people(MANY, "text").decode(), "mode": "merge"})
    assert as_text.json()["commit"]["kind"] == "load"
    assert count(live) == before + 2 * MANY


def test_body_beyond_memory_is_written_to_a_file_and_removed(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests write files of this name at the same time.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    written: list[str] = []

    class Recorded(tempfile.TemporaryDirectory[str]):
        def cleanup(self) -> None:
            written.extend(path.name for path in Path(self.name).iterdir())
            super().cleanup()

        def __exit__(self, *error: object) -> None:
            self.cleanup()

    monkeypatch.setattr(service, "TemporaryDirectory", Recorded)
    monkeypatch.setattr(admission, "SERVER_LOAD_BODY_BYTES_MAX", 100)
    monkeypatch.setattr(admission, "SERVER_SPOOL_CHUNK_BYTES", 64)
    before = count(live)
    assert load(live, people(500)).json()["nodes"] == [{"name": "Person", "entities_loaded": 500}]
    assert count(live) == before + 500
    broken = load(live, people(500, "bad") + b'{"type": "Person", "data": {"name": 5}}\n')
    assert broken.status == 400
    assert "line 501" in broken.json()["error"]
    assert "omnigraph-body" not in broken.body.decode()
    array = load(live, b"[" + b" " * 200 + b"]")
    assert array.status == 400
    assert "omnigraph-body" not in array.body.decode()
    assert count(live) == before + 500
    assert written == ["body.ndjson"] * 3
    assert spools() == []


def test_bulk_load_with_an_idempotency_key_is_applied_once(live: Live) -> None:
    key = "01M7MWQ5S0Y8C2E3H6J9K1N4Q7"
    first = load(live, people(MANY), **{OPERATION_ID: key})
    again = load(live, people(MANY), **{OPERATION_ID: key})
    assert (again.status, again.json()["omnigraph_code"]) == (409, "conflict.repeated")
    assert again.json()["context"]["graph_commit_id"] == first.json()["commit"]["graph_commit_id"]


def test_body_of_unknown_length_may_take_what_the_actor_may_have(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live.service.admission, "bytes_max", 10_000)
    connection = live.connect()
    connection.request("POST", f"{G}/load/ndjson", iter([people(5)]), {"Content-Type": NDJSON}, encode_chunked=True)
    assert connection.getresponse().status == 200
    connection.close()
    connection = live.connect()
    connection.request("POST", f"{G}/load/ndjson", iter([people(1_000)]), {"Content-Type": NDJSON}, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_client_sends_a_file_in_parts(
    is_async: bool, live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.client.endpoints.WRITE_BYTES_MAX", 100)
    monkeypatch.setattr("omnigraph.client.transport.CLIENT_PART_BYTES", 1_000)
    file = tmp_path / "people.ndjson"
    file.write_bytes(people(MANY))
    url = f"http://{live.host}:{live.port}"

    async def load_async() -> og.IngestReceipt:
        async with og.connect_async(url, graph="g") as served:
            return await served.load(file)

    if is_async:
        receipt = asyncio.run(load_async())
    else:
        with og.connect(url) as served:
            receipt = served.load(file)
    assert receipt.total_entities == MANY


async def run_now(write: Callable[[], None]) -> None:
    write()


def receiving(*parts: bytes, stalls: bool = False) -> Any:
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop(0)
        if stalls:
            await asyncio.sleep(3600)
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive


def test_spooled_body_is_what_was_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "SERVER_LOAD_BODY_BYTES_MAX", 10)
    monkeypatch.setattr(admission, "SERVER_SPOOL_CHUNK_BYTES", 7)
    file = tmp_path / "body"
    parts = [bytes([n]) * 5 for n in range(9)]
    assert asyncio.run(spool_body(receiving(*parts[:2]), 100, "r", file, run_now)) == b"".join(parts[:2])
    assert not file.exists()
    assert asyncio.run(spool_body(receiving(*parts), 100, "r", file, run_now)) == file
    assert file.read_bytes() == b"".join(parts)
    with pytest.raises(BodyTooLarge):
        asyncio.run(spool_body(receiving(*parts), 44, "r", tmp_path / "other", run_now))


def test_body_that_stalls_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "SERVER_BODY_SECONDS_MAX", 0.02)
    with pytest.raises(GraphError, match="too slowly") as caught:
        asyncio.run(spool_body(receiving(b"x", stalls=True), 100, "r", tmp_path / "body", run_now))
    assert caught.value.code == "request.timeout"
