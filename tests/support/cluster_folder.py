"""Folders that declare clusters, for tests."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

from omnigraph.cluster import Cluster, Report
from omnigraph.errors import OmniGraphError
from omnigraph.failpoints import Point, armed
from tests.support.forked_python import run_forked

SCHEMA = "node Person { name: String @key }\n"
QUERIES = "query all() { match { $p: Person } return { $p.name as name } }\n"
POLICY = """\
version: 1
groups:
  team: [ada]
rules:
  - id: all
    allow: {actors: {group: team}, actions: [read, invoke_query]}
"""


# Kills the process at the n-th durable change, before or after it happens; without a number, counts them.
KILLED = """
import sys
from omnigraph.cluster import Cluster
from omnigraph.failpoints import Point, armed, kill
folder, moment, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
count = 0
def tick(detail):
    global count
    count += 1
    if count == number:
        kill(detail)
with armed({Point(f"durable.{moment}"): tick}):
    Cluster(folder, actor="ada").apply()
print(count)
"""


def write_folder(
    folder: Path, *, graphs: Sequence[str] = ("knowledge",), storage: str | None = None, extra: str = ""
) -> Path:
    """Declare graphs of one schema and one folder of queries; `extra` is appended to `cluster.yaml`."""
    folder.mkdir(exist_ok=True)
    (folder / "queries").mkdir(exist_ok=True)
    (folder / "person.pg").write_text(SCHEMA)
    (folder / "queries" / "people.gq").write_text(QUERIES)
    (folder / "team.yaml").write_text(POLICY)
    lines = ["version: 1", *([f"storage: {storage}"] if storage else []), "graphs:"]
    for graph in graphs:
        lines += [f"  {graph}:", "    schema: person.pg", "    queries: queries"]
    (folder / "cluster.yaml").write_text("\n".join(lines) + "\n" + extra)
    return folder


def cluster(folder: Path) -> Cluster:
    """Open a cluster as `ada`."""
    return Cluster(folder, actor="ada")


def deploy(folder: Path) -> Report:
    """Start the ledger if there is none, and apply."""
    if cluster(folder).ledger.read() is None:
        assert cluster(folder).import_().ok
    return cluster(folder).apply()


def codes(report: Report) -> list[str]:
    """Return the codes of all findings."""
    return [finding.code for finding in report.findings]


def changes(report: Report) -> dict[str, dict[str, object]]:
    """Return the changes of a plan or an apply by resource."""
    return {item["resource"]: item for item in report.members["changes"]}


class Crash(BaseException):
    """Ends an operation like the death of its process: no handler of errors sees it."""


def crash_apply(folder: Path, moment: str, number: int) -> bool:
    """Apply, and crash at the n-th durable write; returns False if there were fewer."""
    count = 0

    def tick(detail: object) -> None:
        nonlocal count
        count += 1
        if count == number:
            raise Crash

    try:
        with armed({Point(f"durable.{moment}"): tick}):
            cluster(folder).apply()
    except Crash:
        return True
    except OmniGraphError as failure:
        raise AssertionError(failure) from failure
    return False


def apply_in_process(folder: Path, moment: str, number: int) -> CompletedProcess[str]:
    """Apply in a process that is killed at its n-th durable change; 0 kills nothing and prints their number."""
    command = [sys.executable, "-c", KILLED, str(folder), moment, str(number)]
    return run_forked(command)
