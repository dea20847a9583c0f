"""The table of all routes of a graph.

The application, OpenAPI and the documentation test are generated from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from omnigraph import wire
from omnigraph.engine.authorization import Scope, between, on_branch
from omnigraph.engine.write.write_authorization import missing_base
from omnigraph.graph import session_of
from omnigraph.limits import SERVER_BODY_BYTES_MAX, SERVER_LOAD_BODY_BYTES_MAX, SERVER_LOAD_STREAM_BYTES_MAX
from omnigraph.public_values import Commit, EntityLog, Operation, PropertyBlame
from omnigraph.server import answers
from omnigraph.server.handlers import reads, stored_queries, writes
from omnigraph.server.responses import Call, Handler, Response

Check = tuple[str, Scope]


def load_checks(call: Call[Any]) -> tuple[Check, ...]:
    """Return the actions that a load needs: `change` on its branch and, if that is missing, its creation."""
    request = call.input
    change: Check = ("change", on_branch(request.branch))
    base = None if request.from_ is None else missing_base(session_of(call.graph), request.branch, request.from_)
    return (change,) if base is None else (change, ("branch_create", between(base, request.branch)))


@dataclass(frozen=True, slots=True)
class Route:
    """A route: its input and response types, its policy action, and its handler.

    The graph authorizes. Only actors who may not do `action` on any branch are denied earlier, and `early_checks` run
    before a large body is read. `is_write`: limited per actor; `is_write_now` decides by the request. `masks` returns
    the error that replaces a denial of `action`. `successor` is the route that replaces a deprecated one.
    """

    method: Literal["GET", "HEAD", "POST", "DELETE"]
    path: str
    action: str
    handle: Handler
    summary: str
    takes: type = wire.NoInput
    answers: type | str = wire.JSON
    early_checks: Callable[[Call[Any]], tuple[Check, ...]] | None = None
    body: Literal["none", "json", "ndjson"] = "none"
    body_bytes_max: int = 0
    is_write: bool = False
    is_change: bool = False
    is_write_now: Callable[[Call[Any]], bool] | None = None
    masks: Callable[[], Exception] | None = None
    successor: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Headers of all its responses."""
        if self.successor is None:
            return {}
        return {"Deprecation": "true", "Link": f'<{self.successor}>; rel="successor-version"'}

    @property
    def may_commit(self) -> bool:
        """True if it can make a commit, and so accepts an operation id."""
        return (self.is_write and self.action in _COMMITTING) or self.action == "invoke_query"


_COMMITTING = frozenset({"change", "schema_apply", "branch_merge"})


@dataclass(frozen=True, slots=True)
class ServerRoute:
    """A GET route of the server itself; handlers get the service and the actor.

    `is_open` needs no token. `is_instant` runs on the event loop, because it never blocks. `page` is the response for
    requests that prefer HTML. `headers` are the names of headers that its responses may have.
    """

    path: str
    is_open: bool
    handle: Callable[[Any, str | None], Response]
    summary: str
    answers: type | str
    is_instant: bool = False
    page: Callable[[], Response] | None = None
    headers: tuple[str, ...] = ()


def _json(
    path: str, action: str, handle: Handler, summary: str, takes: type, response: type | str, **more: Any
) -> Route:
    options = {"body": "json", "body_bytes_max": SERVER_BODY_BYTES_MAX, **more}
    return Route("POST", f"/graphs/{{graph_id}}{path}", action, handle, summary, takes, response, **options)


def _get(
    path: str, action: str, handle: Handler, summary: str, takes: type, response: type | str, **more: Any
) -> Route:
    return Route("GET", f"/graphs/{{graph_id}}{path}", action, handle, summary, takes, response, **more)


def _write(path: str, action: str, handle: Handler, summary: str, takes: type, response: type, **more: Any) -> Route:
    return _json(path, action, handle, summary, takes, response, is_write=True, **more)


def _delete(path: str, action: str, handle: Handler, summary: str) -> Route:
    path = f"/graphs/{{graph_id}}{path}"
    return Route("DELETE", path, action, handle, summary, wire.NoInput, answers.NameGone, is_write=True)


