"""The exceptions of the package, and the table from error code to HTTP status and exit status.

Lowest layer: imports no other module of the package. Errors can be pickled, because Spark workers send them to the
driver.
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
    """A row of the error table."""

    code: str
    http_status: int
    summary: str
    retryable: bool = False
    exit_status: int = 1


_TABLE = (
    ErrorKind("language.rejected", 400, "The compiler rejected a schema, query or migration."),
    ErrorKind("data.rejected", 400, "Data violates a rule of the schema or of the input format; see `rule`."),
    ErrorKind("usage.invalid", 400, "The call is invalid: unknown option, missing file, bad value."),
    ErrorKind(
        "conflict.read_set_changed",
        409,
        "Data that the write depends on has changed; read again and retry.",
        retryable=True,
    ),
    ErrorKind(
        "conflict.version_mismatch", 409, "A type is not at the version that the caller expected.", retryable=True
    ),
    ErrorKind("conflict.key", 409, "An entity with this id already exists."),
    ErrorKind(
        "conflict.busy",
        409,
        "Lost to concurrent writers until the retries were exhausted; retry later.",
        retryable=True,
    ),
    ErrorKind("conflict.repeated", 409, "A write with this idempotency key is committed already; see the commit."),
    ErrorKind("limit.exceeded", 413, "The request exceeds a limit of a single operation; see `resource`."),
    ErrorKind("policy.denied", 403, "The policy of the graph does not allow this actor to do this."),
    ErrorKind("cluster.rejected", 409, "A cluster command cannot continue; `findings` say why."),
    ErrorKind("cluster.managed", 409, "The graph belongs to a cluster; only `cluster apply` changes it."),
    ErrorKind("policy.invalid", 400, "A policy bundle or policy test file is invalid."),
    ErrorKind("precondition.failed", 412, "The branch head is not the commit that the caller expected.", exit_status=4),
    ErrorKind("graph.not_found", 404, "There is no graph at this address."),
    ErrorKind("graph.already_initialized", 409, "There is already a graph, or part of one, at this address."),
    ErrorKind(
        "graph.initialization_claimed", 409, "Another process is creating a graph at this address.", retryable=True
    ),
    ErrorKind("graph.initialization_committed", 500, "The graph was created, but a later check failed."),
    ErrorKind("graph.initialization_indeterminate", 500, "The graph may or may not have been created."),
    ErrorKind("graph.format", 409, "This release does not support the stored format."),
    ErrorKind("graph.corrupt", 500, "The stored state is inconsistent; nothing was changed."),
    ErrorKind("graph.read_only", 409, "The graph was opened read-only."),
    ErrorKind("graph.version_reclaimed", 410, "Cleanup removed the requested version."),
    ErrorKind("graph.version_lost", 500, "Another tool removed a version that the newest commit needs; run repair."),
    ErrorKind(
        "clone.diverged", 409, "The target of a clone holds another graph, or was written to since the last clone."
    ),
    ErrorKind("clone.unsound", 500, "A clone differs from its source."),
    ErrorKind("branch.not_found", 404, "There is no such branch."),
    ErrorKind("branch.exists", 409, "A branch of this name exists."),
    ErrorKind("branch.purged", 409, "The commit is older than a hard drop, so its data is incomplete."),
    ErrorKind("branch.in_use", 409, "Other branches or tags depend on this branch."),
    ErrorKind("branch.invalid_name", 400, "The name is not valid for a branch or tag."),
    ErrorKind("schema.branches_exist", 409, "Data that other branches still have cannot be removed for good."),
    ErrorKind("schema.breaks_queries", 409, "A new schema would break stored queries; `queries` lists them."),
    ErrorKind(
        "schema.drops",
        409,
        "A new schema drops types, properties or rules, which was not allowed; `drops` lists the steps.",
    ),
    ErrorKind("tag.not_found", 404, "There is no such tag."),
    ErrorKind("tag.exists", 409, "A tag of this name exists."),
    ErrorKind("commit.not_found", 404, "There is no such commit."),
    ErrorKind("commit.ambiguous", 409, "Several commits begin with this short id; `commits` lists them."),
    ErrorKind("commit.parentless", 409, "The commit has no parent to compare it with."),
    ErrorKind(
        "changes.schema_boundary",
        409,
        "A typed stream cannot continue: the columns of its type changed; start a new one.",
    ),
    ErrorKind("changes.gap", 410, "A version that the feed needs was removed; take a new baseline."),
    ErrorKind(
        "changes.cursor_rejected", 400, "A cursor or page token is damaged or was issued for another graph or query."
    ),
    ErrorKind("blob.not_found", 404, "There is no such entity, or its blob is null."),
    ErrorKind("blob.range", 416, "The requested range is outside the blob."),
    ErrorKind("blob.changed", 412, "The blob's ETag does not match `If-Match`."),
    ErrorKind("blob.source_unreadable", 424, "An external blob that a write names cannot be read."),
    ErrorKind("blob.integrity", 500, "The stored metadata of a blob is inconsistent; nothing was read."),
    ErrorKind("merge.conflict", 409, "Both sides changed the same entity or property; see `conflicts`."),
    ErrorKind("merge.unrelated", 409, "The sides of a merge have no common ancestor."),
    ErrorKind("merge.resolution", 400, "A resolution is malformed, stale, or matches no conflict."),
    ErrorKind("query.not_found", 404, "There is no such stored query."),
    ErrorKind("query.broken", 409, "The stored query does not compile against the accepted schema."),
    ErrorKind("query.budget_exceeded", 413, "The query needs more rows, memory or time than its budget."),
    ErrorKind("query.overflow", 400, "A computed number does not fit its type."),
    ErrorKind("query.cancelled", 499, "The caller cancelled the query."),
    ErrorKind("storage.drift", 409, "Another tool wrote to a dataset directly; run repair."),
    ErrorKind("storage.reachability", 500, "It is uncertain which files a dataset needs; none of them were removed."),
    ErrorKind(
        "storage.unsafe",
        500,
        "The store does not honour conditional puts, so commits could be lost; nothing was written.",
    ),
    ErrorKind("storage.failed", 500, "A storage request failed; `kind` classifies the failure."),
    ErrorKind("output.failed", 500, "The output of a command could not be written to standard output."),
    ErrorKind("pipeline.unavailable", 501, "Spark or a Java runtime is missing; the message says how to install it."),
    ErrorKind("pipeline.failed", 500, "A Spark job failed; nothing was published.", retryable=True),
    ErrorKind(
        "pipeline.job_exists", 409, "A load with this job id was committed, for other input or by another actor."
    ),
    ErrorKind(
        "pipeline.renamed",
        409,
        "A pipeline would load again what was loaded under another name; the message has the line to add.",
    ),
    ErrorKind("request.unauthorized", 401, "The bearer token is missing or unknown."),
    ErrorKind("request.host", 421, "The `Host` header names a host that the server does not serve."),
    ErrorKind("request.no_route", 404, "The server has no route at this path."),
    ErrorKind("request.method", 405, "The route does not support this method; see the `Allow` header."),
    ErrorKind(
        "request.timeout",
        408,
        "The request body was not received, or the response was not read, in time.",
        retryable=True,
    ),
    ErrorKind("request.media_type", 415, "The route does not accept this content type."),
    ErrorKind("request.too_many", 429, "The actor has too many writes in flight; see `Retry-After`.", retryable=True),
    ErrorKind("server.unreachable", 503, "No response from the server; see `effect`.", retryable=True),
    ErrorKind(
        "server.busy",
        503,
        "The server or the client address has too many connections; nothing was done.",
        retryable=True,
    ),
    ErrorKind(
        "server.stopping", 503, "The server is shutting down and did not process the request; retry.", retryable=True
    ),
    ErrorKind("internal.bug", 500, "An internal invariant was violated; please report it."),
)

ERRORS: Mapping[str, ErrorKind] = MappingProxyType({kind.code: kind for kind in _TABLE})


class OmniGraphError(Exception):
    """Base of all errors: a stable `code`, a message that says what to do next, and structured context.

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
        """The row of the error table: HTTP status, exit code, and whether a retry may help."""
        return ERRORS[self.code]

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.kind.retryable

    def to_json(self) -> dict[str, object]:
        """Return the public JSON form, the same on every surface.

        Returns:
            The code, the message, the effect and the context.

        Example:
            >>> UsageError("no such file", path="a.pg").to_json()
            {'code': 'usage.invalid', 'error': 'no such file', 'effect': 'none', 'path': 'a.pg'}
        """
        return {"code": self.code, "error": self.message, "effect": self.effect.value, **self.context}

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.effect, self.context)


