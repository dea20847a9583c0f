"""What clients of the original (0.10) send and expect, as facts: the members of requests and answers, and their types.

Written down in a notation of our own. A member with `?` may be absent, a type with `|null` may be null. Objects are
open, as a client of the original leaves members alone that it does not know.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema_rs

KIND, OP, MODE = ("node", "edge"), ("insert", "update", "delete"), ("overwrite", "append", "merge")
CODES = [
    "unauthorized",
    "forbidden",
    "bad_request",
    "not_found",
    "method_not_allowed",
    "conflict",
    "too_many_requests",
    "internal",
]
CONFLICTS = "divergent_insert divergent_update delete_vs_update orphan_edge unique_violation cardinality_violation"
PARAMETER_KINDS = ("string", "bool", "int", "bigint", "float", "date", "datetime", "blob", "vector", "list")

REQUESTS: dict[str, dict[str, Any]] = {
    "query": {"query": "string", "name?": "string|null", "params?": "any", "branch?": "string|null",
              "snapshot?": "string|null"},
    "read": {"query_source": "string", "query_name?": "string|null", "params?": "any", "branch?": "string|null",
             "snapshot?": "string|null"},
    "mutate": {"query": "string", "name?": "string|null", "params?": "any", "branch?": "string|null"},
    # The command line of the original spells it so; its description has the names of `mutate`.
    "change": {"query_source": "string", "query_name?": "string|null", "params?": "any", "branch?": "string|null"},
    "invoke": {"params?": "any", "branch?": "string|null", "snapshot?": "string|null",
               "expect_mutation?": "boolean|null"},
    "load": {"data": "string", "branch?": "string|null", "from?": "string|null", "mode?": (*MODE, None)},
    "export": {"branch?": "string|null", "type_names?": ["string"]},
    "branch": {"name": "string", "from?": "string|null"},
    "merge": {"source": "string", "target?": "string|null", "delete_branch?": "boolean"},
    "baseline": {"branch?": "string|null", "kind?": [KIND], "type?": ["string"], "op?": [OP]},
    "schema_apply": {"schema_source": "string", "allow_data_loss?": "boolean"},
}  # fmt: skip

COMMIT = {
    "graph_commit_id": "string", "graph_branch?": "string|null", "graph_manifest_version": "integer",
    "parent_commit_id?": "string|null", "merged_parent_commit_id?": "string|null", "actor_id?": "string|null",
    "created_at": "integer",
}  # fmt: skip
TARGET = {"branch?": "string|null", "snapshot?": "string|null"}
ROWS = {"query_name": "string", "target": TARGET, "row_count": "integer", "columns?": ["string"], "rows": "any"}
DECLARED = [{"name": "string", "entities_loaded": "integer"}]
LOADED = {
    "branch": "string", "base_branch?": "string|null", "branch_created": "boolean", "mode": MODE, "nodes": DECLARED,
    "edges": DECLARED, "total_entities": "integer", "actor_id?": "string|null", "commit?": (COMMIT, None),
}  # fmt: skip
CHANGED = {
    "branch": "string", "query_name": "string", "affected_nodes": "integer", "affected_edges": "integer",
    "actor_id?": "string|null", "commit?": (COMMIT, None),
}  # fmt: skip
CAUSE = {
    "graph_commit_id": "string", "parent_commit_id?": "string|null", "merged_parent_commit_id?": "string|null",
    "authored_branch": "string", "actor_id?": "string|null", "authored_at": "integer",
}  # fmt: skip
IMAGE = {"properties": "any", "endpoints?": ({"from": "string", "to": "string"}, None)}
CHANGE = {
    "kind": KIND, "type": {"id": "string", "name": "string"}, "id": "string", "op": OP, "before?": (IMAGE, None),
    "after?": (IMAGE, None),
}  # fmt: skip
BLOCK = {"cause": CAUSE, "changes": [CHANGE]}
DATASET = {
    "entity_kind": KIND, "type_name": "string", "dataset_path": "string", "native_dataset_branch?": "string|null",
    "published_dataset_version": "integer", "entity_count": "integer",
}  # fmt: skip
PARAMETER = {
    "name": "string", "kind": PARAMETER_KINDS, "item_kind?": (*PARAMETER_KINDS, None), "vector_dim?": "integer|null",
    "nullable": "boolean",
}  # fmt: skip
STORED = {
    "name": "string", "tool_name": "string", "description?": "string|null", "instruction?": "string|null",
    "mutation": "boolean", "params": [PARAMETER],
}  # fmt: skip

ANSWERS: dict[str, Any] = {
    "health": {"status": "string", "version": "string", "internal_schema_version": "integer",
               "source_version?": "string|null"},
    "graphs": {"graphs": [{"graph_id": "string", "uri": "string"}]},
    "snapshot": {"graph_branch": "string", "graph_manifest_version": "integer", "internal_schema_version": "integer",
                 "datasets": [DATASET]},
    "query": {**ROWS, "graph_commit_id?": "string|null"},
    "read": ROWS,
    "mutate": CHANGED,
    "queries": {"queries": [STORED]},
    "schema": {"schema_source": "string"},
    "schema_apply": {"uri": "string", "supported": "boolean", "applied": "boolean", "step_count": "integer",
                     "graph_manifest_version": "integer", "steps": ["any"]},
    "load": {"uri": "string", **LOADED},
    "load_lines": LOADED,
    "branches": {"branches": ["string"]},
    "branch": {"uri": "string", "from": "string", "name": "string", "actor_id?": "string|null"},
    "branch_deleted": {"uri": "string", "name": "string", "actor_id?": "string|null"},
    "merge": {"source": "string", "target": "string", "outcome": ("already_up_to_date", "fast_forward", "merged"),
              "actor_id?": "string|null", "branch_deleted?": "boolean|null", "branch_delete_error?": "string|null"},
    "commits": {"commits": [COMMIT]},
    "commit": COMMIT,
    "commit_changes": {**BLOCK, "next_page_token?": "string|null"},
    "changes": {"blocks": [BLOCK], "next_page_token?": "string|null", "cursor?": "string|null",
                "caught_up?": "boolean|null"},
    "baseline": {"baseline": {"snapshot_commit_id": "string", "resume_cursor": "string"}},
}  # fmt: skip

_OF_TYPE = {"entity_kind": KIND, "type_name": "string"}
CHANGE_ERROR = {
    "error": "string", "code?": (*CODES, None),
    "resource_limit?": ({"resource": "string", "limit": "integer", "actual": "integer"}, None),
    "change_feed_gap?": ({"cursor?": "string|null", "first_unreadable_commit_id": "string"}, None),
    "change_diff_refusal?": ({"reason": ("parentless_commit", "schema_boundary", "unknown"),
                              "graph_commit_id": "string", "type_name?": "string|null"}, None),
}  # fmt: skip
ERROR = {
    **CHANGE_ERROR,
    "merge_conflicts?": [{**_OF_TYPE, "entity_id?": "string|null", "message": "string",
                          "kind": (*CONFLICTS.split(), "value_constraint_violation")}],
    "key_conflict?": ({**_OF_TYPE, "entity_id?": "string|null"}, None),
    "read_set_conflict?": ({"member": "string", "expected?": "string|null", "actual?": "string|null"}, None),
    "published_dataset_version_conflict?": ({**_OF_TYPE, "expected_published_dataset_version": "integer",
                                             "actual_published_dataset_version": "integer"}, None),
    "precondition_failure?": ({"expected": "string", "actual?": "string|null"}, None),
    "blob_range?": ({"start": "integer", "end": "integer", "length": "integer"}, None),
}  # fmt: skip


def schema_of(shape: Any) -> dict[str, Any]:
    """Return a shape in our notation as JSON Schema.

    >>> schema_of({"a?": "string|null"})
    {'type': 'object', 'properties': {'a': {'type': ['string', 'null']}}, 'required': []}
    """
    if shape == "any":
        return {}
    if isinstance(shape, str):
        kinds = shape.split("|")
        return {"type": kinds if len(kinds) > 1 else kinds[0]}
    if shape is None:
        return {"type": "null"}
    if isinstance(shape, list):
        return {"type": "array", "items": schema_of(shape[0])}
    if isinstance(shape, tuple):
        words = [one for one in shape if isinstance(one, str)]
        others = [schema_of(one) for one in shape if not isinstance(one, str)]
        return {"anyOf": [*([{"enum": words}] if words else []), *others]}
    members = {name.removesuffix("?"): schema_of(one) for name, one in shape.items()}
    required = [name for name in shape if not name.endswith("?")]
    return {"type": "object", "properties": members, "required": required}


@cache
def _validator(table: str, name: str) -> Any:
    shapes = {"request": REQUESTS, "answer": ANSWERS, "error": {"error": ERROR, "change": CHANGE_ERROR}}[table]
    return jsonschema_rs.Draft202012Validator(schema_of(shapes[name]))


def problems(table: str, name: str, value: object) -> list[str]:
    """Return what a client of the original could not read, or would not have sent."""
    return [f"{one.instance_path}: {one.message}" for one in _validator(table, name).iter_errors(value)]
