"""Redaction of errors before they are sent: no paths, buckets or internals of the server.

The URI of a graph becomes its id; storage and internal errors get fixed messages.
"""

from __future__ import annotations

from typing import Any, Final

from omnigraph.errors import Effect, OmniGraphError
from omnigraph.server.errors import error_body
from omnigraph.server.registry import ServedGraph

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
_KEPT_CONTEXT: Final = ("kind", "operation_id", "branch", "type_key")
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

# The only context of such errors: what the client sent, or what those fields have.
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
        body["context"] = {name: body["context"][name] for name in _KEPT_CONTEXT if name in body["context"]}
    elif served is not None:
        root = served.graph.uri
        bare = root.partition("://")[2] or root
        body = {name: _replace_paths(value, (root, bare.strip("/")), served.graph_id) for name, value in body.items()}
        body["context"].pop("uri", None)
    if is_change:
        known = {name: value for name, value in body["context"].items() if name in _CHANGE_CONTEXT}
        body = {name: value for name, value in body.items() if name in _CHANGE_FIELDS} | {"context": known}
    return body


def _fixed_message(error: OmniGraphError) -> str:
    if error.effect is Effect.UNKNOWN:
        return "storage did not confirm whether the write was published; look up `operation_id` before you retry"
    return f"{error.kind.summary} Ask the operator of the server, and name the request id."


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
