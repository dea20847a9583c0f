"""Blob routes: a blob or a byte range of it, with HTTP conditional and range requests.

The bytes are read as they are sent, a bounded piece at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from omnigraph.engine.blobs import Blob
from omnigraph.errors import GraphError, OmniGraphError, UsageError
from omnigraph.limits import BLOB_READ_BYTES_MAX
from omnigraph.server import wire
from omnigraph.server.responses import Call, Response, requested_state

_RANGE: Final = re.compile(r"bytes=\s*(\d*)-(\d*)\s*")
_ETAG: Final = re.compile(r'(W/)?("[^"]*")')


def get(call: Call[wire.BlobInput]) -> Response:
    blob = _find_blob(call)
    headers = _headers(blob)
    if (conditional := _conditional_response(call, blob)) is not None:
        return conditional
    byte_range = _requested_range(call, blob)
    if byte_range is None:
        return _bytes_response(blob, 0, blob.length, 200, headers)
    start, end = byte_range
    return _bytes_response(
        blob, start, end, 206, {**headers, "Content-Range": f"bytes {start}-{end - 1}/{blob.length}"}
    )


def head(call: Call[wire.BlobInput]) -> Response:
    """Respond like `get`, without ranges, and without reading the blob."""
    blob = _find_blob(call)
    conditional = _conditional_response(call, blob)
    headers = {**_headers(blob), "Content-Length": str(blob.length)}
    return Response(b"", wire.BYTES, headers=headers) if conditional is None else conditional


def _find_blob(call: Call[wire.BlobInput]) -> Blob:
    request = call.input
    if request.branch is not None and request.snapshot is not None:
        raise UsageError("`branch` and `snapshot` both say what to read; give one of them")
    return call.graph.blob(
        request.type,
        request.id,
        request.property,
        entity=request.entity,
        branch=(request.branch or "main").strip(),
        at=requested_state(request.at, request.snapshot),
        names=request.names,
    )


def _headers(blob: Blob) -> dict[str, str]:
    return {"ETag": blob.etag, "Accept-Ranges": "bytes", wire.SNAPSHOT_ID: blob.snapshot_commit_id or ""}


def blob_error_headers(error: OmniGraphError) -> dict[str, str]:
    """Return the blob headers of an error response, if the error has a blob."""
    context = error.context
    headers = {"Content-Range": f"bytes */{context['length']}"} if error.code == "blob.range" else {}
    if "etag" in context:
        tag, snapshot = str(context["etag"]), str(context["snapshot_commit_id"] or "")
        headers |= {"ETag": tag, "Accept-Ranges": "bytes", wire.SNAPSHOT_ID: snapshot}
    return headers


def _conditional_response(call: Call[wire.BlobInput], blob: Blob) -> Response | None:
    """Return the response if the conditional headers decide it; None if the bytes have to be sent."""
    if_match = call.header("if-match")
    if if_match is not None and if_match.strip() != "*" and blob.etag not in _etags(if_match, strong=True):
        raise GraphError(
            "the ETag of the blob does not match `If-Match`; read the blob again",
            code="blob.changed",
            expected=if_match,
            actual=blob.etag,
            etag=blob.etag,
            snapshot_commit_id=blob.snapshot_commit_id,
        )
    unless = call.header("if-none-match")
    if unless is not None and (unless.strip() == "*" or blob.etag in _etags(unless, strong=False)):
        return Response(b"", None, 304, _headers(blob))
    return None


def _etags(header: str, *, strong: bool) -> set[str]:
    return {tag for weak, tag in _ETAG.findall(header) if not (strong and weak)}


def _requested_range(call: Call[wire.BlobInput], blob: Blob) -> tuple[int, int] | None:
    """Return the requested byte range; None without one. Malformed and multiple ranges are ignored."""
    match = _RANGE.fullmatch(call.header("range") or "")
    if match is None or not any(match.groups()) or max(map(len, match.groups())) > 19:
        return None
    condition = call.header("if-range")
    if condition is not None and condition.strip() != blob.etag:
        return None
    first, last = (int(text) if text else None for text in match.groups())
    if first is None:
        assert last is not None
        start, end = max(blob.length - last, 0), blob.length
    else:
        if last is not None and last < first:
            return None
        start, end = first, blob.length if last is None else min(last + 1, blob.length)
    if start >= end:
        raise GraphError(
            f"the range is outside the blob, which has {blob.length} bytes",
            code="blob.range",
            start=start,
            end=end,
            length=blob.length,
            etag=blob.etag,
            snapshot_commit_id=blob.snapshot_commit_id,
        )
    return start, end


def _bytes_response(blob: Blob, start: int, end: int, status: int, headers: dict[str, str]) -> Response:
    all_headers = {**headers, "Content-Length": str(end - start)}
    return Response(_read_pieces(blob, start, end), wire.BYTES, status, all_headers)


def _read_pieces(blob: Blob, start: int, end: int) -> Iterator[bytes]:
    for offset in range(start, end, BLOB_READ_BYTES_MAX):
        yield blob.read(offset, min(offset + BLOB_READ_BYTES_MAX, end))
