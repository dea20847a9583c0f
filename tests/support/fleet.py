"""Many writers on one graph, and the oracle that judges what they leave: nothing acknowledged may be missing.

Writers keep a diary outside of the graph: what they are about to write, and what was acknowledged.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

import orjson

from omnigraph.errors import ConflictError, OmniGraphError
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan
from omnigraph.store.write.transaction import append
from tests.support.kernel_fixtures import CITY, KNOWS, PERSON, check_invariants, rows_of

TYPES = (PERSON, CITY, KNOWS)


@dataclass(frozen=True, slots=True)
class Write:
    """One commit of one writer: the same new id in each of some types."""

    branch: str
    types: tuple[TypeKey, ...]
    entity_id: str
    work: str = CommitPolicy.INSERT.name


def choose_write(random: Random, branches: Sequence[str], entity_id: str) -> Write:
    types = tuple(random.sample(TYPES, random.choice((1, 1, 2, 3))))
    work = random.choice((CommitPolicy.INSERT, CommitPolicy.INSERT, CommitPolicy.INSERT, CommitPolicy.CHANGE))
    return Write(random.choice(branches), types, entity_id, work.name)


def carry_out(kernel: Kernel, write: Write) -> None:
    """Commit a write; a change that lost to another process is run again, as its error says."""

    def prepare(snapshot: Snapshot) -> Plan:
        effects = []
        for table_key in write.types:
            dataset = kernel.writable(snapshot, table_key)
            effects.append(Effect(table_key, dataset, (append(dataset, rows_of(dataset, [write.entity_id])),)))
        return Plan("insert", tuple(effects))

    for _ in range(200):
        try:
            kernel.commit(write.branch, prepare, CommitPolicy[write.work])
            return
        except ConflictError:
            continue
    raise AssertionError(f"{write} lost 200 times")


@dataclass
class Ledger:
    """What was tried and what was acknowledged, over all writers."""

    attempted: list[Write] = field(default_factory=list)
    acknowledged: list[Write] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Ledger:
        """Put the diaries of all writers together."""
        ledger = cls()
        for path in sorted(folder.glob("*.diary")):
            for line in path.read_bytes().split(b"\n")[:-1]:
                members = orjson.loads(line)
                write = Write(**{**members["write"], "types": tuple(members["write"]["types"])})
                (ledger.acknowledged if members["acknowledged"] else ledger.attempted).append(write)
        return ledger


class Diary:
    """One writer's own record; a line is on the disk before the writer goes on."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, write: Write, *, acknowledged: bool) -> None:
        os.write(self._file, orjson.dumps({"acknowledged": acknowledged, "write": asdict(write)}) + b"\n")
        os.fsync(self._file)


def violations(kernel: Kernel, ledger: Ledger) -> list[str]:
    """Return everything that is wrong with a graph after its writers have gone; an empty list is a pass."""
    found: list[str] = []
    try:
        held = _held(kernel, found)
    except OmniGraphError as error:
        return [f"unreadable: {error.message}"]
    acknowledged, attempted = set(ledger.acknowledged), set(ledger.attempted)
    for write in sorted(attempted | acknowledged, key=lambda one: one.entity_id):
        present = [key for key in write.types if write.entity_id in held.get((write.branch, key), ())]
        if write in acknowledged and len(present) < len(write.types):
            found.append(f"lost: {write} was acknowledged, but is only in {present}")
        elif 0 < len(present) < len(write.types):
            found.append(f"torn: {write} is only in {present}")
    known = {(write.branch, key, write.entity_id) for write in attempted for key in write.types}
    for (branch, key), ids in held.items():
        found.extend(f"invented: {one} in {key} of {branch}" for one in ids if (branch, key, one) not in known)
    try:
        check_invariants(kernel)
    except (AssertionError, OmniGraphError, OSError) as error:
        found.append(f"broken: {error}")
    return found


def _held(kernel: Kernel, found: list[str]) -> dict[tuple[str, str], list[str]]:
    held: dict[tuple[str, str], list[str]] = {}
    for branch in (MAIN, *kernel.snapshot().state.branches):
        snapshot = kernel.snapshot(branch)
        for key in snapshot.state.pins:
            try:
                ids = kernel.dataset(snapshot, key).read(["id"])["id"].to_pylist()
                held[branch, key] = [str(one) for one in ids]
            except (OmniGraphError, OSError) as error:
                found.append(f"unreadable: {key} of {branch}: {error}")
    return held
