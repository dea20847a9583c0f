"""Request schemas of the HTTP API: the parameters of every route, header names and media types.

Shared by server and client, so it imports neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from omnigraph.lang.catalog import Kind
from omnigraph.public_values import Mode

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
# The formats of an export.
EXPORT_MEDIA: Final[Mapping[str, str]] = {
    "ndjson": NDJSON,
    "graphml": "application/graphml+xml",
    "gexf": "application/gexf+xml",
    "dot": "text/vnd.graphviz",
    "cypher": "application/x-cypher-query",
}
ARROW: Final = "application/vnd.apache.arrow.stream"
BYTES: Final = "application/octet-stream"

IF_COMMIT: Final = "Omnigraph-If-Graph-Commit"
OPERATION_ID: Final = "Omnigraph-Operation-Id"
REQUEST_ID: Final = "X-Request-Id"
SNAPSHOT_ID: Final = "Omnigraph-Snapshot-Id"
# The metadata of a query result: JSON responses have it next to the rows, Arrow responses in headers, percent-encoded.
QUERY_NAME: Final = "Omnigraph-Query-Name"
ROW_COUNT: Final = "Omnigraph-Row-Count"
BRANCH: Final = "Omnigraph-Branch"
COMMIT_ID: Final = "Omnigraph-Graph-Commit-Id"

Op = Literal["insert", "update", "delete"]
Naming = Literal["now", "then"]

# The metadata of a member that is also accepted under the name that it had in earlier releases of the protocol.
ALIAS: Final = "alias"


# -- inputs of routes: a JSON body, or the query string for GET, HEAD and NDJSON bodies -------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NoInput:
    """A route whose only input is its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchInput:
    """The branch to read."""

    branch: str = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaInput(BranchInput):
    """The branch whose schema is read, or a past state of it."""

    at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInput(SchemaInput):
    """The branch to read, or a past state of it."""

    names: Naming = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits(BranchInput):
    """A page of the commits of a branch: at most `limit`, newest first, optionally only those `before` a commit."""

    limit: int | None = None
    before: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A read. `at` names a past state: a branch, a tag, a commit id or its beginning, `HEAD~2`, a version, a time.

    `HEAD`, versions and times are those of `branch`. Earlier names of `at` are `snapshot` (a commit, a tag or, with
    `branch`, a manifest version) and `as_of` (an instant in ISO 8601).

    `names` selects whether an older state is read with today's type and property names, or with those of its time.
    """

    query: str
    name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    at: str | int | None = None
    snapshot: str | int | None = None
    as_of: str | None = None
    names: Naming = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain(Query):
    """A read to explain; with `profile` it is also run."""

    profile: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A read, with the member names of earlier releases."""

    query_source: str = field(metadata={ALIAS: "query"})
    query_name: str | None = field(default=None, metadata={ALIAS: "name"})
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutate:
    """A mutation; `message` says what its commit is for, and a `dry_run` makes none."""

    query: str = field(metadata={ALIAS: "query_source"})
    name: str | None = field(default=None, metadata={ALIAS: "query_name"})
    params: dict[str, Any] | None = None
    branch: str = "main"
    message: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoke:
    """The call of a stored query; `expect_mutation` rejects a query of the other kind.

    `message` is for the commit of a mutation.
    """

    params: dict[str, Any] | None = None
    branch: str | None = None
    at: str | int | None = None
    snapshot: str | int | None = None
    as_of: str | None = None
    names: Naming = "now"
    expect_mutation: bool | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchema:
    """A schema to plan for, on a branch."""

    schema_source: str
    allow_data_loss: bool = False
    branch: str = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplySchema(NewSchema):
    """A schema to apply."""

    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """NDJSON records in a JSON string."""

    data: str
    branch: str = "main"
    from_: str | None = None
    mode: Mode = "merge"
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLines:
    """The target of the NDJSON records in the body."""

    branch: str = "main"
    from_: str | None = None
    mode: Mode = "merge"
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What to export: all, or some types, of a branch or an earlier state."""

    branch: str | None = None
    at: str | int | None = None
    snapshot: str | int | None = None
    as_of: str | None = None
    names: Naming = "now"
    type_names: list[str] | None = None
    format: Literal["ndjson", "graphml", "gexf", "dot", "cypher"] = "ndjson"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobInput:
    """The blob to read."""

    entity: Kind
    type: str
    id: str
    property: str
    branch: str | None = None
    at: str | None = None
    snapshot: str | None = None
    names: Naming = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBranch:
    """A branch to create; `from` is a branch, commit or tag, or with `at` the branch that had that state."""

    name: str
    from_: str = "main"
    at: str | int | None = None
    snapshot: str | int | None = None
    as_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    """A branch and its new name."""

    name: str
    new_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A merge; `resolutions` settle conflicts."""

    source: str
    target: str = "main"
    delete_branch: bool = False
    dry_run: bool = False
    resolutions: list[dict[str, Any]] | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A commit to revert or cherry-pick, and the target branch."""

    commit: str
    branch: str = "main"
    dry_run: bool = False
    resolutions: list[dict[str, Any]] | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFilter:
    """Filters of changes: kind, type and operation."""

    kind: list[Kind] | None = None
    type: list[str] | None = None
    op: list[Op] | None = None

    @property
    def filters(self) -> dict[str, Any]:
        """The arguments of a graph's methods."""
        return {"kinds": self.kind, "types": self.type, "ops": self.op}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(ChangeFilter):
    """Filters of changes, and the size of a page."""

    page_token: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitChanges(Page):
    """Filters of the changes of a commit, with today's names or those of the commit."""

    names: Naming = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes(Page):
    """Filters of the changes of a branch, and where to start: one of `start`, `cursor` and `page_token`."""

    branch: str = "main"
    start: str | None = None
    cursor: str | None = None
    max_commits: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline(ChangeFilter):
    """Filters of a baseline; `op` only affects its cursor."""

    branch: str = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff(ChangeFilter):
    """Two states to compare, named as by `at`; `HEAD`, versions and times are those of `branch`.

    `images` adds the first changes once more, with the entities before and after.
    """

    from_: str | int
    to: str | int
    branch: str = "main"
    names: Naming = "now"
    images: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """One entity of a branch or of a past state: its type and its key, an object for a key of several properties."""

    type: str
    key: str | int | float | bool | dict[str, Any]
    branch: str = "main"
    at: str | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetEntity(Entity):
    """One entity to read, with today's names or those of its time."""

    names: Naming = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntity(Entity):
    """The entity whose history to read, and the maximum number of commits."""

    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTag:
    """A tag to create at the head of a branch, or at an earlier state of it."""

    name: str
    branch: str = "main"
    at: str | int | None = None
    as_of: str | None = None


# Members that Python cannot spell, by their name here.
TO_WIRE: Final[Mapping[str, str]] = {"from_": "from"}
