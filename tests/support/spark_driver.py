"""A driver of its own: loads a file on Spark, and kills itself or others as soon as its tasks have written data files.

python -m tests.support.spark_driver '{"graph": …, "file": …, "master": …, "kill": [process groups]}'
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import omnigraph as og
from omnigraph.engine.tasks import Unit
from omnigraph.pipeline import load
from tests.support.pipeline_fixtures import splits_of

SPLIT_BYTES = 100_000


@dataclass
class Killer:
    """A progress callback that looks for new data files, and strikes once while tasks still write them."""

    root: Path
    groups: list[int]
    struck_at: int | None = None
    struck_in: str | None = None
    data_files: int = 0

    def __post_init__(self) -> None:
        self._before = len(self._data_files())

    def _data_files(self) -> list[Path]:
        return [*self.root.glob("nodes/*/data/*.lance"), *self.root.glob("edges/*/data/*.lance")]

    def __call__(self, stage: str, done: int, total: int, unit: Unit) -> None:
        written = len(self._data_files()) - self._before
        is_amid = stage == "reading" and done < total and written
        if not is_amid or self.struck_at is not None:
            return
        self.struck_at, self.struck_in, self.data_files = done, stage, written
        print(f"struck at {done} of {total}", flush=True)
        for group in self.groups:
            os.killpg(group, signal.SIGKILL) if group else os.kill(os.getpid(), signal.SIGKILL)


def main(given: dict[str, object]) -> None:
    graph = og.open(str(given["graph"]))
    groups = given["kill"]
    assert isinstance(groups, list)
    killer = Killer(Path(graph.uri), groups)
    with splits_of(SPLIT_BYTES):
        report = load(
            graph,
            str(given["file"]),
            mode="append",
            job_id="job",
            engine="spark",
            master=str(given["master"]),
            progress=killer,
        )
    seen = {"struck": killer.struck_at, "stage": killer.struck_in, "data_files": killer.data_files}
    print(json.dumps({**report.to_json(), **seen}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
