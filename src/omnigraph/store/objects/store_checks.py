"""Checks of a store before it is trusted with a graph: permissions, conditional puts, races, large files, order, clock.

Each check writes a few objects below a temporary name beside the graph, and removes them. A graph at the same address
is neither read nor changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

from omnigraph import clock, ids
from omnigraph.errors import StorageError, StorageKind
from omnigraph.limits import COPY_CHUNK_BYTES, DOCTOR_CLOCK_SECONDS, DOCTOR_RACE_ROUNDS, DOCTOR_RACE_WRITERS
from omnigraph.public_values import PublicValue
from omnigraph.store.objects.backend import NO_METER, Backend
from omnigraph.store.objects.control_objects import open_backend
from omnigraph.store.objects.local_objects import TEMPORARY_PREFIX
from omnigraph.store.objects.uri import Location

Outcome = Literal["ok", "warning", "failed", "skipped"]
# Not in the order of their names, so that a store that lists by time is noticed.
_LISTED: Final = ("b/2", "a", "b-1", "c", "b/10", "B")


@dataclass(frozen=True, slots=True)
class StoreCheck(PublicValue):
    """One check: a store with a `failed` one is not fit for graphs, a `warning` needs a look."""

    name: str
    outcome: Outcome
    detail: str


@dataclass(frozen=True, slots=True)
class StoreReport(PublicValue):
    """What the checks of a store found."""

    uri: str
    endpoint: str | None
    checks: tuple[StoreCheck, ...]
    computed: ClassVar = {"is_fit": "is_fit"}

    @property
    def is_fit(self) -> bool:
        """Whether graphs may be kept there."""
        return all(check.outcome != "failed" for check in self.checks)


@dataclass(frozen=True, slots=True)
class _Probe:
    """The folder of one run of the checks."""

    root: Location
    backend: Backend
    folder: str

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"


# How a check ended, and what it found. What a graph does not depend on is a warning.
_Verdict: TypeAlias = tuple[Outcome, str]
_Check: TypeAlias = Callable[[_Probe], _Verdict]


def check_store(root: Location) -> StoreReport:
    """Run all checks; without permission to write, the others are skipped."""
    base = _existing(root)
    probe = _Probe(base, open_backend(base, NO_METER), f"{TEMPORARY_PREFIX}doctor-{ids.new_ulid()}")
    checks: list[StoreCheck] = []
    try:
        for name, check in _CHECKS.items():
            is_blocked = bool(checks) and checks[0].outcome == "failed"
            checks.append(
                StoreCheck(name, "skipped", "needs the permissions above") if is_blocked else _run(name, check, probe)
            )
    finally:
        with suppress(StorageError):
            probe.backend.delete_prefix(probe.folder)
    return StoreReport(root.uri, root.kind.endpoint_name() or None, tuple(checks))


def _existing(root: Location) -> Location:
    """Return a location to check: of a directory that does not exist yet, the nearest one that does."""
    path = root.path
    while root.has_paths and not os.path.isdir(path):
        path = os.path.dirname(path)
    return Location(root.scheme, root.bucket, path)


def _run(name: str, check: _Check, probe: _Probe) -> StoreCheck:
    try:
        return StoreCheck(name, *check(probe))
    except StorageError as error:
        return StoreCheck(name, "failed", error.message)


def _check_permissions(probe: _Probe) -> _Verdict:
    backend, path = probe.backend, probe.path("permissions")
    backend.put(path, b"1")
    if backend.get(path) != b"1":
        return "failed", "an object that was just written cannot be read"
    if backend.info(path) is None:
        return "failed", "an object that was just written has no size and date"
    if not list(backend.list(probe.folder)):
        return "failed", "an object that was just written is not listed"
    backend.delete(path)
    backend.put(path, b"2")
    backend.delete_many([path])
    if backend.get(path) is not None:
        return "failed", "an object that was just deleted can still be read"
    return "ok", "write, read, list and delete"


def _check_conditional_put(probe: _Probe) -> _Verdict:
    path, condition = probe.path("conditional-put"), f"`{probe.root.kind.create_condition}`"
    if not probe.backend.create(path, b"1"):
        return "failed", f"an object that does not exist cannot be created with {condition}"
    if probe.backend.create(path, b"2") or probe.backend.get(path) != b"1":
        return "failed", f"{condition} is ignored: a second writer replaced the object, so commits would be lost"
    return "ok", f"{condition} is honoured" if probe.root.kind.publishes_by_put else "hard links never replace a file"


def _check_conditional_match(probe: _Probe) -> _Verdict:
    if probe.root.has_paths:
        return "skipped", "files have no ETags"
    backend, path = probe.backend, probe.path("conditional-match")
    condition, minor = f"`{probe.root.kind.match_condition}`", "commits do not depend on it, but other tools may"
    backend.put(path, b"1")
    before = backend.info(path)
    backend.put(path, b"2")
    after = backend.info(path)
    if before is None or after is None or not before.e_tag or not after.e_tag or before.e_tag == after.e_tag:
        return "warning", "objects have no ETags that change with their bytes; `verify --data` can only compare bytes"
    try:
        if backend.put_if_match(path, b"3", before):
            return "warning", f"{condition} is ignored; {minor}"
        if not backend.put_if_match(path, b"4", after):
            return "warning", f"{condition} refuses the current object; {minor}"
    except StorageError as error:
        if error.storage_kind is not StorageKind.PERMANENT:
            raise
        return "warning", f"{condition} is not implemented; {minor}"
    return "ok", f"{condition} is honoured"


def _check_race(probe: _Probe) -> _Verdict:
    with ThreadPoolExecutor(DOCTOR_RACE_WRITERS, thread_name_prefix="omnigraph-doctor") as pool:
        for number in range(DOCTOR_RACE_ROUNDS):
            path = probe.path(f"race-{number}")
            writers = [str(writer).encode() for writer in range(DOCTOR_RACE_WRITERS)]
            won = list(pool.map(probe.backend.put_if_absent, [path] * len(writers), writers))
            winners = [writer for writer, has_won in zip(writers, won, strict=True) if has_won]
            if len(winners) != 1:
                return "failed", (
                    f"{len(winners)} of {DOCTOR_RACE_WRITERS} concurrent writers created the same object, so commits"
                    " would be lost"
                )
            if probe.backend.get(path) != winners[0]:
                return "failed", "the object does not hold the bytes of the writer that created it"
    return "ok", f"1 of {DOCTOR_RACE_WRITERS} concurrent writers wins, {DOCTOR_RACE_ROUNDS} times"


def _check_large_file(probe: _Probe) -> _Verdict:
    path, size = probe.path("large"), COPY_CHUNK_BYTES + 1_000
    chunk = bytes(range(250)) * (size // 250 + 1)

    def chunks() -> Iterator[bytes]:
        yield chunk[:COPY_CHUNK_BYTES]
        yield chunk[COPY_CHUNK_BYTES:size]

    probe.backend.put_chunks(path, chunks())
    info = probe.backend.info(path)
    if info is None or info.size_bytes != size or probe.backend.get(path) != chunk[:size]:
        return "failed", f"a file of {size:,} bytes that was written in parts does not have its bytes"
    probe.backend.delete(path)
    return "ok", f"{size:,} bytes" + ("" if probe.root.has_paths else " in a multipart upload")


def _check_listing(probe: _Probe) -> _Verdict:
    folder = probe.path("listing")
    paths = [f"{folder}/{name}" for name in _LISTED]
    for path in paths:
        probe.backend.put(path, b"")
    listed = [info.path for info in probe.backend.list(folder)]
    if sorted(listed) != sorted(paths):
        missing = len(set(paths) - set(listed))
        return "failed", f"{missing} of {len(paths)} objects that were just written are not listed"
    if not probe.root.has_paths and listed != sorted(paths):
        return "failed", "objects are not listed in the order of their names, by which the newest version is found"
    probe.backend.delete_many(paths)
    if list(probe.backend.list(folder)):
        return "failed", "objects that were just deleted are still listed"
    return "ok", "complete" if probe.root.has_paths else "complete, and in the order of names"


def _check_clock(probe: _Probe) -> _Verdict:
    path = probe.path("clock")
    probe.backend.put(path, b"")
    now_us, info = clock.now_us(), probe.backend.info(path)
    if info is None:
        return "failed", "an object that was just written has no date"
    skew = (now_us - clock.storage_us(info.modified_us)) / 1_000_000
    if abs(skew) > DOCTOR_CLOCK_SECONDS:
        direction = "ahead of" if skew > 0 else "behind"
        return "warning", (
            f"the clock of this machine is {abs(skew):.0f} seconds {direction} that of the store; commits keep their"
            " order, but their dates are wrong: set the clock"
        )
    return "ok", f"differs by less than {DOCTOR_CLOCK_SECONDS} seconds"


_CHECKS: Final[dict[str, _Check]] = {
    "permissions": _check_permissions,
    "conditional put": _check_conditional_put,
    "conditional match": _check_conditional_match,
    "concurrent race": _check_race,
    "large file": _check_large_file,
    "listing": _check_listing,
    "clock": _check_clock,
}
