"""The values that a graph returns, each defined once: JSON, its decoding and OpenAPI follow from the fields.

Opened graphs, the server, clients and the command line share them. Imports neither storage nor Arrow, because clients
have to start fast.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, Union, cast, get_args, get_origin, get_type_hints

from omnigraph.ids import CommitId, OperationId

_WIRE_NAME: Final = "wire_name"


class Member(NamedTuple):
    """A member of a JSON object: its name there, the attribute that it shows, and the type of that."""

    name: str
    attribute: str
    kind: Any
    is_computed: bool


class PublicValue:
    """A dataclass that is shown as a JSON object; `computed` names properties that are shown after the fields."""

    __slots__ = ()
    computed: ClassVar[Mapping[str, str]] = {}

    def to_json(self) -> dict[str, Any]:
        """Return the value as a JSON object."""
        return {member.name: _encode(getattr(self, member.attribute)) for member in members(type(self))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the value of a JSON object; unknown members are ignored."""
        stored = (member for member in members(cls) if not member.is_computed)
        return cls(**{member.attribute: _decode(member.kind, data[member.name]) for member in stored})


def members(kind: type[PublicValue]) -> tuple[Member, ...]:
    """Return the members of a value's JSON object."""
    return _members(cast(Hashable, kind))


@cache
def _members(kind: Any) -> tuple[Member, ...]:
    names = {item.name: item.metadata.get(_WIRE_NAME, item.name) for item in fields(kind)}
    hints = {name: hint for name, hint in get_type_hints(kind).items() if get_origin(hint) is not ClassVar}
    computed = [
        Member(name, attribute, get_type_hints(getattr(kind, attribute).fget)["return"], True)
        for attribute, name in kind.computed.items()
    ]
    return (*(Member(names.get(name, name), name, hint, False) for name, hint in hints.items()), *computed)


def _encode(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def _decode(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _decode(inner[0], value)
    if origin is tuple:
        return tuple(_decode(inner[0], item) for item in value)
    if hasattr(kind, "from_json"):
        return kind.from_json(value)
    return kind(value) if isinstance(kind, type) and issubclass(kind, Enum) else value


def _named(wire_name: str) -> dict[str, str]:
    return {_WIRE_NAME: wire_name}


CommitKind = Literal[
    "init",
    "mutation",
    "ingest",
    "load",
    "embed",
    "merge",
    "revert",
    "cherry_pick",
    "schema_apply",
    "ensure_indices",
    "optimize",
    "repair",
]


@dataclass(frozen=True, slots=True)
class Commit(PublicValue):
    """One graph-visible change; `created_at` counts microseconds since 1970."""

    commit_id: CommitId = field(metadata=_named("graph_commit_id"))
    # The name of its branch, or what is left of one that is gone.
    branch: str = field(metadata=_named("graph_branch"))
    manifest_version: int | None = field(metadata=_named("graph_manifest_version"))
    parent: CommitId | None = field(metadata=_named("parent_commit_id"))
    merged_parent: CommitId | None = field(metadata=_named("merged_parent_commit_id"))
    actor: str | None = field(metadata=_named("actor_id"))
    created_at_us: int = field(metadata=_named("created_at"))
    kind: CommitKind
    operation_id: OperationId
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tag(PublicValue):
    """A named commit, which cleanup keeps."""

    name: str
    commit_id: CommitId = field(metadata=_named("graph_commit_id"))
    actor: str | None = field(metadata=_named("actor_id"))
    created_at_us: int = field(metadata=_named("created_at"))


@dataclass(frozen=True, slots=True)
class Operation(PublicValue):
    """What became of a write: `applied` with its commit, `pending`, or `absent`, which is final."""

    # Names of branches and tags change without a commit.
    operation_id: str
    outcome: Literal["applied", "pending", "absent"]
    commit: Commit | None = None
