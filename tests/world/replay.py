"""Failures of one call, as a list of calls alone: without the model, and without what other operations have chosen.

A history that is replayed with operations left out chooses otherwise from there on. Where the last call is what fails,
it is enough to repeat the very calls before it, and to leave out those that do not matter.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import omnigraph as og
from tests.world.calls import Call, run
from tests.world.generator import Failure
from tests.world.model import Model
from tests.world.schema_model import source_text
from tests.world.world import first_schema

Recorded = list[tuple[Call, str | None]]


def outcome(calls: Recorded, root: Path | None = None) -> str:
    """Make calls on a new graph, and return how the last of them fails; empty if it does not."""
    folder = Path(tempfile.mkdtemp(prefix="world-", dir=root))
    made: dict[str, str] = {}
    found = ""
    try:
        with og.init(str(folder / "graph.omni"), source_text(first_schema(Model()))) as graph:
            for call, commit in calls:
                try:
                    answer = run(graph, _with_commits(call, made))
                except Exception as error:  # noqa: BLE001 - whatever happens is the outcome
                    found = f"{type(error).__name__}: {error}"
                    continue
                found = f"{answer['error']} {answer['rule']}: {answer['message']}" if "error" in answer else ""
                if commit is not None and answer.get("commit"):
                    made[commit] = str(answer["commit"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _with_commits(call: Call, made: dict[str, str]) -> Call:
    """Replace the ids of commits by those that the same calls have made this time."""
    text = json.dumps(call)
    for before, now in made.items():
        text = text.replace(before, now)
    changed: dict[str, Any] = json.loads(text)
    return changed


def signature(text: str) -> str:
    """Return what stays the same in a message when other entities and files are concerned."""
    return re.sub(r"[0-9A-Z]{26}|`[^`]*`|/[^ ]*|[0-9]+", "", text)[:80]


def shrink_calls(failure: Failure, *, root: Path | None = None, seconds: float = 120) -> Recorded | None:
    """Return the fewest calls after which the last one fails in the same way; None if the calls alone do not."""
    best = list(failure.calls)
    wanted = outcome(best, root)
    if not wanted:
        return None
    deadline = time.monotonic() + seconds
    size = max(len(best) // 2, 1)
    while time.monotonic() < deadline:
        start, is_shorter = 0, False
        while start < len(best) - 1 and time.monotonic() < deadline:
            rest = [*best[:start], *best[min(start + size, len(best) - 1) :]]
            if signature(outcome(rest, root)) == signature(wanted):
                best, is_shorter = rest, True
            else:
                start += size
        if size == 1 and not is_shorter:
            break
        size = max(size // 2, 1)
    return best


def script(calls: Recorded) -> str:
    """Return a program that makes calls, one a line."""
    lines = "\n".join(f"    {call!r}," for call, _ in calls)
    return (
        "import omnigraph as og\nfrom tests.world.calls import run\nfrom tests.world.model import Model\n"
        "from tests.world.schema_model import source_text\nfrom tests.world.world import first_schema\n\n"
        'graph = og.init("world.omni", source_text(first_schema(Model())))\n'
        f"for call in [\n{lines}\n]:\n    print(call, run(graph, call))\n"
    )
