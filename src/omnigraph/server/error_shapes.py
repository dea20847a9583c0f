"""JSON shapes of errors, from which OpenAPI is generated.

Types only; `errors.error_body` builds the values.
"""

from __future__ import annotations

from typing import Any, Literal, NewType, NotRequired, TypedDict

from omnigraph.server.wire import Kind

# One of the codes of `errors.ERRORS`.
OmnigraphCode = NewType("OmnigraphCode", str)
Code = Literal[
    "bad_request",
    "unauthorized",
    "forbidden",
    "not_found",
    "method_not_allowed",
    "conflict",
    "too_many_requests",
    "internal",
]
MergeConflictKind = Literal[
    "divergent_insert",
    "divergent_update",
    "delete_vs_update",
    "orphan_edge",
    "unique_violation",
    "cardinality_violation",
    "value_constraint_violation",
]


class MergeConflict(TypedDict):
    entity_kind: Kind
    type_name: str
    entity_id: NotRequired[str]
    kind: MergeConflictKind
    message: str


class VersionConflict(TypedDict):
    """A type was published at another version than the write relied on."""

    entity_kind: Kind
    type_name: str
    expected_published_dataset_version: int | None
    actual_published_dataset_version: int | None


class ReadSetConflict(TypedDict):
    """Something that a write relied on changed before it was published."""

    member: str
    expected: NotRequired[str]
    actual: NotRequired[str]


class KeyConflict(TypedDict):
    """There is an entity with this id already."""

    entity_kind: Kind
    type_name: str
    entity_id: NotRequired[str]


class DiffRefusal(TypedDict):
    """A commit whose changes cannot be told."""

    reason: Literal["parentless_commit", "schema_boundary"]
    graph_commit_id: str
    type_name: NotRequired[str]


class FeedGap(TypedDict):
    """History that a feed needs was removed; take a new baseline."""

    cursor: NotRequired[str]
    first_unreadable_commit_id: str


class PreconditionFailure(TypedDict):
    """The commit that a branch had to be at, and the one it is at."""

    expected: str
    actual: NotRequired[str]


class ResourceLimit(TypedDict):
    """How much of a resource one request may take, and how much this one would."""

    resource: str
    limit: int
    actual: int


class BlobRange(TypedDict):
    """A range, without its `end`, that holds no byte of a blob of this length."""

    start: int
    end: int
    length: int


class Error(TypedDict):
    """Every refusal: `code` is of a closed set and absent elsewhere, `omnigraph_code` is always there.

    `context` holds what the error knows, under the names that the library uses; the members after it repeat some of it
    in the shapes of single situations.
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
