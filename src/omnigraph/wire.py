"""Request schemas of the HTTP API, lines of NDJSON, header names and media types, and the parser of requests.

Shared by server and client, so it imports neither.

Pure. A mismatch is a `UsageError` that names the field and its expected type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    Literal,
    NotRequired,
    TypedDict,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)
from urllib.parse import parse_qsl

import orjson

from omnigraph.errors import UsageError
from omnigraph.lang.catalog import Kind
from omnigraph.public_values import Mode, OnDuplicate

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
# The metadata of a member whose argument of a graph's method has another name.
ARGUMENT: Final = "argument"


def argument(name: str, alias: str | None = None) -> dict[str, str]:
    """Return the metadata of a member whose argument of a graph's method has another name."""
    return {ARGUMENT: name} if alias is None else {ARGUMENT: name, ALIAS: alias}


# -- lines of NDJSON --------------------------------------------------------------------------------------------------


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
    """The last line of a baseline: where its feed continues."""

    baseline: BaselineEnd


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

    query: str = field(metadata=argument("source"))
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

    query: str = field(metadata=argument("source", "query_source"))
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

    schema_source: str = field(metadata=argument("schema"))
    allow_data_loss: bool = False
    branch: str = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplySchema(NewSchema):
    """A schema to apply."""

    allow_drops: bool = True
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """NDJSON records in a JSON string."""

    data: str
    branch: str = "main"
    from_: str | None = field(default=None, metadata=argument("from_branch"))
    mode: Mode = "merge"
    on_duplicate: OnDuplicate = "error"
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLines:
    """The target of the NDJSON records in the body."""

    branch: str = "main"
    from_: str | None = field(default=None, metadata=argument("from_branch"))
    mode: Mode = "merge"
    on_duplicate: OnDuplicate = "error"
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What to export: all, or some types, of a branch or an earlier state."""

    branch: str | None = None
    at: str | int | None = None
    snapshot: str | int | None = None
    as_of: str | None = None
    names: Naming = "now"
    type_names: list[str] | None = field(default=None, metadata=argument("types"))
    format: Literal["ndjson", "graphml", "gexf", "dot", "cypher"] = "ndjson"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobInput:
    """The blob to read."""

    entity: Kind
    type: str = field(metadata=argument("type_name"))
    id: str = field(metadata=argument("entity_id"))
    property: str = field(metadata=argument("property_name"))
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
    target: str = field(default="main", metadata=argument("into"))
    delete_branch: bool = False
    dry_run: bool = False
    resolutions: list[dict[str, Any]] | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A commit to revert or cherry-pick, and the target branch."""

    commit: str = field(metadata=argument("commit_id"))
    branch: str = "main"
    dry_run: bool = False
    resolutions: list[dict[str, Any]] | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFilter:
    """Filters of changes: kind, type and operation."""

    kind: list[Kind] | None = field(default=None, metadata=argument("kinds"))
    type: list[str] | None = field(default=None, metadata=argument("types"))
    op: list[Op] | None = field(default=None, metadata=argument("ops"))


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
    max_commits: int | None = field(default=None, metadata=argument("commits_max"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline(ChangeFilter):
    """Filters of a baseline; `op` only affects its cursor."""

    branch: str = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff(ChangeFilter):
    """Two states to compare, named as by `at`; `HEAD`, versions and times are those of `branch`.

    `images` adds the first changes once more, with the entities before and after.
    """

    from_: str | int = field(metadata=argument("a"))
    to: str | int = field(metadata=argument("b"))
    branch: str = "main"
    names: Naming = "now"
    images: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """One entity of a branch or of a past state: its type and its key, an object for a key of several properties."""

    type: str = field(metadata=argument("type_name"))
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


T = TypeVar("T")
_BOOLEANS: Final = {"true": True, "false": False}
_TYPE_NAMES: Final[Mapping[Any, str]] = {
    str: "a string",
    int: "a 64-bit integer",
    float: "a number",
    bool: "true or false",
}


def from_json(kind: type[T], body: bytes) -> T:
    """Parse a JSON body; an empty body is `{}`."""
    # Clients, which only send, need none of the engine.
    from omnigraph.engine.json_text import find_repeated_member

    try:
        document = orjson.loads(body) if body.strip() else {}
    except orjson.JSONDecodeError as error:
        raise UsageError(f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    if not isinstance(document, dict):
        raise UsageError("the body must be a JSON object")
    if (name := find_repeated_member(body, document)) is not None:
        raise UsageError(f"duplicate member `{name}` in an object of the body; send it once", name=name)
    return _build(kind, document)


def from_query(kind: type[T], query: bytes) -> T:
    """Parse a query string; only lists may repeat."""
    hints = {name: hint for name, (_, hint) in input_fields(cast(Any, kind)).items()}
    values: dict[str, Any] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if any(get_origin(option) is list for option in _options(hints.get(name))):
            values.setdefault(name, []).append(value)
        elif name in values:
            raise UsageError(f"`{name}` is given more than once", name=name)
        else:
            values[name] = _parse_value(hints.get(name), value)
    return _build(kind, values)


def _build(kind: type[T], document: Mapping[str, Any]) -> T:
    shape = input_fields(cast(Any, kind))
    # A null field counts as absent. Inside a field, such as `params`, null is a value.
    document = {name: value for name, value in _resolve_aliases(kind, document).items() if value is not None}
    unknown = sorted(document.keys() - shape.keys())
    if unknown:
        expected = ", ".join(f"`{name}`" for name in shape) or "no fields"
        raise UsageError(f"unknown field `{unknown[0]}`; expected one of {expected}", name=unknown[0])
    values: dict[str, Any] = {}
    for wire, (member, hint) in shape.items():
        if wire not in document:
            if member.default is MISSING:
                raise UsageError(f"`{wire}` is missing", name=wire)
            continue
        if not _matches(hint, document[wire]):
            raise UsageError(f"`{wire}` must be {_describe_type(hint)}", name=wire)
        values[member.name] = document[wire]
    return kind(**values)


def _resolve_aliases(kind: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    """Rename aliased fields to their current names."""
    renamed = dict(document)
    for wire, (member, _) in input_fields(kind).items():
        alias = member.metadata.get(ALIAS)
        if alias is None or alias not in renamed:
            continue
        value = renamed.pop(alias)
        if value is not None and renamed.get(wire) is not None:
            raise UsageError(f"`{wire}` and `{alias}` are two names of one field; send one of them", name=alias)
        renamed[wire] = value if value is not None else renamed.get(wire)
    return renamed


@cache
def input_fields(kind: Any) -> dict[str, tuple[Field[Any], Any]]:
    """Return the fields of an input type, with their types, by their names on the wire."""
    hints = get_type_hints(kind)
    return {TO_WIRE.get(member.name, member.name): (member, hints[member.name]) for member in fields(kind)}


@cache
def arguments_of(kind: Any) -> dict[str, str]:
    """Return the arguments of a graph's method by the members of an input type."""
    return {member.name: member.metadata.get(ARGUMENT, member.name) for member in fields(kind)}


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _matches(hint: Any, value: object) -> bool:
    return any(_matches_option(option, value) for option in _options(hint))


def _matches_option(option: Any, value: object) -> bool:
    if option is NoneType:
        return value is None
    if option is int:
        # bool is a subclass of int, but not a JSON integer.
        return type(value) is int and -(2**63) <= value < 2**63
    if get_origin(option) is Literal:
        return isinstance(value, str) and value in get_args(option)
    if get_origin(option) is list:
        return isinstance(value, list) and all(_matches(get_args(option)[0], item) for item in value)
    if get_origin(option) is dict:
        return isinstance(value, dict)
    return isinstance(value, option)


def _parse_value(hint: Any, text: str) -> object:
    """Convert a query-string value to the field's type; unchanged if it does not fit, for the check to reject."""
    options = _options(hint)
    if bool in options:
        return _BOOLEANS.get(text, text)
    if int in options and text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    return text


def _describe_type(hint: Any) -> str:
    options = [option for option in _options(hint) if option is not NoneType]
    return " or ".join(map(_describe_option, options))


def _describe_option(option: Any) -> str:
    if get_origin(option) is Literal:
        return "one of " + ", ".join(f"`{word}`" for word in get_args(option))
    if get_origin(option) is list:
        return f"a list, each {_describe_type(get_args(option)[0])}"
    if get_origin(option) is dict:
        return "an object"
    return _TYPE_NAMES[option]
