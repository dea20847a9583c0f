"""Parses responses into the values and errors that an opened graph returns or raises.

Pure. Engine types are imported on use, so that connecting is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

import orjson

from omnigraph import errors
from omnigraph.client.request import Response
from omnigraph.errors import ERRORS, Effect, GraphError, OmniGraphError, StorageError, StorageKind
from omnigraph.ids import new_ulid
from omnigraph.public_values import PublicValue
from omnigraph.server import wire

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.engine.changes import ChangeSet, CommitPage, FeedPage
    from omnigraph.engine.changes.commit_diff import Block
    from omnigraph.engine.query.explain import Explanation, OperatorReport
    from omnigraph.engine.query.result import Result
    from omnigraph.engine.schema import SchemaReceipt
    from omnigraph.lang.catalog import Catalog, EdgeType, NodeType
    from omnigraph.lang.migrate import SchemaPlan

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
    """Return the only row of a result, or None."""
    rows = parse_result(response).rows()
    return rows[0] if rows else None


def parse_catalog(response: Response) -> Catalog:
    """Compile the text of a schema; identities of types are those of the graph only on its server."""
    from omnigraph.lang.diagnostic import Source
    from omnigraph.lang.schema import compile_schema

    return compile_schema(Source("schema.pg", response.json()["schema_source"]), domain=new_ulid()).catalog


def parse_types(response: Response) -> tuple[NodeType | EdgeType, ...]:
    return parse_catalog(response).types


def parse_explanation(response: Response) -> Explanation:
    from omnigraph.engine.query.explain import Explanation

    data = response.json()
    totals = {name: value for name, value in data.items() if name not in ("query", "plan", "text")}
    return Explanation(data["query"], tuple(map(_parse_operator, data["plan"])), totals)


def _parse_operator(data: Mapping[str, Any]) -> OperatorReport:
    from omnigraph.engine.query.explain import OperatorReport

    actual = {name: value for name, value in data.items() if name not in ("operator", "estimated_rows", "inner")}
    return OperatorReport(
        data["operator"], data["estimated_rows"], actual, tuple(map(_parse_operator, data.get("inner", ())))
    )


def parse_as(kind: type[V]) -> Callable[[Response], V]:
    """Return the parser of responses that hold one public value."""
    return lambda response: kind.from_json(response.json())


def parse_schema_receipt(response: Response) -> SchemaReceipt:
    from omnigraph.engine.schema import SchemaReceipt

    return SchemaReceipt.from_json(response.json())


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
    if isinstance(item, type)
    and issubclass(item, OmniGraphError)
    and "code" in vars(item)
    and item is not OmniGraphError
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
