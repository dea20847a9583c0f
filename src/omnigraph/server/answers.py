"""JSON shapes of all responses, from which OpenAPI is generated.

Types only; not imported at run time by handlers.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from omnigraph.lang.catalog import Kind
from omnigraph.lang.migrate.compare import DropMode, StepKind
from omnigraph.server.wire import Mode, Op

CommitKind = Literal[
    "init",
    "mutation",
    "ingest",
    "load",
    "embed",
    "merge",
    "revert",
    "cherry_pick",
    "schema_apply",
    "ensure_indices",
    "optimize",
    "repair",
]
ParameterKind = Literal["string", "bool", "int", "bigint", "float", "date", "datetime", "blob", "vector", "list"]


class Health(TypedDict):
    status: Literal["ok"]
    version: str
    internal_schema_version: int


class Readiness(TypedDict):
    """Whether every graph can be read, and how many stored queries do not compile.

    `configuration` is there when tokens or policies were changed and cannot be used; those of before still hold.
    """

    status: Literal["ready", "unready"]
    broken_query_count: int
    configuration: NotRequired[Literal["stale"]]


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
    """What was read, in the words of the request."""

    branch: str
    snapshot: str | int
    as_of: str


class Rows(TypedDict):
    query_name: str
    target: Target
    row_count: int
    columns: list[str]
    rows: list[dict[str, Any]]
    graph_commit_id: str | None


class LegacyRows(TypedDict):
    """The rows of a query, without the commit that they were read at; `/query` tells it."""

    query_name: str
    target: Target
    row_count: int
    columns: list[str]
    rows: list[dict[str, Any]]


class Operator(TypedDict):
    """One operator of a plan; what came out of it is known after a run, `traversal` and `because` of walks only."""

    operator: str
    estimated_rows: int
    inner: NotRequired[list[Operator]]
    rows: NotRequired[int]
    milliseconds: NotRequired[float]
    bytes: NotRequired[int]
    storage: NotRequired[dict[str, int]]
    traversal: NotRequired[str]
    because: NotRequired[str]
    vectors: NotRequired[str]
    texts: NotRequired[str]


class Plan(TypedDict):
    """The plan as data under `plan`, totals of a run beside it, and the whole as `text` for people."""

    query: str
    plan: list[Operator]
    text: str
    rows: NotRequired[int]
    milliseconds: NotRequired[float]
    rows_peak: NotRequired[int]
    bytes_peak: NotRequired[int]
    storage: NotRequired[dict[str, int]]


class Commit(TypedDict):
    """One graph-visible change; `created_at` counts microseconds since 1970."""

    graph_commit_id: str
    graph_branch: str
    graph_manifest_version: int | None
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int
    kind: CommitKind
    operation_id: str
    properties: dict[str, str]


class Mutated(TypedDict):
    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: Commit | None


class StoredParameter(TypedDict):
    name: str
    kind: ParameterKind
    item_kind: NotRequired[ParameterKind]
    vector_dim: NotRequired[int]
    nullable: bool


class StoredQuery(TypedDict):
    name: str
    tool_name: str
    description: NotRequired[str]
    instruction: NotRequired[str]
    mutation: bool
    params: list[StoredParameter]


class QueryFinding(TypedDict):
    code: str
    message: str
    hint: str | None
    line: int


class BrokenQuery(TypedDict):
    """A stored query that does not compile against the accepted schema; it cannot be called."""

    name: str
    file: str
    diagnostics: list[QueryFinding]


class StoredQueries(TypedDict):
    """The stored queries, and for callers who see every type those that cannot be called."""

    queries: list[StoredQuery]
    broken: list[BrokenQuery]


class SchemaSource(TypedDict):
    schema_source: str


class SchemaStep(TypedDict):
    """One step of a migration; which members it has follows from its kind."""

    kind: StepKind
    type_kind: NotRequired[Literal["interface", "node", "edge"]]
    name: NotRequired[str]
    type_name: NotRequired[str]
    property_name: NotRequired[str]
    from_: NotRequired[str]
    to: NotRequired[str]
    property_type: NotRequired[str]
    constraint: NotRequired[str]
    added_values: NotRequired[list[str]]
    mode: NotRequired[DropMode]
    entity: NotRequired[str]
    reason: NotRequired[str]
    code: NotRequired[str]


class SchemaPlan(TypedDict):
    supported: bool
    steps: list[SchemaStep]


class SchemaApplied(TypedDict):
    uri: str
    supported: bool
    applied: bool
    step_count: int
    graph_manifest_version: int
    steps: list[SchemaStep]
    commit: Commit | None
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
    commit: Commit | None


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


class TypeCount(TypedDict):
    """How many entities of a type a merge changed; `adopted`: without writing them again."""

    type_key: str
    inserted: int
    updated: int
    deleted: int
    adopted: bool


class Conflict(TypedDict):
    """One thing that a merge cannot settle, with the entity as the three sides have it."""

    type_key: str
    entity_id: str | None
    kind: Literal[
        "DivergentInsert",
        "DivergentUpdate",
        "DeleteVsUpdate",
        "OrphanEdge",
        "UniqueViolation",
        "CardinalityViolation",
        "ValueConstraintViolation",
    ]
    message: str
    properties: list[str]
    base: dict[str, Any] | None
    ours: dict[str, Any] | None
    theirs: dict[str, Any] | None


class Merged(TypedDict):
    """A merge, revert or cherry-pick; only a dry run comes to `conflicted`."""

    source: str
    target: str
    outcome: Literal["already_up_to_date", "fast_forward", "merged", "conflicted"]
    base_commit_id: str | None
    base_commit_ids: list[str]
    commit: Commit | None
    types: list[TypeCount]
    conflicts: list[Conflict]
    dry_run: bool
    actor_id: str | None
    branch_deleted: bool | None
    branch_delete_error: str | None


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


class ChangedType(TypedDict):
    """A type; its `id` survives a rename."""

    id: str
    name: str


class Endpoints(TypedDict):
    from_: str
    to: str


class Image(TypedDict):
    """An entity as it was or is; only edges have `endpoints`."""

    properties: dict[str, Any]
    endpoints: NotRequired[Endpoints]


class Change(TypedDict):
    """One change; an insert has no `before`, and a delete no `after`."""

    kind: Kind
    type: ChangedType
    id: str
    op: Op
    before: NotRequired[Image]
    after: NotRequired[Image]


class Block(TypedDict):
    """What one commit changed."""

    cause: Cause
    changes: list[Change]


class CommitPage(Block):
    next_page_token: NotRequired[str]


class FeedPage(TypedDict):
    blocks: list[Block]
    next_page_token: NotRequired[str]
    cursor: NotRequired[str]
    caught_up: NotRequired[bool]


class ChangedEntity(TypedDict):
    kind: Kind
    type_name: str
    id: str
    op: Op
    published_dataset_version: int | None
    endpoints: NotRequired[Endpoints]


class ChangeCounts(TypedDict):
    inserts: int
    updates: int
    deletes: int
    types_affected: int


class Difference(TypedDict):
    from_graph_manifest_version: int
    to_graph_manifest_version: int
    graph_branch: NotRequired[str]
    changes: list[ChangedEntity]
    stats: ChangeCounts


class NodeRecord(TypedDict):
    """A line of NDJSON: one node."""

    type: str
    data: NotRequired[dict[str, Any]]


class EdgeRecord(TypedDict):
    """A line of NDJSON: one edge."""

    edge: str
    from_: str
    to: str
    data: NotRequired[dict[str, Any]]


class BaselineEnd(TypedDict):
    snapshot_commit_id: str
    resume_cursor: str


class BaselineRecord(TypedDict):
    """The last line of a baseline: where its feed goes on."""

    baseline: BaselineEnd


class Tag(TypedDict):
    name: str
    graph_commit_id: str
    actor_id: str | None
    created_at: int


class TagMade(Tag):
    uri: str


class Tags(TypedDict):
    tags: list[Tag]
