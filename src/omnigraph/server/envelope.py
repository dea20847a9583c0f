"""The one shape in which an error travels, made from the error that the library raises.

Pure; imports no server library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil
from typing import Any, Final

import orjson

from omnigraph.errors import OmniGraphError

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
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")
# Statuses that clients of the closed set of codes know from one situation only.
_CODES_BY_ERROR: Final[Mapping[str, str]] = {"blob.changed": "conflict", "blob.range": "bad_request"}


def error_body(error: OmniGraphError) -> dict[str, Any]:
    """Return the one shape in which an error travels.

    >>> from omnigraph.errors import UsageError
    >>> error_body(UsageError("no", value=1))["code"], error_body(UsageError("no"))["omnigraph_code"]
    ('bad_request', 'usage.invalid')
    """
    status = error.kind.http_status
    body: dict[str, Any] = {"error": error.message}
    code = _CODES_BY_ERROR.get(error.code) or CODES.get(status)
    if code is not None:
        body["code"] = code
    shown = {name: value for name, value in error.to_json().items() if name not in ("code", "error", "effect")}
    body |= {"omnigraph_code": error.code, "effect": error.effect.value, "retryable": error.retryable, "context": shown}
    if "operation_id" in shown:
        body["operation_id"] = shown["operation_id"]
    return body | _members(error.code, shown)


def _members(code: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the member that tells a single situation, in the shape that its readers know."""
    match code:
        case "merge.conflict":
            return {"merge_conflicts": [_merge_conflict(one) for one in known.get("conflicts", ())]}
        case "conflict.version_mismatch":
            versions = {f"{name}_published_dataset_version": known.get(name) for name in ("expected", "actual")}
            return {"published_dataset_version_conflict": _of_type(known) | versions}
        case "conflict.read_set_changed":
            present = _present(known, "member", "expected", "actual")
            return {"read_set_conflict": {name: str(value) for name, value in present.items()}}
        case "conflict.key":
            return {"key_conflict": _of_type(known) | _present(known, "entity_id")}
        case "commit.parentless" | "changes.schema_boundary":
            return {"change_diff_refusal": _present(known, "reason", "graph_commit_id", "type_name")}
        case "changes.gap":
            return {"change_feed_gap": _present(known, "cursor", "first_unreadable_commit_id")}
        case "precondition.failed":
            return {"precondition_failure": _present(known, "expected", "actual")}
        case "limit.exceeded":
            return {"resource_limit": _present(known, "resource", "limit", "actual")}
        case "query.budget_exceeded" if {"limit", "allowed", "needed"} <= known.keys():
            # Seconds have fractions, and the members of a limit are integers.
            sizes = {"limit": ceil(known["allowed"]), "actual": ceil(known["needed"])}
            return {"resource_limit": {"resource": known["limit"], **sizes}}
        case "blob.range":
            return {"blob_range": _present(known, "start", "end", "length")}
    return {}


def _merge_conflict(conflict: Mapping[str, Any]) -> dict[str, Any]:
    kind = _CAPITAL.sub("_", str(conflict["kind"])).lower()
    return _of_type(conflict) | _present(conflict, "entity_id") | {"kind": kind, "message": conflict["message"]}


def _of_type(known: Mapping[str, Any]) -> dict[str, Any]:
    kind, _, name = str(known.get("type_key") or "").partition(":")
    return {"entity_kind": kind, "type_name": name} if name else {}


def _present(known: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: known[name] for name in names if known.get(name) is not None}


def dump(value: object) -> bytes:
    """Return a value as JSON; what JSON has no form for is told as text."""
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
