"""Header names, media types and the input types of all routes.

Shared by server and client, so it imports neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from omnigraph.public_values import Mode

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
ARROW: Final = "application/vnd.apache.arrow.stream"
BYTES: Final = "application/octet-stream"

IF_COMMIT: Final = "Omnigraph-If-Graph-Commit"
OPERATION_ID: Final = "Omnigraph-Operation-Id"
REQUEST_ID: Final = "X-Request-Id"
SNAPSHOT_ID: Final = "Omnigraph-Snapshot-Id"
# What a JSON answer to a query says beside its rows; an Arrow answer says it in headers. Names are percent-encoded.
QUERY_NAME: Final = "Omnigraph-Query-Name"
ROW_COUNT: Final = "Omnigraph-Row-Count"
BRANCH: Final = "Omnigraph-Branch"
COMMIT_ID: Final = "Omnigraph-Graph-Commit-Id"

Kind = Literal["node", "edge"]
Op = Literal["insert", "update", "delete"]
Naming = Literal["now", "then"]

# The metadata of a member that is also taken under another name, which earlier releases of the protocol had.
ALIAS: Final = "alias"
_QUERY: Final = {ALIAS: "query_source"}
_NAME: Final = {ALIAS: "query_name"}


# -- what routes take: a JSON body, or for GET, HEAD and NDJSON bodies the query string -------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NoInput:
    """A route that takes nothing but its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchInput:
    """Which branch to look at."""

    branch: str = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """A page of the commits of a branch: at most `limit`, from the newest on, or from the one `before` a commit on."""

    branch: str = "main"
    limit: int | None = None
    before: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A read. `snapshot` is a commit, a tag or, with `branch`, a manifest version; `as_of` an instant in ISO 8601.

    An older state is read with the names of today, or of its own time.
    """

    query: str
    name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | int | None = None
    as_of: str | None = None
    names: Naming = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain(Query):
    """A read whose plan is wanted; with `profile` it is run."""

    profile: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A read, in the words of earlier releases."""

    query_source: str = field(metadata={ALIAS: "query"})
    query_name: str | None = field(default=None, metadata={ALIAS: "name"})
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutate:
    """A mutation."""

    query: str = field(metadata=_QUERY)
    name: str | None = field(default=None, metadata=_NAME)
    params: dict[str, Any] | None = None
    branch: str = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoke:
    """The call of a stored query; `expect_mutation` refuses the other kind."""

    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | int | None = None
    as_of: str | None = None
    names: Naming = "now"
    expect_mutation: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchema:
    """A schema to plan for or to apply."""

    schema_source: str
    allow_data_loss: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """NDJSON records as one JSON text."""

    data: str
    branch: str = "main"
    from_: str | None = None
    mode: Mode = "merge"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLines:
    """Where the NDJSON records of the body go."""

    branch: str = "main"
    from_: str | None = None
    mode: Mode = "merge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What to export: all, or some types, of a branch or an earlier state."""

    branch: str | None = None
    snapshot: str | int | None = None
    as_of: str | None = None
    names: Naming = "now"
    type_names: list[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobInput:
    """Which blob."""

    entity: Kind
    type: str
    id: str
    property: str
    branch: str | None = None
    snapshot: str | None = None
    names: Naming = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBranch:
    """A branch to make; `from` is a branch, a commit or a tag, and with `snapshot` a branch at that moment."""

    name: str
    from_: str = "main"
    snapshot: str | int | None = None
    as_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    """A branch, and what it is to be called."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A commit to take back or to apply again, and the branch to do it on."""

    commit: str
    branch: str = "main"
    dry_run: bool = False
    resolutions: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFilter:
    """Which changes, by kind, type and operation."""

    kind: list[Kind] | None = None
    type: list[str] | None = None
    op: list[Op] | None = None

    @property
    def filters(self) -> dict[str, Any]:
        """The arguments of a graph's methods."""
        return {"kinds": self.kind, "types": self.type, "ops": self.op}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(ChangeFilter):
    """Which changes, and how many at once."""

    page_token: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitChanges(Page):
    """Which changes of a commit, with the names of today or of the commit."""

    names: Naming = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes(Page):
    """Which changes of a branch, and from where on: one of `start`, `cursor` and `page_token`."""

    branch: str = "main"
    start: str | None = None
    cursor: str | None = None
    max_commits: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline(ChangeFilter):
    """What a baseline holds; `op` is bound into its cursor only."""

    branch: str = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff(ChangeFilter):
    """Two states to compare: branches, tags, commits or, of `branch`, manifest versions."""

    from_: str | int
    to: str | int
    branch: str = "main"
    names: Naming = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTag:
    """A tag to make at the head of a branch, or at a moment of it."""

    name: str
    branch: str = "main"
    at: str | int | None = None
    as_of: str | None = None


# Members that Python cannot spell, by their name here.
TO_WIRE: Final[Mapping[str, str]] = {"from_": "from"}
