"""Verify: a look at the health of a graph that changes nothing.

Reads every published id once; what it finds is a list of findings, and a graph without errors among them is sound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.core import Core, View
from omnigraph.engine.maintain.drift import drifted_head
from omnigraph.errors import OmniGraphError
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.manifest.model import MAIN
from omnigraph.manifest.sweep import preview
from omnigraph.store.index import coverage


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


def verify(core: Core, actor: str | None = None) -> VerifyReport:
    """Check every branch: published versions open, counts agree, ids are unique, ends of edges exist."""
    core.enforce("read", MAIN, actor)
    findings: list[Finding] = []
    for branch in (MAIN, *sorted(core.kernel.snapshot(MAIN).state.branches)):
        view = core.view(branch)
        types: list[NodeType | EdgeType] = [*view.catalog.nodes.values(), *view.catalog.edges.values()]
        ids: dict[str, pa.ChunkedArray[pa.StringScalar]] = {}
        for one in types:
            try:
                found = list(_check(view, one, ids))
            except OmniGraphError as error:
                found = [("error", error.message)]
            findings += [Finding(severity, branch, one.table_key, message) for severity, message in found]
    residue = preview(core.kernel, 0)
    return VerifyReport(tuple(findings), residue.files_removed, residue.bytes_removed)


def _check(
    view: View, one: NodeType | EdgeType, ids: dict[str, pa.ChunkedArray[pa.StringScalar]]
) -> Iterator[tuple[str, str]]:
    pin = view.snapshot.state.pins[one.table_key]
    dataset = view.dataset(one.table_key)
    is_edge = isinstance(one, EdgeType)
    rows = dataset.read(["id", "src", "dst"] if is_edge else ["id"])
    own = rows.column("id")
    if len(own) != pin.row_count:
        yield "error", f"{len(own)} entities are stored, {pin.row_count} are recorded"
    if own.null_count or pc.count_distinct(own).as_py() != len(own):
        yield "error", "ids are missing or come twice"
    if isinstance(one, EdgeType):
        for column, end in (("src", one.source), ("dst", one.target)):
            known = pc.is_in(rows.column(column), value_set=ids.get(end, pa.chunked_array([], pa.string())))
            lost = known.to_numpy().size - int(known.to_numpy().sum())
            if lost:
                yield "error", f"`{column}` of {lost} edges names no `{end}`"
    else:
        ids[one.name] = own
    uncovered = sorted(name for name, found in coverage(dataset).items() if found.uncovered)
    if uncovered:
        yield "note", f"indexes do not cover the newest entities: {', '.join(uncovered)}; run `omnigraph optimize`"
    if drifted_head(view.kernel, view.snapshot, pin) is not None:
        yield "note", "a foreign tool has written to it by path; run `omnigraph repair`"
