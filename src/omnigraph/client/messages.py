"""HTTP requests as values, and the parsers that turn responses into the values and errors of an opened graph.

Pure; shared by the blocking and asynchronous clients. Engine types are imported on use, so that connecting is fast.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload
from urllib.parse import unquote

import orjson

from omnigraph import errors, wire
from omnigraph.errors import ERRORS, Effect, GraphError, OmniGraphError, StorageError, StorageKind, UsageError
from omnigraph.ids import new_ulid
from omnigraph.part_protocols import AsOf
from omnigraph.public_values import PublicValue
from omnigraph.wire import JSON, OPERATION_ID, SNAPSHOT_ID, TO_WIRE

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.engine.changes import ChangeSet, CommitPage, FeedPage
    from omnigraph.engine.changes.commit_diff import Block
    from omnigraph.engine.query.physical_plan import Explanation, OperatorReport
    from omnigraph.engine.query.result import Result
    from omnigraph.lang.catalog import Catalog
    from omnigraph.lang.migrate import SchemaPlan

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request; `path` is relative to the graph's URL and escaped."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    # A file is sent in chunks, and read again for another attempt.
    body: bytes | Path | None = None
    # Seconds to wait for the response; None for the default of the transport.
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request and the parser of its response. `source` is the query text that error diagnostics refer to.

    `fallback` is run after an error response without a body: it repeats the error, or returns the result after all.
    """

    request: Request
    read: Callable[[Response], T]
    is_write: bool = False
    source: str | None = None
    fallback: Call[T] | None = None

    @property
    def operation_id(self) -> str | None:
        """The idempotency key of a write."""
        return self.request.headers.get(OPERATION_ID)


def wire_fields(value: Any) -> dict[str, Any]:
    """Convert a request dataclass to a JSON-ready dict, omitting `None` fields.

    >>> from omnigraph.wire import NewBranch
    >>> wire_fields(NewBranch(name="b", from_="main"))
    {'name': 'b', 'from': 'main'}
    """
    values = ((member.name, getattr(value, member.name)) for member in fields(value))
    return {TO_WIRE.get(name, name): member for name, member in values if member is not None}


def get(path: str, value: Any = None) -> Request:
    """Return a GET request; lists become repeated query parameters."""
    return Request("GET", path, _query_pairs(value))


def post(path: str, value: Any, headers: Mapping[str, str] | None = None) -> Request:
    return Request("POST", path, (), {"content-type": JSON, **(headers or {})}, encode(wire_fields(value)))


def post_data(path: str, value: Any, media: str, body: bytes | Path, seconds: float | None = None) -> Request:
    """Return a POST request with a data body and its input in the query string."""
    return Request("POST", path, _query_pairs(value), {"content-type": media}, body, seconds)


def encode(value: Any, option: int = 0) -> bytes:
    """Encode a value as JSON; bytes as base64 blobs.

    >>> encode({"photo": b"hi"})
    b'{"photo":"base64:aGk="}'
    """
    try:
        return orjson.dumps(value, default=_encode_value, option=option | orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        raise UsageError(f"the request cannot be encoded as JSON: {error}; convert the value to a string") from None


def with_operation_id(request: Request) -> Request:
    """Add a new operation id, so that the server applies the request at most once."""
    return replace(request, headers={**request.headers, OPERATION_ID: new_ulid()})


@overload
def state_text(at: None) -> None: ...
@overload
def state_text(at: AsOf) -> str | int: ...
def state_text(at: AsOf | None) -> str | int | None:
    """Return a state as JSON names it; None for the newest one.

    >>> state_text(datetime(2026, 1, 31)), state_text(7)
    ('2026-01-31T00:00:00+00:00', 7)
    """
    if not isinstance(at, datetime):
        return at
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).isoformat()


def _query_pairs(value: Any) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    return tuple(
        (name, str(item))
        for name, member in wire_fields(value).items()
        for item in (member if isinstance(member, list) else [member])
    )


def _encode_value(value: object) -> object:
    if isinstance(value, bytes):
        return f"base64:{b64encode(value).decode()}"
    raise TypeError(f"{type(value).__name__} has no JSON form")


V = TypeVar("V", bound=PublicValue)


