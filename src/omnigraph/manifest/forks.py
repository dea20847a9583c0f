"""Forks the dataset of a type for the first write of a branch that inherits or has adopted it.

No reader reaches a fork until a publish names it, so an abandoned one is only an orphan.
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from itertools import dropwhile

from omnigraph.ids import BranchId
from omnigraph.limits import FORK_NAMES_MAX
from omnigraph.manifest.links import Links
from omnigraph.manifest.model import MAIN, Pin, Snapshot
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.live_rows import check_deletions
from omnigraph.store.store import Store


def open_or_fork(store: Store, links: Links, snapshot: Snapshot, pin: Pin) -> Dataset:
    """Open what a snapshot pins for staging; a fork of it, if its branch does not own it."""
    dataset = check_deletions(links.open_pin(snapshot, pin))
    owner = snapshot.state.branch_id
    if pin.owner == owner:
        return dataset
    # Pins of older graphs do not record when they were adopted, so their fork names can occur again.
    unused = dropwhile(partial(_is_published, store, links, snapshot, pin), fork_names(owner, pin))
    # Lance forks what it finds by path, and the handle of a commit of this process opens without its link.
    links.finish_pin(snapshot, pin)
    return store.fork(dataset, *unused)


def _is_published(store: Store, links: Links, snapshot: Snapshot, pin: Pin, name: str) -> bool:
    """Return True if a fork of a pin has a version after its first, by path or waiting to be linked."""
    fork = DatasetRef(pin.path, name, pin.version)
    waiting = [link.ref for link in links.unfinished(snapshot)]
    is_waiting = any((ref.path, ref.branch) == (fork.path, fork.branch) for ref in waiting)
    return is_waiting or store.has_version(fork.successor)


def fork_names(owner: BranchId | None, pin: Pin) -> list[str]:
    """Return the physical names that a branch's fork of what it inherited or adopted may have, in the order of trying.

    Each names the exact state that is forked, so two writers may meet on it, and a leftover from an older state is
    never in the way. A branch may adopt one state again after it has published to a fork of it; the version of its
    catalog at the adoption keeps their names apart.
    """
    origin = sha256(pin.ref.directory.encode()).hexdigest()[:8]
    mark = "" if pin.adopted_at is None else f"-{pin.adopted_at}"
    name = f"{owner or MAIN}-{pin.version}-{origin}{mark}"
    return [name + "x" * number for number in range(FORK_NAMES_MAX)]
