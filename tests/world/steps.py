"""A step of a history: one call, and what the model expects of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.world.calls import Answer, Call
from tests.world.merge_model import Conflict
from tests.world.model import CommitNumber, State
from tests.world.schema_model import Schema


class Broken(AssertionError):
    """The product does something else than the model says."""


@dataclass
class Step:
    """One call, and its expected outcome.

    `state` and `schema` are what `branch` has afterwards. `errors` are codes and rules that the call may be refused
    with, and `must_fail` says that it must be; then nothing changes. `conflicts` are those of a merge.
    """

    kind: str
    call: Call
    branch: str | None = None
    state: State | None = None
    schema: Schema | None = None
    merged: CommitNumber | None = None
    errors: set[str] = field(default_factory=set)
    must_fail: bool = False
    conflicts: set[Conflict] | None = None
    # What else changes in the model; called after the call, unless it was refused.
    then: Callable[[Answer], None] | None = None
    # May it run in a process that is killed, or beside another one?
    is_portable: bool = True