def _rebuild(cls: type[OmniGraphError], message: str, effect: Effect, context: dict[str, object]) -> OmniGraphError:
    return cls(message, effect=effect, **context)


class UsageError(OmniGraphError):
    """The call is invalid: a wrong argument, option, file or value."""

    code = "usage.invalid"


class OutputError(OmniGraphError):
    """Standard output cannot be written; `effect` says whether the command changed the graph before."""

    code = "output.failed"


class DataError(OmniGraphError):
    """Data violates a rule; `context["rule"]` holds its code, such as `E6` or `N9`."""

    code = "data.rejected"


class StorageKind(StrEnum):
    """The class of a storage failure, from typed errors only, never from message texts."""

    TRANSIENT = "transient"
    CONFIGURATION = "configuration"
    NOT_FOUND = "not_found"
    PRECONDITION = "precondition"
    FULL = "full"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


class StorageError(OmniGraphError):
    """A storage request failed; `kind` classifies the failure, `object` is the requested object."""

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
        """Whether the same call may succeed later."""
        return self.storage_kind is StorageKind.TRANSIENT


class UnsafeStore(StorageError):
    """The store at `endpoint` does not honour conditional puts, on which every commit rests."""

    code = "storage.unsafe"


class ConflictError(OmniGraphError):
    """Base of conflicts with other writers; nothing was published."""

    code = "conflict.busy"


