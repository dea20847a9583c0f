"""A driver of its own: runs a pipeline for some graphs, and kills itself or a worker at the n-th report of progress.

python -m tests.support.fortnight_driver '{"graphs": […], "file": …, "report": …, "backfills": [[low, high], …],
"kill_at": n, "groups": [process groups; none: this one]}'
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import omnigraph as og
from omnigraph import pipeline
from omnigraph.engine.tasks import Unit


@dataclass
class Killer:
    """A progress callback that strikes once; 0 is never."""

    kill_at: int
    groups: Sequence[int]
    reports: int = 0

    def __call__(self, stage: str, done: int, total: int, unit: Unit) -> None:
        self.reports += 1
        if self.reports == self.kill_at:
            print(f"kill in {stage} at {done} of {total}", flush=True)
            for group in self.groups or [os.getpgid(0)]:
                os.killpg(group, signal.SIGKILL)


def main(given: dict[str, Any]) -> None:
    killer = Killer(given["kill_at"], given["groups"])
    statuses = []
    for uri in given["graphs"]:
        options: dict[str, Any] = {"report": given["report"], "progress": killer}
        with og.open(uri) as graph:
            statuses.append(pipeline.run(graph, given["file"], **options).status)
            for low, high in given["backfills"]:
                bounds = (str(low), str(high))
                report = pipeline.run(graph, given["file"], backfill=bounds, source="tickets", **options)
                statuses.append(report.status)
    print(json.dumps({"statuses": statuses, "reports": killer.reports}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
