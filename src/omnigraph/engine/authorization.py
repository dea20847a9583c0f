"""Where an action happens, as a policy judges it, and the hook through which the engine asks one.

Pure; the engine knows no policy but the one that allows everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias

import orjson

from omnigraph.lang.schema import SchemaIR
from omnigraph.lang.schema.codec import shape_hash
from omnigraph.lang.schema.restrict import restrict_ir, restrict_source
from omnigraph.manifest.model import ADOPTED, HARD_DROPS, AcceptedSchema, BranchNames, Commit, Snapshot

# A branch by every name that it ever had, or by one name: of a branch that is to be made, or is not looked up yet.
PolicyBranch: TypeAlias = BranchNames | str
_DELETED: Final = "a deleted branch"


@dataclass(frozen=True, slots=True)
class Scope:
    """The branch that is read or written, the branch that comes, goes or changes as a whole, both, or none.

    A branch of one name that exists is looked up before a policy is asked, which judges by every name that it had.
    """

    branch: str | None = None
    target: str | None = None
    branch_names: BranchNames | None = field(default=None, compare=False)
    target_names: BranchNames | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        # A padded name means the same branch everywhere, so it must not look like another one here.
        for name in ("branch", "target"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else value.strip())


GRAPH: Final = Scope()


def on(branch: PolicyBranch) -> Scope:
    """Return the scope of a read or write on a branch."""
    return Scope(display_name(branch), branch_names=_names(branch))


def onto(target: PolicyBranch) -> Scope:
    """Return the scope of what happens to a branch as a whole."""
    return Scope(target=display_name(target), target_names=_names(target))


def transition(source: PolicyBranch, target: PolicyBranch) -> Scope:
    """Return the scope of what goes from one branch to another."""
    return Scope(display_name(source), display_name(target), _names(source), _names(target))


def display_name(branch: PolicyBranch) -> str:
    """Return the name that a branch has in messages."""
    return branch if isinstance(branch, str) else branch.newest or _DELETED


def _names(branch: PolicyBranch) -> BranchNames | None:
    return None if isinstance(branch, str) else branch


class Checker(Protocol):
    """A policy, as the engine asks it."""

    def enforce(self, action: str, scope: Scope, actor: str | None) -> None:
        """Raise `PolicyDenied` unless the actor may do this there."""

    def hidden_types(
        self, actor: str | None, action: str, names: Iterable[str], branch: PolicyBranch | None = None
    ) -> frozenset[str]:
        """Return those of some types that the actor may not do this to."""
        ...

    def is_protected(self, branch: PolicyBranch) -> bool:
        """Tell whether any name that a branch had is protected; one whose names are not all known is."""
        ...

    def sample_actors(self) -> Iterable[str]:
        """Return actors such that every actor may do exactly what one of them may."""
        ...


class AllowAll:
    """The policy of a graph that has none."""

    def enforce(self, action: str, scope: Scope, actor: str | None) -> None:
        """Allow it."""

    def hidden_types(
        self, actor: str | None, action: str, names: Iterable[str], branch: PolicyBranch | None = None
    ) -> frozenset[str]:
        """Hide nothing."""
        return frozenset()

    def is_protected(self, branch: PolicyBranch) -> bool:
        """Protect nothing."""
        return False

    def sample_actors(self) -> Iterable[str]:
        """Tell nobody apart."""
        return ()


ALLOW_ALL: Final = AllowAll()


def restrict_snapshot(snapshot: Snapshot, hidden: Set[str], schema: AcceptedSchema) -> Snapshot:
    """Return a snapshot as of a graph that never had the hidden types; `schema` is what is left of its schema."""
    state = snapshot.state
    pins = {key: pin for key, pin in state.pins.items() if key.partition(":")[2] not in hidden}
    kept = {pin.ref.stored for pin in pins.values()}
    return replace(
        snapshot,
        state=replace(
            state,
            schema=schema,
            pins=pins,
            # A type that is gone has no rule any more that could allow to read its name.
            tombstones=(),
            commits=tuple(redact_commit(one) for one in state.commits),
        ),
        links=tuple(link for link in snapshot.links if link.ref in kept),
    )


# Properties of a commit that tell of types: which it dropped, and the forks of how many it took over.
_UNTOLD = frozenset({HARD_DROPS, ADOPTED})


def redact_commit(commit: Commit) -> Commit:
    """Return a commit without what it tells of types that may be hidden."""
    if _UNTOLD.isdisjoint(commit.properties):
        return commit
    return replace(commit, properties={key: value for key, value in commit.properties.items() if key not in _UNTOLD})


def restrict_schema(schema: AcceptedSchema, hidden: Set[str]) -> AcceptedSchema:
    """Return a schema without the hidden types."""
    ir = restrict_ir(SchemaIR.from_json(orjson.loads(schema.ir)), hidden)
    text = orjson.dumps(ir.to_json(), option=orjson.OPT_SORT_KEYS).decode()
    return AcceptedSchema(restrict_source(schema.source, hidden), text, ir.hash, shape_hash(ir.shape))