def parse_result(response: Response) -> Result:
    """Return the rows of a query, from an Arrow stream or from JSON, whose types are then guessed from the values."""
    import pyarrow as pa

    from omnigraph.engine.query.result import Result

    if response.headers.get("content-type", "").startswith(wire.ARROW):
        table = pa.ipc.open_stream(response.body).read_all()
        name, branch = (unquote(response.headers[header.lower()]) for header in (wire.QUERY_NAME, wire.BRANCH))
        return Result(table, name, branch, response.headers[wire.COMMIT_ID.lower()] or None)
    data = response.json()
    columns = {name: [row[name] for row in data["rows"]] for name in data["columns"]}
    return Result(
        pa.table(columns), data["query_name"], data["target"].get("branch", "main"), data.get("graph_commit_id")
    )


def parse_entity(response: Response) -> dict[str, Any] | None:
    rows = parse_result(response).rows()
    return rows[0] if rows else None


def parse_catalog(response: Response) -> Catalog:
    """Compile the text of a schema; identities of types are those of the graph only on its server."""
    from omnigraph.lang.diagnostic import Source
    from omnigraph.lang.schema import compile_schema

    return compile_schema(Source("schema.pg", response.json()["schema_source"]), domain=new_ulid()).catalog


def parse_explanation(response: Response) -> Explanation:
    from omnigraph.engine.query.physical_plan import Explanation

    data = response.json()
    totals = {name: value for name, value in data.items() if name not in ("query", "plan", "text")}
    return Explanation(data["query"], tuple(map(_parse_operator, data["plan"])), totals)


def _parse_operator(data: Mapping[str, Any]) -> OperatorReport:
    from omnigraph.engine.query.physical_plan import OperatorReport

    actual = {name: value for name, value in data.items() if name not in ("operator", "estimated_rows", "inner")}
    return OperatorReport(
        data["operator"], data["estimated_rows"], actual, tuple(map(_parse_operator, data.get("inner", ())))
    )


def parse_as(kind: type[V]) -> Callable[[Response], V]:
    """Return the parser of responses that hold one public value."""
    return lambda response: kind.from_json(response.json())


def parse_member(name: str, kind: type[PublicValue] | None = None) -> Callable[[Response], Any]:
    """Return the parser of a member of responses; of a list of public values if `kind` is given."""
    if kind is None:
        return lambda response: response.json()[name]
    return lambda response: [kind.from_json(item) for item in response.json()[name]]


def parse_schema_plan(response: Response) -> SchemaPlan:
    from omnigraph.lang.migrate import SchemaPlan

    return SchemaPlan.from_json(response.json())


def parse_diff(response: Response) -> ChangeSet:
    from omnigraph.engine.changes import ChangeSet

    data = response.json()
    versions = data["from_graph_manifest_version"], data["to_graph_manifest_version"]
    images = tuple(data["images"]) if "images" in data else None
    return ChangeSet(*versions, data.get("graph_branch"), _change_table(data["changes"]), images)


