"""The JSON body of error responses: one shape for every exception of the package, without server internals.

Pure; imports no server library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil, isfinite
from typing import Any, Final, Literal, NewType, NotRequired, TypedDict

import orjson

from omnigraph.errors import Effect, OmniGraphError
from omnigraph.lang.catalog import Kind, TypeKey
from omnigraph.server.registry import ServedGraph

CODES: Final[Mapping[int, str]] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    429: "too_many_requests",
    500: "internal",
}
_SIZE_MAX: Final = 2**63 - 1
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")
# The nesting limit of the encoder.
_DEPTH_MAX: Final = 64
# Statuses that have exactly one meaning in the closed set of codes.
_CODES_BY_ERROR: Final[Mapping[str, str]] = {"blob.changed": "conflict", "blob.range": "bad_request"}


def error_body(error: OmniGraphError) -> dict[str, Any]:
    """Return the JSON body of an error.

    >>> from omnigraph.errors import UsageError
    >>> error_body(UsageError("no", value=1))["code"], error_body(UsageError("no"))["omnigraph_code"]
    ('bad_request', 'usage.invalid')
    """
    status = error.kind.http_status
    body: dict[str, Any] = {"error": error.message}
    code = _CODES_BY_ERROR.get(error.code) or CODES.get(status)
    if code is not None:
        body["code"] = code
    context = {name: value for name, value in error.to_json().items() if name not in ("code", "error", "effect")}
    body |= {
        "omnigraph_code": error.code,
        "effect": error.effect.value,
        "retryable": error.retryable,
        "context": context,
    }
    if "operation_id" in context:
        body["operation_id"] = context["operation_id"]
    return body | _situation_fields(error.code, context)


def _situation_fields(code: str, context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the extra field of a code that has one, such as `merge_conflicts`."""
    match code:
        case "merge.conflict":
            return {"merge_conflicts": [_merge_conflict(item) for item in context.get("conflicts", ())]}
        case "conflict.version_mismatch":
            versions = {f"{name}_published_dataset_version": context.get(name) for name in ("expected", "actual")}
            return {"published_dataset_version_conflict": _type_fields(context) | versions}
        case "conflict.read_set_changed":
            present = _present_fields(context, "member", "expected", "actual")
            return {"read_set_conflict": {name: str(value) for name, value in present.items()}}
        case "conflict.key":
            return {"key_conflict": _type_fields(context) | _present_fields(context, "entity_id")}
        case "commit.parentless" | "changes.schema_boundary":
            return {"change_diff_refusal": _present_fields(context, "reason", "graph_commit_id", "type_name")}
        case "changes.gap":
            return {"change_feed_gap": _present_fields(context, "cursor", "first_unreadable_commit_id")}
        case "precondition.failed":
            return {"precondition_failure": _present_fields(context, "expected", "actual")}
        case "limit.exceeded":
            sizes = _present_fields(context, "resource", "limit", "actual")
            return {"resource_limit": {name: _as_int64(item) for name, item in sizes.items()}}
        case "query.budget_exceeded" if {"limit", "allowed", "needed"} <= context.keys():
            needed, allowed = _as_int64(context["needed"]), _as_int64(context["allowed"])
            return {"resource_limit": {"resource": context["limit"], "limit": allowed, "actual": needed}}
        case "blob.range":
            return {"blob_range": _present_fields(context, "start", "end", "length")}
    return {}


def _merge_conflict(conflict: Mapping[str, Any]) -> dict[str, Any]:
    kind = _CAPITAL.sub("_", str(conflict["kind"])).lower()
    return (
        _type_fields(conflict) | _present_fields(conflict, "entity_id") | {"kind": kind, "message": conflict["message"]}
    )


def _type_fields(context: Mapping[str, Any]) -> dict[str, Any]:
    key = TypeKey(context["type_key"]) if context.get("type_key") else None
    return {} if key is None else {"entity_kind": key.kind, "type_name": key.name}


def _present_fields(context: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: context[name] for name in names if context.get(name) is not None}


def _as_int64(value: Any) -> Any:
    """Return a limit as a 64-bit integer, rounded up."""
    if isinstance(value, float) and not isfinite(value):
        return _SIZE_MAX
    return min(ceil(value), _SIZE_MAX) if isinstance(value, int | float) else value


