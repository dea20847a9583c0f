"""The way in of every write: who may write.

No write decides this for itself.
"""

from __future__ import annotations

from omnigraph.engine.core import Core, allow_all
from omnigraph.errors import PolicyDenied


def admit(core: Core, action: str, scope: str, actor: str | None) -> str | None:
    """Return who acts, if the policy lets them; a policy admits nobody without a name."""
    actor = actor if actor is not None else core.actor
    if core.enforce is not allow_all and actor is None:
        raise PolicyDenied(
            f"`{action}` on `{scope}` needs an actor, because this graph has a policy; open it with `actor=…`",
            action=action,
            scope=scope,
        )
    core.enforce(action, scope, actor)
    return actor
