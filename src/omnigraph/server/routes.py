"""The table of routes: what the server answers, in one place.

The application, the description of the interface and the test of the documentation are made from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from omnigraph.engine.authorization import Scope, between, on_branch, on_target
from omnigraph.engine.write.write_authorization import missing_base
from omnigraph.limits import SERVER_BODY_BYTES_MAX, SERVER_LOAD_BODY_BYTES_MAX
from omnigraph.server import answers, wire
from omnigraph.server.handlers import blobs, feeds, reads, stored_queries, writes
from omnigraph.server.responses import Answer, Call, Handler

Check = tuple[str, Scope]
Checks = Callable[[Call[Any]], tuple[Check, ...]]


def nothing_more(call: Call[Any]) -> tuple[Check, ...]:
    """What the request touches is known only to the graph, which judges it."""
    return ()


def check_branch(action: str) -> Checks:
    """Judge by the branch that the request names, unless it names a state, which the graph judges by its branch."""

    def checks(call: Call[Any]) -> tuple[Check, ...]:
        given = call.given
        if isinstance(getattr(given, "snapshot", None), str):
            return ()
        return ((action, on_branch(given.branch or "main")),)

    return checks


def loading(call: Call[Any]) -> tuple[Check, ...]:
    """Judge a load by its branch and, if it has to be made first, by that; asks the graph whether it is there."""
    given = call.given
    change: Check = ("change", on_branch(given.branch))
    base = None if given.from_ is None else missing_base(call.graph.session, given.branch, given.from_)
    return (change,) if base is None else (change, ("branch_create", between(base, given.branch)))


def invoking(call: Call[Any]) -> tuple[Check, ...]:
    action = "change" if stored_queries.is_mutation(call) else "read"
    return check_branch(action)(call)


@dataclass(frozen=True, slots=True)
class Route:
    """One route: what it takes and answers, which action it is, and the function that does it.

    `action` is what a policy is asked before the body is read; `checks` say where, once the request is known.
    `is_write` is admitted by actor. `looks_up`: the checks ask the graph, so they run where handlers do. `masks` is
    told instead of a refusal of `action`. `successor` is the route that replaces one of earlier releases.
    """

    method: Literal["GET", "HEAD", "POST", "DELETE"]
    path: str
    action: str
    handle: Handler
    summary: str
    takes: type = wire.Nothing
    answers: type | str = wire.JSON
    checks: Checks = nothing_more
    body: Literal["none", "json", "ndjson"] = "none"
    body_bytes_max: int = 0
    is_write: bool = False
    is_change: bool = False
    looks_up: bool = False
    masks: Callable[[], Exception] | None = None
    successor: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers of all its answers."""
        if self.successor is None:
            return {}
        return {"Deprecation": "true", "Link": f'<{self.successor}>; rel="successor-version"'}

    @property
    def may_commit(self) -> bool:
        """Whether it can make a commit, which an id of the caller's choice then finds; names alone make none."""
        return (self.is_write and self.action in _COMMITTING) or self.action == "invoke_query"


_COMMITTING = frozenset({"change", "schema_apply", "branch_merge"})


@dataclass(frozen=True, slots=True)
class ServerRoute:
    """One route of the server itself, a GET; handlers get the service and the actor.

    `is_open` asks for no token. `is_instant` is answered by the event loop itself: it waits for nothing.
    """

    path: str
    is_open: bool
    handle: Callable[[Any, str | None], Answer]
    summary: str
    answers: type | str
    is_instant: bool = False


def _json(path: str, action: str, handle: Handler, summary: str, takes: type, answer: type | str, **more: Any) -> Route:
    given = {"body": "json", "body_bytes_max": SERVER_BODY_BYTES_MAX, **more}
    return Route("POST", f"/graphs/{{graph_id}}{path}", action, handle, summary, takes, answer, **given)


def _get(path: str, action: str, handle: Handler, summary: str, takes: type, answer: type | str, **more: Any) -> Route:
    return Route("GET", f"/graphs/{{graph_id}}{path}", action, handle, summary, takes, answer, **more)


def _write(
    path: str, action: str, handle: Handler, summary: str, takes: type, answer: type, checks: Checks, **more: Any
) -> Route:
    return _json(path, action, handle, summary, takes, answer, checks=checks, is_write=True, **more)


def _delete(path: str, action: str, handle: Handler, summary: str, checks: Checks) -> Route:
    path = f"/graphs/{{graph_id}}{path}"
    return Route("DELETE", path, action, handle, summary, wire.Nothing, answers.NameGone, checks=checks, is_write=True)


def _target(action: str, name: Callable[[Call[Any]], str]) -> Checks:
    return lambda call: ((action, on_target(name(call))),)