class ReadSetChanged(ConflictError):
    """`member` of the read set was `expected` and is now `actual`."""

    code = "conflict.read_set_changed"


class VersionMismatch(ConflictError):
    """A type's published version is `actual`, not `expected`."""

    code = "conflict.version_mismatch"


class KeyConflict(ConflictError):
    """An entity with this id already exists."""

    code = "conflict.key"


class LimitExceeded(OmniGraphError):
    """An operation needs `actual` of a `resource`, which is more than `limit`."""

    code = "limit.exceeded"


class PolicyDenied(OmniGraphError):
    """The policy does not allow `actor` to do `action`."""

    code = "policy.denied"


class PolicyError(OmniGraphError):
    """A policy bundle or test file is invalid; `problems` lists all problems with their positions."""

    code = "policy.invalid"


class PreconditionFailed(OmniGraphError):
    """The branch head is `actual`, not the `expected` commit."""

    code = "precondition.failed"


class DriftDetected(OmniGraphError):
    """A dataset was changed directly, outside of any commit of the graph."""

    code = "storage.drift"


class ReachabilityDisputed(OmniGraphError):
    """Two computations of the reachable files of a dataset disagree; no file of it was removed."""

    code = "storage.reachability"


class BudgetExceeded(OmniGraphError):
    """A query exceeds its budget: `limit` (`allowed`, `needed`) at the step `where`."""

    code = "query.budget_exceeded"


class ArithmeticOverflow(OmniGraphError):
    """A computed number does not fit its type; see `function` and `type`."""

    code = "query.overflow"


class QueryCancelled(OmniGraphError):
    """The caller cancelled the query."""

    code = "query.cancelled"


class CursorRejected(OmniGraphError):
    """A cursor or page token of a change feed is damaged, or was issued for another graph or query."""

    code = "changes.cursor_rejected"


class ChangeFeedGap(OmniGraphError):
    """Cleanup removed a version that the feed needs: the gap starts at `first_unreadable_commit_id`, after `cursor`."""

    code = "changes.gap"


class SchemaBoundary(OmniGraphError):
    """A commit changed the schema, so its rows before and after cannot be compared."""

    code = "changes.schema_boundary"


class MergeConflict(OmniGraphError):
    """Both sides of a merge changed the same entity or property; `conflicts` lists all of them."""

    code = "merge.conflict"


class PipelineError(OmniGraphError):
    """A Spark job failed."""

    code = "pipeline.failed"


class PipelineRenamed(UsageError):
    """A pipeline, or a source, has another name than in the run whose progress it should continue."""

    code = "pipeline.renamed"


class PipelineUnavailable(OmniGraphError):
    """Spark or a Java runtime is not installed."""

    code = "pipeline.unavailable"


class JobExists(OmniGraphError):
    """A load with this job id was committed for other input."""

    code = "pipeline.job_exists"


class GraphError(OmniGraphError):
    """A graph, branch, tag, commit or query is missing, exists already or cannot be used; `code` says which.

    Codes that callers handle have a subclass, which is chosen by the code:

    >>> GraphError("there is no branch `x`", code="branch.not_found")
    BranchNotFound('there is no branch `x`')
    """

    def __new__(cls, message: str, *, code: str | None = None, **context: object) -> GraphError:
        return super().__new__(_GRAPH_ERRORS.get(code or "", cls), message)

    def __init__(
        self, message: str, *, code: str | None = None, effect: Effect = Effect.NONE, **context: object
    ) -> None:
        super().__init__(message, effect=effect, **context)
        self.code = code or type(self).code  # type: ignore[misc]  # most codes have no class

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (GraphError, self.message, self.effect, {**self.context, "code": self.code})


class GraphNotFound(GraphError):
    """There is no graph at this address."""

    code = "graph.not_found"


class GraphExists(GraphError):
    """There is already a graph, or part of one, at this address."""

    code = "graph.already_initialized"


class GraphReadOnly(GraphError):
    """The graph was opened read-only."""

    code = "graph.read_only"


class BranchNotFound(GraphError):
    """There is no such branch."""

    code = "branch.not_found"


class BranchExists(GraphError):
    """A branch of this name exists."""

    code = "branch.exists"


class TagNotFound(GraphError):
    """There is no such tag."""

    code = "tag.not_found"


class TagExists(GraphError):
    """A tag of this name exists."""

    code = "tag.exists"


class CommitNotFound(GraphError):
    """There is no such commit."""

    code = "commit.not_found"


class BlobNotFound(GraphError):
    """There is no such entity, or its blob is null."""

    code = "blob.not_found"


class QueryNotFound(GraphError):
    """There is no such stored query."""

    code = "query.not_found"


class ServerUnreachable(GraphError):
    """No response from the server; `effect` says whether a write may have been applied."""

    code = "server.unreachable"


_GRAPH_ERRORS: Mapping[str, type[GraphError]] = MappingProxyType({cls.code: cls for cls in GraphError.__subclasses__()})
