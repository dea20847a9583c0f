"""The judge of a soak: compares what the diaries allow with what the graph holds, and looks at what lies on the disk.

Runs after everybody is gone, so nothing of what is old has an owner.
"""

from __future__ import annotations

import os
from pathlib import Path

import omnigraph as og
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph, session_of
from omnigraph.manifest.intents import pending
from omnigraph.manifest.model import MAIN
from tests.soak.content import SEARCH, nearest_names, person_vector, photo_errors
from tests.soak.diary import Ledger, Place
from tests.soak.members import ALL, SIDE
from tests.support.orphan_sweep import sweep

EDGES = "query q() { match { $p: Person  $p knows $q } return { $p.name as name } }"
# A graph of some megabytes has this much beside its rows: catalogs, the log, indexes and kept versions.
DISK_BYTES_MIN = 4 << 20
DISK_FACTOR_MAX = 4.0
# Persons whose vectors are searched for.
SAMPLE = 200
# A folder takes a block of most disks, also when it is empty.
FOLDER_BYTES = 4 << 10


def disk_bytes(root: str) -> int:
    """Return what a graph takes on the disk; files may vanish while it is looked at."""
    total = 0
    for folder, _, names in os.walk(root):
        total += FOLDER_BYTES
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
    return total


def violations(root: str, ledger: Ledger) -> list[str]:
    """Return everything that is wrong with a graph and its diaries; an empty list is a pass."""
    found = list(ledger.complaints)
    with og.open(root) as graph:
        try:
            found += _wrong_values(graph, ledger)
        except OmniGraphError as error:
            found.append(f"unreadable: {error.code} {error.message}")
        sweep(session_of(graph).kernel, 0)
        if pending(session_of(graph).kernel.store) != ([], []):
            found.append("intents of the dead are left")
    report = og.open(root).maintenance.verify()
    found += [
        f"{one.severity}: {one.branch} {one.type_key}: {one.message}"
        for one in report.findings
        if one.severity == "error"
    ]
    if report.unreferenced_files:
        found.append(f"{report.unreferenced_files} files that nothing names were not swept")
    return found


def _wrong_values(graph: Graph, ledger: Ledger) -> list[str]:
    found: list[str] = []
    for branch in (MAIN, SIDE):
        held = {str(row["name"]): row["n"] for row in graph.query(ALL, branch=branch).rows()}
        joined = {str(row["name"]) for row in graph.query(EDGES, branch=branch).rows()}
        for place, possible in ledger.possible.items():
            if place.branch != branch:
                continue
            value = held.get(place.name)
            if value not in possible:
                found.append(f"lost: {place} is {value}, and may be {possible}")
            if (place.name in held) != (place.name in joined):
                found.append(f"torn: {place} and its edge do not come together")
        # A branch begins with what was on main.
        known = {"root", *(place.name for place in ledger.possible if place.branch in (branch, MAIN))}
        found += [f"invented: {Place(branch, name)}" for name in held.keys() - known]
        found += _wrong_answers(graph, branch, sorted(held.keys() - {"root"}))
    return found


def _wrong_answers(graph: Graph, branch: str, names: list[str]) -> list[str]:
    """Hold text search, vector search and photos against what the names say."""
    hits = sorted(str(row["name"]) for row in graph.query(SEARCH, branch=branch).rows())
    wrong = [] if hits == names else [f"search: {len(hits)} persons of {len(names)} are found on {branch}"]
    for name in names[:: len(names) // SAMPLE + 1]:
        nearest = nearest_names(graph, person_vector(name), 1, branch=branch)
        # Vectors of few bytes may be shared: the nearest one is as near as the person itself.
        if [person_vector(each) for each in nearest] != [person_vector(name)]:
            wrong.append(f"vector: the nearest to {name} on {branch} is {nearest}")
    return wrong + [f"photo: {problem}" for problem in photo_errors(graph, names, branch=branch)]


def fresh_bytes(root: str, folder: Path) -> int:
    """Return what a new graph with the same content takes."""
    with og.open(root) as graph, og.init(folder / "fresh.omni", graph.schema.source) as fresh:
        for batch in _batches(list(graph.export())):
            fresh.ingest(batch, mode="append")
        fresh.maintenance.optimize()
        return disk_bytes(fresh.uri)


def _batches(chunks: list[bytes]) -> list[bytes]:
    lines = b"".join(chunks).splitlines(keepends=True)
    people = [line for line in lines if b'"type"' in line[:10]]
    edges = [line for line in lines if b'"type"' not in line[:10]]
    return [b"".join(own[at : at + 2_000]) for own in (people, edges) for at in range(0, len(own), 2_000)]
