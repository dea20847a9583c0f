"""The way in and the way out of every write: who may write, and what happens once it is published.

No write decides these for itself.
"""

from __future__ import annotations

from omnigraph.engine.core import Core, allow_all
from omnigraph.engine.write.stage import Stager
from omnigraph.errors import PolicyDenied
from omnigraph.manifest.kernel import Prepare
from omnigraph.manifest.plan import Receipt, Work


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


def publish(core: Core, branch: str, prepare: Prepare, work: Work, stager: Stager) -> Receipt | None:
    """Prepare and publish a write."""
    return core.kernel.commit(branch, prepare, work)
