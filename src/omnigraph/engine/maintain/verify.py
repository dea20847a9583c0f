"""Verify: a look at the health of a graph that changes nothing.

Reads every published id and index once; what it finds is a list of findings, and a graph without errors among them is
sound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from threading import Lock
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.core import Core, View
from omnigraph.engine.index.coverage import describe_coverage
from omnigraph.engine.maintain import progress
from omnigraph.engine.maintain.drift import drifted_head
from omnigraph.engine.maintain.verify_files import verify_files
from omnigraph.engine.scope import GRAPH
from omnigraph.errors import GraphError, OmniGraphError
from omnigraph.ids import CommitId
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, MANIFEST_PATH, Snapshot
from omnigraph.manifest.sweep import SweepReport, preview
from omnigraph.store.dataset import DatasetRef
from omnigraph.store.integrity import blob_faults, index_faults
from omnigraph.store.store import Store


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found: an `error` makes the graph unsound, a `note` is for whoever tends it."""

    severity: str
    branch: str
    type_key: str
    message: str

    def to_json(self) -> dict[str, object]:
        names = ("severity", "branch", "type_key", "message")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """All findings, and what nothing names: leftovers that a sweep will remove."""

    findings: tuple[Finding, ...]
    unreferenced_files: int
    unreferenced_bytes: int
    # How many files were compared with their checksums, and how many have none; None unless that was asked for.
    checked_files: int | None = None
    unchecked_files: int | None = None

    @property
    def is_sound(self) -> bool:
        return all(one.severity != "error" for one in self.findings)

    def to_json(self) -> dict[str, object]:
        return {
            "sound": self.is_sound,
            "findings": [one.to_json() for one in self.findings],
            "unreferenced_files": self.unreferenced_files,
            "unreferenced_bytes": self.unreferenced_bytes,
            **({} if self.checked_files is None else {"checked_files": self.checked_files}),
            **({} if self.unchecked_files is None else {"unchecked_files": self.unchecked_files}),
        }


@dataclass(frozen=True, slots=True)
class Looked:
    """What reading the ids and ends of one type showed; `lost` counts the ends that are nowhere, by column."""

    rows: int
    has_unique_ids: bool
    lost: Mapping[str, int] = field(default_factory=dict)


# Whoever reads all ids of a view, here or elsewhere; a type that cannot be read is answered by the error.
Look: TypeAlias = Callable[[View, Sequence[NodeType | EdgeType]], Mapping[str, Looked | OmniGraphError]]


def verify(core: Core, actor: str | None = None, look: Look | None = None, *, data: bool = False) -> VerifyReport:
    """Check what every branch and tag publishes: versions, indexes and blobs can be read, and rows agree.

    With `data`, also compare all files with the checksums that were recorded when they were written.
    """
    core = core.acting_as(actor)
    core.require("read", GRAPH)
    # Handles that are in use answer from memory; what lies in storage shows itself to new ones.
    kernel = Kernel(Store(core.kernel.store.root, core.kernel.store.meter), read_only=core.kernel.read_only)
    try:
        return _Verification(replace(core, kernel=kernel), look or look_here).run(data)
    finally:
        kernel.close()


