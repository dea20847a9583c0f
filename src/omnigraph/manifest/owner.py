"""Owners: which process holds an intent or a claim, and whether it still lives.

Only a proof counts: the same machine and no such process any more. Owners elsewhere are judged by their heartbeat.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache

from omnigraph.limits import HEARTBEAT_LOST_SECONDS


@dataclass(frozen=True, slots=True)
class Owner:
    """One run of one process; `started` tells it from a later process with the same number."""

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
        """Whether it runs on this machine, where the process itself can be looked for."""
        return self.host == _host()

    @property
    def is_proven_dead(self) -> bool:
        """Whether it was a process of this machine that has ended."""
        return self.is_here and _start_of(self.pid) != self.started

    def is_dead(self, silent_us: int) -> bool:
        """Tell whether nobody can be working on this any more; `silent_us` has passed by storage's clock since a beat.

        Two machines never agree on the time, and either may be years off; so neither of their clocks is asked.
        """
        return self.is_proven_dead if self.is_here else silent_us > HEARTBEAT_LOST_SECONDS * 1_000_000


def this_process() -> Owner:
    """Return the owner that we are."""
    pid = os.getpid()
    return Owner(_host(), pid, _start_of(pid))


@cache
def _host() -> str:
    # Containers share host names, and a machine keeps its name over a reboot; the boot id tells them apart.
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{socket.gethostname()}/{file.read().strip()}"
    except OSError:
        return socket.gethostname()


def _start_of(pid: int) -> str:
    """Return when a process of this machine started, in its kernel's own words; empty when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        # A zombie has stopped working, though its parent has not yet asked for its remains.
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
