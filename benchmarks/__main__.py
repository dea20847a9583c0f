"""`python -m benchmarks [topic …]`: run all or the named topics, and rewrite them in `docs/appendix/benchmarks.md`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import (
    branches,
    changes,
    checksums,
    clones,
    constructs,
    fairness,
    hostile,
    kernel,
    languages,
    load,
    maintain,
    spark,
    surfaces,
    texts,
    vectors,
    writes,
)
from benchmarks.page import commit, render_page
from benchmarks.reads import topic as reads
from benchmarks.topic import Topic

TOPICS: dict[str, Callable[[], Topic]] = {
    "languages": languages.run,
    "kernel": kernel.run,
    "reads": reads.run,
    "constructs": constructs.run,
    "writes": writes.run,
    "changes": changes.run,
    "load": load.run,
    "spark": spark.run,
    "branches": branches.run,
    "maintain": maintain.run,
    "surfaces": surfaces.run,
    "hostile": hostile.run,
    "vectors": vectors.run,
    "texts": texts.run,
    "checksums": checksums.run,
    "fairness": fairness.run,
    "clones": clones.run,
}
PAGE = Path(__file__).parent.parent / "docs" / "appendix" / "benchmarks.md"


def main(names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in TOPICS]
    if unknown:
        sys.exit(f"no topic is called {', '.join(unknown)}; there are {', '.join(TOPICS)}")
    for name in names or TOPICS:
        # Each topic is written as soon as it is done, so that a long run that is broken off loses only the rest.
        text = render_page([TOPICS[name]()], commit(), PAGE.read_text(encoding="utf-8"))
        PAGE.write_text(text, encoding="utf-8")
        print(f"{name}: written to {PAGE}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
