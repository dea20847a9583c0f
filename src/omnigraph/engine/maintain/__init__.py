"""Maintenance: optimize, cleanup, repair, verify and reconcile.

May import the ground, the languages, the store, the kernel and indexes. Nothing here changes the content of a graph.
"""

from __future__ import annotations

from omnigraph import settings


def at_once() -> int:
    """Return how many types maintenance works on at the same time."""
    return settings.read_integer("OMNIGRAPH_MAINTENANCE_CONCURRENCY", least=1)


def system_actor(actor: str | None, work: str) -> str:
    """Return who made a commit of maintenance: the actor, or the work itself where none was named.

    >>> system_actor("ada", "optimize"), system_actor(None, "repair:force")
    ('ada', 'omnigraph:repair:force')
    """
    return f"omnigraph:{work}" if actor is None else actor
