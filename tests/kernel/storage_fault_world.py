"""Every write operation on a small graph, every request to storage that it makes, and what its answer may say.

The oracle knows only what the documentation promises: an operation is done as a whole or not at all; `none` means that
it was not done; a receipt means that it was; `unknown` names an operation that can be asked for.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.query.embedders import MockEmbedder
from omnigraph.errors import Effect, OmniGraphError, StorageError, StorageKind
from omnigraph.failpoints import Point
from omnigraph.graph import session_of
from omnigraph.pipeline import load
from omnigraph.store.objects.backend import Meter
from tests.support.s3_server import DENY_403, DROP_AFTER, EXPIRED_400, THROTTLE_503, Fault, Request, S3Server

SCHEMA: Final = """
node Person { name: String @key  age: I32?  about: String?  vec: Vector(4)? @embed(about) }
node City { name: String @key }
edge Knows: Person -> Person
"""
MORE: Final = SCHEMA + "node Country { name: String @key }\n"
INSERT: Final = "query q($n: String) { insert Person { name: $n, about: $n } }"
UPDATE: Final = "query q($n: String) { update Person set { age: 7 } where name = $n }"
DELETE: Final = "query q($n: String) { delete Person where name = $n }"

State = tuple[object, ...]


def person(name: str) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name}}


def build(uri: str) -> None:
    """Make the graph that every operation starts from: some commits, branches, a tag, and an old commit to name."""
    with og.init(uri, SCHEMA) as graph:
        graph.ingest([person("ada"), person("bob"), {"type": "City", "data": {"name": "ulm"}}])
        graph.mutate(INSERT, params={"n": "cyd"})
        graph.branches.create("side")
        graph.mutate(INSERT, params={"n": "dan"}, branch="side")
        graph.branches.create("ahead")
        graph.branches.create("spare")
        graph.tags.create("first", branch="main")
        graph.mutate(UPDATE, params={"n": "ada"})
        graph.branches.create("newer")
        graph.mutate(INSERT, params={"n": "eve"}, branch="newer")


def drop_branches(graph: og.Graph) -> None:
    for name in ("side", "ahead", "spare", "newer"):
        graph.branches.delete(name)


def commit_back(graph: og.Graph, steps: int) -> str:
    return graph.commits()[steps].commit_id


Run = Callable[[og.Graph], object]
Place = tuple[int, str]
Choose = Callable[[list[Place]], Iterable[Place]]

OPERATIONS: Final[dict[str, Run]] = {
    "insert": lambda graph: graph.mutate(INSERT, params={"n": "new"}),
    "update": lambda graph: graph.mutate(UPDATE, params={"n": "bob"}),
    "delete": lambda graph: graph.mutate(DELETE, params={"n": "bob"}),
    "ingest": lambda graph: graph.ingest([person("new"), person("bob")]),
    "first write on a branch": lambda graph: graph.mutate(INSERT, params={"n": "new"}, branch="spare"),
    "branch create": lambda graph: graph.branches.create("made"),
    "branch create in the past": lambda graph: graph.branches.create("made", at=commit_back(graph, 2)),
    "branch rename": lambda graph: graph.branches.rename("spare", "renamed"),
    "branch delete": lambda graph: graph.branches.delete("spare"),
    "tag create": lambda graph: graph.tags.create("made"),
    "tag create in the past": lambda graph: graph.tags.create("made", commit_back(graph, 2)),
    "tag delete": lambda graph: graph.tags.delete("first"),
    "merge": lambda graph: graph.branches.merge("side"),
    "fast-forward merge": lambda graph: graph.branches.merge("newer"),
    "revert": lambda graph: graph.revert(commit_back(graph, 1)),
    "cherry-pick": lambda graph: graph.cherry_pick(graph.commits("newer")[0].commit_id),
    "schema apply": lambda graph: graph.schema.apply(MORE),
    "optimize": lambda graph: graph.maintenance.optimize(),
    "ensure indices": lambda graph: graph.maintenance.ensure_indices(),
    "embed": lambda graph: graph.embed(embedder=MockEmbedder()),
    "load": lambda graph: load(graph, nodes={"City": cities()}, engine="local"),
}
# What has to be done first, without any fault.
FIRST: Final[dict[str, Run]] = {
    "schema apply": lambda graph: drop_branches(graph),
}
# Operations of two steps, and the first of them: it may stand alone, as if nothing, or as if all had been done.
TWO_STEPS: Final[dict[str, Run]] = {
    "ingest on a new branch": lambda graph: graph.ingest([person("new")], branch="made", from_branch="main"),
    "merge and delete": lambda graph: graph.branches.merge("side", delete_branch=True),
}
FIRST_STEPS: Final[dict[str, tuple[Run, bool]]] = {
    "ingest on a new branch": (lambda graph: graph.branches.create("made"), False),
    "merge and delete": (lambda graph: graph.branches.merge("side"), True),
}
# No commit of the graph: what they did is not asked for, but they must not fail in other ways.
UPKEEP: Final[dict[str, Run]] = {
    "cleanup": lambda graph: graph.maintenance.cleanup(keep=1, older_than=timedelta(0), confirm=True),
    "reconcile": lambda graph: graph.maintenance.reconcile(),
}


def cities() -> str:
    return str(Path(__file__).with_name("cities.csv"))


def state_of(uri: str) -> State:
    """Return what a reader sees: every branch with its commits and counts, the tags, the schema."""
    with og.open(uri, read_only=True) as graph:
        kernel = session_of(graph).kernel
        main = kernel.snapshot()
        found: list[object] = [sorted(main.state.tags), main.state.schema.ir_hash]
        for snapshot in kernel.live_snapshots():
            commits = tuple((one.kind, one.branch is None) for one in snapshot.state.commits)
            rows = tuple(sorted((key, pin.row_count) for key, pin in snapshot.state.pins.items()))
            found.append((snapshot.branch, commits, rows))
    return tuple(map(str, found))


@dataclass(frozen=True, slots=True)
class Tried:
    """One run of an operation under a fault: what it answered, how storage was left, and what became of it if asked."""

    error: BaseException | None
    after: State
    outcome: str | None = None


def judge(tried: Tried, before: set[State], done: set[State]) -> str | None:
    """Return how an answer contradicts what storage holds; None when it does not."""
    error, is_done = tried.error, tried.after in done
    if not is_done and tried.after not in before:
        return f"storage is neither as before nor as after: {tried.after}"
    if error is None:
        return None if is_done else "acknowledged, but not done"
    if not isinstance(error, OmniGraphError):
        return f"an error without a code: {error!r}"
    if error.code in ("graph.corrupt", "internal.bug", "graph.version_reclaimed", "graph.not_found"):
        return f"told as {error.code}: {error.message}"
    if error.effect is Effect.NONE:
        return f"told as `none`, but done: {error.message}" if is_done and not done & before else None
    if error.effect is Effect.APPLIED:
        return f"told as an error though it was done: {error.message}"
    if "operation_id" not in error.context:
        return f"`unknown` without an operation id: {error.message}"
    if tried.outcome != ("applied" if is_done else "pending"):
        return f"done: {is_done}, but asked for, the operation is {tried.outcome}"
    return None


class World(Protocol):
    """A graph that can be put back, and whose storage fails on demand."""

    uri: str
    kinds: tuple[str, ...]

    def restore(self) -> None: ...
    def open(self) -> og.Graph: ...
    def misnamed(self, kind: str, error: BaseException | None) -> str | None: ...
    def failing(self, place: int, kind: str) -> AbstractContextManager[list[str]]:
        """Let the request at a place fail, from the first one in the block on; yield the requests that are made."""
        ...


def prepare(world: World, name: str) -> State:
    """Put the start of an operation back, and return its state."""
    world.restore()
    if name in FIRST:
        with world.open() as graph:
            FIRST[name](graph)
    return state_of(world.uri)


def attempt(world: World, run: Run, place: int = 0, kind: str = "") -> tuple[Tried, list[str]]:
    """Run an operation with one failing request; place 0 fails nothing."""
    graph = world.open()
    error: BaseException | None = None
    with world.failing(place, kind) as requests:
        try:
            run(graph)
        except Exception as caught:  # noqa: BLE001 - whatever it is, it is judged
            error = caught
        try:
            graph.close()
        except Exception as caught:  # noqa: BLE001 - an answer that a `with` would replace
            error = caught
    outcome = None
    if isinstance(error, OmniGraphError) and "operation_id" in error.context:
        with og.open(world.uri, read_only=True) as asking:
            outcome = asking.operation(str(error.context["operation_id"])).outcome
    return Tried(error, state_of(world.uri), outcome), requests


def search(world: World, name: str, run: Run, choose: Choose) -> tuple[int, list[str]]:
    """Try an operation with faults at the chosen places; return how many, and what was wrong with the answers."""
    before, done = {prepare(world, name)}, set[State]()
    if name in FIRST_STEPS:
        first, counts = FIRST_STEPS[name]
        (done if counts else before).add(attempt(world, first)[0].after)
        prepare(world, name)
    clean, requests = attempt(world, run)
    assert clean.error is None, f"{name}: {clean.error!r}"
    done.add(clean.after)
    wrong, tried = [], 0
    for place, kind in choose([(place, kind) for place in range(1, len(requests) + 1) for kind in world.kinds]):
        prepare(world, name)
        found, seen = attempt(world, run, place, kind)
        tried += place <= len(seen)
        problem = judge(found, before, done) or world.misnamed(kind, found.error)
        if problem:
            where = seen[place - 1] if place <= len(seen) else "?"
            wrong.append(f"{name}, {kind} at request {place} ({where}): {problem}")
    return tried, wrong


OUTAGES: Final = ("outage", "outage_after")


class S3World:
    """A graph in a bucket; a request fails by the answer that it gets."""

    kinds: tuple[str, ...] = (*(one.kind for one in (DENY_403, THROTTLE_503, EXPIRED_400, DROP_AFTER)), *OUTAGES)

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.uri = server.uri("g")
        build(self.uri)
        self._put_back = server.saved()

    def restore(self) -> None:
        self._put_back()

    def open(self) -> og.Graph:
        return og.open(self.uri)

    @contextmanager
    def failing(self, place: int, kind: str) -> Iterator[list[str]]:
        seen: list[str] = []

        def fault(request: Request) -> Fault | None:
            seen.append(f"{request.method} {request.key}?{request.query}")
            if place == 0 or len(seen) < place or (len(seen) > place and kind not in OUTAGES):
                return None
            if kind in OUTAGES:
                # The first request that fails may have been carried out.
                return DROP_AFTER if len(seen) == place and kind == "outage_after" else THROTTLE_503
            return Fault(kind)  # type: ignore[arg-type]  # one of the server's

        self.server.fault = fault
        try:
            yield seen
        finally:
            self.server.fault = None

    def misnamed(self, kind: str, error: BaseException | None) -> str | None:
        """Return what is wrong with the class of an error, whatever its effect."""
        if not isinstance(error, StorageError) or error.effect is Effect.UNKNOWN:
            return None
        if ".keys failed" in error.message:
            # Arrow's own client, which reads these files, does not pass on why a request was refused.
            return None
        if kind in ("throttle_503", "drop_after", *OUTAGES):
            return None if error.retryable else f"an outage that is not retryable: {error.storage_kind} {error.message}"
        return f"retryable, though no retry can help: {error.message}" if error.retryable else None


class DiskWorld:
    """A graph on a disk; requests fail before they are carried out, or after."""

    kinds: tuple[str, ...] = ("failed", "lost", "failed for good")

    def __init__(self, folder: Path) -> None:
        self.uri = str(folder / "g")
        self._kept = folder / "kept"
        build(self.uri)
        shutil.copytree(self.uri, self._kept)

    def restore(self) -> None:
        shutil.rmtree(self.uri)
        # No file is ever written again once it has its name, so the kept ones may be shared.
        shutil.copytree(self._kept, self.uri, copy_function=os.link)

    def open(self) -> og.Graph:
        self._meter = _FailingMeter()
        return og.open(self.uri, meter=self._meter)

    @contextmanager
    def failing(self, place: int, kind: str) -> Iterator[list[str]]:
        seen: list[str] = []

        def fail(detail: str) -> None:
            seen.append(detail)
            if len(seen) == place or (kind == "failed for good" and 0 < place < len(seen)):
                raise StorageError(f"the disk failed ({detail})", kind=StorageKind.PERMANENT, errno="EIO")

        points: dict[Point, failpoints.Action] = {Point.DURABLE_AFTER if kind == "lost" else Point.DURABLE_BEFORE: fail}
        self._meter.before = None if kind == "lost" else fail
        with failpoints.armed(points):
            try:
                yield seen
            finally:
                self._meter.before = None

    def misnamed(self, kind: str, error: BaseException | None) -> str | None:
        return None


class _FailingMeter(Meter):
    """Fails reads, which pass no failpoint, where they are counted."""

    before: Callable[[str], None] | None = None

    def count(self, operation: str, target: str) -> None:
        if self.before is not None and operation in ("get", "head", "list", "open", "scan", "take", "probe"):
            self.before(f"{operation} {target}")
        super().count(operation, target)
