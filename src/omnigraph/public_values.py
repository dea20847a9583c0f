"""The values that a graph returns, each defined once: JSON, its decoding and OpenAPI follow from the fields.

Opened graphs, the server, clients and the command line share them. Imports neither storage nor Arrow, because clients
have to start fast.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum, StrEnum
from functools import cache
from types import UnionType
from typing import (
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    NotRequired,
    Self,
    TypedDict,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from omnigraph.display import commit_note, count_of, printable, summarize, text_table
from omnigraph.ids import CommitId, OperationId
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.migrate import Step

_WIRE_NAME: Final = "wire_name"


class Member(NamedTuple):
    """A member of a JSON object: its name there, the attribute that it shows, and the type of that."""

    name: str
    attribute: str
    kind: Any
    is_computed: bool


class PublicValue:
    """A dataclass that is shown as a JSON object; `computed` names properties that are shown after the fields."""

    __slots__ = ()
    computed: ClassVar[Mapping[str, str]] = {}

    def to_json(self) -> dict[str, Any]:
        """Return the value as a JSON object, with the names that the command line and the server use.

        Returns:
            The object.

        Example:
            >>> Branch("review", None).to_json()
            {'name': 'review', 'actor_id': None}
        """
        return {member.name: _encode(getattr(self, member.attribute)) for member in members(type(self))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the value of a JSON object; unknown members are ignored, and optional ones may be missing.

        Args:
            data: The object, as `to_json` returns it.

        Returns:
            The value.

        Example:
            >>> Branch.from_json({"name": "review", "actor_id": "ann"}).actor
            'ann'
        """
        optional = {item.name for item in fields(cast(Any, cls)) if item.default is not MISSING}
        stored = (
            member
            for member in members(cls)
            if not member.is_computed and (member.name in data or member.attribute not in optional)
        )
        return cls(**{member.attribute: _decode(member.kind, data[member.name]) for member in stored})


def _members(kind: Any) -> tuple[Member, ...]:
    names = {item.name: item.metadata.get(_WIRE_NAME, item.name) for item in fields(kind)}
    hints = {name: hint for name, hint in get_type_hints(kind).items() if ClassVar not in (hint, get_origin(hint))}
    computed = [
        Member(name, attribute, get_type_hints(getattr(kind, attribute).fget)["return"], True)
        for attribute, name in kind.computed.items()
    ]
    return (*(Member(names.get(name, name), name, hint, False) for name, hint in hints.items()), *computed)


# The members of the JSON object of a kind of `PublicValue`.
members: Callable[[Any], tuple[Member, ...]] = cache(_members)


