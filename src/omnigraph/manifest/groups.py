"""Groups: commits that one version of the catalog published together, and the states between them.

The version of the catalog holds the state after the last of them. Every other state follows from it and from what the
commits of the group record of themselves. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from omnigraph.manifest.model import Commit, GroupChange, Pin, Snapshot
from omnigraph.store.read.dataset import WHOLE, Part
from omnigraph.store.read.partial_version import pack


def members_of(snapshot: Snapshot) -> list[Commit]:
    """Return the commits that the version of a snapshot has published together, in their order.

    A branch that was forked from the version has them too.
    """
    commits = snapshot.state.commits
    return [commit for commit in commits if commit.manifest_version == snapshot.version and commit.group is not None]


def state_at(snapshot: Snapshot, slot: int) -> Snapshot | None:
    """Return the state after the commit in a slot of the group that a version has published; None without one."""
    commit = next((commit for commit in members_of(snapshot) if commit.position[1] == slot), None)
    return None if commit is None else state_after(snapshot, commit)


def state_after(snapshot: Snapshot, commit: Commit) -> Snapshot | None:
    """Return the state after a commit of the group that a version of the catalog published; None if it has no such.

    `snapshot` is the state that the version holds, the one after the last commit.
    """
    members = members_of(snapshot)
    number = next((number for number, member in enumerate(members) if member.commit_id == commit.commit_id), None)
    if number is None:
        return None
    before, later = members[: number + 1], members[number + 1 :]
    pins = {
        key: _pin_between(pin, _changes_of(pin, before), _changes_of(pin, later))
        for key, pin in snapshot.state.pins.items()
    }
    gone = {member.commit_id for member in later}
    commits = tuple(other for other in snapshot.state.commits if other.commit_id not in gone)
    state = replace(snapshot.state, head=commit.commit_id, pins=pins, commits=commits)
    return replace(snapshot, state=state, slot=number + 1)


def _changes_of(pin: Pin, commits: Sequence[Commit]) -> list[GroupChange]:
    """Return what commits of a group did to a type."""
    groups = [commit.group for commit in commits if commit.group is not None]
    return [group.types[pin.identity] for group in groups if pin.identity in group.types]


def _pin_between(pin: Pin, earlier: Sequence[GroupChange], later: Sequence[GroupChange]) -> Pin:
    if not later:
        # No commit that follows has touched the type, so it is as the catalog says.
        return pin
    if not earlier:
        first = later[0]
        row_count = first.count - first.rows + len(first.gone) + len(first.superseded)
        return replace(pin, fork=first.fork, version=first.base, row_count=row_count, checksum=None, part=WHOLE)
    last = earlier[-1]
    part = Part(
        last.base,
        last.rows,
        pack(np.array([address for change in earlier for address in change.gone], np.uint64)),
        pack(np.array([offset for change in earlier for offset in change.superseded], np.uint64)),
    )
    return replace(pin, row_count=last.count, part=part)
