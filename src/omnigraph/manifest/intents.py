"""Intents: records of long-running work, so that a sweep can distinguish its staged files from a dead process's.

An intent is not a lock. Its owner sends heartbeats and removes it at the end; a sweep resolves it when the owner is
dead.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache

import orjson

from omnigraph import clock
from omnigraph.errors import ConflictError, OmniGraphError, StorageError, StorageKind
from omnigraph.ids import BranchId, CommitId, OperationId, new_ulid, on_branch
from omnigraph.limits import HEARTBEAT_LOST_SECONDS, HEARTBEAT_SECONDS
from omnigraph.manifest.model import Snapshot
from omnigraph.store.objects.backend import ObjectInfo
from omnigraph.store.store import Store


@dataclass(frozen=True, slots=True)
class Owner:
    """A process; `started` distinguishes it from a later process with the same pid."""

    host: str
    pid: int
    started: str

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, members: Mapping[str, object]) -> Owner:
        return cls(str(members["host"]), int(str(members["pid"])), str(members["started"]))

    @property
    def is_here(self) -> bool:
        """Whether it runs on this machine, where the process itself can be checked."""
        return self.host == _host()

    @property
    def is_proven_dead(self) -> bool:
        """Whether it was a process of this machine that has exited."""
        return self.is_here and _start_of(self.pid) != self.started

    def is_dead(self, silent_us: int) -> bool:
        """Return True if the owner is dead; `silent_us` is the time since its last heartbeat by storage's clock.

        The clocks of two machines never agree, so neither is used.
        """
        return self.is_proven_dead if self.is_here else silent_us > HEARTBEAT_LOST_SECONDS * 1_000_000


def this_process() -> Owner:
    """Return this process as an owner."""
    pid = os.getpid()
    return Owner(_host(), pid, _start_of(pid))


@cache
def _host() -> str:
    # Machines share host names, and keep theirs over a reboot; the boot id distinguishes them. Containers of a machine
    # may share both, but do not see each other's processes, so the namespace of those is part of it.
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{socket.gethostname()}/{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return socket.gethostname()


def _start_of(pid: int) -> str:
    """Return when a process of this machine started, as its kernel reports it; empty when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        # A zombie has exited but was not reaped; treat it as dead.
        return "" if fields[0] == "Z" else fields[19]
    except OSError:
        pass
    if os.path.isdir("/proc/self"):
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "alive"
    return "alive"


FOLDER = "__recovery"
FORMAT = 1
# The kind of work that new names of old commits must check for.
CLEANUP = "cleanup"
# The kind of work under which an old commit gets a name: cleanup spares what it starts from.
NAMING = "naming"


def path_of(operation_id: OperationId) -> str:
    """Return the path of an operation's intent."""
    return f"{FOLDER}/{operation_id}.json"


@dataclass(frozen=True, slots=True)
class Intent:
    """The owner, kind and base of long work, and the paths of its staged files until it publishes."""

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
    # By storage's clock: when it was first written, and the time since its last heartbeat. The times above are the
    # owner's, for display only.
    stored_at_us: int | None = None
    silent_us: int = field(default=0, compare=False)

    @property
    def object_path(self) -> str:
        return path_of(self.operation_id)

    @property
    def is_dead(self) -> bool:
        return self.owner.is_dead(self.silent_us)

    @property
    def began_us(self) -> int:
        """When the work began, by storage's clock: files of this work are not older."""
        return self.started_at_us if self.stored_at_us is None else self.stored_at_us

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
            "stored_at": self.stored_at_us,
            "paths": list(self.paths),
        }
        return orjson.dumps(members, option=orjson.OPT_INDENT_2)

    @classmethod
    def from_bytes(cls, body: bytes, modified_us: int = 0) -> Intent:
        """Return an intent that was stored at a time; ValueError when it is not one that this release can judge."""
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
                # A first write does not know its time yet; then nothing of the work is older than the object itself.
                members.get("stored_at") or min(members["started_at"], modified_us),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not an intent: {error!r}") from error


