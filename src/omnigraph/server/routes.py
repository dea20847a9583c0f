"""The table of all routes of a graph.

The application, OpenAPI and the documentation test are generated from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from omnigraph.engine.authorization import Scope, between, on_branch, on_target
from omnigraph.engine.write.write_authorization import missing_base
from omnigraph.graph import session_of
from omnigraph.limits import SERVER_BODY_BYTES_MAX, SERVER_LOAD_BODY_BYTES_MAX
from omnigraph.server import answers, wire
from omnigraph.server.handlers import blobs, feeds, reads, stored_queries, writes
from omnigraph.server.responses import Call, Handler, Response

Check = tuple[str, Scope]
Checks = Callable[[Call[Any]], tuple[Check, ...]]


def no_checks(call: Call[Any]) -> tuple[Check, ...]:
    """No checks here: the graph authorizes."""
    return ()


def check_branch(action: str) -> Checks:
    """Check the branch that the request names; a state is authorized by the graph."""

    def checks(call: Call[Any]) -> tuple[Check, ...]:
        request = call.input
        if isinstance(getattr(request, "snapshot", None), str):
            return ()
        return ((action, on_branch(request.branch or "main")),)

    return checks


def load_checks(call: Call[Any]) -> tuple[Check, ...]:
    """Check a load by its branch and, if that is missing, by its creation."""
    request = call.input
    change: Check = ("change", on_branch(request.branch))
    base = None if request.from_ is None else missing_base(session_of(call.graph), request.branch, request.from_)
    return (change,) if base is None else (change, ("branch_create", between(base, request.branch)))


def invoke_checks(call: Call[Any]) -> tuple[Check, ...]:
    action = "change" if stored_queries.is_mutation(call) else "read"
    return check_branch(action)(call)


@dataclass(frozen=True, slots=True)
class Route:
    """A route: its input and response types, its policy action, and its handler.

    `action` is checked before the body is read; `checks` add the branch once the request is parsed. `is_write`: limited
    per actor. `looks_up`: the checks read the graph, so they run in a thread. `masks` returns the error that replaces a
    denial of `action`. `successor` is the route that replaces a deprecated one.
    """

    method: Literal["GET", "HEAD", "POST", "DELETE"]
    path: str
    action: str
    handle: Handler
    summary: str
    takes: type = wire.NoInput
    answers: type | str = wire.JSON
    checks: Checks = no_checks
    body: Literal["none", "json", "ndjson"] = "none"
    body_bytes_max: int = 0
    is_write: bool = False
    is_change: bool = False
    looks_up: bool = False
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

    `is_open` needs no token. `is_instant` runs on the event loop, because it never blocks.
    """

    path: str
    is_open: bool
    handle: Callable[[Any, str | None], Response]
    summary: str
    answers: type | str
    is_instant: bool = False


def _json(
    path: str, action: str, handle: Handler, summary: str, takes: type, response: type | str, **more: Any
) -> Route:
    options = {"body": "json", "body_bytes_max": SERVER_BODY_BYTES_MAX, **more}
    return Route("POST", f"/graphs/{{graph_id}}{path}", action, handle, summary, takes, response, **options)


def _get(
    path: str, action: str, handle: Handler, summary: str, takes: type, response: type | str, **more: Any
) -> Route:
    return Route("GET", f"/graphs/{{graph_id}}{path}", action, handle, summary, takes, response, **more)


def _write(
    path: str, action: str, handle: Handler, summary: str, takes: type, response: type, checks: Checks, **more: Any
) -> Route:
    return _json(path, action, handle, summary, takes, response, checks=checks, is_write=True, **more)


def _delete(path: str, action: str, handle: Handler, summary: str, checks: Checks) -> Route:
    path = f"/graphs/{{graph_id}}{path}"
    return Route("DELETE", path, action, handle, summary, wire.NoInput, answers.NameGone, checks=checks, is_write=True)


def _target(action: str, name: Callable[[Call[Any]], str]) -> Checks:
    return lambda call: ((action, on_target(name(call))),)