def _encode(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def _decode(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _decode(inner[0], value)
    if origin is tuple:
        return tuple(_decode(inner[0], item) for item in value)
    if hasattr(kind, "from_json"):
        return kind.from_json(value)
    return kind(value) if isinstance(kind, type) and issubclass(kind, Enum | TypeKey) else value


def named(wire_name: str) -> dict[str, str]:
    """Return the metadata of a field that has another name in JSON."""
    return {_WIRE_NAME: wire_name}


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


@dataclass(frozen=True, slots=True)
class Commit(PublicValue):
    """One graph-visible change; `created_at` counts microseconds since 1970.

    `message` is what its author wrote about it; None without one, or if the reader may not see all types.
    """

    commit_id: CommitId = field(metadata=named("graph_commit_id"))
    # The name of its branch, or what is left of one that is gone.
    branch: str = field(metadata=named("graph_branch"))
    manifest_version: int | None = field(metadata=named("graph_manifest_version"))
    parent: CommitId | None = field(metadata=named("parent_commit_id"))
    merged_parent: CommitId | None = field(metadata=named("merged_parent_commit_id"))
    actor: str | None = field(metadata=named("actor_id"))
    created_at_us: int = field(metadata=named("created_at"))
    kind: CommitKind
    operation_id: OperationId
    properties: dict[str, str] = field(default_factory=dict)
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Tag(PublicValue):
    """A named commit, which cleanup keeps."""

    name: str
    commit_id: CommitId = field(metadata=named("graph_commit_id"))
    actor: str | None = field(metadata=named("actor_id"))
    created_at_us: int = field(metadata=named("created_at"))


@dataclass(frozen=True, slots=True)
class Operation(PublicValue):
    """The outcome of a write: `applied` with its commit, `pending`, or `absent`, which is final."""

    operation_id: str
    outcome: Literal["applied", "pending", "absent"]
    # Names of branches and tags change without a commit.
    commit: Commit | None = None


@dataclass(frozen=True, slots=True)
class Branch(PublicValue):
    """A branch that was made or renamed."""

    name: str
    actor: str | None = field(metadata=named("actor_id"))


class Dataset(TypedDict):
    entity_kind: Literal["node", "edge"]
    type_name: str
    dataset_path: NotRequired[str]
    native_dataset_branch: NotRequired[str]
    published_dataset_version: int
    entity_count: int


@dataclass(frozen=True, slots=True)
class Snapshot(PublicValue):
    """The state of a branch; `datasets` has the version of each type."""

    branch: str = field(metadata=named("graph_branch"))
    head: CommitId = field(metadata=named("graph_commit_id"))
    version: int = field(metadata=named("graph_manifest_version"))
    internal_schema_version: int
    datasets: tuple[Dataset, ...]


@dataclass(frozen=True, slots=True)
class MutationReceipt(PublicValue):
    """A finished mutation; without a commit when it changed nothing."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor: str | None = field(metadata=named("actor_id"))
    commit: Commit | None

    def __repr__(self) -> str:
        nodes, edges = count_of(self.affected_nodes, "node"), count_of(self.affected_edges, "edge")
        return summarize(self, f"`{self.query_name}` on {self.branch}", nodes, edges, commit_note(self.commit))


class LoadedType(TypedDict):
    name: str
    entities_loaded: int


class EntityCounts(dict[str, int]):
    """Counts of entities by type."""

    json_type: ClassVar = list[LoadedType]

    def to_json(self) -> list[LoadedType]:
        return [{"name": name, "entities_loaded": count} for name, count in self.items()]

    @classmethod
    def from_json(cls, data: Iterable[LoadedType]) -> Self:
        return cls({item["name"]: item["entities_loaded"] for item in data})


Mode = Literal["append", "merge", "overwrite"]
# Which of several entities of one input with the same id is loaded; `error` means none.
OnDuplicate = Literal["error", "first", "last"]


@dataclass(frozen=True, slots=True)
class IngestReceipt(PublicValue):
    """A finished ingest: how many entities of each type it read, and its commit, if there was anything to write."""

    computed: ClassVar = {"total_entities": "total_entities"}
    branch: str
    base_branch: str | None
    branch_created: bool
    mode: Mode
    nodes: EntityCounts
    edges: EntityCounts
    actor: str | None = field(metadata=named("actor_id"))
    commit: Commit | None

    def __repr__(self) -> str:
        counts = [f"{count:,} {name}" for name, count in {**self.nodes, **self.edges}.items()]
        return summarize(self, f"{self.mode} on {self.branch}", *counts, commit_note(self.commit))

    @property
    def commit_id(self) -> str | None:
        """The id of the commit; None if nothing was written."""
        return self.commit.commit_id if self.commit else None

    @property
    def total_entities(self) -> int:
        """The number of nodes and edges that were read."""
        return sum(self.nodes.values()) + sum(self.edges.values())


@dataclass(frozen=True, slots=True)
class SchemaReceipt(PublicValue):
    """The outcome of an apply; without steps nothing was applied and there is no commit.

    `purge_pending` lists what was hard-dropped: no commit, branch or tag shows it any more, and the next cleanup
    removes its bytes.
    """

    computed: ClassVar = {"step_count": "step_count"}
    supported: bool
    applied: bool
    graph_manifest_version: int
    steps: tuple[Step, ...]
    commit: Commit | None = None
    purge_pending: tuple[str, ...] = ()

    @property
    def step_count(self) -> int:
        """The number of steps."""
        return len(self.steps)

    def __repr__(self) -> str:
        return summarize(self, *(step.render() for step in self.steps), commit_note(self.commit))


@dataclass(frozen=True, slots=True)
class EntityChange(PublicValue):
    """What a commit did to an entity; `before` and `after` are its values without blobs, None where it did not exist.

    A merge is compared with its first parent, the branch that was merged into.
    """

    commit: Commit
    op: Literal["insert", "update", "delete"]
    changed: tuple[str, ...] = field(metadata=named("changed_properties"))
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class EntityLog(PublicValue):
    """The commits that changed an entity, newest first.

    `is_complete` is False if there may be earlier ones: because of the limit, because cleanup removed older states, or
    because they are on a branch that the actor may not read.
    """

    type_name: str
    entity_id: str
    changes: tuple[EntityChange, ...]
    is_complete: bool

    def __len__(self) -> int:
        return len(self.changes)

    def __iter__(self) -> Iterator[EntityChange]:
        return iter(self.changes)

    def __getitem__(self, index: int) -> EntityChange:
        return self.changes[index]

    def __repr__(self) -> str:
        rows = [
            [change.op, ", ".join(change.changed), change.commit.commit_id, change.commit.actor, change.commit.message]
            for change in self.changes
        ]
        names = ["op", "changed", "commit", "actor", "message"]
        more = "" if self.is_complete else "; earlier ones are not listed"
        entity = f"{self.type_name} {printable(self.entity_id)}"
        return f"{text_table(names, rows)}\n{count_of(len(rows), 'change')} of {entity}{more}"


@dataclass(frozen=True, slots=True)
class PropertyOrigin(PublicValue):
    """A property, its value unless it is a blob, and the commit that set it; None if that is no longer known."""

    name: str
    value: Any
    commit: Commit | None


@dataclass(frozen=True, slots=True)
class PropertyBlame(PublicValue):
    """Where the properties of an entity come from, by name; none if there is no such entity."""

    type_name: str
    entity_id: str
    properties: tuple[PropertyOrigin, ...]

    def __getitem__(self, name: str) -> PropertyOrigin:
        return next(item for item in self.properties if item.name == name)

    def __repr__(self) -> str:
        rows = [
            [item.name, json.dumps(item.value, ensure_ascii=False), *_origin_cells(item.commit)]
            for item in self.properties
        ]
        table = text_table(["property", "value", "commit", "actor", "message"], rows)
        return f"{table}\n{count_of(len(rows), 'property')} of {self.type_name} {printable(self.entity_id)}"


def _origin_cells(commit: Commit | None) -> list[str | None]:
    return [None, None, None] if commit is None else [commit.commit_id, commit.actor, commit.message]


class ConflictKind(StrEnum):
    """Every kind of conflict: three between two sides, two between their schemas; the others break a rule."""

    DIVERGENT_INSERT = "DivergentInsert"
    DIVERGENT_UPDATE = "DivergentUpdate"
    DELETE_VS_UPDATE = "DeleteVsUpdate"
    DIVERGENT_SCHEMA = "DivergentSchema"
    DROP_VS_UPDATE = "DropVsUpdate"
    ORPHAN_EDGE = "OrphanEdge"
    UNIQUE_VIOLATION = "UniqueViolation"
    CARDINALITY_VIOLATION = "CardinalityViolation"
    VALUE_CONSTRAINT_VIOLATION = "ValueConstraintViolation"


Image = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Conflict(PublicValue):
    """One thing that a merge cannot settle, with the entity as the three sides have it."""

    type_key: TypeKey
    entity_id: str | None
    kind: ConflictKind
    message: str
    properties: tuple[str, ...] = ()
    # None where the entity is absent, or is not part of the conflict.
    base: Image | None = None
    ours: Image | None = None
    theirs: Image | None = None


@dataclass(frozen=True, slots=True)
class TypeCount(PublicValue):
    """How many entities of a type a merge changed; `adopted`: without writing them again."""

    type_key: TypeKey
    inserted: int
    updated: int
    deleted: int
    adopted: bool = False


class MergeOutcome(StrEnum):
    """The outcome of a merge; only dry runs have `conflicted`, a real merge raises instead."""

    ALREADY_UP_TO_DATE = "already_up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"
    CONFLICTED = "conflicted"


@dataclass(frozen=True, slots=True)
class MergeReceipt(PublicValue):
    """The receipt of a merge, revert or cherry-pick, or of its `dry_run`.

    `source` is the merged branch or commit. `bases` are the merge bases, newest first: several after criss-cross
    merges. `types` leaves out types that were adopted without comparing rows; a dry run compares these as well. An
    actor who may not read the target gets no bases, and always `merged`.
    """

    computed: ClassVar = {"base": "base_commit_id"}
    source: str
    target: str
    outcome: MergeOutcome
    bases: tuple[CommitId, ...] = field(metadata=named("base_commit_ids"))
    commit: Commit | None = None
    types: tuple[TypeCount, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    dry_run: bool = False
    actor: str | None = field(default=None, metadata=named("actor_id"))
    # None unless the source was to be deleted.
    branch_deleted: bool | None = None
    branch_delete_error: str | None = None
    # How the schema of the target changes, a line for each step; None if it stays.
    schema_changes: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        changed = sum(type_.inserted + type_.updated + type_.deleted for type_ in self.types)
        return summarize(
            self,
            f"{self.source} into {self.target}: {self.outcome.value.replace('_', ' ')}",
            "dry run" if self.dry_run else None,
            count_of(changed, "change"),
            count_of(len(self.conflicts), "conflict") if self.conflicts else None,
            None if self.dry_run else commit_note(self.commit),
        )

    @property
    def base(self) -> CommitId | None:
        """The newest commit that the merge started from."""
        return self.bases[0] if self.bases else None
