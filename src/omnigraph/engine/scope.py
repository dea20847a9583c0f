"""Where an action happens, as a policy judges it, and the hook through which the engine asks one.

Pure; the engine knows no policy but the one that allows everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol


@dataclass(frozen=True, slots=True)
class Scope:
    """The branch that is read or written, the branch that comes, goes or changes as a whole, both, or none."""

    branch: str | None = None
    target: str | None = None

    def __post_init__(self) -> None:
        # A padded name means the same branch everywhere, so it must not look like another one here.
        for name in ("branch", "target"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else value.strip())


GRAPH: Final = Scope()


def on(branch: str) -> Scope:
    """Return the scope of a read or write on a branch."""
    return Scope(branch)


def onto(target: str) -> Scope:
    """Return the scope of what happens to a branch as a whole."""
    return Scope(target=target)


def transition(source: str, target: str) -> Scope:
    """Return the scope of what goes from one branch to another."""
    return Scope(source, target)


class Checker(Protocol):
    """A policy, as the engine asks it."""

    def enforce(self, action: str, scope: Scope, actor: str | None) -> None:
        """Raise `PolicyDenied` unless the actor may do this there."""

    def hidden_types(
        self, actor: str | None, action: str, names: Iterable[str], branch: str | None = None
    ) -> frozenset[str]:
        """Return those of some types that the actor may not do this to."""
        ...


class AllowAll:
    """The policy of a graph that has none."""

    def enforce(self, action: str, scope: Scope, actor: str | None) -> None:
        """Allow it."""

    def hidden_types(
        self, actor: str | None, action: str, names: Iterable[str], branch: str | None = None
    ) -> frozenset[str]:
        """Hide nothing."""
        return frozenset()


ALLOW_ALL: Final = AllowAll()