ROUTES: tuple[Route, ...] = (
    _get("/snapshot", "read", reads.snapshot, "Which version of which type a branch is made of.",
         wire.BranchInput, answers.Snapshot, checks=check_branch("read")),
    _json("/query", "read", reads.query, "Run a query; JSON rows, or an Arrow stream if the request accepts one.",
          wire.Query, answers.Rows, checks=check_branch("read")),
    _json("/read", "read", reads.read, "Run a query; `/query` with the names that earlier releases had.",
          wire.Read, answers.LegacyRows, checks=check_branch("read"), successor="query"),
    _json("/explain", "read", reads.explain, "Show the plan of a query; `profile` runs it and adds measurements.",
          wire.Explain, answers.Plan, checks=check_branch("read")),
    _write("/mutate", "change", writes.mutate, "Run a mutation, as one commit.",
           wire.Mutate, answers.Mutated, check_branch("change")),
    _write("/change", "change", writes.mutate, "Run a mutation; the former name of `/mutate`.",
           wire.Mutate, answers.Mutated, check_branch("change"), successor="mutate"),
    _write("/mutate/if-graph-commit", "change", writes.mutate_if,
           "Run a mutation if the branch is still at the commit that a header names.",
           wire.Mutate, answers.Mutated, check_branch("change")),
    _get("/queries", "read", stored_queries.catalog, "List the stored queries.", wire.NoInput, answers.StoredQueries,
         checks=lambda call: (("read", on_branch("main")),)),
    _json("/queries/{name}", "invoke_query", stored_queries.invoke, "Call a stored query.",
          wire.Invoke, answers.Rows, checks=invoke_checks, masks=stored_queries.unknown_query),
    _json("/queries/{name}/if-graph-commit", "invoke_query", stored_queries.invoke_if,
          "Call a stored mutation if the branch is still at the commit that a header names.",
          wire.Invoke, answers.Mutated, checks=invoke_checks, masks=stored_queries.unknown_query),
    _get("/schema", "read", reads.schema, "The text of the accepted schema.", wire.NoInput, answers.SchemaSource),
    _json("/schema/plan", "schema_apply", writes.schema_plan, "Show the steps to a new schema; changes nothing.",
          wire.NewSchema, answers.SchemaPlan, checks=_target("schema_apply", lambda call: "main")),
    _write("/schema/apply", "schema_apply", writes.schema_apply, "Migrate a graph to a new schema, as one commit.",
           wire.NewSchema, answers.SchemaApplied, _target("schema_apply", lambda call: "main")),
    _write("/load", "change", writes.load, "Write NDJSON records that come as a JSON text, as one commit.",
           wire.Load, answers.LoadedAt, load_checks, body_bytes_max=SERVER_LOAD_BODY_BYTES_MAX, looks_up=True),
    _write("/ingest", "change", writes.load, "Write NDJSON records; the former name of `/load`.",
           wire.Load, answers.LoadedAt, load_checks, body_bytes_max=SERVER_LOAD_BODY_BYTES_MAX, looks_up=True,
           successor="load"),
    Route("POST", "/graphs/{graph_id}/load/ndjson", "change", writes.load_lines,
          "Write the NDJSON records of the body, as one commit.", wire.LoadLines, answers.Loaded,
          checks=load_checks, body="ndjson", body_bytes_max=SERVER_LOAD_BODY_BYTES_MAX, is_write=True, looks_up=True),
    _json("/export", "export", feeds.export, "Stream a graph as NDJSON that can be loaded again.",
          wire.Export, wire.NDJSON, checks=check_branch("export")),
    Route("HEAD", "/graphs/{graph_id}/blob", "read", blobs.head, "The length and ETag of a blob.",
          wire.BlobInput, wire.BYTES, checks=check_branch("read")),
    _get("/blob", "read", blobs.get, "The bytes of a blob, whole or one range of them.", wire.BlobInput, wire.BYTES,
         checks=check_branch("read")),
    _get("/branches", "read", reads.branches, "List the branches.", wire.NoInput, answers.BranchNames),
    _write("/branches", "branch_create", writes.create_branch, "Create a branch.", wire.NewBranch, answers.BranchMade,
           lambda call: (("branch_create", between(call.input.from_, call.input.name)),)),
    _write("/branches/merge", "branch_merge", writes.merge, "Merge a branch into another, as one commit.",
           wire.Merge, answers.Merged,
           lambda call: (("branch_merge", between(call.input.source, call.input.target)),)),
    _write("/branches/rename", "branch_create", writes.rename_branch, "Rename a branch.",
           wire.Rename, answers.BranchMade, _target("branch_delete", lambda call: call.input.name)),
    _delete("/branches/{branch:path}", "branch_delete", writes.delete_branch, "Delete a branch.",
            _target("branch_delete", lambda call: call.path["branch"])),
    _get("/commits", "read", reads.commits, "List the commits of a branch, newest first.",
         wire.Commits, answers.Commits, checks=check_branch("read")),
    _get("/commits/{commit_id}", "read", reads.commit, "One commit.", wire.NoInput, answers.Commit),
    _get("/commits/{commit_id}/changes", "read", feeds.commit_changes, "A page of what one commit changed.",
         wire.CommitChanges, answers.CommitPage, is_change=True),
    _get("/changes", "read", feeds.changes, "The next page of what the commits of a branch changed.",
         wire.Changes, answers.FeedPage, checks=check_branch("read"), is_change=True),
    _json("/changes/baseline", "export", feeds.baseline,
          "Stream a branch as NDJSON; the last record has the cursor at which its change feed continues.",
          wire.Baseline, wire.NDJSON, checks=check_branch("export"), is_change=True),
    _json("/diff", "read", reads.diff, "The differences between two states.", wire.Diff, answers.Difference),
    _write("/revert", "change", writes.revert, "Revert a commit, as a new commit.",
           wire.Replay, answers.Merged, check_branch("change")),
    _write("/cherry-pick", "change", writes.cherry_pick, "Apply the changes of a commit again, as a new commit.",
           wire.Replay, answers.Merged, check_branch("change")),
    _get("/tags", "read", reads.tags, "List the tags.", wire.NoInput, answers.Tags),
    _write("/tags", "tag_create", writes.create_tag, "Tag a commit, which protects it from cleanup.",
           wire.NewTag, answers.TagMade, no_checks),
    _delete("/tags/{tag:path}", "tag_delete", writes.delete_tag, "Delete a tag.", no_checks),
    _get("/operations/{operation_id}", "read", reads.operation, "The outcome of a write, by its operation id.",
         wire.NoInput, answers.Operation),
)  # fmt: skip
