"""What an error may tell a caller over HTTP: nothing of where and how the server keeps a graph.

The address of the graph becomes its id; failures of storage and of ourselves are told in fixed words.
"""

from __future__ import annotations

from typing import Any, Final

from omnigraph.errors import Effect, OmniGraphError
from omnigraph.server.errors import error_body
from omnigraph.server.registry import ServedGraph

# Their messages may name files, buckets or ends of our own code.
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
# The change routes tell only these.
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

# Of what the error knows, what the caller said or what those members tell.
_CHANGE_CONTEXT: Final = frozenset(
    {
        *("resource", "limit", "actual", "cursor", "first_unreadable_commit_id", "reason", "graph_commit_id"),
        *("type_name", "commit_id", "branch", "target_branch", "actor", "action", "value", "name", "kind"),
    }
)


def redact_error(error: OmniGraphError, hosted: ServedGraph | None, *, is_change: bool = False) -> dict[str, Any]:
    """Return the body of an error, without what is the server's own business."""
    body = error_body(error)
    if error.code in _INTERNAL_CODES:
        body["error"] = _fixed_message(error)
        body["context"] = {name: body["context"][name] for name in _KEPT_CONTEXT if name in body["context"]}
    elif hosted is not None:
        root = hosted.graph.uri
        bare = root.partition("://")[2] or root
        body = {name: _replace_paths(value, (root, bare.strip("/")), hosted.graph_id) for name, value in body.items()}
        body["context"].pop("uri", None)
    if is_change:
        known = {name: value for name, value in body["context"].items() if name in _CHANGE_CONTEXT}
        body = {name: value for name, value in body.items() if name in _CHANGE_FIELDS} | {"context": known}
    return body


def _fixed_message(error: OmniGraphError) -> str:
    if error.effect is Effect.UNKNOWN:
        return "storage did not answer whether the write was published; ask for `operation_id` before you run it again"
    return f"{error.kind.summary} Ask the operator of the server, and name the request id."


def _replace_paths(value: Any, roots: tuple[str, ...], graph_id: str) -> Any:
    """Return a value in which every text names the graph instead of its place."""
    if isinstance(value, str):
        for root in roots:
            value = value.replace(root, graph_id)
        return value
    if isinstance(value, dict):
        return {name: _replace_paths(one, roots, graph_id) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_paths(one, roots, graph_id) for one in value]
    return value
