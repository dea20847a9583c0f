"""A blob of a served graph: where it is, and how a range of it is asked for.

Pure. Ranges are those of the state in which the blob was found, whatever happens later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.client.call import Call, Reply, Request
from omnigraph.errors import UsageError
from omnigraph.server.wire import SNAPSHOT_ID

_EMPTY = 416


@dataclass(frozen=True, slots=True)
class BlobPlace:
    """What is known of a blob before any of it is read. An external one has only a `uri`."""

    snapshot_commit_id: str | None
    uri: str | None
    length: int
    etag: str
    which: Mapping[str, str]

    @property
    def is_external(self) -> bool:
        return self.uri is not None

    def range(self, start: int, end: int | None) -> Call[bytes] | None:
        """Return the call for a range of bytes; None for a range without any."""
        from omnigraph.engine.blob.handle import end_of_range

        if self.uri is not None:
            raise UsageError(f"the blob is kept at `{self.uri}`; read it there", uri=self.uri)
        end = end_of_range(self.length, start, end)
        if start == end:
            return None
        return Call(_ask(self.which, {"snapshot": self.snapshot_commit_id}, start, end), lambda reply: reply.body)


def place_of(which: Mapping[str, str], moment: Mapping[str, Any]) -> Call[BlobPlace]:
    """Return the call that finds a blob: its first byte is asked for, since a refusal of that says why."""

    def read(reply: Reply) -> BlobPlace:
        uri = reply.headers.get("location")
        length = 0 if uri is not None else int(reply.headers["content-range"].rpartition("/")[2])
        return BlobPlace(reply.headers.get(SNAPSHOT_ID.lower()), uri, length, reply.headers.get("etag", ""), which)

    return Call(_ask(which, moment, 0, 1), read, also=frozenset({_EMPTY}))


def _ask(which: Mapping[str, str], moment: Mapping[str, Any], start: int, end: int) -> Request:
    query = tuple((name, str(value)) for name, value in {**which, **moment}.items() if value is not None)
    return Request("GET", "/blob", query, {"range": f"bytes={start}-{end - 1}"})
