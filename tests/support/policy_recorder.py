"""A policy that writes down what it is asked, and denies what it is told to."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from omnigraph.engine.authorization import PolicyBranch, Scope
from omnigraph.errors import PolicyDenied


class Recorder:
    """Allows everything but some actions, to everybody or to some actors."""

    def __init__(self, denies: Collection[str] = (), actors: Collection[str] | None = None) -> None:
        self.asked: list[tuple[str, Scope, str | None]] = []
        self.asked_types: list[tuple[str, PolicyBranch | None, tuple[str, ...]]] = []
        self._denies = denies
        self._actors = actors

    def enforce(self, action: str, scope: Scope, actor: str | None) -> None:
        if not scope.is_probe:
            self.asked.append((action, scope, actor))
        if action in self._denies or (self._actors is not None and actor not in self._actors):
            raise PolicyDenied("no", actor=actor)

    def hidden_types(
        self, actor: str | None, action: str, names: Iterable[str], branch: PolicyBranch | None = None
    ) -> frozenset[str]:
        self.asked_types.append((action, branch, tuple(names)))
        return frozenset()

    def is_protected(self, branch: PolicyBranch) -> bool:
        return False

    def sample_actors(self) -> Iterable[str]:
        return ()
