"""Every error the product raises: one base class, one table from code to HTTP status and exit status.

Ground layer: imports nothing of ours. Errors pickle, because Spark sends them home from its workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar


class Effect(StrEnum):
    """What a failed operation did to the graph."""

    NONE = "none"
    APPLIED = "applied"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One row of the error table."""

    code: str
    http_status: int
    exit_status: int
    retryable: bool
    summary: str


_TABLE = (
    ErrorKind("language.rejected", 400, 1, False, "A schema, query or migration was refused by the compiler."),
    ErrorKind("data.rejected", 400, 1, False, "Data breaks a rule of the schema or of the input format; see `rule`."),
    ErrorKind("usage.invalid", 400, 1, False, "The call itself is wrong: unknown option, missing file, bad value."),
    ErrorKind(
        "conflict.read_set_changed", 409, 1, True, "Something the write relied on changed; read again and retry."
    ),
    ErrorKind("conflict.version_mismatch", 409, 1, True, "A type is not at the version the caller expected."),
    ErrorKind("conflict.key", 409, 1, False, "An entity with this id already exists."),
    ErrorKind("conflict.busy", 409, 1, True, "Other writers kept winning; the bounded retries are spent."),
    ErrorKind("conflict.repeated", 409, 1, False, "The write was done before, under the same id; see the commit."),
    ErrorKind("limit.exceeded", 413, 1, False, "The request is larger than one operation may be; see `resource`."),
    ErrorKind("policy.denied", 403, 1, False, "The policy of the graph does not allow this actor to do this."),
    ErrorKind("policy.invalid", 400, 1, False, "A policy bundle or its tests break a rule of their format."),
    ErrorKind("precondition.failed", 412, 4, False, "The branch head is not the commit the caller named."),
    ErrorKind("graph.not_found", 404, 1, False, "There is no graph at this address."),
    ErrorKind("graph.already_initialized", 409, 1, False, "A graph, or a part of one, already lives at this address."),
    ErrorKind("graph.initialization_claimed", 409, 1, True, "Another process is creating a graph at this address."),
    ErrorKind("graph.initialization_committed", 500, 1, False, "The graph was created, but a later check failed."),
    ErrorKind("graph.initialization_indeterminate", 500, 1, False, "The graph may or may not have been created."),
    ErrorKind("graph.format", 409, 1, False, "The stored format is one that this release does not read."),
    ErrorKind("graph.corrupt", 500, 1, False, "Stored state contradicts itself; nothing was changed."),
    ErrorKind("graph.read_only", 409, 1, False, "The graph was opened read-only."),
    ErrorKind("graph.version_reclaimed", 410, 1, False, "The asked-for version was removed by cleanup."),
    ErrorKind("clone.diverged", 409, 1, False, "The target of a clone holds another graph, or was written to since."),
    ErrorKind("clone.unsound", 500, 1, False, "A clone does not hold what its source does."),
    ErrorKind("branch.not_found", 404, 1, False, "There is no such branch."),
    ErrorKind("branch.exists", 409, 1, False, "A branch of that name exists."),
    ErrorKind("branch.purged", 409, 1, False, "The commit is from before something was dropped for good."),
    ErrorKind("branch.in_use", 409, 1, False, "Other branches or tags still stand on this branch."),
    ErrorKind("branch.invalid_name", 400, 1, False, "The name cannot be that of a branch or tag."),
    ErrorKind("schema.branches_exist", 409, 1, False, "The schema changes only while main is the only branch."),
    ErrorKind("schema.breaks_queries", 409, 1, False, "A new schema would break stored queries; `queries` lists them."),
    ErrorKind("tag.not_found", 404, 1, False, "There is no such tag."),
    ErrorKind("tag.exists", 409, 1, False, "A tag of that name exists."),
    ErrorKind("commit.not_found", 404, 1, False, "There is no such commit."),
    ErrorKind("commit.parentless", 409, 1, False, "The commit has no parent to compare it with."),
    ErrorKind("changes.schema_boundary", 409, 1, False, "The schema changed in this commit; take a new baseline."),
    ErrorKind("changes.gap", 410, 1, False, "A version that the feed needs was removed; take a new baseline."),
    ErrorKind("changes.cursor_rejected", 400, 1, False, "A cursor or page token is damaged or belongs elsewhere."),
    ErrorKind("blob.not_found", 404, 1, False, "There is no such entity, or its blob is null."),
    ErrorKind("blob.range", 416, 1, False, "The asked-for range is not inside the blob."),
    ErrorKind("blob.changed", 412, 1, False, "The blob has another tag than the caller named in `If-Match`."),
    ErrorKind("blob.integrity", 500, 1, False, "What is stored about a blob makes no sense; nothing was read."),
    ErrorKind("merge.conflict", 409, 1, False, "Both sides changed the same thing; `conflicts` lists all of it."),
    ErrorKind("merge.unrelated", 409, 1, False, "The two sides of a merge have no commit in common."),
    ErrorKind("merge.schema_differs", 409, 1, False, "The sides of a merge do not have the same schema."),
    ErrorKind("merge.resolution", 400, 1, False, "A resolution is malformed, out of date, or settles no conflict."),
    ErrorKind("query.not_found", 404, 1, False, "There is no such stored query."),
    ErrorKind("query.broken", 409, 1, False, "The stored query does not compile against the accepted schema."),
    ErrorKind("query.budget_exceeded", 413, 1, False, "The query needs more rows, memory or time than it may use."),
    ErrorKind("query.overflow", 400, 1, False, "A number that a query computes does not fit its type."),
    ErrorKind("query.cancelled", 499, 1, False, "The caller cancelled the query."),
    ErrorKind("storage.drift", 409, 1, False, "A foreign tool wrote a type's dataset by path; run repair."),
    ErrorKind(
        "storage.reachability",
        500,
        1,
        False,
        "It is not certain what a dataset still needs; nothing of it was removed.",
    ),
    ErrorKind("storage.failed", 500, 1, False, "Storage refused or lost a request; `kind` says which sort of failure."),
    ErrorKind("output.failed", 500, 1, False, "What a command prints could not be written to standard output."),
    ErrorKind(
        "pipeline.unavailable", 501, 1, False, "Spark or a Java runtime is missing; the message says how to get it."
    ),
    ErrorKind("pipeline.failed", 500, 1, True, "A job of the pipeline failed; nothing was published."),
    ErrorKind("pipeline.job_exists", 409, 1, False, "A load with this job id is in history, of other input."),
    ErrorKind("request.unauthorized", 401, 1, False, "The request names no bearer token, or one that is not known."),
    ErrorKind("request.host", 421, 1, False, "The server does not answer to the name in the header `Host`."),
    ErrorKind("request.no_route", 404, 1, False, "The server has nothing at this address."),
    ErrorKind("request.method", 405, 1, False, "The address does not answer this method; see the `Allow` header."),
    ErrorKind(
        "request.timeout", 408, 1, True, "The body of the request did not arrive, or its answer was not read, in time."
    ),
    ErrorKind("request.media_type", 415, 1, False, "The body of the request is not of the type that the route takes."),
    ErrorKind("request.too_many", 429, 1, True, "The actor has too many writes under way; see `Retry-After`."),
    ErrorKind("server.unreachable", 503, 1, True, "No answer came from the server; `effect` says what that means."),
    ErrorKind("server.busy", 503, 1, True, "The server, or the caller, has too many connections; nothing was done."),
    ErrorKind("server.stopping", 503, 1, True, "The server is being stopped and did nothing of this; send it again."),
    ErrorKind("internal.bug", 500, 1, False, "An assumption of our own was broken; please report it."),
)

