"""Blobs of a served graph: the calls that find a blob and read ranges of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.client.request import Call, Request, Response
from omnigraph.server.wire import SNAPSHOT_ID


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """Length, ETag and snapshot of a blob; `selector` are the parameters that address it."""

    snapshot_commit_id: str | None
    length: int
    etag: str
    selector: Mapping[str, str]

    def _range_call(self, start: int, end: int | None) -> Call[bytes] | None:
        """Return the call for a range of bytes; None for an empty range."""
        from omnigraph.engine.blobs import end_of_range

        end = end_of_range(self.length, start, end)
        if start == end:
            return None
        return Call(
            _range_request(self.selector, {"snapshot": self.snapshot_commit_id}, start, end),
            lambda response: response.body,
        )


@dataclass(frozen=True, slots=True)
class BlobCalls:
    """The calls that find a blob: `head` returns None on an error, since HEAD has no body; `probe` then raises it."""

    head: Call[BlobInfo | None]
    probe: Call[BlobInfo]


def find_blob(selector: Mapping[str, str], state: Mapping[str, Any]) -> BlobCalls:
    """Return the calls that find a blob."""

    def parse_info(response: Response, length: str) -> BlobInfo:
        headers = response.headers
        return BlobInfo(headers.get(SNAPSHOT_ID.lower()), int(length), headers.get("etag", ""), selector)

    def parse_head(response: Response) -> BlobInfo | None:
        return None if response.status >= 400 else parse_info(response, response.headers.get("content-length", "0"))

    head = Request("HEAD", "/blob", _query_pairs(selector, state))
    return BlobCalls(
        Call(head, parse_head, accepted_statuses=frozenset(range(400, 600))),
        Call(
            _range_request(selector, state, 0, 1),
            lambda response: parse_info(response, response.headers["content-range"].rpartition("/")[2]),
        ),
    )


def _range_request(selector: Mapping[str, str], state: Mapping[str, Any], start: int, end: int) -> Request:
    return Request("GET", "/blob", _query_pairs(selector, state), {"range": f"bytes={start}-{end - 1}"})


def _query_pairs(selector: Mapping[str, str], state: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in {**selector, **state}.items() if value is not None)