@dataclass
class Declared:
    """A live intent, to which its owner sends heartbeats."""

    store: Store
    intent: Intent
    _lock: threading.RLock = field(default_factory=threading.RLock)
    # The bodies that storage may have: the last one that was written, and all attempts since.
    _written: set[bytes] = field(default_factory=set)
    _beaten_at: float = field(default_factory=clock.elapsed)
    _is_lost: bool = False

    @property
    def operation_id(self) -> OperationId:
        return self.intent.operation_id

    def staging(self, *paths: str) -> None:
        """Record files or directories as staged by this work; call before writing to them."""
        with self._lock:
            self.reject_lost()
            begun = clock.elapsed()
            self.intent = replace(self.intent, paths=(*self.intent.paths, *paths), heartbeat_us=clock.now_us())
            body = self.intent.to_bytes()
            self._written.add(body)
            self._write(body)
            self._written = {body}
            self._beaten_at = begun
            if self.intent.stored_at_us is None:
                # The next beat writes it down; until then the object's own time says the same.
                info = self.store.objects.info(self.intent.object_path)
                self.intent = replace(self.intent, stored_at_us=info.modified_us if info else None)

    def _write(self, body: bytes) -> None:
        # Only cleanup, which frees space, may use the reserve.
        objects = self.store.objects
        write = objects.write_from_reserve if self.intent.kind == CLEANUP else objects.write
        write(self.intent.object_path, body)

    @property
    def now_us(self) -> int:
        """Storage's time when the intent was written; ages are relative to it, never to our clock."""
        assert self.intent.stored_at_us is not None, "an intent that is held was written"
        return clock.storage_us(self.intent.stored_at_us)

    def beat(self) -> None:
        """Send a heartbeat."""
        with self._lock:
            begun = clock.elapsed()
            try:
                self.staging()
            except StorageError as error:
                is_stored = self.intent.stored_at_us is not None
                # Cleanup stages nothing, so its first body is still right, and touching it needs no space.
                if error.storage_kind is not StorageKind.FULL or self.intent.kind != CLEANUP or not is_stored:
                    raise
                self.store.objects.touch(self.intent.object_path)
                self._beaten_at = begun

    def reject_lost(self) -> None:
        """Raise if this work missed heartbeats for so long that a sweep has rolled it back."""
        with self._lock:
            silent = clock.elapsed() - self._beaten_at
            if silent > HEARTBEAT_LOST_SECONDS - HEARTBEAT_SECONDS:
                # While the body that we wrote last is there, no sweep has rolled it back.
                stored = self.store.objects.read_if_exists(self.intent.object_path)
                self._is_lost |= stored is None or stored.rstrip() not in self._written
            if self._is_lost:
                raise ConflictError(
                    f"this {self.intent.kind} sent no heartbeat for so long that another process removed its files;"
                    " nothing was published, retry",
                    operation_id=self.operation_id,
                )


class Busy(ConflictError):
    """Another process may be doing exclusive work; `object` is an intent that cannot be read."""

    @property
    def unreadable(self) -> tuple[str, ...]:
        return (str(self.context["object"]),) if "object" in self.context else ()


_held: dict[OperationId, Declared] = {}
# Intents of work that has ended here, by graph URI, whose deletion failed so far.
_finished: set[tuple[str, str]] = set()


def held_here(operation_id: OperationId) -> Declared | None:
    """Return the live intent of an operation of this process."""
    return _held.get(operation_id)


def finish(store: Store, intent: Intent) -> None:
    """Delete an intent when its work has ended; never fails, because the commit is already published."""
    _finished.add((store.root.uri, intent.object_path))
    _discard_finished(store)


def _discard_finished(store: Store) -> None:
    """Delete the intents of work that has ended; a failed deletion is retried with the next one."""
    for uri, path in sorted(_finished):
        if uri == store.root.uri:
            with suppress(StorageError):
                store.objects.delete_into_reserve(path)
                _finished.discard((uri, path))


@contextmanager
def declared(store: Store, kind: str, base: Snapshot, actor: str | None = None) -> Iterator[Declared]:
    """Hold an intent while long work runs; publish under its `operation_id`."""
    now = clock.now_us()
    intent = Intent(
        # The branch that it publishes to is not certain, so the id has a hint but no checksum.
        OperationId(on_branch(CommitId(new_ulid()), base.state.branch_id)),
        kind,
        actor,
        base.branch,
        base.state.branch_id,
        base.version,
        this_process(),
        now,
        now,
    )
    _discard_finished(store)
    try:
        with kept_fresh(store, intent) as declared_intent:
            yield declared_intent
    finally:
        finish(store, intent)