def dump(value: object) -> bytes:
    """Encode a value as JSON; values without a JSON form become strings."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    except Exception:  # noqa: BLE001 - an error must reach its client, whatever its context holds
        return orjson.dumps(_encodable(value, _DEPTH_MAX))


def _encodable(value: object, depth: int) -> object:
    """Make a value encodable: 64-bit integers, valid Unicode, bounded nesting."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return int(value)
    if isinstance(value, Mapping) and depth:
        return {_text(name): _encodable(item, depth - 1) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and depth:
        return [_encodable(item, depth - 1) for item in value]
    return _text(value)


def _text(value: object) -> str:
    try:
        return str(value).encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001 - its own form as text may fail, or be an integer of too many digits
        return f"<{type(value).__name__}>"


# Their messages may name files, buckets or code.
_INTERNAL_CODES: Final = frozenset(
    {
        "storage.failed",
        "storage.drift",
        "graph.corrupt",
        "graph.format",
        "graph.already_initialized",
        "blob.integrity",
        "pipeline.failed",
        "pipeline.unavailable",
        "internal.bug",
    }
)
_PUBLIC_CONTEXT: Final = ("kind", "operation_id", "branch", "type_key")
# The only fields of errors on the change routes.
_CHANGE_FIELDS: Final = frozenset(
    {
        "error",
        "code",
        "omnigraph_code",
        "effect",
        "retryable",
        "resource_limit",
        "change_feed_gap",
        "change_diff_refusal",
    }
)

# The only context of these errors: what the client sent, or what those fields hold.
_CHANGE_CONTEXT: Final = frozenset(
    {
        *("resource", "limit", "actual", "cursor", "first_unreadable_commit_id", "reason", "graph_commit_id"),
        *("type_name", "commit_id", "branch", "target_branch", "actor", "action", "value", "name", "kind"),
    }
)


def redact_error(error: OmniGraphError, served: ServedGraph | None, *, is_change: bool = False) -> dict[str, Any]:
    """Return the JSON body of an error without server internals."""
    body = error_body(error)
    if error.code in _INTERNAL_CODES:
        body["error"] = _fixed_message(error)
        body["context"] = {name: body["context"][name] for name in _PUBLIC_CONTEXT if name in body["context"]}
    elif served is not None:
        root = served.graph.uri
        bare = root.partition("://")[2] or root
        body = {name: _replace_paths(value, (root, bare.strip("/")), served.graph_id) for name, value in body.items()}
        body["context"].pop("uri", None)
    if is_change:
        context = {name: value for name, value in body["context"].items() if name in _CHANGE_CONTEXT}
        body = {name: value for name, value in body.items() if name in _CHANGE_FIELDS} | {"context": context}
    return body


def _fixed_message(error: OmniGraphError) -> str:
    if error.effect is Effect.UNKNOWN:
        return "storage did not confirm whether the write was published; look up `operation_id` before you retry"
    return f"{error.kind.summary} Contact the operator of the server and give the request id."


def _replace_paths(value: Any, roots: tuple[str, ...], graph_id: str) -> Any:
    """Replace the paths of a graph by its id in all strings of a value."""
    if isinstance(value, str):
        for root in roots:
            value = value.replace(root, graph_id)
        return value
    if isinstance(value, dict):
        return {name: _replace_paths(item, roots, graph_id) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_paths(item, roots, graph_id) for item in value]
    return value


# One of the codes of `errors.ERRORS`.
OmnigraphCode = NewType("OmnigraphCode", str)
# One of the values of `CODES`.
Code = NewType("Code", str)
# A name of `ConflictKind` in lower case.
MergeConflictKind = NewType("MergeConflictKind", str)


class MergeConflict(TypedDict):
    entity_kind: Kind
    type_name: str
    entity_id: NotRequired[str]
    kind: MergeConflictKind
    message: str


class VersionConflict(TypedDict):
    """A type's published version is not the one that the write was based on."""

    entity_kind: Kind
    type_name: str
    expected_published_dataset_version: int | None
    actual_published_dataset_version: int | None


class ReadSetConflict(TypedDict):
    """Data that a write depends on changed before the write was published."""

    member: str
    expected: NotRequired[str]
    actual: NotRequired[str]


class KeyConflict(TypedDict):
    """An entity with this id already exists."""

    entity_kind: Kind
    type_name: str
    entity_id: NotRequired[str]


class DiffRefusal(TypedDict):
    """A commit whose changes cannot be computed."""

    reason: Literal["parentless_commit", "schema_boundary"]
    graph_commit_id: str
    type_name: NotRequired[str]


class FeedGap(TypedDict):
    """History that a feed needs was removed; take a new baseline."""

    cursor: NotRequired[str]
    first_unreadable_commit_id: str


class PreconditionFailure(TypedDict):
    """The expected head of a branch, and its actual head."""

    expected: str
    actual: NotRequired[str]


class ResourceLimit(TypedDict):
    """The limit of a resource per request, and how much this request needs."""

    resource: str
    limit: int
    actual: int


class BlobRange(TypedDict):
    """A byte range, `end` excluded, that is outside a blob of this length."""

    start: int
    end: int
    length: int


class Error(TypedDict):
    """Every error: `code` is one of a closed set or absent, `omnigraph_code` is always present.

    `context` holds the details of the error under the names that the library uses; the members after it repeat some of
    them in the shape of a single kind of error.
    """

    error: str
    code: NotRequired[Code]
    omnigraph_code: OmnigraphCode
    effect: Literal["none", "applied", "unknown"]
    retryable: bool
    context: dict[str, Any]
    request_id: NotRequired[str]
    operation_id: NotRequired[str]
    merge_conflicts: NotRequired[list[MergeConflict]]
    published_dataset_version_conflict: NotRequired[VersionConflict]
    read_set_conflict: NotRequired[ReadSetConflict]
    key_conflict: NotRequired[KeyConflict]
    change_diff_refusal: NotRequired[DiffRefusal]
    change_feed_gap: NotRequired[FeedGap]
    precondition_failure: NotRequired[PreconditionFailure]
    resource_limit: NotRequired[ResourceLimit]
    blob_range: NotRequired[BlobRange]
