"""Shared values: catalogs repeat the commits, pins and schema of others, and memory holds each of these once.

Without it, a process that looks at thousands of branches holds thousands of copies of the same recent history.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from omnigraph.manifest.model import AcceptedSchema, Commit, Pin, State

V = TypeVar("V", AcceptedSchema, Commit, Pin)


class _Shared(Generic[V]):
    """Values that are in use somewhere, by a key; equal values of one key are one object. Threads may share it."""

    def __init__(self) -> None:
        self._values: WeakValueDictionary[Hashable, V] = WeakValueDictionary()

    def share(self, key: Hashable, value: V) -> V:
        known = self._values.get(key)
        if known == value:
            return known
        self._values[key] = value
        return value


_commits = _Shared[Commit]()
_pins = _Shared[Pin]()
_schemas = _Shared[AcceptedSchema]()


def share_values(state: State) -> State:
    """Return an equal state that is made of what other states hold already."""
    return replace(
        state,
        schema=_schemas.share(state.schema.ir_hash, state.schema),
        pins={key: _pins.share((pin.path, pin.fork, pin.version), pin) for key, pin in state.pins.items()},
        # Neither checksums nor names count when commits are compared, so they are part of the key.
        commits=tuple(_commits.share((one.commit_id, one.checksums, one.branch_names), one) for one in state.commits),
    )
