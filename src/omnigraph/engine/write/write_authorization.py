"""The way in of every write: who may write, to which types, and what they are told when hidden data is in the way.

No write decides this for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass

from omnigraph.engine.authorization import Scope, transition
from omnigraph.engine.information_flow import check_flow
from omnigraph.engine.session import Core, View
from omnigraph.errors import GraphError, OmniGraphError, PolicyDenied
from omnigraph.manifest.model import Snapshot


def admit(core: Core, action: str, scope: Scope, actor: str | None) -> Core:
    """Return the core of whoever acts, if the policy lets them."""
    core = core.acting_as(actor)
    core.require(action, scope)
    return core


def missing_base(core: Core, branch: str, from_branch: str | None) -> str | None:
    """Return the branch to make a missing one from; None when the branch is there."""
    try:
        core.kernel.resolve(branch)
    except GraphError as error:
        if error.code != "branch.not_found" or from_branch is None:
            raise
        core.kernel.refuse_read_only()
        return from_branch.strip()
    return None


@dataclass(frozen=True, slots=True)
class Rights:
    """What a writer may name, in `seen`; of that, what it may not change or read; and what it must not hear of."""

    seen: View
    fixed: frozenset[str]
    unreadable: frozenset[str]
    hidden: frozenset[str]
    actor: str | None

    def check(self, names: Iterable[str]) -> None:
        """Refuse to change types that the writer may not change."""
        touched = frozenset(names)
        if touched & self.hidden:
            raise unseen(self.actor)
        for name in sorted(touched & self.fixed):
            raise PolicyDenied(
                f"`change` of `{name}` is not allowed for `{self.actor}`; ask the policy owner for a rule that"
                " allows it",
                action="change",
                actor=self.actor,
                type_name=name,
            )

    def check_conditions(self, names: Iterable[str]) -> None:
        """Refuse conditions on types that the writer may not read: how many entities match tells what they hold."""
        for name in sorted(self.unreadable.intersection(names)):
            raise PolicyDenied(
                f"an `update` or `delete` with a condition needs `read` of `{name}`, because it tells how many entities"
                f" match, and `{self.actor}` may only change it; nothing was written. `insert` needs `change` alone; or"
                " ask for a rule that allows `read`",
                action="read",
                actor=self.actor,
                type_name=name,
            )


def rights(core: Core, snapshot: Snapshot, branch: str | None = None) -> Rights:
    """Return what the actor may write to a state: types that it may neither read nor change are not there for it.

    `branch` is the name of one that is to be made of the state, where other rules may hold.
    """
    if branch is None:
        hidden, unreadable = core.hidden(snapshot, "read", "change"), core.hidden(snapshot)
    else:
        catalog = core.catalog(snapshot)
        hidden, unreadable = core.hidden_in(catalog, branch, "read", "change"), core.hidden_in(catalog, branch)
    fixed = core.forbidden(snapshot, "change", branch) - hidden
    return Rights(core.without(snapshot, hidden), fixed, unreadable - hidden, hidden, core.actor)


def check_base(core: Core, base: str, branch: str) -> None:
    """Refuse a load that has to make its branch first, if the actor may not make it of the base."""
    core.require("branch_create", transition(base, branch))
    check_flow(core, core.head(base), branch)


@contextmanager
def unheard(hidden: Set[str], actor: str | None) -> Iterator[None]:
    """Keep an error that speaks of hidden types from the writer; whether anything was written is told all the same."""
    try:
        yield
    except OmniGraphError as error:
        # Rules whose code begins with N are about the text of the input, which the writer wrote.
        is_of_input = str(error.context.get("rule", "")).startswith("N")
        if is_of_input or not tells_of(hidden, f"{error.message} {error.context}"):
            raise
        raise unseen(actor, error) from None


def tells_of(hidden: Set[str], text: str) -> bool:
    """Tell whether a text names one of the hidden types.

    >>> tells_of({"Salary"}, "`Salary` of ann"), tells_of({"Salary"}, "Salaryman"), tells_of(set(), "Salary")
    (True, False, False)
    """
    return bool(hidden) and re.search(rf"\b(?:{'|'.join(map(re.escape, hidden))})\b", text) is not None


def unseen(actor: str | None, cause: OmniGraphError | None = None) -> PolicyDenied:
    """Return the refusal of a write that something hidden stands in the way of."""
    message = f"this write would touch, or break a rule of, data that `{actor}` may not see; ask whoever may"
    if cause is None:
        return PolicyDenied(message, actor=actor)
    operation = {key: value for key, value in cause.context.items() if key == "operation_id"}
    return PolicyDenied(message, effect=cause.effect, actor=actor, **operation)
