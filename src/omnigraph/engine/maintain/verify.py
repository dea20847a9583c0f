"""Verify: a look at the health of a graph that changes nothing.

Reads every published id once; what it finds is a list of findings, and a graph without errors among them is sound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.core import Core, View
from omnigraph.engine.index.coverage import describe_coverage
from omnigraph.engine.maintain import progress
from omnigraph.engine.maintain.drift import drifted_head
from omnigraph.engine.scope import GRAPH
from omnigraph.errors import GraphError, OmniGraphError
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.manifest.model import MAIN
from omnigraph.manifest.sweep import preview


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

    @property
    def is_sound(self) -> bool:
        return all(one.severity != "error" for one in self.findings)

    def to_json(self) -> dict[str, object]:
        return {
            "sound": self.is_sound,
            "findings": [one.to_json() for one in self.findings],
            "unreferenced_files": self.unreferenced_files,
            "unreferenced_bytes": self.unreferenced_bytes,
        }


@dataclass(frozen=True, slots=True)
class Looked:
    """What reading the ids and ends of one type showed; `lost` counts the ends that are nowhere, by column."""

    rows: int
    has_unique_ids: bool
    lost: Mapping[str, int] = field(default_factory=dict)


# Whoever reads all ids of a view, here or elsewhere; a type that cannot be read is answered by the error.
Look: TypeAlias = Callable[[View, Sequence[NodeType | EdgeType]], Mapping[str, Looked | OmniGraphError]]


def verify(core: Core, actor: str | None = None, look: Look | None = None) -> VerifyReport:
    """Check every branch: published versions open, counts agree, ids are unique, ends of edges exist."""
    core = core.acting_as(actor)
    core.require("read", GRAPH)
    findings: list[Finding] = []
    branches = (MAIN, *sorted(core.kernel.snapshot(MAIN).state.branches))
    for number, branch in enumerate(branches, start=1):
        findings += _verified(core, branch, look or look_here)
        progress.tell("branches verified", number, len(branches))
    residue = preview(core.kernel, 0)
    return VerifyReport(tuple(findings), residue.files_removed, residue.bytes_removed)


def _verified(core: Core, branch: str, look: Look) -> Iterator[Finding]:
    try:
        view = core.view(branch)
    except GraphError as error:
        # Of a branch that was deleted since they were listed, there is nothing to find.
        if error.code != "branch.not_found":
            raise
        return
    types: list[NodeType | EdgeType] = [*view.catalog.nodes.values(), *view.catalog.edges.values()]
    looked = look(view, types)
    for one in types:
        try:
            found = list(_findings(view, one, looked[one.table_key]))
        except OmniGraphError as error:
            found = [("error", error.message)]
        yield from (Finding(severity, branch, one.table_key, message) for severity, message in found)


def look_here(view: View, types: Sequence[NodeType | EdgeType]) -> Mapping[str, Looked | OmniGraphError]:
    """Read all ids of a view into memory and compare them."""
    ids: dict[str, pa.ChunkedArray[pa.StringScalar]] = {}
    looked: dict[str, Looked | OmniGraphError] = {}
    for number, one in enumerate(types, start=1):
        try:
            looked[one.table_key] = _looked(view, one, ids)
        except OmniGraphError as error:
            looked[one.table_key] = error
        progress.tell("types read", number, len(types))
    return looked


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
