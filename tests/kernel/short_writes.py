"""Writes to a graph of which one write to one file fails while all others succeed.

Runs as a process of its own, because limits and preloaded libraries hold for all of a process:
`python -m tests.kernel.short_writes FOLDER KINDS FAULTS`. A fault is an offset from the end of a file, past which no
file may grow then, or an order for `failwrite.c`. Prints one JSON line for each attempt.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from zlib import crc32

import omnigraph as og
from omnigraph.engine.entity_lookup import Blob
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph

SCHEMA = """
node Person { name: String @key  age: I32?  note: String? @index }
node Paper { title: String @key  body: Blob? }
edge Knows: Person -> Person
"""


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Let no file of this process grow past a size; a write beyond it fails with EFBIG, as a quota would."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def sizes(root: str) -> dict[str, int]:
    files = (file for file in Path(root).rglob("*") if file.is_file())
    return {str(file.relative_to(root)): file.stat().st_size for file in files}


def last_bytes(blob: Blob) -> int:
    return crc32(blob.read(blob.length - 1_000))


def state(root: str) -> list[object]:
    """Return all that a fresh handle reads: what is not whole cannot hide behind a cache."""
    graph = og.open(root, read_only=True)
    try:
        people = graph.query("query q() { match { $p: Person } return { $p.name, $p.age } }").rows()
        papers = graph.query("query q() { match { $p: Paper } return { $p.title } }").rows()
        blobs = [last_bytes(graph.blob("Paper", row["p.title"], "body")) for row in papers]
        errors = [one.message for one in graph.maintenance.verify().findings if one.severity == "error"]
        return [sorted(map(str, people)), sorted(map(str, papers)), blobs, errors]
    finally:
        graph.close()


# Large enough for a file of its own, which takes several writes.
BLOB = "base64:" + "QUJD" * 1_500_000
# One write of each kind: rows, deletions, blobs beside their file, indexes, a branch and a first write to it.
STEPS: dict[str, Callable[[Graph], object]] = {
    "insert": lambda graph: graph.ingest([{"type": "Person", "data": {"name": "new", "note": "x" * 50}}]),
    "update": lambda graph: graph.ingest([{"type": "Person", "data": {"name": "p0", "age": 7}}], mode="merge"),
    "delete": lambda graph: graph.mutate('query q() { delete Person where name = "p1" }'),
    "blob": lambda graph: graph.ingest([{"type": "Paper", "data": {"title": "t", "body": BLOB}}]),
    "optimize": lambda graph: graph.maintenance.optimize(),
    "branch": lambda graph: graph.ingest(
        [{"type": "Person", "data": {"name": "new"}}], branch="review", from_branch="main"
    ),
}


@contextmanager
def lost_write(order: str) -> Iterator[None]:
    """Let one write fail: `order` is a pattern of a path, the number of the write to such a file, and the errno."""
    path = Path(os.environ["SHIM_ORDER"])
    path.write_text(order)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def attempt(base: str, root: str, kind: str, fault: AbstractContextManager[None], **said: object) -> dict[str, object]:
    """Write once, to a copy of a graph, under a fault; tell what the writer heard and what others read then."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(base, root)
    before = state(root)
    graph = og.open(root)
    line: dict[str, object] = {"kind": kind, **said}
    try:
        with fault:
            STEPS[kind](graph)
        line["outcome"] = "acknowledged"
    except OmniGraphError as error:
        line |= {"outcome": error.code, "effect": str(error.effect), "message": error.message}
    finally:
        graph.close()
    try:
        after = state(root)
    except Exception as error:  # noqa: BLE001 - whatever it is, the graph cannot be read
        return line | {"after": f"unreadable: {error}"}
    return line | {"after": "unsound" if after[-1] else "same" if after == before else "changed"}


def limits_of(base: str, root: str, kind: str, offsets: list[int]) -> list[int]:
    """Return limits around the ends of the files that a free run writes."""
    known = sizes(base)
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(base, root)
    graph = og.open(root)
    STEPS[kind](graph)
    graph.close()
    written = {size for file, size in sizes(root).items() if file not in known and size > 64}
    return sorted({size + offset for size in written for offset in offsets})


def main(folder: str, kinds: list[str], faults: list[str]) -> None:
    base, root = f"{folder}/base", f"{folder}/graph"
    graph = og.init(base, SCHEMA)
    graph.ingest([{"type": "Person", "data": {"name": f"p{number}", "note": "some words"}} for number in range(50)])
    graph.ingest([{"type": "Person", "data": {"name": "other"}}])
    graph.close()
    orders = [one for one in faults if " " in one]
    offsets = [int(one) for one in faults if " " not in one]
    for kind in kinds:
        lines = [attempt(base, root, kind, lost_write(order), at=order) for order in orders]
        if offsets:
            limits = limits_of(base, root, kind, offsets)
            lines += [attempt(base, root, kind, files_up_to(limit), at=limit) for limit in limits]
        for line in lines:
            print(json.dumps(line), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2].split(","), sys.argv[3].split(","))
