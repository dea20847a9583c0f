"""What a served graph answers with, where an opened graph has values that do not travel whole.

Pure values and their JSON forms, which are those of every surface.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph.client.request import Call, Request, Response
from omnigraph.server.wire import SNAPSHOT_ID


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit. `branch` is the name of its branch, or what is left of one that is gone."""

    commit_id: str
    branch: str
    manifest_version: int
    parent: str | None
    merged_parent: str | None
    actor: str | None
    created_at_us: int
    kind: str
    operation_id: str
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Commit:
        return cls(
            told["graph_commit_id"],
            told["graph_branch"],
            told["graph_manifest_version"],
            told["parent_commit_id"],
            told["merged_parent_commit_id"],
            told["actor_id"],
            told["created_at"],
            told["kind"],
            told["operation_id"],
            told["properties"],
        )

    def to_json(self, branch_name: str | None = None) -> dict[str, object]:
        """Return the commit as every surface shows it; a served one knows the name of its branch."""
        return {
            "graph_commit_id": self.commit_id,
            "graph_branch": self.branch,
            "graph_manifest_version": self.manifest_version,
            "parent_commit_id": self.parent,
            "merged_parent_commit_id": self.merged_parent,
            "actor_id": self.actor,
            "created_at": self.created_at_us,
            "kind": self.kind,
            "operation_id": self.operation_id,
            "properties": dict(self.properties),
        }


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch that was made or renamed."""

    name: str
    actor: str | None


@dataclass(frozen=True, slots=True)
class Tag:
    """A named commit."""

    name: str
    commit_id: str
    created_at_us: int
    actor: str | None

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Tag:
        return cls(told["name"], told["graph_commit_id"], told["created_at"], told["actor_id"])


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a branch; `datasets` says which version of which type it is made of."""

    branch: str
    head: str
    version: int
    data: Mapping[str, Any]

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Snapshot:
        return cls(told["graph_branch"], told["graph_commit_id"], told["graph_manifest_version"], told)

    @property
    def datasets(self) -> list[Mapping[str, Any]]:
        return list(self.data["datasets"])

    def to_json(self) -> dict[str, object]:
        return dict(self.data)


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """The steps to a new schema."""

    supported: bool
    steps: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, object]:
        return {"supported": self.supported, "steps": [dict(step) for step in self.steps]}


@dataclass(frozen=True, slots=True)
class Operation:
    """What became of a write: `applied` with its commit, `pending`, or `absent`, which is final."""

    operation_id: str
    outcome: str
    commit: Commit | None


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """What is known of a blob before any of it is read."""

    snapshot_commit_id: str | None
    length: int
    etag: str
    selector: Mapping[str, str]

    def range(self, start: int, end: int | None) -> Call[bytes] | None:
        """Return the call for a range of bytes; None for a range without any."""
        from omnigraph.engine.blobs import end_of_range

        end = end_of_range(self.length, start, end)
        if start == end:
            return None
        return Call(
            _range_request(self.selector, {"snapshot": self.snapshot_commit_id}, start, end), lambda reply: reply.body
        )


@dataclass(frozen=True, slots=True)
class BlobCalls:
    """The calls that find a blob: `look` answers None to a refusal, which has no words; `ask` then brings them."""

    head: Call[BlobInfo | None]
    probe: Call[BlobInfo]


def find_blob(which: Mapping[str, str], moment: Mapping[str, Any]) -> BlobCalls:
    """Return the calls that find a blob, and read none of it."""

    def known(reply: Response, length: str) -> BlobInfo:
        headers = reply.headers
        return BlobInfo(headers.get(SNAPSHOT_ID.lower()), int(length), headers.get("etag", ""), which)

    def looked(reply: Response) -> BlobInfo | None:
        return None if reply.status >= 400 else known(reply, reply.headers.get("content-length", "0"))

    look = Request("HEAD", "/blob", _query_pairs(which, moment))
    return BlobCalls(
        Call(look, looked, accepted_statuses=frozenset(range(400, 600))),
        Call(
            _range_request(which, moment, 0, 1),
            lambda reply: known(reply, reply.headers["content-range"].rpartition("/")[2]),
        ),
    )


def _range_request(which: Mapping[str, str], moment: Mapping[str, Any], start: int, end: int) -> Request:
    return Request("GET", "/blob", _query_pairs(which, moment), {"range": f"bytes={start}-{end - 1}"})


def _query_pairs(which: Mapping[str, str], moment: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in {**which, **moment}.items() if value is not None)