class _Verification:
    """One run over all branches; what two of them share is read once."""

    def __init__(self, core: Core, look: Look) -> None:
        self._core = core
        self._look = look
        self._looked: dict[tuple[DatasetRef, ...], Looked | OmniGraphError] = {}
        self._parts: dict[DatasetRef, list[tuple[str, str]]] = {}

    def run(self, data: bool) -> VerifyReport:
        kernel = self._core.kernel
        main = kernel.snapshot(MAIN)
        findings: list[Finding] = []
        states: list[Snapshot] = []
        branches = (MAIN, *sorted(main.state.branches))
        for number, branch in enumerate(branches, start=1):
            try:
                view = self._view(branch)
            except OmniGraphError as error:
                view = None
                findings.append(Finding("error", branch, "", error.message))
            if view is not None:
                states.append(view.snapshot)
                findings += self._verified(view)
            progress.tell("branches verified", number, len(branches))
        findings += self._names(main, states)
        try:
            residue = preview(kernel, 0)
        except OmniGraphError as error:
            residue = SweepReport()
            findings.append(Finding("error", MAIN, "", f"what nothing names cannot be told: {error.message}"))
        if not data:
            return VerifyReport(tuple(findings), residue.files_removed, residue.bytes_removed)
        files = verify_files(kernel, states)
        findings += [Finding("error", "", path, f"{fault}") for path, fault in sorted(files.faults.items())]
        counts = (residue.files_removed, residue.bytes_removed, files.checked, files.unchecked)
        return VerifyReport(tuple(findings), *counts)

    def _view(self, branch: str) -> View | None:
        try:
            return self._core.view(branch)
        except GraphError as error:
            # Of a branch that was deleted since they were listed, there is nothing to find.
            if error.code != "branch.not_found":
                raise
            return None

    def _verified(self, view: View) -> Iterator[Finding]:
        types: list[NodeType | EdgeType] = [*view.catalog.nodes.values(), *view.catalog.edges.values()]
        keys = {one.table_key: _identity(view, one) for one in types}
        wanted = [one for one in types if keys[one.table_key] not in self._looked]
        # Edges are held against the ids of their ends, which a branch that shares those has to read for them.
        ends = {end for one in wanted if isinstance(one, EdgeType) for end in (one.source, one.target)}
        read = [one for one in types if one in wanted or (isinstance(one, NodeType) and one.name in ends)]
        for key, looked in self._look(view, read).items() if read else ():
            self._looked[keys[key]] = looked
        for one in types:
            try:
                found = [*_findings(view, one, self._looked[keys[one.table_key]]), *self._part_findings(view, one)]
            except OmniGraphError as error:
                found = [("error", error.message)]
            yield from (Finding(severity, view.snapshot.branch, one.table_key, text) for severity, text in found)

    def _part_findings(self, view: View, one: NodeType | EdgeType) -> list[tuple[str, str]]:
        dataset = view.dataset(one.table_key)
        if dataset.ref not in self._parts:
            found = [("error", f"the index `{name}` cannot be read: {why}") for name, why in index_faults(dataset)]
            self._parts[dataset.ref] = [*found, *(("error", fault) for fault in blob_faults(dataset))]
        return self._parts[dataset.ref]

    def _names(self, main: Snapshot, states: list[Snapshot]) -> Iterator[Finding]:
        """Yield the tags, and the commits at which branches began, that cannot be read; add the others."""
        points: list[tuple[str, DatasetRef, CommitId | None]] = []
        for tag in main.state.tags.values():
            points.append(
                (f"tag `{tag.name}`", DatasetRef(MANIFEST_PATH, tag.branch, tag.manifest_version), tag.commit_id)
            )
        for one in main.state.branches.values():
            begun = DatasetRef(MANIFEST_PATH, one.parent, one.parent_version)
            points.append((f"the beginning of branch `{one.name}`", begun, None))
        distinct = sorted({(ref, commit) for _, ref, commit in points}, key=str)
        tasks = [partial(self._point, ref, commit) for ref, commit in distinct]
        read = dict(zip(distinct, self._core.kernel.store.in_parallel(tasks), strict=True))
        for label, ref, commit in points:
            found = read[ref, commit]
            if isinstance(found, OmniGraphError):
                yield Finding("error", MAIN, "", f"{label} cannot be read: {found.message}")
            else:
                states.append(found)

    def _point(self, ref: DatasetRef, commit: CommitId | None) -> Snapshot | OmniGraphError:
        kernel = self._core.kernel
        try:
            snapshot = kernel.at_ref(ref)
            if commit is not None and snapshot.head != commit:
                return GraphError(f"{ref} holds another commit than {commit}", code="graph.version_reclaimed")
            # Types that are hidden from the actor are left out, errors about them too.
            for key in self._core.seen(snapshot).snapshot.state.pins:
                kernel.dataset(snapshot, key)
        except OmniGraphError as error:
            return error
        return snapshot


