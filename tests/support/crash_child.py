"""The process that dies: a server that has loaded everything and used nothing, and forks a child for each request.

A process that has used Lance cannot be forked safely, and starting a new one takes a second; hence this one.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import orjson

from omnigraph import failpoints
from omnigraph.failpoints import Action, Point
from omnigraph.store.objects import durability
from omnigraph.store.objects.local_objects import TEMPORARY_PREFIX
from tests.support.crash_checks import Check, image_of
from tests.support.crash_mutants import MUTANTS
from tests.support.crash_scenarios import SCENARIOS
from tests.support.examples import draw
from tests.support.kernel_fixtures import open_graph
from tests.support.power_loss import PowerLoss

# A child that hangs is a finding like any other, but it must not hang the suite.
CHILD_SECONDS_MAX = 60
LOOKS_MAX = 20
ACKNOWLEDGED = "acknowledged"

T = TypeVar("T")
Emit = Callable[[dict[str, object]], None]
Request = dict[str, Any]


def prepare(request: Request, emit: Emit) -> None:
    SCENARIOS[request["scenario"]].prepare(request["root"])
    emit({"image": image_of(open_graph(request["root"]))})


def run(request: Request, emit: Emit) -> None:
    """Do the work; count what could be a moment to die at, and die at the moment asked for."""
    moments = _Moments(request.get("kill"))
    with moments.armed():
        kernel = open_graph(request["root"])
        SCENARIOS[request["scenario"]].run(kernel)
        emit({"acknowledged": True})
        kernel.close()
    emit({"moments": moments.seen})


def cut_power(request: Request, emit: Emit) -> None:
    """Do the work, and write down what a power cut would leave at each durable operation or, if asked, each sync."""
    root = Path(request["root"])
    with PowerLoss(root.parent) as loss, ExitStack() as stack:
        cut = _PowerCut(loss, root.name, request["kind"])

        def sync(path: str) -> None:
            if request["at_syncs"]:
                cut("sync")
            _steadily(partial(loss.sync, path))

        stack.enter_context(durability.replaced(sync))
        points = (Point.DURABLE_BEFORE, Point.DURABLE_AFTER, Point.COMMIT_SYNCED)
        with failpoints.armed(dict.fromkeys(points, cut)):
            kernel = open_graph(request["root"])
            SCENARIOS[request["scenario"]].run(kernel)
            cut(ACKNOWLEDGED)
        kernel.close()
        cut(ACKNOWLEDGED)
    cut.write_states(Path(request["states"]), request["most"], request["scenario"])


def image(request: Request, emit: Emit) -> None:
    emit({"image": image_of(open_graph(request["root"]))})


def check(request: Request, emit: Emit) -> None:
    members = ("root", "scenario", "before", "after", "acknowledged")
    emit({"violations": Check(*(request[name] for name in members)).run()})


def sweep(request: Request, emit: Emit) -> None:
    SCENARIOS["sweep"].run(open_graph(request["root"]))


JOBS: dict[str, Callable[[Request, Emit], None]] = {
    one.__name__: one for one in (prepare, run, cut_power, image, check, sweep)
}


# Of the others only the outcome counts, and syncing is most of their time.
SYNCING_JOBS = ("run", "cut_power")


class _Moments:
    """Every failpoint and every fsync that the work passes, numbered; kills at the one asked for."""

    def __init__(self, kill: list[Any] | None) -> None:
        self.seen: dict[str, int] = {}
        self._kill = tuple(kill) if kill else None
        self._lock = threading.Lock()

    def armed(self) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(failpoints.armed({point: self._at(point.value) for point in Point}))
        stack.enter_context(durability.replaced(self._sync))
        return stack

    def _at(self, moment: str) -> Action:
        def action(_: str) -> None:
            with self._lock:
                self.seen[moment] = self.seen.get(moment, 0) + 1
                if (moment, self.seen[moment]) == self._kill:
                    failpoints.kill("")

        return action

    def _sync(self, path: str) -> None:
        # A dead process loses nothing that it has written, so nothing need really be synced here. Temporary files are
        # moments of their own: right after their sync they get their final name.
        self._at("sync.temporary" if TEMPORARY_PREFIX in path else "sync")(path)


class _PowerCut:
    """Remembers what a power cut would leave, at every moment it is called.

    `asked`: the disk holds what it was asked to hold. `names`: it has stored names before bytes, unasked.
    """

    def __init__(self, loss: PowerLoss, name: str, kind: str) -> None:
        self._surviving = loss.surviving if kind == "asked" else loss.surviving_names_first
        self._prefix = f"{name}/"
        self._lock = threading.Lock()
        self._labels: dict[tuple[bool, frozenset[tuple[str, bytes]]], str] = {}

    def __call__(self, detail: str) -> None:
        with self._lock:
            files = frozenset(
                (path.removeprefix(self._prefix), data)
                for path, data in _steadily(self._surviving).items()
                if path.startswith(self._prefix)
            )
            is_acknowledged = detail == ACKNOWLEDGED
            label = ACKNOWLEDGED if is_acknowledged else "".join(one if one.isalnum() else "-" for one in detail)
            self._labels.setdefault((is_acknowledged, files), label[:80])

    def write_states(self, target: Path, most: int | None, salt: str) -> None:
        """Write the states that differ to a directory each: all, or so many drawn."""
        states = [(label, files) for (_, files), label in self._labels.items()]
        for number in draw(len(states), most, salt):
            label, files = states[number - 1]
            state = target / f"{number:04d} {label}"
            state.mkdir(parents=True)
            for path, data in files:
                (state / path).parent.mkdir(parents=True, exist_ok=True)
                (state / path).write_bytes(data)


def _steadily(look: Callable[[], T]) -> T:
    """Look at a directory until nobody takes a file away meanwhile; other threads of the work may."""
    for _ in range(LOOKS_MAX):
        with suppress(FileNotFoundError):
            return look()
    return look()


def _work(request: Request, pipe: int) -> None:
    def emit(members: dict[str, object]) -> None:
        os.write(pipe, orjson.dumps(members, option=orjson.OPT_NON_STR_KEYS) + b"\n")

    signal.alarm(CHILD_SECONDS_MAX)
    os.environ.update(request.get("environment", {}))
    if request["job"] not in SYNCING_JOBS:
        os.environ["OMNIGRAPH_DURABILITY"] = "process"
    try:
        if request.get("mutant"):
            MUTANTS[request["mutant"]]()
        JOBS[request["job"]](request, emit)
    except BaseException:  # noqa: BLE001 - the parent must hear of it
        emit({"error": traceback.format_exc()})


def serve() -> None:
    """Answer each request line with the child's id, and then with what became of the child."""
    warnings.simplefilter("ignore")
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        request = orjson.loads(line)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _work(request, writing)
            os._exit(0)
        os.close(writing)
        out.write(b"%d\n" % pid)
        out.flush()
        answer: dict[str, object] = {}
        with open(reading, "rb") as pipe:
            for said in pipe:
                answer |= orjson.loads(said)
        answer["status"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.write(orjson.dumps(answer) + b"\n")
        out.flush()


if __name__ == "__main__":
    serve()
