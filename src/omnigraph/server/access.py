"""What a server lets its actors do: the states it can be in, and the policy of a graph in each of them.

Decides nothing about a graph that has a policy; without one, everybody or only readers are let in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from omnigraph.engine.scope import ALLOW_ALL, Checker, PolicyBranch, Scope
from omnigraph.errors import PolicyDenied, UsageError
from omnigraph.policy import Policy


class ReadersOnly:
    """The policy of a graph without one on a server with tokens: whoever has a token may read."""

    def enforce(self, action: str, scope: Scope, actor: str | None) -> None:
        """Refuse everything but reading."""
        if action != "read" or actor is None:
            raise PolicyDenied(
                f"`{action}` is not allowed: the server has no policy for this graph, and lets actors only read; start"
                " it with `--policy`",
                actor=actor,
                action=action,
                branch=scope.branch,
                target_branch=scope.target,
            )

    def hidden_types(
        self, actor: str | None, action: str, names: Iterable[str], branch: PolicyBranch | None = None
    ) -> frozenset[str]:
        """Hide nothing from readers."""
        return frozenset() if action == "read" else frozenset(names)

    def is_protected(self, branch: PolicyBranch) -> bool:
        """Protect nothing."""
        return False

    def sample_actors(self) -> Iterable[str]:
        """Tell nobody apart."""
        return ()


READERS_ONLY = ReadersOnly()


@dataclass(frozen=True, slots=True)
class Doors:
    """Whether tokens are asked for, and whether any graph has a policy: from that follows what is open."""

    has_tokens: bool
    has_policy: bool
    is_unauthenticated: bool

    def check(self) -> None:
        """Refuse to start in a state in which nobody, or everybody unasked, could do things."""
        if self.has_tokens:
            return
        if self.has_policy:
            raise UsageError(
                "a policy needs actors, and actors come from bearer tokens; set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"
            )
        if not self.is_unauthenticated:
            raise UsageError(
                "the server has no bearer tokens; set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE, or start it with"
                " `--unauthenticated` to let everybody in"
            )

    def checker(self, policy: Policy | None) -> Checker:
        """Return who judges a graph with this policy, or with none."""
        if policy is not None:
            return policy
        return READERS_ONLY if self.has_tokens else ALLOW_ALL


def is_stranger(checker: Checker, actor: str | None) -> bool:
    """Tell whether a policy has no rule at all for an actor, who then does not learn that its graph is served."""
    if not isinstance(checker, Policy):
        return False
    groups = checker.bundle.groups
    return not any(actor in groups[rule.group] for rule in checker.bundle.rules)


def refuse_hopeless(checker: Checker, actor: str | None, action: str) -> None:
    """Refuse an action that the actor may do on no branch at all, before anything else of the request is read."""
    if isinstance(checker, Policy):
        groups = checker.bundle.groups
        mine = (rule for rule in checker.bundle.rules if action in rule.actions)
        if any(actor in groups[rule.group] for rule in mine):
            return
    checker.enforce(action, Scope(), actor)
