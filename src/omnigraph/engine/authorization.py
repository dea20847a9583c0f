"""Scopes of policy checks, the `PolicyHook` that the engine calls, and redaction of hidden types from snapshots.

Pure. The only policy that the engine itself contains is `AllowAll`.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias

from omnigraph.engine.arguments import strip_name
from omnigraph.lang.schema.render import restrict_ir, restrict_source
from omnigraph.manifest.model import (
    ADOPTED,
    HARD_DROPS,
    AcceptedSchema,
    BranchNames,
    Commit,
    Snapshot,
    State,
    TypeIdentity,
)

# A branch by every name it ever had, or by a single name if it is not created or not looked up yet.
PolicyBranch: TypeAlias = BranchNames | str
_DELETED: Final = "a deleted branch"
_NO_IDENTITY: Final = TypeIdentity(0, 0)


@dataclass(frozen=True, slots=True)
class Scope:
    """The branch that is read or written, the target branch that is created, deleted or merged into, both, or none.

    `GraphSession.require` fills in the names that existing branches had, so that renaming does not evade a rule.
    """

    branch: str | None = None
    target: str | None = None
    branch_names: BranchNames | None = field(default=None, compare=False)
    target_names: BranchNames | None = field(default=None, compare=False)
    # The decision only affects what a response shows; it denies nothing, so it is not logged.
    is_probe: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        # Padded names are accepted everywhere, so they must compare equal here.
        for name in ("branch", "target"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else strip_name(value, name))


GRAPH: Final = Scope()


def on_branch(branch: PolicyBranch) -> Scope:
    """Return the scope of reading or writing the content of a branch."""
    return Scope(display_name(branch), branch_names=_names(branch))


def on_target(target: PolicyBranch) -> Scope:
    """Return the scope of creating, deleting or otherwise changing a branch as a whole."""
    return Scope(target=display_name(target), target_names=_names(target))


def between(source: PolicyBranch, target: PolicyBranch) -> Scope:
    """Return the scope of moving data from one branch to another."""
    return Scope(display_name(source), display_name(target), _names(source), _names(target))


def display_name(branch: PolicyBranch) -> str:
    """Return the name of a branch for messages."""
    return branch.newest or _DELETED if isinstance(branch, BranchNames) else strip_name(branch)


def _names(branch: PolicyBranch) -> BranchNames | None:
    return branch if isinstance(branch, BranchNames) else None


class PolicyHook(Protocol):
    """The interface through which the engine consults a policy."""

    def enforce(self, action: str, scope: Scope, actor: str | None) -> None:
        """Raise `PolicyDenied` unless the actor may perform the action."""

    def hidden_types(
        self, actor: str | None, action: str, names: Iterable[str], branch: PolicyBranch | None = None
    ) -> frozenset[str]:
        """Return the types on which the actor may not perform the action."""
        ...

    def is_protected(self, branch: PolicyBranch) -> bool:
        """Return True if any name that a branch had is protected, or if its names are not all known."""
        ...

    def sample_actors(self) -> Iterable[str]:
        """Return representative actors: every actor has exactly the permissions of one of them."""
        ...


class AllowAll:
    """The policy of a graph without a policy: every action is allowed."""

    def enforce(self, action: str, scope: Scope, actor: str | None) -> None:
        """Allow the action."""

    def hidden_types(
        self, actor: str | None, action: str, names: Iterable[str], branch: PolicyBranch | None = None
    ) -> frozenset[str]:
        return frozenset()

    def is_protected(self, branch: PolicyBranch) -> bool:
        return False

    def sample_actors(self) -> Iterable[str]:
        """Return no actors, because all have the same permissions."""
        return ()


ALLOW_ALL: Final = AllowAll()


def restrict_snapshot(snapshot: Snapshot, hidden: Set[str], schema: AcceptedSchema) -> Snapshot:
    """Return a snapshot as if the graph never had the hidden types; `schema` is its restricted schema."""
    state = snapshot.state
    pins = {key: pin for key, pin in state.pins.items() if key.name not in hidden}
    visible_refs = {pin.ref.stored for pin in pins.values()}
    return replace(
        snapshot,
        state=replace(
            state,
            schema=schema,
            pins=pins,
            # No rule can allow reading the name of a dropped type.
            tombstones=(),
        ),
        links=tuple(link for link in snapshot.links if link.ref in visible_refs),
    )


# The properties of commits that depend on no data; others name types, identify a load and its input, or are keys.
_PUBLIC: Final = frozenset({"mode", "model", "source", "commit"})
# Properties that a commit's own author did not choose: types it hard-dropped, and forks it adopted.
_REVEALING: Final = frozenset({HARD_DROPS, ADOPTED})


def redact_commit(commit: Commit, *, is_own: bool) -> Commit:
    """Return a commit without properties that could reveal hidden types or values; its author may see them."""
    public_names = commit.properties.keys() - _REVEALING if is_own else commit.properties.keys() & _PUBLIC
    return replace(commit, properties={key: value for key, value in commit.properties.items() if key in public_names})


def redact_state(state: State) -> State:
    """Return a state without what counts hidden and dropped types: their names, and the numbers and paths of types."""
    pins = {key: replace(pin, identity=_NO_IDENTITY, path="", fork=None) for key, pin in state.pins.items()}
    return replace(state, schema=replace(state.schema, ir=""), pins=pins, tombstones=(), purges=())


def restrict_schema(schema: AcceptedSchema, hidden: Set[str]) -> AcceptedSchema:
    return AcceptedSchema.of(restrict_source(schema.source, hidden), restrict_ir(schema.parse(), hidden))
