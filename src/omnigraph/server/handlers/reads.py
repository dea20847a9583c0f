"""Routes that read a graph: queries, plans, schema, history, differences, outcomes of writes, and ranges of blobs.

Thin: the graph does the work and enforces its policy.

The bytes are read as they are sent, a bounded piece at a time.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from omnigraph import wire
from omnigraph.engine.entity_lookup import Blob, find_entity
from omnigraph.engine.query.budget import Budget
from omnigraph.engine.query.result import Result
from omnigraph.errors import GraphError, OmniGraphError, PolicyDenied
from omnigraph.graph import session_of
from omnigraph.ids import CommitId
from omnigraph.limits import BLOB_READ_BYTES_MAX, CHANGE_WINDOW_ROWS
from omnigraph.manifest.history import unknown_commit
from omnigraph.server.errors import dump
from omnigraph.server.responses import Call, Handler, Response, arguments, json_response
from omnigraph.wire import ARROW

_RANGE: Final = re.compile(r"bytes=\s*(\d*)-(\d*)\s*")
_ETAG: Final = re.compile(r'(W/)?("[^"]*")')


def get(call: Call[wire.BlobInput]) -> Response:
    blob = call.graph.blob(**arguments(call.input))
    if (conditional := _conditional_response(call, blob)) is not None:
        return conditional
    headers, byte_range = _headers(blob.etag, blob.snapshot_commit_id), _requested_range(call, blob)
    start, end = byte_range or (0, blob.length)
    if byte_range is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{blob.length}"
    headers["Content-Length"] = str(end - start)
    return Response(_read_pieces(blob, start, end), wire.BYTES, 200 if byte_range is None else 206, headers)


def head(call: Call[wire.BlobInput]) -> Response:
    """Respond like `get`, without ranges, and without reading the blob."""
    blob = call.graph.blob(**arguments(call.input))
    conditional = _conditional_response(call, blob)
    headers = {**_headers(blob.etag, blob.snapshot_commit_id), "Content-Length": str(blob.length)}
    return Response(b"", wire.BYTES, headers=headers) if conditional is None else conditional


def _headers(etag: object, snapshot: object) -> dict[str, str]:
    # The bytes are those of any writer: a browser must not take them for a page or a script.
    options = {"X-Content-Type-Options": "nosniff"}
    return {"ETag": str(etag), "Accept-Ranges": "bytes", wire.SNAPSHOT_ID: str(snapshot or ""), **options}


def blob_error_headers(error: OmniGraphError) -> dict[str, str]:
    """Return the blob headers of an error response, if the error has a blob."""
    context = error.context
    headers = {"Content-Range": f"bytes */{context['length']}"} if error.code == "blob.range" else {}
    if "etag" in context:
        headers |= _headers(context["etag"], context["snapshot_commit_id"])
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
        return Response(b"", None, 304, _headers(blob.etag, blob.snapshot_commit_id))
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


def _read_pieces(blob: Blob, start: int, end: int) -> Iterator[bytes]:
    for offset in range(start, end, BLOB_READ_BYTES_MAX):
        yield blob.read(offset, min(offset + BLOB_READ_BYTES_MAX, end))


_NO_ROWS: Final = b'"rows":[]'


def result_of(method: str) -> Handler:
    """Return the handler of a route that shows the result of a method of the graph."""
    return lambda call: json_response(attrgetter(method)(call.graph)(**arguments(call.input)).to_json())


def query(call: Call[wire.Query]) -> Response:
    return rows_response(call, *run_query(call, call.input))


def read(call: Call[wire.Read]) -> Response:
    """Run a query for clients of earlier releases: the response does not include the commit."""
    request = call.input
    present = wire.Query(
        query=request.query_source,
        name=request.query_name,
        params=request.params,
        branch=request.branch,
        snapshot=request.snapshot,
    )
    return _json_rows_response(*run_query(call, present))


def run_query(call: Call[Any], request: wire.Query) -> tuple[Result, dict[str, object]]:
    """Run a query; returns its rows, and the branch and state that were read, as the request names them."""
    options = arguments(request)
    result = call.graph.query(**options, budget=Budget(cancel=call.cancel))
    state = {"at": request.at, "snapshot": request.snapshot, "as_of": request.as_of}
    requested: dict[str, object] = {name: value for name, value in state.items() if value is not None}
    branch = options.get("branch", "main")
    return result, requested if isinstance(request.snapshot, str) else {"branch": branch, **requested}


def rows_response(call: Call[Any], result: Result, target: dict[str, object]) -> Response:
    """Return rows as JSON or, if the client accepts it, as an Arrow stream."""
    if ARROW in (call.header("accept") or ""):
        headers = {
            wire.QUERY_NAME: quote(result.query_name),
            wire.ROW_COUNT: str(len(result)),
            wire.BRANCH: quote(result.branch),
            wire.COMMIT_ID: result.graph_commit_id or "",
        }
        return _streamed_response(result, _arrow_chunks(result), ARROW, headers)
    return _json_rows_response(result, target, graph_commit_id=result.graph_commit_id)


def _json_rows_response(result: Result, target: dict[str, object], **more: object) -> Response:
    description = {
        "query_name": result.query_name,
        "target": target,
        "row_count": len(result),
        "columns": result.columns,
        "rows": [],
        **more,
    }
    return _streamed_response(result, _json_chunks(result, description), wire.JSON, {})


def _streamed_response(result: Result, chunks: Iterator[bytes], media: str, headers: dict[str, str]) -> Response:
    """Return a streamed response; a result of a single piece is encoded at once, which costs fewer thread switches."""
    return Response(b"".join(chunks) if result.is_one_piece else chunks, media, headers=headers)


def _json_chunks(result: Result, description: dict[str, object]) -> Iterator[bytes]:
    """Yield a JSON response with the rows of a result in place of its empty list."""
    # Quotes inside of strings are escaped, so this occurs once.
    head, _, tail = dump(description).partition(_NO_ROWS)
    pieces = result.json_pieces()
    yield head + _NO_ROWS[:-1] + next(pieces, b"")
    yield from pieces
    yield b"]" + tail


def _arrow_chunks(result: Result) -> Iterator[bytes]:
    """Yield a result as an IPC stream, one batch at a time."""
    buffer = io.BytesIO()

    def take() -> bytes:
        chunk = buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
        return chunk

    with pa.ipc.new_stream(pa.PythonFile(buffer, mode="w"), result.to_arrow().schema) as writer:
        for batch in result.arrow_pieces():
            writer.write_batch(batch)
            yield take()
    yield take()


def explain(call: Call[wire.Explain]) -> Response:
    explanation = call.graph.explain(**arguments(call.input), budget=Budget(cancel=call.cancel))
    return json_response({**explanation.to_json(), "text": explanation.render()})


def schema(call: Call[wire.SchemaInput]) -> Response:
    return json_response({"schema_source": call.graph.schema.read(**arguments(call.input))})


def branches(call: Call[wire.NoInput]) -> Response:
    return json_response({"branches": call.graph.branches.list()})


def commits(call: Call[wire.Commits]) -> Response:
    return json_response({"commits": [commit.to_json() for commit in call.graph.commits(**arguments(call.input))]})


def commit(call: Call[wire.BranchInput]) -> Response:
    return json_response(call.graph.commit(call.path["commit_id"], call.input.branch).to_json())


def entity(call: Call[wire.GetEntity]) -> Response:
    """Return an entity as rows of a query, of which there is at most one: Arrow keeps the types of its values."""
    request = call.input
    view = session_of(call.graph).view(request.branch, request.at, names=request.names)
    result = find_entity(view, request.type, request.key)
    target: dict[str, object] = {"branch": request.branch}
    return rows_response(call, result, target if request.at is None else {**target, "at": request.at})


def tags(call: Call[wire.NoInput]) -> Response:
    return json_response({"tags": [tag.to_json() for tag in call.graph.tags.list()]})


def diff(call: Call[wire.Diff]) -> Response:
    difference = call.graph.diff(**arguments(call.input))
    if difference.changes.num_rows <= CHANGE_WINDOW_ROWS:
        return json_response(difference.to_json())
    return Response(difference.json_chunks())


def operation(call: Call[wire.NoInput]) -> Response:
    """Return the outcome of a write whose response was lost."""
    # Checked before the history, so that a write that commits in between is found there.
    is_in_flight = call.path["operation_id"].strip() in call.served.in_flight_operations
    operation = call.graph.operation(call.path["operation_id"])
    if is_in_flight and operation.commit is None:
        operation = replace(operation, outcome="pending")
    return json_response(operation.to_json())


def export(call: Call[wire.Export]) -> Response:
    return _stream(call, lambda: call.graph.export(**arguments(call.input)), wire.EXPORT_MEDIA[call.input.format])


def baseline(call: Call[wire.Baseline]) -> Response:
    return _stream(call, lambda: call.graph.baseline(**arguments(call.input)))


def _stream(call: Call[Any], start: Callable[[], Iterator[bytes]], media: str = wire.NDJSON) -> Response:
    """Return a streamed response that holds an export slot until it ends."""
    release = call.served.exports.take(call.caller)
    try:
        chunks = start()
    except BaseException:
        release()
        raise
    return Response(chunks, media, end=release)


def commit_changes(call: Call[wire.CommitChanges]) -> Response:
    commit_id = call.path["commit_id"]
    try:
        page = call.graph.commit_changes(commit_id, **arguments(call.input))
    except PolicyDenied:
        # Do not reveal that the commit exists to actors that may not read its branch.
        raise unknown_commit(CommitId(commit_id)) from None
    return json_response(page.to_json())
