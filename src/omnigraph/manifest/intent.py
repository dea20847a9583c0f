"""Intents: what long work says before it stages much, so that a sweep can tell live files from a dead worker's.

An intent blocks nobody. Its owner keeps it fresh and removes it at the end; a sweep resolves it when the owner is dead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import orjson

from omnigraph import clock
from omnigraph.errors import OmniGraphError, StorageError
from omnigraph.ids import BranchId, OperationId, new_ulid
from omnigraph.limits import HEARTBEAT_SECONDS
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.owner import Owner, this_process
from omnigraph.store.store import Store

FOLDER = "__recovery"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Intent:
    """Who is doing what to which branch, and where the files lie that are nobody's until it publishes."""

    operation_id: OperationId
    kind: str
    actor: str | None
    branch: str
    branch_id: BranchId | None
    base_version: int
    owner: Owner
    started_at_us: int
    heartbeat_us: int
    paths: tuple[str, ...] = ()

    @property
    def object_path(self) -> str:
        return f"{FOLDER}/{self.operation_id}.json"

    @property
    def is_dead(self) -> bool:
        return self.owner.is_dead(self.heartbeat_us)

    def to_bytes(self) -> bytes:
        members = {
            "format": FORMAT,
            "operation_id": self.operation_id,
            "kind": self.kind,
            "actor_id": self.actor,
            "branch": self.branch,
            "branch_id": self.branch_id,
            "base_version": self.base_version,
            "owner": self.owner.to_json(),
            "started_at": self.started_at_us,
            "heartbeat": self.heartbeat_us,
            "paths": list(self.paths),
        }
        return orjson.dumps(members, option=orjson.OPT_INDENT_2)

    @classmethod
    def from_bytes(cls, body: bytes) -> Intent:
        """Return a stored intent; ValueError when it is not one that this release can judge."""
        try:
            members = orjson.loads(body)
            if members["format"] != FORMAT:
                raise ValueError(f"intent format {members['format']}")
            return cls(
                OperationId(members["operation_id"]),
                members["kind"],
                members["actor_id"],
                members["branch"],
                members["branch_id"],
                members["base_version"],
                Owner.from_json(members["owner"]),
                members["started_at"],
                members["heartbeat"],
                tuple(members["paths"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not an intent: {error!r}") from error


@dataclass
class Declared:
    """A live intent in the hands of its owner."""

    store: Store
    intent: Intent
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def operation_id(self) -> OperationId:
        return self.intent.operation_id

    def staging(self, *paths: str) -> None:
        """Say, before writing there, which files or directories belong to this work until it publishes."""
        with self._lock:
            self.intent = replace(self.intent, paths=(*self.intent.paths, *paths), heartbeat_us=clock.now_us())
            self.store.objects.write(self.intent.object_path, self.intent.to_bytes())

    def beat(self) -> None:
        self.staging()


@contextmanager
def declared(store: Store, kind: str, base: Snapshot, actor: str | None = None) -> Iterator[Declared]:
    """Hold an intent while long work runs; publish under its `operation_id`."""
    now = clock.now_us()
    intent = Intent(
        OperationId(new_ulid()),
        kind,
        actor,
        base.branch,
        base.state.branch_id,
        base.version,
        this_process(),
        now,
        now,
    )
    try:
        with kept_fresh(store, intent) as held:
            yield held
    finally:
        store.objects.delete(intent.object_path)


@contextmanager
def kept_fresh(store: Store, intent: Intent) -> Iterator[Declared]:
    """Write an intent down and keep it fresh, for work that several processes share one after the other."""
    held = Declared(store, intent)
    held.beat()
    stop = threading.Event()
    thread = threading.Thread(target=_keep_fresh, args=(held, stop), name="omnigraph-heartbeat", daemon=True)
    thread.start()
    try:
        yield held
    finally:
        stop.set()
        thread.join()


def _keep_fresh(held: Declared, stop: threading.Event) -> None:
    while not stop.wait(HEARTBEAT_SECONDS):
        try:
            held.beat()
        except StorageError:
            # A missed beat is made up for by the next; only a long silence lets a sweep elsewhere take over.
            continue


def pending(store: Store) -> tuple[list[Intent], list[str]]:
    """Return the intents that lie in storage, oldest first, and the names of those that cannot be read."""
    intents: list[Intent] = []
    unreadable: list[str] = []
    for info in store.objects.list(FOLDER):
        if not info.path.endswith(".json"):
            continue
        try:
            body = store.objects.read_if_exists(info.path)
            if body is not None:
                intents.append(Intent.from_bytes(body))
        except (ValueError, OmniGraphError):
            unreadable.append(info.path)
    return sorted(intents, key=lambda one: one.operation_id), unreadable
