"""The values of the catalog: pins, commits, branches, tags and schema, and the snapshot of a branch that holds them.

Immutable and pure; `encoding` turns them into Arrow rows and back.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, cast
from weakref import WeakValueDictionary

import orjson

from omnigraph import public_values
from omnigraph.ids import BranchId, CommitId, OperationId
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.lang.schema import SchemaIR
from omnigraph.lang.schema.shape import shape_hash
from omnigraph.manifest.catalog_format import FORMAT_STAMP
from omnigraph.store.read.dataset import AS_STORED, DatasetRef, Shape

MAIN = "main"
MANIFEST_PATH = "__manifest"
# The property of a commit that lists the forks of other branches which it took over.
ADOPTED = "adopted_forks"
# The property of a commit that lists the types and properties whose data cleanup has to purge.
HARD_DROPS = "hard_drops"
# The property of a commit that holds the message of its author.
MESSAGE = "message"


@dataclass(frozen=True, slots=True, order=True)
class TypeIdentity:
    """Which life of which type: it survives a rename and ends with a drop."""

    type_id: int
    incarnation_id: int

    @classmethod
    def of(cls, type_: Type) -> TypeIdentity:
        return cls(type_.type_id, type_.incarnation_id)

    def __str__(self) -> str:
        return f"{self.type_id:016x}:{self.incarnation_id:016x}"

    def path(self, table_key: TypeKey) -> str:
        """Return where the dataset of this life is kept, below the graph's root."""
        folder = "nodes" if table_key.kind == "node" else "edges"
        return f"{folder}/{self.type_id:016x}-{self.incarnation_id:016x}"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Pin:
    """The published version of one type's dataset; what is published has the columns that it was stored with.

    `adopted_at` is the version of the branch's catalog on which a merge took over a dataset of another branch.
    """

    identity: TypeIdentity
    table_key: TypeKey
    path: str
    version: int
    fork: str | None
    row_count: int
    shape: Shape = AS_STORED
    adopted_at: int | None = None
    # What `file_proof` says of the file that holds the version; None for one that was written without it.
    checksum: str | None = None

    @property
    def ref(self) -> DatasetRef:
        return DatasetRef(self.path, self.fork, self.version, self.shape)

    def public(self, *, with_path: bool) -> public_values.Dataset:
        """Return the dataset as the API shows it."""
        dataset: dict[str, Any] = {"entity_kind": self.table_key.kind, "type_name": self.table_key.name}
        if with_path:
            dataset["dataset_path"] = self.path
        if with_path and self.fork is not None:
            dataset["native_dataset_branch"] = self.fork
        dataset |= {"published_dataset_version": self.version, "entity_count": self.row_count}
        return cast(public_values.Dataset, dataset)

    @property
    def owner(self) -> BranchId | None:
        """The graph branch whose writes go to this fork; None is main."""
        return None if self.fork is None else fork_owner(self.fork)


