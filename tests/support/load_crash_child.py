"""The process that dies in a load: that of the crash suite, with loads among its scenarios and broken ones of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from omnigraph import failpoints
from omnigraph.engine.input import splits
from omnigraph.engine.load import load as load_input
from omnigraph.engine.load.buckets import InBuckets
from omnigraph.failpoints import Point
from omnigraph.graph import Graph
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN
from omnigraph.pipeline import load
from omnigraph.store.objects.uri import Location
from omnigraph.store.store import Store
from tests.support import crash_child
from tests.support.crash_mutants import MUTANTS
from tests.support.crash_scenarios import REVIEW, SCENARIOS, Scenario
from tests.support.orphan_sweep import sweep
from tests.support.pipeline_fixtures import lines_of

# So small that the input makes three tasks.
SPLIT_BYTES = 200
NEW: list[dict[str, Any]] = [
    *({"type": "Person", "data": {"name": name, "age": 3}} for name in ("p", "q", "r")),
    {"type": "City", "data": {"name": "z"}},
    *({"edge": "Knows", "from": name, "to": "a", "data": {"id": f"k{name}"}} for name in ("p", "q", "r")),
]
# The first two are there already, and are replaced where that is allowed.
KNOWN: list[dict[str, Any]] = [{"type": "Person", "data": {"name": name, "age": 4}} for name in ("a", "b")]
# Some of them are staged, found wrong among the others, and staged again without these.
WRONG: list[dict[str, Any]] = [{"edge": "Knows", "from": "p", "to": name, "data": {"id": name}} for name in ("x", "y")]
NEW_BRANCH = "made"


def _load(
    mode: str, records: list[dict[str, Any]], branch: str = MAIN, on_error: str = "fail"
) -> Callable[[Kernel], None]:
    def run(kernel: Kernel) -> None:
        # Beside the graph's disk, so that it outlives what a campaign does to that.
        folder = Path(kernel.store.root.uri).parents[1]
        file = folder / "input.ndjson"
        file.write_bytes(lines_of(records))
        vars(splits)["LOAD_SPLIT_BYTES"] = SPLIT_BYTES
        vars(load_input)["LOAD_MEMORY_BYTES_MAX"] = -1
        load(
            Graph(kernel),
            file,
            mode=mode,
            branch=branch,
            from_branch=MAIN if branch == NEW_BRANCH else None,
            job_id="job",
            on_error=on_error,
            report=folder / "report",
            engine="local",
        )

    return run


def load_removes_what_it_published() -> None:
    """Cleaning up takes away every file that was staged, also those that count."""
    InBuckets.staged_files = lambda self: set()  # type: ignore[method-assign]


def _load_beside_sweep(kernel: Kernel) -> None:
    """A sweep of age zero meets a live load that has staged everything and published nothing."""
    other = Kernel(Store(Location.parse(kernel.store.root.uri)))

    def meet(_: str) -> None:
        sweep(other, 0.0)

    with failpoints.armed({Point.COMMIT_PREPARED: meet}):
        _load("append", NEW)(kernel)


SMALL, BRANCHED = (SCENARIOS[name].prepare for name in ("insert_one", "first_write_on_branch"))
LOADS = (
    Scenario("load_append", SMALL, _load("append", NEW)),
    Scenario("load_merge", SMALL, _load("merge", [*KNOWN, *NEW])),
    Scenario("load_overwrite", SMALL, _load("overwrite", [*KNOWN, *NEW])),
    Scenario("load_on_branch", BRANCHED, _load("merge", [*KNOWN, *NEW], REVIEW)),
    Scenario("load_rejecting", SMALL, _load("append", [*NEW, *WRONG], on_error="quarantine")),
    Scenario("load_on_new_branch", SMALL, _load("merge", [*KNOWN, *NEW], NEW_BRANCH)),
    Scenario("load_beside_sweep", SMALL, _load_beside_sweep),
)
SCENARIOS.update((one.name, one) for one in LOADS)
MUTANTS[load_removes_what_it_published.__name__] = load_removes_what_it_published


if __name__ == "__main__":
    crash_child.serve()
