"""Drift: whether a dataset is further by path than the graph says, because a foreign tool wrote to it.

Only looks.
"""

from __future__ import annotations

from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import Pin, Snapshot
from omnigraph.manifest.publish import is_drifted


def drifted_head(kernel: Kernel, snapshot: Snapshot, pin: Pin) -> int | None:
    """Return the newest version by path of a dataset that a foreign tool has moved; None: it has not.

    A writer of the graph that was faster than the snapshot also moves a dataset, so the catalog is asked as well. What
    a branch inherits is moved by the branch that owns it, and is judged there: writers of this branch fork the pinned
    version, under a name that nothing was published to.
    """
    if pin.owner != snapshot.state.branch_id:
        return None
    if kernel.displaced(snapshot, pin):
        return kernel.store.open_latest(pin.path, pin.fork).version
    if not is_drifted(kernel.store, snapshot.ref, pin.ref):
        return None
    return kernel.store.open_latest(pin.path, pin.fork).version
