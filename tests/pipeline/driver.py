"""A driver of its own: loads a file on Spark, and kills itself or others as soon as its tasks have staged something.

python -m tests.pipeline.driver '{"graph": …, "file": …, "master": …, "kill": [process groups]}'
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import omnigraph as og
from omnigraph.pipeline import load
from tests.pipeline.graphs import splits_of

SPLIT_BYTES = 100_000


@dataclass
class Killer:
    """A watcher that looks for staged files, and strikes once while the tasks that stage them are still at work."""

    root: Path
    groups: list[int]
    stage: str = ""
    total: int = 0
    struck_at: int | None = None

    def begin(self, stage: str, total: int) -> None:
        self.stage, self.total = stage, total

    def reach(self, done: int) -> None:
        is_amid = self.stage == "reading" and done < self.total and next(self.root.rglob("*/_staging-*/*"), None)
        if not is_amid or self.struck_at is not None:
            return
        self.struck_at = done
        print(f"struck at {done} of {self.total}", flush=True)
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
            watcher=killer,
        )
    print(json.dumps({"struck": killer.struck_at, **report.to_json()}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
