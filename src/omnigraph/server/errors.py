"""The one shape in which an error travels, made from the error that the library raises.

Pure; imports no server library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil, isfinite
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
_SIZE_MAX: Final = 2**63 - 1
# The encoder itself goes this deep.
_DEPTH_MAX: Final = 64
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")
# Statuses that clients of the closed set of codes know from one situation only.
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
    shown = {name: value for name, value in error.to_json().items() if name not in ("code", "error", "effect")}
    body |= {"omnigraph_code": error.code, "effect": error.effect.value, "retryable": error.retryable, "context": shown}
    if "operation_id" in shown:
        body["operation_id"] = shown["operation_id"]
    return body | _situation_fields(error.code, shown)


def _situation_fields(code: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the extra field of a code that has one, such as `merge_conflicts`."""
    match code:
        case "merge.conflict":
            return {"merge_conflicts": [_merge_conflict(item) for item in known.get("conflicts", ())]}
        case "conflict.version_mismatch":
            versions = {f"{name}_published_dataset_version": known.get(name) for name in ("expected", "actual")}
            return {"published_dataset_version_conflict": _type_fields(known) | versions}
        case "conflict.read_set_changed":
            present = _known_fields(known, "member", "expected", "actual")
            return {"read_set_conflict": {name: str(value) for name, value in present.items()}}
        case "conflict.key":
            return {"key_conflict": _type_fields(known) | _known_fields(known, "entity_id")}
        case "commit.parentless" | "changes.schema_boundary":
            return {"change_diff_refusal": _known_fields(known, "reason", "graph_commit_id", "type_name")}
        case "changes.gap":
            return {"change_feed_gap": _known_fields(known, "cursor", "first_unreadable_commit_id")}
        case "precondition.failed":
            return {"precondition_failure": _known_fields(known, "expected", "actual")}
        case "limit.exceeded":
            sizes = _known_fields(known, "resource", "limit", "actual")
            return {"resource_limit": {name: _as_int64(item) for name, item in sizes.items()}}
        case "query.budget_exceeded" if {"limit", "allowed", "needed"} <= known.keys():
            sizes = {"limit": known["allowed"], "actual": known["needed"]}
            return {
                "resource_limit": {"resource": known["limit"]} | {name: _as_int64(item) for name, item in sizes.items()}
            }
        case "blob.range":
            return {"blob_range": _known_fields(known, "start", "end", "length")}
    return {}


def _merge_conflict(conflict: Mapping[str, Any]) -> dict[str, Any]:
    kind = _CAPITAL.sub("_", str(conflict["kind"])).lower()
    return (
        _type_fields(conflict) | _known_fields(conflict, "entity_id") | {"kind": kind, "message": conflict["message"]}
    )


def _type_fields(known: Mapping[str, Any]) -> dict[str, Any]:
    kind, _, name = str(known.get("type_key") or "").partition(":")
    return {"entity_kind": kind, "type_name": name} if name else {}


def _known_fields(known: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: known[name] for name in names if known.get(name) is not None}


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
