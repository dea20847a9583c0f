"""Crash campaigns: run a scenario, die at a chosen moment, and let a new process judge what is left.

A branch keeps absolute paths, so every state of a campaign is played at the same address.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson

from tests.support.examples import draw
from tests.support.forked_python import ForkedPython

REPOSITORY = Path(__file__).parents[2]
BOTH_SIDES = ("durable.before", "durable.after")

Answer = dict[str, Any]


class Zygote:
    """A clean process that forks one child per job; see `crash_child`."""

    module = "tests.support.crash_child"

    def __enter__(self) -> Zygote:
        self._process = ForkedPython(
            [sys.executable, "-m", self.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMNIGRAPH_DURABILITY": "power"},
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def ask(self, job: str, request: Mapping[str, object], started: Callable[[int], None] = lambda pid: None) -> Answer:
        """Run one job in a child of its own; `started` hears the child's id while it runs."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(orjson.dumps({**request, "job": job}) + b"\n")
        self._process.stdin.flush()
        started(int(self._process.stdout.readline()))
        answer: Answer = orjson.loads(self._process.stdout.readline())
        return answer


class Place(Protocol):
    """Where the states of a campaign are played."""

    root: str

    def save(self) -> None: ...
    def restore(self) -> None: ...


class LocalPlace:
    """A directory, and a copy of it as it was before the work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = str(folder / "disk" / "graph.omni")
        self._template = folder / "template"

    def save(self) -> None:
        (self.folder / "disk").mkdir(parents=True, exist_ok=True)
        if os.path.isdir(self.root):
            shutil.copytree(self.root, self._template)

    def restore(self) -> None:
        self.put(self._template)

    def put(self, source: Path) -> None:
        """Make the graph be what lies in another directory."""
        shutil.rmtree(self.root, ignore_errors=True)
        if source.is_dir():
            shutil.copytree(source, self.root)


@dataclass
class Campaign:
    """One scenario at one place, all states of it, and what was wrong with them."""

    zygote: Zygote
    scenario: str
    place: Place
    environment: dict[str, str] = field(default_factory=dict)
    mutant: str | None = None
    sweep_mutant: str | None = None
    states: int = 0
    violations: list[str] = field(default_factory=list)

    def prepare(self) -> None:
        """Make the graph to start from, and learn both images and how many moments there are to die at."""
        self.before = self._ask("prepare")["image"]
        self.place.save()
        self.place.restore()
        self.moments: dict[str, int] = self._ask("run", mutant=self.mutant)["moments"]
        self.after = self._ask("image")["image"]

    def _ask(self, job: str, **more: object) -> Answer:
        answer = self.zygote.ask(job, self.request(**more))
        assert answer["status"] == 0, answer
        assert "error" not in answer, answer["error"]
        return answer

    def request(self, **more: object) -> dict[str, object]:
        """Return what every job of this campaign is told."""
        return {"scenario": self.scenario, "root": self.place.root, "environment": self.environment, **more}

    def kill_at(self, moment: str, number: int) -> None:
        """Die there, and judge; a child that never got there is judged as well."""
        self.place.restore()
        answer = self.zygote.ask("run", self.request(mutant=self.mutant, kill=[moment, number]))
        self.judge(answer, f"{moment} #{number}")

    def judge(self, answer: Answer, label: str) -> None:
        """Count one state, with what a new process finds wrong with it."""
        self.states += 1
        if answer["status"] not in (0, -signal.SIGKILL) or "error" in answer:
            self.violations.append(f"{self.scenario}, {label}: the work itself failed: {answer}")
            return
        if self.sweep_mutant:
            self.zygote.ask("sweep", self.request(mutant=self.sweep_mutant))
        acknowledged = bool(answer.get("acknowledged"))
        request = self.request(before=self.before, after=self.after, acknowledged=acknowledged)
        verdict = self.zygote.ask("check", request)
        found = verdict.get("violations", [f"the check failed: {verdict}"])
        self.violations.extend(f"{self.scenario}, {label}: {one}" for one in found)

    def all_moments(self, most: int | None = None) -> Iterator[tuple[str, int]]:
        """Yield every moment that the work passes, or of each kind so many, drawn for each scenario."""
        for moment, count in self.moments.items():
            yield from ((moment, number) for number in draw(count, most, f"{self.scenario} {moment}"))


def cut_power(campaign: Campaign, kind: str, *, at_syncs: bool = False, most: int | None = None) -> None:
    """Judge every state that a power cut during a prepared campaign's work could leave, or at most so many of them.

    `asked`: the disk holds what it was asked to hold. `names`: it also holds all names, whose bytes may be missing.
    """
    place = campaign.place
    assert isinstance(place, LocalPlace)
    place.restore()
    states = place.folder / "states"
    request = campaign.request(mutant=campaign.mutant, kind=kind, states=str(states), at_syncs=at_syncs, most=most)
    answer = campaign.zygote.ask("cut_power", request)
    assert answer["status"] == 0, answer
    assert "error" not in answer, answer["error"]
    for state in sorted(states.iterdir()):
        place.put(state)
        campaign.judge({"status": 0, "acknowledged": state.name.endswith("acknowledged")}, f"power cut {state.name}")
