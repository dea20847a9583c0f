"""Other processes that work on the same graph, and are killed at any moment.

Run as `python -m tests.world.processes`, it has loaded everything and used nothing, and forks a child for each request:
a process that has used Lance cannot be forked safely, and starting a new one takes a second.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from functools import cache
from random import Random
from subprocess import PIPE
from typing import Any

import omnigraph as og
from omnigraph import failpoints
from omnigraph.failpoints import Point
from tests.support.forked_python import ForkedPython
from tests.world.calls import Answer, Call, run
from tests.world.steps import Broken, Step
from tests.world.world import World

CHILD_SECONDS_MAX = 120
# A call passes between ten and a hundred failpoints; one that passes fewer is acknowledged.
MOMENTS_MAX = 60


class Launcher:
    """The process that starts others."""

    def __init__(self) -> None:
        self._process = ForkedPython([sys.executable, "-m", "tests.world.processes"], stdin=PIPE, stdout=PIPE)

    def call(self, uri: str, call: Call, kill_at: int | None) -> Answer | None:
        """Make a call in a process of its own; None if it was killed before it answered."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"uri": uri, "call": call, "kill_at": kill_at, "environment": _environment()}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        reply = json.loads(self._process.stdout.readline())
        if "fault" in reply:
            raise Broken(f"another process failed:\n{reply['fault']}")
        answer: Answer | None = reply.get("answer")
        if answer is None and reply["status"] != -signal.SIGKILL:
            raise Broken(f"another process ended with {reply['status']}")
        return answer


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("OMNIGRAPH_", "AWS_"))}


@cache
def launcher() -> Launcher:
    return Launcher()


def perform_elsewhere(world: World, step: Step, kill_at: int | None) -> None:
    """Make a call in another process; if that is killed, all of it has happened, or nothing."""
    world.note(f"in another process{'' if kill_at is None else f', killed at moment {kill_at}'}")
    world.note(f"{step.kind}: {json.dumps(step.call, ensure_ascii=False)[:2_000]}")
    world.calls.append((step.call, None))
    answer = launcher().call(world.uri, step.call, kill_at)
    if answer is not None:
        world.counts["elsewhere"] += 1
        world.follow(step, answer)
        return
    world.counts["killed"] += 1
    is_applied = _is_applied(world, step)
    world.note(f"   killed: {'it has happened' if is_applied else 'nothing has happened'}")
    if not is_applied:
        return
    head = world.graph.snapshot(step.branch).head if step.branch else None
    world.follow(step, {"commit": head, "errors": [], "dry": [], "done": []})


def _is_applied(world: World, step: Step) -> bool:
    """Tell whether a call whose process was killed took effect."""
    if step.branch is not None:
        return bool(world.graph.snapshot(step.branch).head != world.model.head(step.branch).id)
    call, branches = step.call, set(world.graph.branches.list())
    name = call.get("name")
    if call["call"] in ("create_branch", "rename_branch"):
        return bool(call.get("new_name", name) in branches)
    if call["call"] == "delete_branch":
        return name not in branches
    if call["call"] in ("tag", "untag"):
        is_there = name in {one.name for one in world.graph.tags.list()}
        return bool(is_there == (call["call"] == "tag"))
    # Half a cleanup may have removed whatever a whole one may.
    return True


def serve() -> None:
    """Answer each line with what became of a child."""
    warnings.simplefilter("ignore")
    for line in sys.stdin.buffer:
        request = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _work(request, writing)
            os._exit(0)
        os.close(writing)
        with open(reading, "rb") as pipe:
            reply = json.loads(pipe.read() or b"{}")
        reply["status"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
        sys.stdout.buffer.flush()


def _work(request: dict[str, Any], pipe: int) -> None:
    signal.alarm(CHILD_SECONDS_MAX)
    os.environ.update(request["environment"])
    try:
        with failpoints.armed(dict.fromkeys(Point, _killer(request["kill_at"]))), og.open(request["uri"]) as graph:
            reply: dict[str, Any] = {"answer": run(graph, request["call"])}
    except BaseException:  # noqa: BLE001 - the parent must hear of it
        reply = {"fault": traceback.format_exc()}
    with open(pipe, "wb") as out:
        out.write(json.dumps(reply).encode())


def _killer(moment: int | None) -> Callable[[str], None]:
    lock, left = threading.Lock(), [moment]

    def action(_: str) -> None:
        with lock:
            if left[0] is not None:
                left[0] -= 1
                if left[0] < 0:
                    failpoints.kill("")

    return action


def random_moment(random: Random) -> int | None:
    """Choose when a process is killed; None: it is not."""
    return random.randrange(MOMENTS_MAX) if random.random() < 0.6 else None


if __name__ == "__main__":
    serve()