ERRORS: Mapping[str, ErrorKind] = MappingProxyType({kind.code: kind for kind in _TABLE})


class OmniGraphError(Exception):
    """Base of all our errors: a stable `code`, a message that says what to do next, and typed context.

    >>> error = UsageError("no such file: a.pg", path="a.pg")
    >>> error.code, error.kind.http_status, error.effect.value, error.context["path"]
    ('usage.invalid', 400, 'none', 'a.pg')
    """

    code: ClassVar[str] = "internal.bug"

    def __init__(self, message: str, *, effect: Effect = Effect.NONE, **context: object) -> None:
        super().__init__(message)
        self.message = message
        self.effect = effect
        self.context = context

    @property
    def kind(self) -> ErrorKind:
        return ERRORS[self.code]

    @property
    def retryable(self) -> bool:
        return self.kind.retryable

    def to_json(self) -> dict[str, object]:
        """Return the structured form that every surface prints."""
        return {"code": self.code, "error": self.message, "effect": self.effect.value, **self.context}

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.effect, self.context)


def _rebuild(cls: type[OmniGraphError], message: str, effect: Effect, context: dict[str, object]) -> OmniGraphError:
    return cls(message, effect=effect, **context)


class UsageError(OmniGraphError):
    """The caller asked for something that cannot be asked."""

    code = "usage.invalid"