def _change_table(changes: list[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    from omnigraph.engine.changes.state_diff import CHANGE_SCHEMA

    rows = [item | item.get("endpoints", {}) for item in changes]
    return pa.Table.from_pylist(rows, CHANGE_SCHEMA)


def parse_commit_page(response: Response) -> CommitPage:
    from omnigraph.engine.changes import CommitPage

    data = response.json()
    return CommitPage(_parse_block(data), data.get("next_page_token"))


def parse_feed_page(response: Response) -> FeedPage:
    from omnigraph.engine.changes import FeedPage

    data = response.json()
    ends = data.get("cursor"), data.get("caught_up"), data.get("next_page_token")
    return FeedPage(tuple(map(_parse_block, data["blocks"])), *ends)


def _parse_block(data: Mapping[str, Any]) -> Block:
    import pyarrow as pa

    from omnigraph.engine.changes.commit_diff import Block
    from omnigraph.lang.migrate import Step

    texts: Any = pa.array([orjson.dumps(item).decode() for item in data["changes"]], pa.string())
    steps = tuple(map(Step.from_json, data.get("schema", {}).get("steps", ())))
    return Block(data["cause"], (texts,) if len(texts) else (), steps)


_ERROR_CLASSES: Mapping[str, type[OmniGraphError]] = {
    item.code: item
    for item in vars(errors).values()
    if isinstance(item, type) and issubclass(item, OmniGraphError) and item is not OmniGraphError
    if "code" in vars(item)
}


def parse_error(response: Response, source: str | None = None, *, is_write: bool = False) -> OmniGraphError:
    """Return the error of a response; `source` is the query text that diagnostics refer to."""
    try:
        data = orjson.loads(response.body)
        code, message = data["omnigraph_code"], data["error"]
        effect, context = Effect(data["effect"]), dict(data["context"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return unrecognized_response(response, is_write=is_write)
    if code == "language.rejected":
        return _parse_language_error(message, effect, context, source)
    if code == StorageError.code:
        kind = StorageKind(context.pop("kind", StorageKind.UNKNOWN))
        return StorageError(message, effect=effect, kind=kind, **context)
    if code in _ERROR_CLASSES:
        return _ERROR_CLASSES[code](message, effect=effect, **context)
    if code in ERRORS:
        return GraphError(message, code=code, effect=effect, **context)
    return OmniGraphError(f"{message} (the server calls it `{code}`)", effect=effect, **context)


def unrecognized_response(response: Response, *, is_write: bool) -> OmniGraphError:
    """Return the error for a response that is not from an OmniGraph server."""
    return GraphError(
        f"the response, with status {response.status}, is not from an OmniGraph server; check the address",
        code="server.unreachable",
        effect=Effect.UNKNOWN if is_write and response.status >= 500 else Effect.NONE,
        status=response.status,
    )


def _parse_language_error(message: str, effect: Effect, context: dict[str, Any], source: str | None) -> OmniGraphError:
    from omnigraph.lang.diagnostic import LanguageError

    diagnostics = tuple(_parse_diagnostic(item, source) for item in context.pop("diagnostics", ()))
    return LanguageError(message, effect=effect, diagnostics=diagnostics, **context)


def _parse_diagnostic(data: Mapping[str, Any], source: str | None) -> Any:
    from omnigraph.lang.diagnostic import Diagnostic, Severity, Source, Span

    # Of a text that is on the server alone, the line that was found wrong is known.
    text = source if source is not None else "\n" * (data["line"] - 1) + data["source_line"]
    lines = text.split("\n")

    def offset(line: int, column: int) -> int:
        return min(sum(len(item) + 1 for item in lines[: line - 1]) + column - 1, len(text))

    span = Span(offset(data["line"], data["column"]), offset(data["end_line"], data["end_column"]))
    return Diagnostic(
        data["code"], data["message"], Source(data["file"], text), span, data["hint"], Severity(data["severity"])
    )


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """Length, ETag and snapshot of a blob; `selector` are the parameters that address it."""

    snapshot_commit_id: str | None
    length: int
    etag: str
    selector: Mapping[str, str]

    def _range_call(self, start: int, end: int | None) -> Call[bytes] | None:
        """Return the call for a range of bytes; None for an empty range."""
        from omnigraph.engine.entity_lookup import end_of_range

        end = end_of_range(self.length, start, end)
        if start == end:
            return None
        return Call(
            _range_request(self.selector, {"snapshot": self.snapshot_commit_id}, start, end),
            lambda response: response.body,
        )


def find_blob(
    kind: Callable[[str | None, int, str, Mapping[str, str]], T],
    which: Mapping[str, str],
    branch: str,
    at: AsOf | None,
    names: wire.Naming,
) -> Call[T]:
    """Return the call that finds a blob: HEAD, and since its errors have no body, a GET that raises them."""
    # Ranges are read from the commit that it was found at; the newest state has been asked with its own names.
    selector = {**which, "names": "then" if at is None else names}
    state = {"branch": branch, "at": state_text(at)}

    def parse_info(response: Response, length: str) -> T:
        headers = response.headers
        return kind(headers.get(SNAPSHOT_ID.lower()), int(length), headers.get("etag", ""), selector)

    probe = Call(
        _range_request(selector, state, 0, 1),
        lambda response: parse_info(response, response.headers["content-range"].rpartition("/")[2]),
    )
    return Call(
        Request("HEAD", "/blob", _selected_pairs(selector, state)),
        lambda response: parse_info(response, response.headers.get("content-length", "0")),
        fallback=probe,
    )


def _range_request(selector: Mapping[str, str], state: Mapping[str, Any], start: int, end: int) -> Request:
    return Request("GET", "/blob", _selected_pairs(selector, state), {"range": f"bytes={start}-{end - 1}"})


def _selected_pairs(selector: Mapping[str, str], state: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in {**selector, **state}.items() if value is not None)
