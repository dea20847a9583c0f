"""JSON shapes of all responses, from which OpenAPI is generated.

Types only; not imported at run time by handlers. Values that the graph returns are defined in `public_values`; here
they get the names, and the further members, that they have in responses.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from omnigraph import public_values
from omnigraph.lang.catalog import Kind
from omnigraph.lang.migrate.step import SchemaStep
from omnigraph.lang.scalars import ParameterKind
from omnigraph.public_values import Commit
from omnigraph.wire import Op


class Health(TypedDict):
    status: Literal["ok"]
    version: str
    internal_schema_version: int
    source_version: NotRequired[str]


class Welcome(TypedDict):
    """What is served, and where its routes are described."""

    name: str
    version: str
    openapi: str


class Readiness(TypedDict):
    """Whether every graph can be read, and how many stored queries do not compile.

    `configuration` is there when tokens or policies were changed and cannot be used; the previous ones stay in effect.
    """

    status: Literal["ready", "unready"]
    broken_query_count: int
    configuration: NotRequired[Literal["stale"]]


class ServedGraph(TypedDict):
    graph_id: str
    uri: str


class ServedGraphs(TypedDict):
    graphs: list[ServedGraph]


class Snapshot(public_values.Snapshot):
    pass


class Target(TypedDict, total=False):
    """What was read, in the words of the request."""

    branch: str
    at: str | int
    snapshot: str | int
    as_of: str


class LegacyRows(TypedDict):
    """The rows of a query, without the commit that they were read at, which `/query` returns."""

    query_name: str
    target: Target
    row_count: int
    columns: list[str]
    rows: list[dict[str, Any]]


class Rows(LegacyRows):
    graph_commit_id: str | None


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


class Mutated(public_values.MutationReceipt):
    pass


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


class SchemaPlan(TypedDict):
    supported: bool
    steps: list[SchemaStep]


class SchemaApplied(public_values.SchemaReceipt):
    uri: str


class Loaded(public_values.IngestReceipt):
    pass


class LoadedAt(Loaded):
    uri: str


class BranchNames(TypedDict):
    branches: list[str]


class BranchMade(public_values.Branch):
    uri: str
    # "from" is a word of Python, so this member is spelled in `TO_WIRE`.
    from_: str


class NameGone(public_values.Branch):
    uri: str


class Merged(public_values.MergeReceipt):
    """A merge, revert or cherry-pick; only a dry run comes to `conflicted`."""


class Commits(TypedDict):
    commits: list[Commit]


class Cause(TypedDict):
    graph_commit_id: str
    parent_commit_id: NotRequired[str]
    merged_parent_commit_id: NotRequired[str]
    authored_branch: str
    actor_id: NotRequired[str]
    authored_at: int
    message: NotRequired[str]


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


class SchemaChange(TypedDict):
    """How a commit changed the schema, with the names of then."""

    steps: list[SchemaStep]


class Block(TypedDict):
    """What one commit changed."""

    cause: Cause
    schema: NotRequired[SchemaChange]
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
    images: NotRequired[list[Change]]
    stats: ChangeCounts


class Tag(public_values.Tag):
    pass


class TagMade(Tag):
    uri: str


class Tags(TypedDict):
    tags: list[Tag]