ROUTES: tuple[Route, ...] = (
    _get("/snapshot", "read", reads.result_of("snapshot"), "The versions of all types on a branch, or in a past state.",
         wire.SnapshotInput, answers.Snapshot),
    _json("/query", "read", reads.query, "Run a query; JSON rows, or an Arrow stream if the request accepts one.",
          wire.Query, answers.Rows),
    _json("/read", "read", reads.read, "Run a query; the former name of `/query`, with its former member names.",
          wire.Read, answers.LegacyRows, successor="query"),
    _json("/explain", "read", reads.explain, "Show the plan of a query; `profile` runs it and adds measurements.",
          wire.Explain, answers.Plan),
    _write("/mutate", "change", writes.mutate, "Run a mutation, as one commit.",
           wire.Mutate, answers.Mutated),
    _write("/change", "change", writes.mutate, "Run a mutation; the former name of `/mutate`.",
           wire.Mutate, answers.Mutated, successor="mutate"),
    _write("/mutate/if-graph-commit", "change", writes.mutate_if,
           "Run a mutation if the head of the branch is still the commit in a header.",
           wire.Mutate, answers.Mutated),
    _get("/queries", "read", stored_queries.catalog, "List the stored queries.", wire.NoInput, answers.StoredQueries),
    _json("/queries/{name}", "invoke_query", stored_queries.invoke, "Call a stored query.",
          wire.Invoke, answers.Rows, is_write_now=stored_queries.is_mutation, masks=stored_queries.unknown_query),
    _json("/queries/{name}/if-graph-commit", "invoke_query", stored_queries.invoke_if,
          "Call a stored mutation if the head of the branch is still the commit in a header.",
          wire.Invoke, answers.Mutated, is_write_now=stored_queries.is_mutation, masks=stored_queries.unknown_query),
    _json("/entity", "read", reads.entity, "One entity by its type and key; JSON rows, or an Arrow stream.",
          wire.GetEntity, answers.Rows),
    _json("/log", "read", reads.result_of("log"), "The commits that changed one entity, newest first.",
          wire.LogEntity, EntityLog),
    _json("/blame", "read", reads.result_of("blame"), "The commit that last set each property of one entity.",
          wire.Entity, PropertyBlame),
    _get("/schema", "read", reads.schema, "The text of the accepted schema of a branch, or of a past state.",
         wire.SchemaInput, answers.SchemaSource),
    _json("/schema/plan", "schema_apply", reads.result_of("schema.plan"),
          "Show the steps to a new schema; changes nothing.", wire.NewSchema, answers.SchemaPlan),
    _write("/schema/apply", "schema_apply", writes.schema_apply, "Migrate a branch to a new schema, as one commit.",
           wire.ApplySchema, answers.SchemaApplied),
    _write("/load", "change", writes.load, "Load NDJSON records in a JSON string, as one commit.",
           wire.Load, answers.LoadedAt, body_bytes_max=SERVER_LOAD_BODY_BYTES_MAX),
    _write("/ingest", "change", writes.load, "Load NDJSON records; the former name of `/load`.",
           wire.Load, answers.LoadedAt, body_bytes_max=SERVER_LOAD_BODY_BYTES_MAX,
           successor="load"),
    Route("POST", "/graphs/{graph_id}/load/ndjson", "change", writes.load_lines,
          "Load the NDJSON records of the body, of any size, as one commit.", wire.LoadLines, answers.Loaded,
          early_checks=load_checks, body="ndjson", body_bytes_max=SERVER_LOAD_STREAM_BYTES_MAX, is_write=True),
    _json("/export", "export", reads.export,
          "Stream a graph as NDJSON that can be loaded again, or as GraphML, GEXF, DOT or Cypher.",
          wire.Export, wire.NDJSON),
    Route("HEAD", "/graphs/{graph_id}/blob", "read", reads.head, "The length and ETag of a blob.",
          wire.BlobInput, wire.BYTES),
    _get("/blob", "read", reads.get, "The bytes of a blob, or one range of them.", wire.BlobInput, wire.BYTES),
    _get("/branches", "read", reads.branches, "List the branches.", wire.NoInput, answers.BranchNames),
    _write("/branches", "branch_create", writes.create_branch, "Create a branch.", wire.NewBranch, answers.BranchMade),
    _write("/branches/merge", "branch_merge", writes.receipt_of("branches.merge"),
           "Merge a branch into another, as one commit.", wire.Merge, answers.Merged),
    _write("/branches/rename", "branch_create", writes.rename_branch, "Rename a branch.",
           wire.Rename, answers.BranchMade),
    _delete("/branches/{branch:path}", "branch_delete", writes.delete_branch, "Delete a branch."),
    _get("/commits", "read", reads.commits, "List the commits of a branch, newest first.",
         wire.Commits, answers.Commits),
    _get("/commits/{commit_id:path}/changes", "read", reads.commit_changes, "A page of the changes of a commit.",
         wire.CommitChanges, answers.CommitPage, is_change=True),
    _get("/commits/{commit_id:path}", "read", reads.commit, "One commit, by its id or any name of its state.",
         wire.BranchInput, Commit),
    _get("/changes", "read", reads.result_of("changes"), "The next page of the change feed of a branch.",
         wire.Changes, answers.FeedPage, is_change=True),
    _json("/changes/baseline", "export", reads.baseline,
          "Stream a branch as NDJSON; the last record has the cursor at which its change feed continues.",
          wire.Baseline, wire.NDJSON, is_change=True),
    _json("/diff", "read", reads.diff, "The differences between two states.", wire.Diff, answers.Difference),
    _write("/revert", "change", writes.receipt_of("revert"), "Revert a commit, as a new commit.",
           wire.Replay, answers.Merged),
    _write("/cherry-pick", "change", writes.receipt_of("cherry_pick"),
           "Apply the changes of a commit again, as a new commit.", wire.Replay, answers.Merged),
    _get("/tags", "read", reads.tags, "List the tags.", wire.NoInput, answers.Tags),
    _write("/tags", "tag_create", writes.create_tag, "Tag a commit, which protects it from cleanup.",
           wire.NewTag, answers.TagMade),
    _delete("/tags/{tag:path}", "tag_delete", writes.delete_tag, "Delete a tag."),
    _get("/operations/{operation_id}", "read", reads.operation, "The outcome of a write, by its operation id.",
         wire.NoInput, Operation),
)  # fmt: skip
