"""Really full disks, and a cleanup that is killed on one.

`python -m tests.engine.full_disk ROOT PLACE` cleans up the graph at ROOT, two hours from now, and kills itself right
before the durable operation of number PLACE.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.failpoints import Point
from tests.support.maintenance_fixtures import hours_later


@contextmanager
def small_disk(folder: Path, kind: str) -> Iterator[Path]:
    """Mount a file system of a few megabytes; skip the test where that is not possible."""
    path = folder / "small"
    path.mkdir()
    if kind == "tmpfs":
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)]
    else:
        maker = shutil.which(f"mkfs.{kind}") or shutil.which(f"/sbin/mkfs.{kind}")
        if maker is None:
            pytest.skip(f"there is no mkfs.{kind} here")
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(16 * 1024 * 1024)
        # No blocks for root alone: the disk is to be full for root too.
        subprocess.run([maker, "-q", "-m", "0", str(image)], check=True, capture_output=True)
        mount = ["mount", "-o", "loop", str(image), str(path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting needs more rights than this user has")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(disk: Path) -> Path:
    """Leave no byte of a disk free, and return the file that fills it."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (65_536, 4_096, 512, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
        with suppress(OSError):
            os.fsync(file.fileno())
    assert free_bytes(disk) == 0
    return ballast


def free_bytes(disk: Path) -> int:
    status = os.statvfs(disk)
    return status.f_bavail * status.f_frsize


def main(root: str, place: int) -> None:
    graph = og.open(root)
    numbers = count(1)

    def die(_: str) -> None:
        if next(numbers) == place:
            os.kill(os.getpid(), signal.SIGKILL)

    with hours_later(), failpoints.armed({Point.DURABLE_BEFORE: die}):
        graph.maintenance.cleanup(keep=1, confirm=True)
    graph.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