def fork_owner(fork: str) -> BranchId | None:
    """Return the graph branch that a fork was made for; None is main."""
    owner = fork.partition("-")[0]
    return None if owner == MAIN else BranchId(owner)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A dropped type: older versions of the manifest may still show its data."""

    identity: TypeIdentity
    table_key: TypeKey
    path: str
    version: int


@dataclass(frozen=True, slots=True, order=True)
class Purge:
    """A type or property that was dropped for good: no state shows it any more, and cleanup removes its bytes.

    Without a `property_id` it is the whole type. `name` is what it was called when it was dropped, `field_ids` is what
    its values are stored as; `is_embedded` if vectors were made of it, or it held some. `is_done` says that a cleanup
    left no file that could hold its values. Only main has these.
    """

    identity: TypeIdentity
    property_id: int | None
    name: str
    path: str
    dropped_at_us: int
    field_ids: tuple[int, ...] = ()
    is_blob: bool = False
    is_embedded: bool = False
    is_done: bool = False

    @property
    def object_id(self) -> str:
        part = "" if self.property_id is None else f":{self.property_id}"
        return f"purge:{self.identity}{part}"


# Versions count from 1; this one stands in receipts of writers who may not read the branch.
UNKNOWN_VERSION: Final = 0


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Commit:
    """One graph-visible change, with its place in history."""

    commit_id: CommitId
    branch: BranchId | None
    manifest_version: int
    parent: CommitId | None
    merged_parent: CommitId | None
    actor: str | None
    created_at_us: int
    kind: str
    operation_id: OperationId
    properties: Mapping[str, str] = field(default_factory=dict)
    # The checksums of the files that the commit brought in, as `file_proof` packs them.
    checksums: str = field(default="", repr=False, compare=False)
    # The names that the branch of the commit had, recorded in the commit log when the branch is deleted.
    branch_names: tuple[str, ...] = field(default=(), repr=False, compare=False)
    # The corrected date, where it is not `created_at_us`; see `correct_date`.
    corrected_us: int | None = field(default=None, repr=False, compare=False)

    @property
    def order_us(self) -> int:
        """The sort key in lists: always later than the parents', even if the clocks of writers disagree."""
        return self.created_at_us if self.corrected_us is None else self.corrected_us

    @property
    def adopted_forks(self) -> frozenset[str]:
        """The forks of other branches that this commit took over."""
        # Older graphs hold an empty list where a merge adopted versions of main, which are not forks.
        return frozenset(fork for fork in self.properties.get(ADOPTED, "").split(",") if fork)

    def public(self, branch_name: str) -> public_values.Commit:
        """Return the commit as the API shows it; `branch_name` is the readable name of its branch."""
        return public_values.Commit(
            self.commit_id,
            MAIN if self.branch is None else branch_name,
            self.manifest_version or None,
            self.parent,
            self.merged_parent,
            self.actor,
            self.created_at_us,
            cast(public_values.CommitKind, self.kind),
            self.operation_id,
            {name: value for name, value in self.properties.items() if name != MESSAGE},
            self.properties.get(MESSAGE),
        )


def correct_date(created_at_us: int, parents: Iterable[Commit]) -> int | None:
    """Return the corrected commit date, as in git's commit-graph; None where it is the time of the commit itself.

    It is later than those of all parents, so lists by it are topological and need no look ahead.
    """
    earliest = max((parent.order_us + 1 for parent in parents), default=created_at_us)
    return earliest if earliest > created_at_us else None


@dataclass(frozen=True, slots=True)
class BranchNames:
    """Every name that one incarnation of a branch had, the newest last.

    `is_complete` is False where some may be missing: the names of a branch that was made, renamed or deleted by an
    older release were not recorded. Access rules take such a branch for a protected one.
    """

    names: tuple[str, ...]
    is_complete: bool = True

    @property
    def newest(self) -> str | None:
        return self.names[-1] if self.names else None

    def renamed(self, name: str) -> BranchNames:
        """Return the names after a rename.

        >>> BranchNames(("a", "b")).renamed("a").names
        ('b', 'a')
        """
        return replace(self, names=(*(earlier for earlier in self.names if earlier != name), name))


UNKNOWN_NAMES = BranchNames((), is_complete=False)
MAIN_NAMES = BranchNames((MAIN,))


@dataclass(frozen=True, slots=True)
class Branch:
    """A readable name for an opaque physical branch. Only main's manifest holds these.

    `recorded_names` are all names it ever had, this one last; None if an older release wrote the row.
    `identity_space` is where it numbers types and properties that it adds to its schema; None until it adds some.
    """

    name: str
    branch_id: BranchId
    parent: BranchId | None
    parent_version: int
    created_at_us: int
    actor: str | None = None
    recorded_names: tuple[str, ...] | None = None
    identity_space: int | None = None

    def public(self) -> public_values.Branch:
        """Return the branch as the API shows it."""
        return public_values.Branch(self.name, self.actor)

    @property
    def names(self) -> BranchNames:
        if self.recorded_names is None:
            return BranchNames((self.name,), is_complete=False)
        return BranchNames(self.recorded_names)