@contextmanager
def exclusive_intent(store: Store, kind: str, base: Snapshot, actor: str | None = None) -> Iterator[Declared]:
    """Hold an intent of which there is one per kind and graph, over all processes; else `Busy`.

    Each writes its intent before checking for others, so concurrent starts may both abort but never both proceed.
    """
    with ExitStack() as stack:
        try:
            declared_intent = stack.enter_context(declared(store, kind, base, actor))
        except StorageError as error:
            if error.storage_kind is StorageKind.FULL:
                # The work that is running may have used the reserve.
                _reject_others(store, kind)
            raise
        _reject_others(store, kind, declared_intent.operation_id)
        yield declared_intent


def _reject_others(store: Store, kind: str, excluded: OperationId | None = None) -> None:
    intents, unreadable = pending(store)
    reject_unreadable(unreadable, kind)
    if any(intent.kind == kind and intent.operation_id != excluded and not intent.is_dead for intent in intents):
        raise Busy(f"another {kind} of this graph is running; try again when it is done")


@contextmanager
def kept_fresh(store: Store, intent: Intent) -> Iterator[Declared]:
    """Write an intent and send heartbeats within the block, for work that passes from process to process."""
    declared_intent = Declared(store, intent)
    declared_intent.beat()
    _held[intent.operation_id] = declared_intent
    stop = threading.Event()
    thread = threading.Thread(target=_keep_fresh, args=(declared_intent, stop), name="omnigraph-heartbeat", daemon=True)
    thread.start()
    try:
        yield declared_intent
    finally:
        stop.set()
        thread.join()
        _held.pop(intent.operation_id, None)


def _keep_fresh(declared_intent: Declared, stop: threading.Event) -> None:
    while not stop.wait(HEARTBEAT_SECONDS):
        try:
            declared_intent.beat()
        except OmniGraphError:
            # The next heartbeat makes up for a missed one. Only a long silence lets a sweep roll the work back, and
            # `reject_lost` detects that before it publishes.
            continue


def pending(store: Store) -> tuple[list[Intent], list[str]]:
    """Return the stored intents, oldest first, and the paths of those that this release cannot read.

    The latter count as live, regardless of their kind. A failed request says nothing about an intent, so it is an
    error.
    """
    _discard_finished(store)
    intents: list[tuple[Intent, ObjectInfo]] = []
    unreadable: list[str] = []
    infos = [info for info in store.objects.list(FOLDER) if info.path.endswith(".json")]
    for info in infos:
        body = None if (store.root.uri, info.path) in _finished else store.objects.read_if_exists(info.path)
        if body is None:
            continue
        try:
            intents.append((Intent.from_bytes(body, info.modified_us), info))
        except ValueError:
            unreadable.append(info.path)
    # Only owners on other machines are judged by missed heartbeats, so storage's time is rarely needed.
    now_us = 0 if all(intent.owner.is_here for intent, _ in intents) else _read_time(store, infos)
    judged = [replace(intent, silent_us=now_us - info.modified_us) for intent, info in intents]
    return sorted(judged, key=lambda intent: intent.operation_id), unreadable


def has_intents_on_disk(store: Store) -> bool:
    """Return True if a graph on a local disk has intents; on an object store it would cost every open a request."""
    return store.root.kind.lists_cheaply and any(info.path.endswith(".json") for info in store.objects.list(FOLDER))


def _read_time(store: Store, infos: Sequence[ObjectInfo]) -> int:
    """Return storage's time; on a read-only or full store, the youngest heartbeat is a lower bound."""
    try:
        return store.objects.read_time()
    except StorageError as error:
        if error.storage_kind not in (StorageKind.CONFIGURATION, StorageKind.FULL):
            raise
        return clock.storage_us(max(info.modified_us for info in infos))


def reject_unreadable(paths: Sequence[str], kind: str) -> None:
    """Reject work that must not run concurrently with another of its kind, while an unreadable intent might be one."""
    if paths:
        raise Busy(
            f"`{paths[0]}` cannot be read, so another {kind} may be running; nothing was done. Remove it if no process"
            " works under it",
            object=paths[0],
        )
