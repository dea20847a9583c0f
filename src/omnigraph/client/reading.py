"""From the answers of routes to the values that an opened graph returns.

Pure. What belongs to the engine is imported when an answer needs it, so connecting is light.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import orjson

from omnigraph.client.call import Reply
from omnigraph.client.values import Commit, SchemaPlan
from omnigraph.ids import CommitId
from omnigraph.server import wire

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.engine.changes import ChangeSet, CommitPage, FeedPage
    from omnigraph.engine.changes.commit import Block
    from omnigraph.engine.merge import MergeReceipt
    from omnigraph.engine.read import Explanation, Result
    from omnigraph.engine.read.explain import Operator
    from omnigraph.engine.schema import SchemaReceipt
    from omnigraph.engine.write.receipt import IngestReceipt, MutationReceipt
    from omnigraph.lang.migrate import Step


def result(reply: Reply) -> Result:
    """Return the rows of a query, from an Arrow stream or from JSON, whose types are then guessed from the values."""
    import pyarrow as pa

    from omnigraph.engine.read.result import Result

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
    from omnigraph.engine.read.explain import Explanation

    told = reply.json()
    totals = {name: value for name, value in told.items() if name not in ("query", "plan", "text")}
    return Explanation(told["query"], tuple(map(_operator, told["plan"])), totals)


def _operator(told: Mapping[str, Any]) -> Operator:
    from omnigraph.engine.read.explain import Operator

    actual = {name: value for name, value in told.items() if name not in ("operator", "estimated_rows", "inner")}
    return Operator(told["operator"], told["estimated_rows"], actual, tuple(map(_operator, told.get("inner", ()))))


def mutated(reply: Reply) -> MutationReceipt:
    from omnigraph.engine.write.receipt import MutationReceipt

    told = reply.json()
    counts = told["affected_nodes"], told["affected_edges"]
    return MutationReceipt(told["branch"], told["query_name"], *counts, _commit(told["commit"]), told["actor_id"])


def ingested(reply: Reply) -> IngestReceipt:
    from omnigraph.engine.write.receipt import IngestReceipt

    told = reply.json()
    nodes, edges = ({one["name"]: one["entities_loaded"] for one in told[kind]} for kind in ("nodes", "edges"))
    branches = told["branch"], told["base_branch"], told["branch_created"]
    return IngestReceipt(*branches, told["mode"], nodes, edges, _commit(told["commit"]), told["actor_id"])


def merged(reply: Reply) -> MergeReceipt:
    from omnigraph.engine.merge import MergeReceipt
    from omnigraph.engine.merge.conflict import Conflict
    from omnigraph.engine.merge.receipt import Outcome, TypeCount
    from omnigraph.engine.merge.rows import Kind

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
    from omnigraph.engine.schema import SchemaReceipt

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

    from omnigraph.engine.changes.changeset import CHANGE_SCHEMA

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

    from omnigraph.engine.changes.commit import Block

    texts: Any = pa.array([orjson.dumps(one).decode() for one in told["changes"]], pa.string())
    return Block(told["cause"], (texts,) if len(texts) else ())


def _commit(told: Mapping[str, Any] | None) -> Any:
    # Receipts are typed by the commit of an opened graph, which is this one but for how it names its branch.
    return None if told is None else cast(Any, Commit.of(told))