@dataclass(frozen=True, slots=True)
class Tag:
    """A named, protected commit. Only main's manifest holds these."""

    name: str
    commit_id: CommitId
    branch: BranchId | None
    manifest_version: int
    created_at_us: int
    actor: str | None = None

    def public(self) -> public_values.Tag:
        """Return the tag as the API shows it."""
        return public_values.Tag(self.name, self.commit_id, self.actor, self.created_at_us)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class AcceptedSchema:
    """The schema that all data of the branch obeys."""

    source: str
    ir: str
    ir_hash: str
    shape_hash: str

    @classmethod
    def of(cls, source: str, ir: SchemaIR) -> AcceptedSchema:
        text = orjson.dumps(ir.to_json(), option=orjson.OPT_SORT_KEYS).decode()
        return cls(source, text, ir.hash, shape_hash(ir.shape))

    def parse(self) -> SchemaIR:
        """Return the schema in the form that the compiler made of it."""
        return SchemaIR.from_json(orjson.loads(self.ir))


@dataclass(frozen=True, slots=True)
class Link:
    """A published version whose manifest may still wait under its staged name."""

    ref: DatasetRef
    manifest: str


@dataclass(frozen=True, slots=True)
class State:
    """The complete catalog of a branch: every publish writes all of it, so each version stands alone."""

    branch_id: BranchId | None
    head: CommitId | None
    schema: AcceptedSchema
    pins: Mapping[TypeKey, Pin]
    tombstones: tuple[Tombstone, ...] = ()
    commits: tuple[Commit, ...] = ()
    branches: Mapping[str, Branch] = field(default_factory=dict)
    tags: Mapping[str, Tag] = field(default_factory=dict)
    purges: tuple[Purge, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state, and the manifest version that holds it. `links` are the versions it published last.

    `is_partial`: types were left out, because they are hidden from the actor that it is shown to.
    """

    branch: str
    version: int
    operation_id: OperationId
    state: State
    links: tuple[Link, ...] = ()
    is_partial: bool = False

    @property
    def ref(self) -> DatasetRef:
        return DatasetRef(MANIFEST_PATH, self.state.branch_id, self.version)

    @property
    def head(self) -> CommitId | None:
        return self.state.head

    @property
    def head_commit(self) -> Commit:
        """The newest commit of the branch, which never leaves its catalog."""
        return next(commit for commit in reversed(self.state.commits) if commit.commit_id == self.state.head)

    def public(self) -> public_values.Snapshot:
        """Return the state as every surface shows it: which version of which dataset is published."""
        assert self.head is not None, "every state has a commit that made it"
        pins = (self.state.pins[table_key] for table_key in sorted(self.state.pins))
        # Paths hold running numbers of types, and forks their digests: the gaps would reveal how many are hidden.
        datasets = tuple(pin.public(with_path=not self.is_partial) for pin in pins)
        return public_values.Snapshot(self.branch, self.head, self.version, FORMAT_STAMP, datasets)

    def to_json(self) -> dict[str, Any]:
        return self.public().to_json()


V = TypeVar("V", AcceptedSchema, Commit, Pin)

# Values that are in use somewhere; equal values of one key are one object. Threads share it.
_shared: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()


def share_values(state: State) -> State:
    """Return an equal state that shares the parts of other states (interning)."""
    return replace(
        state,
        schema=_share(state.schema, state.schema.ir_hash),
        pins={key: _share(pin, pin.path, pin.fork, pin.version) for key, pin in state.pins.items()},
        # Neither checksums nor names count when commits are compared, so they are part of the key.
        commits=tuple(
            _share(commit, commit.commit_id, commit.checksums, commit.branch_names) for commit in state.commits
        ),
    )


def _share(value: V, *key: Hashable) -> V:
    shared: V | None = _shared.get((type(value), *key))
    if shared == value:
        return shared
    _shared[type(value), *key] = value
    return value
