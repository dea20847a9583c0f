"""From the answers of routes to the values that an opened graph returns.

Pure. What belongs to the engine is imported when an answer needs it, so connecting is light.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import orjson

from omnigraph import errors
from omnigraph.client.request import Reply
from omnigraph.client.values import Commit, SchemaPlan
from omnigraph.errors import ERRORS, Effect, GraphError, OmniGraphError, StorageError, StorageKind
from omnigraph.ids import CommitId
from omnigraph.server import wire

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.engine.changes import ChangeSet, CommitPage, FeedPage
    from omnigraph.engine.changes.commit_diff import Block
    from omnigraph.engine.merge import MergeReceipt
    from omnigraph.engine.query.explain import Explanation, OperatorReport
    from omnigraph.engine.query.result import Result
    from omnigraph.engine.schema_apply import SchemaReceipt
    from omnigraph.engine.write.write_receipts import IngestReceipt, MutationReceipt
    from omnigraph.lang.migrate import Step


def result(reply: Reply) -> Result:
    """Return the rows of a query, from an Arrow stream or from JSON, whose types are then guessed from the values."""
    import pyarrow as pa

    from omnigraph.engine.query.result import Result

    if reply.headers.get("content-type", "").startswith(wire.ARROW):
        table = pa.ipc.open_stream(reply.body).read_all()
        name, branch = (unquote(reply.headers[header.lower()]) for header in (wire.QUERY_NAME, wire.BRANCH))
        return Result(table, name, branch, reply.headers[wire.COMMIT_ID.lower()] or None)
    told = reply.json()
    columns = {name: [row[name] for row in told["rows"]] for name in told["columns"]}
    return Result(
        pa.table(columns), told["query_name"], told["target"].get("branch", "main"), told.get("graph_commit_id")
    )


def explanation(reply: Reply) -> Explanation:
    from omnigraph.engine.query.explain import Explanation

    told = reply.json()
    totals = {name: value for name, value in told.items() if name not in ("query", "plan", "text")}
    return Explanation(told["query"], tuple(map(_operator, told["plan"])), totals)


def _operator(told: Mapping[str, Any]) -> OperatorReport:
    from omnigraph.engine.query.explain import OperatorReport

    actual = {name: value for name, value in told.items() if name not in ("operator", "estimated_rows", "inner")}
    return OperatorReport(
        told["operator"], told["estimated_rows"], actual, tuple(map(_operator, told.get("inner", ())))
    )


def mutated(reply: Reply) -> MutationReceipt:
    from omnigraph.engine.write.write_receipts import MutationReceipt

    told = reply.json()
    counts = told["affected_nodes"], told["affected_edges"]
    return MutationReceipt(told["branch"], told["query_name"], *counts, _commit(told["commit"]), told["actor_id"])


def ingested(reply: Reply) -> IngestReceipt:
    from omnigraph.engine.write.write_receipts import IngestReceipt

    told = reply.json()
    nodes, edges = ({one["name"]: one["entities_loaded"] for one in told[kind]} for kind in ("nodes", "edges"))
    branches = told["branch"], told["base_branch"], told["branch_created"]
    return IngestReceipt(*branches, told["mode"], nodes, edges, _commit(told["commit"]), told["actor_id"])


def merged(reply: Reply) -> MergeReceipt:
    from omnigraph.engine.merge import MergeReceipt
    from omnigraph.engine.merge.conflicts import Conflict
    from omnigraph.engine.merge.merge_receipts import Outcome, TypeCount
    from omnigraph.engine.merge.row_merge import Kind

    told = reply.json()
    conflicts = tuple(
        Conflict(**one | {"kind": Kind(one["kind"]), "properties": tuple(one["properties"])})
        for one in told["conflicts"]
    )
    return MergeReceipt(
        told["source"],
        told["target"],
        Outcome(told["outcome"]),
        tuple(map(CommitId, told["base_commit_ids"])),
        _commit(told["commit"]),
        tuple(TypeCount(**one) for one in told["types"]),
        conflicts,
        told["dry_run"],
        told["actor_id"],
        told["branch_deleted"],
        told["branch_delete_error"],
    )


def schema_applied(reply: Reply) -> SchemaReceipt:
    from omnigraph.engine.schema_apply import SchemaReceipt

    told = reply.json()
    return SchemaReceipt(
        told["supported"],
        told["applied"],
        told["graph_manifest_version"],
        tuple(map(_step, told["steps"])),
        _commit(told["commit"]),
        tuple(told["purge_pending"]),
    )


def schema_plan(reply: Reply) -> SchemaPlan:
    told = reply.json()
    return SchemaPlan(told["supported"], tuple(told["steps"]))


def _step(told: Mapping[str, Any]) -> Step:
    """Return a step of a migration; only supported ones are ever applied."""
    from omnigraph.lang.migrate import Step

    is_property = "property" in told["kind"] or told["kind"] == "extend_enum"
    new_name = told.get("to", told.get("name"))
    return Step(
        told["kind"],
        told["type_kind"],
        told.get("type_name", new_name),
        property_name=told.get("property_name", new_name) if is_property else None,
        old_name=told.get("from"),
        property_type=told.get("property_type"),
        constraint=told.get("constraint"),
        added_values=tuple(told.get("added_values", ())),
        mode=told.get("mode"),
    )


def difference(reply: Reply) -> ChangeSet:
    from omnigraph.engine.changes import ChangeSet

    told = reply.json()
    versions = told["from_graph_manifest_version"], told["to_graph_manifest_version"]
    return ChangeSet(*versions, told.get("graph_branch"), _change_table(told["changes"]))


def _change_table(changes: list[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    from omnigraph.engine.changes.state_diff import CHANGE_SCHEMA

    rows = [one | one.get("endpoints", {}) for one in changes]
    return pa.Table.from_pylist(rows, CHANGE_SCHEMA)


def commit_page(reply: Reply) -> CommitPage:
    from omnigraph.engine.changes import CommitPage

    told = reply.json()
    return CommitPage(_block(told), told.get("next_page_token"))


def feed_page(reply: Reply) -> FeedPage:
    from omnigraph.engine.changes import FeedPage

    told = reply.json()
    ends = told.get("cursor"), told.get("caught_up"), told.get("next_page_token")
    return FeedPage(tuple(map(_block, told["blocks"])), *ends)


def _block(told: Mapping[str, Any]) -> Block:
    import pyarrow as pa

    from omnigraph.engine.changes.commit_diff import Block

    texts: Any = pa.array([orjson.dumps(one).decode() for one in told["changes"]], pa.string())
    return Block(told["cause"], (texts,) if len(texts) else ())


def _commit(told: Mapping[str, Any] | None) -> Any:
    # Receipts are typed by the commit of an opened graph, which is this one but for how it names its branch.
    return None if told is None else cast(Any, Commit.of(told))


_CLASSES: Mapping[str, type[OmniGraphError]] = {
    one.code: one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, OmniGraphError) and "code" in vars(one) and one is not OmniGraphError
}


def refusal(reply: Reply, source: str | None = None, *, is_write: bool = False) -> OmniGraphError:
    """Return the error that a reply tells; `source` is the text that was sent, for diagnostics to point into."""
    try:
        told = orjson.loads(reply.body)
        code, message = told["omnigraph_code"], told["error"]
        effect, context = Effect(told["effect"]), dict(told["context"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return foreign(reply, is_write=is_write)
    if code == "language.rejected":
        return _language_error(message, effect, context, source)
    if code == StorageError.code:
        kind = StorageKind(context.pop("kind", StorageKind.UNKNOWN))
        return StorageError(message, effect=effect, kind=kind, **context)
    if code in _CLASSES:
        return _CLASSES[code](message, effect=effect, **context)
    if code in ERRORS:
        return GraphError(message, code=code, effect=effect, **context)
    return OmniGraphError(f"{message} (the server calls it `{code}`)", effect=effect, **context)


def foreign(reply: Reply, *, is_write: bool) -> OmniGraphError:
    """Return the error for an answer that none of our servers gives."""
    return GraphError(
        f"the answer, with status {reply.status}, is not one of an OmniGraph server; check the address",
        code="server.unreachable",
        effect=Effect.UNKNOWN if is_write and reply.status >= 500 else Effect.NONE,
        status=reply.status,
    )


def _language_error(message: str, effect: Effect, context: dict[str, Any], source: str | None) -> OmniGraphError:
    from omnigraph.lang.diagnostic import LanguageError

    found = tuple(_diagnostic(one, source) for one in context.pop("diagnostics", ()))
    return LanguageError(message, effect=effect, diagnostics=found, **context)


def _diagnostic(told: Mapping[str, Any], source: str | None) -> Any:
    from omnigraph.lang.diagnostic import Diagnostic, Severity
    from omnigraph.lang.source import Source, Span

    # Of a text that is on the server alone, the line that was found wrong is known.
    text = source if source is not None else "\n" * (told["line"] - 1) + told["source_line"]
    lines = text.split("\n")

    def offset(line: int, column: int) -> int:
        return min(sum(len(one) + 1 for one in lines[: line - 1]) + column - 1, len(text))

    span = Span(offset(told["line"], told["column"]), offset(told["end_line"], told["end_column"]))
    return Diagnostic(
        told["code"], told["message"], Source(told["file"], text), span, told["hint"], Severity(told["severity"])
    )