ROUTES: tuple[Route, ...] = (
    _get("/snapshot", "read", reads.snapshot, "Which version of which type a branch is made of.",
         wire.OfBranch, answers.Snapshot, checks=check_branch("read")),
    _json("/query", "read", reads.query, "Run a query; JSON rows, or an Arrow stream if the request accepts one.",
          wire.Query, answers.Rows, checks=check_branch("read")),
    _json("/read", "read", reads.read, "Run a query; `/query` with the names that earlier releases had.",
          wire.Read, answers.LegacyRows, checks=check_branch("read"), successor="query"),
    _json("/explain", "read", reads.explain, "Show how a query runs, and with `profile` what really happened.",
          wire.Explain, answers.Plan, checks=check_branch("read")),
    _write("/mutate", "change", writes.mutate, "Run a mutation, as one commit.",
           wire.Mutate, answers.Mutated, check_branch("change")),
    _write("/change", "change", writes.mutate, "Run a mutation; the former name of `/mutate`.",
           wire.Mutate, answers.Mutated, check_branch("change"), successor="mutate"),
    _write("/mutate/if-graph-commit", "change", writes.mutate_if,
           "Run a mutation if the branch is still at the commit that a header names.",
           wire.Mutate, answers.Mutated, check_branch("change")),
    _get("/queries", "read", stored_queries.catalog, "List the stored queries.", wire.Nothing, answers.StoredQueries,
         checks=lambda call: (("read", on_branch("main")),)),
    _json("/queries/{name}", "invoke_query", stored_queries.invoke, "Call a stored query.",
          wire.Invoke, answers.Rows, checks=invoking, masks=stored_queries.unknown),
    _json("/queries/{name}/if-graph-commit", "invoke_query", stored_queries.invoke_if,
          "Call a stored mutation if the branch is still at the commit that a header names.",
          wire.Invoke, answers.Mutated, checks=invoking, masks=stored_queries.unknown),
    _get("/schema", "read", reads.schema, "The text of the accepted schema.", wire.Nothing, answers.SchemaSource),
    _json("/schema/plan", "schema_apply", writes.schema_plan, "Show the steps to a new schema; changes nothing.",
          wire.NewSchema, answers.SchemaPlan, checks=_target("schema_apply", lambda call: "main")),
    _write("/schema/apply", "schema_apply", writes.schema_apply, "Make a new schema the accepted one, as one commit.",
           wire.NewSchema, answers.SchemaApplied, _target("schema_apply", lambda call: "main")),
    _write("/load", "change", writes.load, "Write NDJSON records that come as a JSON text, as one commit.",
           wire.Load, answers.LoadedAt, loading, body_bytes_max=SERVER_LOAD_BODY_BYTES_MAX, looks_up=True),
    _write("/ingest", "change", writes.load, "Write NDJSON records; the former name of `/load`.",
           wire.Load, answers.LoadedAt, loading, body_bytes_max=SERVER_LOAD_BODY_BYTES_MAX, looks_up=True,
           successor="load"),
    Route("POST", "/graphs/{graph_id}/load/ndjson", "change", writes.load_lines,
          "Write the NDJSON records of the body, as one commit.", wire.LoadLines, answers.Loaded,
          checks=loading, body="ndjson", body_bytes_max=SERVER_LOAD_BODY_BYTES_MAX, is_write=True, looks_up=True),
    _json("/export", "export", feeds.export, "Stream a graph as NDJSON that a load takes back.",
          wire.Export, wire.NDJSON, checks=check_branch("export")),
    Route("HEAD", "/graphs/{graph_id}/blob", "read", blobs.head, "The length and tag of a blob.",
          wire.BlobOf, wire.BYTES, checks=check_branch("read")),
    _get("/blob", "read", blobs.get, "The bytes of a blob, whole or one range of them.", wire.BlobOf, wire.BYTES,
         checks=check_branch("read")),
    _get("/branches", "read", reads.branches, "List the branches.", wire.Nothing, answers.BranchNames),
    _write("/branches", "branch_create", writes.create_branch, "Make a branch.", wire.NewBranch, answers.BranchMade,
           lambda call: (("branch_create", between(call.given.from_, call.given.name)),)),
    _write("/branches/merge", "branch_merge", writes.merge, "Merge a branch into another, as one commit.",
           wire.Merge, answers.Merged,
           lambda call: (("branch_merge", between(call.given.source, call.given.target)),)),
    _write("/branches/rename", "branch_create", writes.rename_branch, "Give a branch another name.",
           wire.Rename, answers.BranchMade, _target("branch_delete", lambda call: call.given.name)),
    _delete("/branches/{branch:path}", "branch_delete", writes.delete_branch, "Delete a branch.",
            _target("branch_delete", lambda call: call.path["branch"])),
    _get("/commits", "read", reads.commits, "List the commits of a branch, newest first.",
         wire.Commits, answers.Commits, checks=check_branch("read")),
    _get("/commits/{commit_id}", "read", reads.commit, "One commit.", wire.Nothing, answers.Commit),
    _get("/commits/{commit_id}/changes", "read", feeds.commit_changes, "A page of what one commit changed.",
         wire.CommitChanges, answers.CommitPage, is_change=True),
    _get("/changes", "read", feeds.changes, "The next page of what the commits of a branch changed.",
         wire.Changes, answers.FeedPage, checks=check_branch("read"), is_change=True),
    _json("/changes/baseline", "export", feeds.baseline,
          "Stream a branch as NDJSON; the last record names the cursor from which its feed goes on.",
          wire.Baseline, wire.NDJSON, checks=check_branch("export"), is_change=True),
    _json("/diff", "read", reads.diff, "What differs between two states.", wire.Diff, answers.Difference),
    _write("/revert", "change", writes.revert, "Take the change of a commit back, as a new commit.",
           wire.Replay, answers.Merged, check_branch("change")),
    _write("/cherry-pick", "change", writes.cherry_pick, "Apply the change of a commit again, as a new commit.",
           wire.Replay, answers.Merged, check_branch("change")),
    _get("/tags", "read", reads.tags, "List the tags.", wire.Nothing, answers.Tags),
    _write("/tags", "tag_create", writes.create_tag, "Name a commit, and protect it from cleanup.",
           wire.NewTag, answers.TagMade, nothing_more),
    _delete("/tags/{tag:path}", "tag_delete", writes.delete_tag, "Delete a tag.", nothing_more),
    _get("/operations/{operation_id}", "read", reads.operation, "What became of a write whose answer was lost.",
         wire.Nothing, answers.Operation),
)  # fmt: skip