def _identity(view: View, one: NodeType | EdgeType) -> tuple[DatasetRef, ...]:
    """Return what a look at a type depends on: its own version, and those of the types that its edges end at."""
    pins = view.snapshot.state.pins
    nodes = view.catalog.nodes
    ends = (nodes[one.source], nodes[one.target]) if isinstance(one, EdgeType) else ()
    return tuple(pins[key].ref for key in (one.table_key, *(end.table_key for end in ends)))


def look_here(view: View, types: Sequence[NodeType | EdgeType]) -> Mapping[str, Looked | OmniGraphError]:
    """Read all ids of a view into memory and compare them, several types side by side."""
    ids: dict[str, pa.ChunkedArray[pa.StringScalar]] = {}
    done = count(1)
    turn = Lock()

    def looked(one: NodeType | EdgeType) -> Looked | OmniGraphError:
        try:
            found: Looked | OmniGraphError = _looked(view, one, ids)
        except OmniGraphError as error:
            found = error
        with turn:
            progress.tell("types read", next(done), len(types))
        return found

    nodes = [one for one in types if isinstance(one, NodeType)]
    edges = [one for one in types if isinstance(one, EdgeType)]
    # Ends of edges are looked for among ids, so nodes come first.
    results: dict[str, Looked | OmniGraphError] = {}
    for group in (nodes, edges):
        tasks = [partial(looked, one) for one in group]
        results |= dict(zip((one.table_key for one in group), view.kernel.store.in_parallel(tasks), strict=True))
    return results


def _looked(view: View, one: NodeType | EdgeType, ids: dict[str, pa.ChunkedArray[pa.StringScalar]]) -> Looked:
    ends = {"src": one.source, "dst": one.target} if isinstance(one, EdgeType) else {}
    rows = view.dataset(one.table_key).read(["id", *ends])
    own = rows.column("id")
    if not ends:
        ids[one.name] = own
    none = pa.chunked_array([], pa.string())
    lost = {name: count_lost(rows.column(name), ids.get(end, none)) for name, end in ends.items()}
    return Looked(len(own), count_repeated(own) == 0, lost)


def count_repeated(ids: pa.ChunkedArray[pa.StringScalar]) -> int:
    """Return how many ids are missing or have come before."""
    return len(ids) - int(pc.count_distinct(ids, mode="only_valid").as_py())


def count_lost(ends: pa.ChunkedArray[pa.StringScalar], ids: pa.ChunkedArray[pa.StringScalar]) -> int:
    """Return how many ends are not among some ids."""
    return len(ends) - int(pc.is_in(ends, value_set=ids).to_numpy().sum())


def _findings(view: View, one: NodeType | EdgeType, looked: Looked | OmniGraphError) -> Iterator[tuple[str, str]]:
    if isinstance(looked, OmniGraphError):
        raise looked
    pin = view.snapshot.state.pins[one.table_key]
    if looked.rows != pin.row_count:
        yield "error", f"{looked.rows} entities are stored, {pin.row_count} are recorded"
    if not looked.has_unique_ids:
        yield "error", "ids are missing or come twice"
    if isinstance(one, EdgeType):
        for column, end in (("src", one.source), ("dst", one.target)):
            if looked.lost[column]:
                yield "error", f"`{column}` of {looked.lost[column]} edges names no `{end}`"
    for message in describe_coverage(view.dataset(one.table_key)):
        yield "note", message
    if drifted_head(view.kernel, view.snapshot, pin) is not None:
        yield "note", "a foreign tool has written to it by path; run `omnigraph repair`"
