"""Routes that read a graph: queries, plans, schema, branches, commits, tags, differences, and what became of a write.

Thin: the graph knows how, and its policy who may.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from omnigraph.engine.history import describe_commits, describe_snapshot, describe_tag
from omnigraph.engine.query.budget import Budget
from omnigraph.engine.query.result import Result
from omnigraph.engine.session import AsOf
from omnigraph.limits import CHANGE_WINDOW_ROWS
from omnigraph.server import wire
from omnigraph.server.errors import dump
from omnigraph.server.responses import Answer, Call, json_answer, moment_of
from omnigraph.server.wire import ARROW

_NO_ROWS: Final = b'"rows":[]'


def snapshot(call: Call[wire.OfBranch]) -> Answer:
    return json_answer(describe_snapshot(call.graph.snapshot(call.given.branch.strip())))


def query(call: Call[wire.Query]) -> Answer:
    given = call.given
    branch, at = moment_of(given)
    result = _query(call, given, branch, at)
    return rows_answer(call, result, target_of(given, branch))


def read(call: Call[wire.Read]) -> Answer:
    """Answer a read as earlier releases did, whose answer has no commit."""
    given = call.given
    present = wire.Query(
        query=given.query_source,
        name=given.query_name,
        params=given.params,
        branch=given.branch,
        snapshot=given.snapshot,
    )
    branch, at = moment_of(present)
    result = _query(call, present, branch, at)
    description = describe_rows(result, target_of(present, branch))
    del description["graph_commit_id"]
    return json_rows_answer(result, description)


def _query(call: Call[Any], given: wire.Query, branch: str, at: AsOf | None) -> Result:
    return call.graph.query(
        given.query, given.name, given.params, branch, at, names=given.names, budget=Budget(cancel=call.cancel)
    )


def target_of(given: wire.Query | wire.Invoke, branch: str) -> dict[str, object]:
    """Return what was read, in the words of the request."""
    moment = {"snapshot": given.snapshot, "as_of": given.as_of}
    named: dict[str, object] = {name: value for name, value in moment.items() if value is not None}
    return named if isinstance(given.snapshot, str) else {"branch": branch, **named}


def rows_answer(call: Call[Any], result: Result, target: dict[str, object]) -> Answer:
    """Return rows as JSON or, if the caller takes that, as an Arrow stream."""
    if ARROW in (call.header("accept") or ""):
        told = {
            wire.QUERY_NAME: quote(result.query_name),
            wire.ROW_COUNT: str(len(result)),
            wire.BRANCH: quote(result.branch),
            wire.COMMIT_ID: result.graph_commit_id or "",
        }
        return _in_pieces(result, _arrow_chunks(result), ARROW, told)
    return json_rows_answer(result, describe_rows(result, target))


def describe_rows(result: Result, target: dict[str, object]) -> dict[str, object]:
    """Return the JSON that answers a query, without its rows."""
    return {
        "query_name": result.query_name,
        "target": target,
        "row_count": len(result),
        "columns": result.columns,
        "rows": [],
        "graph_commit_id": result.graph_commit_id,
    }


def json_rows_answer(result: Result, description: dict[str, object]) -> Answer:
    """Return a description of rows together with them."""
    return _in_pieces(result, _json_chunks(result, description), wire.JSON, {})


def _in_pieces(result: Result, chunks: Iterator[bytes], media: str, headers: dict[str, str]) -> Answer:
    """Return an answer that is sent as it is made; one of a single piece is made at once, which costs fewer turns."""
    return Answer(b"".join(chunks) if result.is_one_piece else chunks, media, headers=headers)


def _json_chunks(result: Result, answer: dict[str, object]) -> Iterator[bytes]:
    """Yield an answer with the rows of a result in the place of none."""
    # Inside of a text the quotes would be escaped, so this occurs once.
    head, _, tail = dump(answer).partition(_NO_ROWS)
    pieces = result.json_pieces()
    yield head + _NO_ROWS[:-1] + next(pieces, b"")
    yield from pieces
    yield b"]" + tail


class _Drain(io.RawIOBase):
    """A file that gives away what was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, part: Any) -> int:
        self._parts.append(bytes(part))
        return len(part)

    def take(self) -> bytes:
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def _arrow_chunks(result: Result) -> Iterator[bytes]:
    """Yield a result as an IPC stream, one batch at a time."""
    drain = _Drain()
    with pa.ipc.new_stream(pa.PythonFile(drain, mode="w"), result.to_arrow().schema) as writer:
        for batch in result.arrow_pieces():
            writer.write_batch(batch)
            yield drain.take()
    yield drain.take()


def explain(call: Call[wire.Explain]) -> Answer:
    given = call.given
    branch, at = moment_of(given)
    found = call.graph.explain(
        given.query,
        given.name,
        given.params,
        branch,
        at,
        names=given.names,
        profile=given.profile,
        budget=Budget(cancel=call.cancel),
    )
    return json_answer({**found.to_json(), "text": found.render()})


def schema(call: Call[wire.Nothing]) -> Answer:
    return json_answer({"schema_source": call.graph.schema.source})


def branches(call: Call[wire.Nothing]) -> Answer:
    return json_answer({"branches": call.graph.branches.list()})


def commits(call: Call[wire.Commits]) -> Answer:
    found = call.graph.commits(call.given.branch, limit=call.given.limit, before=call.given.before)
    return json_answer({"commits": describe_commits(call.graph.session, found)})


def commit(call: Call[wire.Nothing]) -> Answer:
    [shown] = describe_commits(call.graph.session, [call.graph.commit(call.path["commit_id"])])
    return json_answer(shown)


def tags(call: Call[wire.Nothing]) -> Answer:
    return json_answer({"tags": [describe_tag(one) for one in call.graph.tags.list()]})


def diff(call: Call[wire.Diff]) -> Answer:
    given = call.given
    found = call.graph.diff(
        given.from_,
        given.to,
        kinds=given.kind,
        types=given.type,
        ops=given.op,
        branch=given.branch,
        names=given.names,
    )
    if found.changes.num_rows <= CHANGE_WINDOW_ROWS:
        return json_answer(found.to_json())
    return Answer(found.json_chunks())


def operation(call: Call[wire.Nothing]) -> Answer:
    """Tell what became of a write whose answer was lost."""
    # Looked at before history is, where a write that ends in between is then found.
    is_under_way = call.path["operation_id"].strip() in call.hosted.under_way
    found = call.graph.operation(call.path["operation_id"])
    outcome = "pending" if is_under_way and found.commit is None else found.outcome
    shown = describe_commits(call.graph.session, [found.commit])[0] if found.commit else None
    return json_answer({"operation_id": found.operation_id, "outcome": outcome, "commit": shown})
