"""Decisions: what a policy answers, and the words it is told in.

Pure values.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether an actor may do an action; `rule` is the smallest id of the rules that allow it."""

    allowed: bool
    rule: str | None
    actor: str | None
    action: str
    branch: str | None = None
    target: str | None = None

    @property
    def message(self) -> str:
        what = f"`{self.action}`{_place(self.branch, self.target)}"
        if self.actor is None:
            return f"{what} needs an actor, because there is a policy; open the graph with `actor=…`, or log in"
        if self.allowed:
            return f"{what} is allowed for `{self.actor}` by rule `{self.rule}`"
        return f"{what} is not allowed for `{self.actor}`; ask whoever keeps the policy for a rule that allows it"

    def to_json(self) -> dict[str, object]:
        """Return the decision as every surface shows it."""
        return {
            "allowed": self.allowed,
            "rule": self.rule,
            "actor": self.actor,
            "action": self.action,
            "branch": self.branch,
            "target_branch": self.target,
            "message": self.message,
        }


def _place(branch: str | None, target: str | None) -> str:
    """Name the branches that a decision is about.

    >>> _place("review", "main"), _place("main", None), _place(None, None)
    (' from branch `review` to branch `main`', ' on branch `main`', '')
    """
    if branch is not None and target is not None:
        return f" from branch `{branch}` to branch `{target}`"
    if branch is None and target is None:
        return ""
    return f" on branch `{branch if target is None else target}`"