class OutputError(OmniGraphError):
    """Standard output cannot be written; `effect` says what the command did to the graph before that."""

    code = "output.failed"


class DataError(OmniGraphError):
    """Data breaks a rule; `context["rule"]` holds its code, such as `E6` or `N9`."""

    code = "data.rejected"


class StorageKind(StrEnum):
    """What sort of failure storage reported, from typed evidence only."""

    TRANSIENT = "transient"
    CONFIGURATION = "configuration"
    NOT_FOUND = "not_found"
    PRECONDITION = "precondition"
    FULL = "full"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


class StorageError(OmniGraphError):
    """Storage failed; `kind` says how, `object` names what was asked for."""

    code = "storage.failed"

    def __init__(
        self,
        message: str,
        *,
        effect: Effect = Effect.NONE,
        kind: StorageKind = StorageKind.UNKNOWN,
        **context: object,
    ) -> None:
        super().__init__(message, effect=effect, kind=kind, **context)
        self.storage_kind = kind

    @property
    def retryable(self) -> bool:
        return self.storage_kind is StorageKind.TRANSIENT


class ConflictError(OmniGraphError):
    """Base of what a writer may lose to; nothing was published."""

    code = "conflict.busy"


class ReadSetChanged(ConflictError):
    """`member` of what the write relied on was `expected` and is `actual`."""

    code = "conflict.read_set_changed"


class VersionMismatch(ConflictError):
    """A type's published version is `actual`, not `expected`."""

    code = "conflict.version_mismatch"


class KeyConflict(ConflictError):
    """An entity with this id already exists."""

    code = "conflict.key"


class LimitExceeded(OmniGraphError):
    """`resource` would take `actual`, and one operation may take `limit`."""

    code = "limit.exceeded"


class PolicyDenied(OmniGraphError):
    """The policy does not allow `actor` to do `action`."""

    code = "policy.denied"


class PolicyError(OmniGraphError):
    """A bundle or its tests cannot be used; `problems` lists all that is wrong, each with its place."""

    code = "policy.invalid"


class PreconditionFailed(OmniGraphError):
    """The branch head is `actual`, not the `expected` commit."""

    code = "precondition.failed"


class DriftDetected(OmniGraphError):
    """A dataset moved by path, outside of any commit of the graph."""

    code = "storage.drift"


class ReachabilityDisputed(OmniGraphError):
    """Two computations of what a dataset's kept versions need disagree; nothing of that dataset was removed."""

    code = "storage.reachability"


class BudgetExceeded(OmniGraphError):
    """A query would pass one of its limits; `limit`, `allowed`, `needed` and `where` say which and at what."""

    code = "query.budget_exceeded"


class ArithmeticOverflow(OmniGraphError):
    """A number that a query computes does not fit its type; `function` and `type` say which."""

    code = "query.overflow"


class QueryCancelled(OmniGraphError):
    """The caller cancelled the query."""

    code = "query.cancelled"


class CursorRejected(OmniGraphError):
    """A cursor or page token of a change feed is damaged, or belongs elsewhere."""

    code = "changes.cursor_rejected"


class ChangeFeedGap(OmniGraphError):
    """A version that the feed needs is gone; `first_unreadable_commit_id` says where, `cursor` how far it got."""

    code = "changes.gap"


class SchemaBoundary(OmniGraphError):
    """A commit changed the schema, so its rows before and after do not compare."""

    code = "changes.schema_boundary"


class MergeConflict(OmniGraphError):
    """Both sides of a merge changed the same thing; `conflicts` lists every case of it."""

    code = "merge.conflict"


class PipelineError(OmniGraphError):
    """A job of the pipeline failed."""

    code = "pipeline.failed"


class PipelineUnavailable(OmniGraphError):
    """What the pipeline runs on is not installed."""

    code = "pipeline.unavailable"


class JobExists(OmniGraphError):
    """A load with this job id is in history, of other input."""

    code = "pipeline.job_exists"


class GraphError(OmniGraphError):
    """The graph as a whole cannot be created, opened or read; `code` says why."""

    def __init__(self, message: str, *, code: str, effect: Effect = Effect.NONE, **context: object) -> None:
        super().__init__(message, effect=effect, **context)
        self.code = code  # type: ignore[misc]  # one class serves the many ways in which a graph is not there

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_graph_error, (self.message, self.code, self.effect, self.context)


def _rebuild_graph_error(message: str, code: str, effect: Effect, context: dict[str, object]) -> GraphError:
    return GraphError(message, code=code, effect=effect, **context)
