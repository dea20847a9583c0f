"""A blob of a served graph: where it is, and how a range of it is asked for.

Pure. Ranges are those of the state in which the blob was found, whatever happens later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.client.call import Call, Reply, Request
from omnigraph.server.wire import SNAPSHOT_ID


@dataclass(frozen=True, slots=True)
class BlobPlace:
    """What is known of a blob before any of it is read."""

    snapshot_commit_id: str | None
    length: int
    etag: str
    which: Mapping[str, str]

    def range(self, start: int, end: int | None) -> Call[bytes] | None:
        """Return the call for a range of bytes; None for a range without any."""
        from omnigraph.engine.blob.handle import end_of_range

        end = end_of_range(self.length, start, end)
        if start == end:
            return None
        return Call(_ask(self.which, {"snapshot": self.snapshot_commit_id}, start, end), lambda reply: reply.body)


@dataclass(frozen=True, slots=True)
class BlobCalls:
    """The calls that find a blob: `look` answers None to a refusal, which has no words; `ask` then brings them."""

    look: Call[BlobPlace | None]
    ask: Call[BlobPlace]


def find_blob(which: Mapping[str, str], moment: Mapping[str, Any]) -> BlobCalls:
    """Return the calls that find a blob, and read none of it."""

    def known(reply: Reply, length: str) -> BlobPlace:
        headers = reply.headers
        return BlobPlace(headers.get(SNAPSHOT_ID.lower()), int(length), headers.get("etag", ""), which)

    def looked(reply: Reply) -> BlobPlace | None:
        return None if reply.status >= 400 else known(reply, reply.headers.get("content-length", "0"))

    look = Request("HEAD", "/blob", _query(which, moment))
    return BlobCalls(
        Call(look, looked, also=frozenset(range(400, 600))),
        Call(_ask(which, moment, 0, 1), lambda reply: known(reply, reply.headers["content-range"].rpartition("/")[2])),
    )


def _ask(which: Mapping[str, str], moment: Mapping[str, Any], start: int, end: int) -> Request:
    return Request("GET", "/blob", _query(which, moment), {"range": f"bytes={start}-{end - 1}"})


def _query(which: Mapping[str, str], moment: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in {**which, **moment}.items() if value is not None)
