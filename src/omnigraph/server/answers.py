"""What every route answers, as shapes of JSON; the description of the interface is made from them.

Plain types, imported by no data path.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from omnigraph.server.wire import Kind, Mode


class Health(TypedDict):
    status: Literal["ok"]
    version: str
    internal_schema_version: int


class Readiness(TypedDict):
    status: Literal["ready", "unready"]


class ServedGraph(TypedDict):
    graph_id: str
    uri: str


class ServedGraphs(TypedDict):
    graphs: list[ServedGraph]


class Dataset(TypedDict):
    entity_kind: Kind
    type_name: str
    dataset_path: NotRequired[str]
    native_dataset_branch: NotRequired[str]
    published_dataset_version: int
    entity_count: int


class Snapshot(TypedDict):
    graph_branch: str
    graph_commit_id: str
    graph_manifest_version: int
    internal_schema_version: int
    datasets: list[Dataset]


class Target(TypedDict, total=False):
    branch: str
    snapshot: str | int


class Rows(TypedDict):
    query_name: str
    target: Target
    row_count: int
    columns: list[str]
    rows: list[dict[str, Any]]
    graph_commit_id: str | None


class Plan(TypedDict):
    """The plan as data under `plan`, totals beside it, and the whole as `text` for people."""

    query: str
    plan: list[dict[str, Any]]
    text: str


class Mutated(TypedDict):
    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: str | None


class StoredParameter(TypedDict):
    name: str
    kind: str
    item_kind: NotRequired[str]
    vector_dim: NotRequired[int]
    nullable: bool


class StoredQuery(TypedDict):
    name: str
    tool_name: str
    description: NotRequired[str]
    instruction: NotRequired[str]
    mutation: bool
    params: list[StoredParameter]


class StoredQueries(TypedDict):
    queries: list[StoredQuery]


class SchemaSource(TypedDict):
    schema_source: str


class SchemaPlan(TypedDict):
    supported: bool
    steps: list[dict[str, Any]]


class SchemaApplied(TypedDict):
    uri: str
    supported: bool
    applied: bool
    step_count: int
    graph_manifest_version: int
    steps: list[dict[str, Any]]
    commit: str | None
    purge_pending: list[str]


class LoadedType(TypedDict):
    name: str
    entities_loaded: int


class Loaded(TypedDict):
    branch: str
    base_branch: str | None
    branch_created: bool
    mode: Mode
    nodes: list[LoadedType]
    edges: list[LoadedType]
    total_entities: int
    actor_id: str | None
    commit: str


class LoadedAt(Loaded):
    uri: str


class BranchNames(TypedDict):
    branches: list[str]


class BranchMade(TypedDict):
    uri: str
    # "from" is a word of Python, so this member is spelled in `TO_WIRE`.
    from_: str
    name: str
    actor_id: str | None


class NameGone(TypedDict):
    uri: str
    name: str
    actor_id: str | None


class Merged(TypedDict):
    source: str
    target: str
    outcome: Literal["already_up_to_date", "fast_forward", "merged", "conflicted"]
    base_commit_id: str | None
    base_commit_ids: list[str]
    commit: str | None
    types: list[dict[str, Any]]
    conflicts: list[dict[str, Any]]
    dry_run: bool
    actor_id: str | None
    branch_deleted: bool
    branch_delete_error: str | None


class Commit(TypedDict):
    graph_commit_id: str
    graph_branch: str
    graph_manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int
    kind: str
    operation_id: str
    properties: dict[str, str]


class Commits(TypedDict):
    commits: list[Commit]


class Operation(TypedDict):
    """What became of a write: `applied` with its commit, `pending`, or `absent`, which is final."""

    operation_id: str
    outcome: Literal["applied", "pending", "absent"]
    commit: Commit | None


class Cause(TypedDict):
    graph_commit_id: str
    parent_commit_id: NotRequired[str]
    merged_parent_commit_id: NotRequired[str]
    authored_branch: str
    actor_id: NotRequired[str]
    authored_at: int


class Block(TypedDict):
    cause: Cause
    changes: list[dict[str, Any]]


class CommitPage(Block):
    next_page_token: NotRequired[str]


class FeedPage(TypedDict):
    blocks: list[Block]
    next_page_token: NotRequired[str]
    cursor: NotRequired[str]
    caught_up: NotRequired[bool]


class Difference(TypedDict):
    from_graph_manifest_version: int
    to_graph_manifest_version: int
    graph_branch: NotRequired[str]
    changes: list[dict[str, Any]]
    stats: dict[str, int]


class Tag(TypedDict):
    name: str
    graph_commit_id: str
    actor_id: str | None
    created_at: int


class TagMade(Tag):
    uri: str


class Tags(TypedDict):
    tags: list[Tag]


class Error(TypedDict):
    """Every refusal: `code` is of a closed set and absent elsewhere, `omnigraph_code` is always there.

    `context` holds what the error knows, under the names that the library uses; the members after it repeat some of it
    in the shapes of single situations.
    """

    error: str
    code: NotRequired[str]
    omnigraph_code: str
    effect: Literal["none", "applied", "unknown"]
    retryable: bool
    context: dict[str, Any]
    request_id: NotRequired[str]
    operation_id: NotRequired[str]
    merge_conflicts: NotRequired[list[dict[str, Any]]]
    published_dataset_version_conflict: NotRequired[dict[str, Any]]
    read_set_conflict: NotRequired[dict[str, Any]]
    key_conflict: NotRequired[dict[str, Any]]
    change_diff_refusal: NotRequired[dict[str, Any]]
    change_feed_gap: NotRequired[dict[str, Any]]
    precondition_failure: NotRequired[dict[str, Any]]
    resource_limit: NotRequired[dict[str, Any]]
    blob_range: NotRequired[dict[str, Any]]
