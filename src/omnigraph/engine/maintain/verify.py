"""Check the integrity of a graph without changing it.

Reads every published id and index once and returns findings; a graph without an `error` among them is sound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TypeAlias

from omnigraph.engine.authorization import GRAPH
from omnigraph.engine.maintain.optimize import describe_coverage
from omnigraph.engine.maintain.repair import find_drift
from omnigraph.engine.maintain.verify_buckets import scan_by_bucket
from omnigraph.engine.maintain.verify_files import DeletionChecksums, verify_files
from omnigraph.engine.maintain.verify_ids import TypeScan, scan_in_process
from omnigraph.engine.session import GraphSession, View
from omnigraph.engine.tasks import group_by_weight, report_progress
from omnigraph.errors import BranchNotFound, GraphError, OmniGraphError
from omnigraph.ids import CommitId
from omnigraph.lang.catalog import NodeType, Type, TypeKey
from omnigraph.limits import MAINTAIN_LOCAL_ROWS_MAX, STORAGE_THREADS, VERIFY_BATCH_BRANCHES, VERIFY_BATCH_ROWS
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, MANIFEST_PATH, UNKNOWN_NAMES, BranchNames, Pin, Snapshot
from omnigraph.manifest.recovery import SweepReport, preview
from omnigraph.public_values import PublicValue
from omnigraph.store.files.versions import blob_faults, index_faults
from omnigraph.store.read.dataset import DatasetRef


@dataclass(frozen=True, slots=True)
class Finding(PublicValue):
    """A finding: an `error` makes the graph unsound, a `note` is for the operator."""

    severity: str
    branch: str
    type_key: str
    message: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """All findings, and the size of orphan files, which a sweep will remove."""

    findings: tuple[Finding, ...]
    unreferenced_files: int
    unreferenced_bytes: int
    # Files with a verified checksum and files without one; None unless `data` was requested.
    checked_files: int | None = None
    unchecked_files: int | None = None

    @property
    def is_sound(self) -> bool:
        return all(finding.severity != "error" for finding in self.findings)

    def to_json(self) -> dict[str, object]:
        return {
            "sound": self.is_sound,
            "findings": [finding.to_json() for finding in self.findings],
            "unreferenced_files": self.unreferenced_files,
            "unreferenced_bytes": self.unreferenced_bytes,
            **({} if self.checked_files is None else {"checked_files": self.checked_files}),
            **({} if self.unchecked_files is None else {"unchecked_files": self.unchecked_files}),
        }


# The versions and the key that the scan of a type depends on.
_ScanKey: TypeAlias = tuple[object, ...]


def verify(session: GraphSession, *, data: bool = False) -> VerifyReport:
    """Check what every branch and tag publishes: versions, indexes and blobs can be read, and rows agree.

    With `data`, also compare all files with the checksums that were recorded when they were written.
    """
    if not session.would_allow("admin", GRAPH):
        session.require("read", GRAPH)
        # The report is about all files of all branches, deleted ones included.
        if not session.reads_all_types(UNKNOWN_NAMES, BranchNames(())):
            session.require("admin", GRAPH)
    # Open handles are cached; only new ones read from storage.
    kernel = Kernel(session.kernel.store.opened_once(), read_only=session.kernel.read_only)
    try:
        return _Verification(replace(session, kernel=kernel)).run(data)
    finally:
        kernel.close()


@dataclass
class _Verification:
    """One run over all branches; what two of them share is read once."""

    session: GraphSession
    _scans: dict[_ScanKey, TypeScan | OmniGraphError] = field(default_factory=dict)
    _parts: dict[DatasetRef, list[tuple[str, str]] | OmniGraphError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._deletions = DeletionChecksums(self.session.kernel)

    def run(self, data: bool) -> VerifyReport:
        kernel = self.session.kernel
        main = kernel.snapshot(MAIN)
        findings: list[Finding] = []
        pins: dict[DatasetRef, Pin] = {}
        branches = (MAIN, *sorted(main.state.branches))
        finished = count(1)
        for begin in range(0, len(branches), VERIFY_BATCH_BRANCHES):
            batch = branches[begin : begin + VERIFY_BATCH_BRANCHES]
            opened = kernel.store.in_parallel([partial(self._view, branch) for branch in batch])
            views = [view_or_error for view_or_error in opened if isinstance(view_or_error, View)]
            pins |= {pin.ref: pin for view in views for pin in view.snapshot.state.pins.values()}
            self._scan_types(views)
            verified = kernel.store.in_parallel([partial(self._verified, view) for view in views])
            of_branch = {view.snapshot.branch: problems for view, problems in zip(views, verified, strict=True)}
            for branch, view_or_error in zip(batch, opened, strict=True):
                if isinstance(view_or_error, OmniGraphError):
                    findings.append(Finding("error", branch, "", view_or_error.message))
                findings += of_branch.get(branch, ())
                report_progress("branches verified", next(finished), len(branches))
        findings += self._names(main, pins)
        try:
            residue = preview(kernel, 0)
        except OmniGraphError as error:
            residue = SweepReport()
            findings.append(Finding("error", MAIN, "", f"orphan files cannot be listed: {error.message}"))
        if not data:
            return VerifyReport(tuple(findings), residue.files_removed, residue.bytes_removed)
        files = verify_files(kernel, pins.values())
        findings += [Finding("error", "", path, f"{fault}") for path, fault in sorted(files.faults.items())]
        counts = (residue.files_removed, residue.bytes_removed, files.checked, files.unchecked)
        return VerifyReport(tuple(findings), *counts)

    def _view(self, branch: str) -> View | OmniGraphError | None:
        try:
            return self.session.full_view(branch)
        except BranchNotFound:
            # It was deleted since they were listed, and needs no check.
            return None
        except OmniGraphError as error:
            return error

    def _scan_types(self, views: Sequence[View]) -> None:
        """Read what no branch before has shown of some branches: ids and ends of types, indexes and blobs."""
        waiting: list[tuple[View, list[Type]]] = []
        parts: dict[DatasetRef, Callable[[], list[tuple[str, str]] | OmniGraphError]] = {}
        claimed: set[_ScanKey] = set(self._scans)
        for view in views:
            self._deletions.add(view.snapshot.state.commits)
            types = view.catalog.types
            unclaimed = [type_ for type_ in types if _identity(view, type_) not in claimed]
            claimed |= {_identity(view, type_) for type_ in unclaimed}
            # Edges are held against the ids of their ends, which a branch that shares those has to read for them.
            ends = {end for type_ in unclaimed for end in type_.ends.values()}
            read = [
                type_ for type_ in types if type_ in unclaimed or (isinstance(type_, NodeType) and type_.name in ends)
            ]
            if read:
                waiting.append((view, read))
            for type_ in types:
                ref = view.snapshot.state.pins[type_.table_key].ref
                if ref not in self._parts:
                    parts.setdefault(ref, partial(self._part_findings, view, type_.table_key))
        here: list[tuple[View, list[Type]]] = []
        for view, read in waiting:
            runner = self.session.runners.by_size(_count_rows((view, read)), MAINTAIN_LOCAL_ROWS_MAX)
            if runner.engine == "local":
                here.append((view, read))
            else:
                self._keep_scans(view, read, scan_by_bucket(runner, view, read))
        # Memory is bounded by one large view or several small ones.
        for group in group_by_weight(here, _count_rows, VERIFY_BATCH_ROWS):
            self._scan_in_parallel(group)
        self._parts |= zip(parts, self.session.kernel.store.in_parallel([*parts.values()]), strict=True)

    def _scan_in_parallel(self, group: Sequence[tuple[View, list[Type]]]) -> None:
        if len(group) == 1:
            results = [scan_in_process(*group[0])]
        else:
            # A separate pool: each check waits for tasks of the store's pool.
            with ThreadPoolExecutor(STORAGE_THREADS) as pool:
                futures = [pool.submit(copy_context().run, scan_in_process, view, types) for view, types in group]
            results = [future.result() for future in futures]
        for (view, types), scans in zip(group, results, strict=True):
            self._keep_scans(view, types, scans)

    def _keep_scans(
        self, view: View, types: Sequence[Type], scans: Mapping[TypeKey, TypeScan | OmniGraphError]
    ) -> None:
        self._scans |= {_identity(view, type_): scans[type_.table_key] for type_ in types}

    def _verified(self, view: View) -> list[Finding]:
        findings: list[Finding] = []
        for type_ in view.catalog.types:
            parts = self._parts[view.snapshot.state.pins[type_.table_key].ref]
            try:
                if isinstance(parts, OmniGraphError):
                    raise parts
                type_findings = [*_findings(view, type_, self._scans[_identity(view, type_)]), *parts]
            except OmniGraphError as error:
                type_findings = [("error", error.message)]
            type_findings += self._drift_findings(view, type_.table_key)
            findings += [
                Finding(severity, view.snapshot.branch, type_.table_key, text) for severity, text in type_findings
            ]
        return findings

    def _drift_findings(self, view: View, table_key: TypeKey) -> list[tuple[str, str]]:
        try:
            drift = find_drift(view.kernel, view.snapshot, view.snapshot.state.pins[table_key])
        except OmniGraphError as error:
            return [("error", error.message)]
        if drift is None:
            return []
        if drift.is_lost:
            return [("error", "another tool has removed its published version; run `omnigraph repair`")]
        return [("note", "another tool has written to it by path; run `omnigraph repair`")]

    def _part_findings(self, view: View, table_key: TypeKey) -> list[tuple[str, str]] | OmniGraphError:
        """Return what is wrong with the metadata of a version, and how far its indexes cover the rows."""
        try:
            dataset = view.dataset(table_key)
            findings = [("note", message) for message in describe_coverage(dataset)]
            findings += [("error", f"the index `{name}` cannot be read: {why}") for name, why in index_faults(dataset)]
            faults = [*blob_faults(dataset), *self._deletions.find_faults(dataset)]
            return [*findings, *(("error", fault) for fault in faults)]
        except OmniGraphError as error:
            return error

    def _names(self, main: Snapshot, pins: dict[DatasetRef, Pin]) -> Iterator[Finding]:
        """Yield the tags, and the commits at which branches began, that cannot be read; add the pins of others."""
        points: list[tuple[str, DatasetRef, CommitId | None]] = []
        for tag in main.state.tags.values():
            ref = DatasetRef(MANIFEST_PATH, tag.branch, tag.manifest_version)
            points.append((f"tag `{tag.name}`", ref, tag.commit_id))
        for branch in main.state.branches.values():
            ref = DatasetRef(MANIFEST_PATH, branch.parent, branch.parent_version)
            points.append((f"the beginning of branch `{branch.name}`", ref, None))
        distinct = sorted({(ref, commit) for _, ref, commit in points}, key=str)
        tasks = [partial(self._point, ref, commit) for ref, commit in distinct]
        read = dict(zip(distinct, self.session.kernel.store.in_parallel(tasks), strict=True))
        for label, ref, commit in points:
            recorded = read[ref, commit]
            if isinstance(recorded, OmniGraphError):
                yield Finding("error", MAIN, "", f"{label} cannot be read: {recorded.message}")
            else:
                pins |= {pin.ref: pin for pin in recorded}

    def _point(self, ref: DatasetRef, commit: CommitId | None) -> list[Pin] | OmniGraphError:
        kernel = self.session.kernel
        try:
            snapshot = kernel.at_ref(ref)
            if commit is not None and snapshot.head != commit:
                return GraphError(f"{ref} holds another commit than {commit}", code="graph.version_reclaimed")
            for key in snapshot.state.pins:
                kernel.dataset(snapshot, key)
        except OmniGraphError as error:
            return error
        # Not the state: each of main's holds all names of branches that there were.
        return [*snapshot.state.pins.values()]


def _count_rows(scan: tuple[View, list[Type]]) -> int:
    view, types = scan
    return sum(view.snapshot.state.pins[type_.table_key].row_count for type_ in types)


def _identity(view: View, type_: Type) -> _ScanKey:
    """Return what the check of a type depends on: its version and key, and the versions of its endpoint types."""
    pins = view.snapshot.state.pins
    keys = (type_.table_key, *(TypeKey.of("node", end) for end in type_.ends.values()))
    return (type_.key, *(pins[key].ref for key in keys))


def _findings(view: View, type_: Type, scan: TypeScan | OmniGraphError) -> Iterator[tuple[str, str]]:
    if isinstance(scan, OmniGraphError):
        raise scan
    pin = view.snapshot.state.pins[type_.table_key]
    if scan.rows != pin.row_count:
        yield "error", f"{scan.rows} entities are stored, {pin.row_count} are recorded"
    if not scan.has_unique_ids:
        yield "error", "ids are missing or come twice"
    if scan.wrong_ids:
        yield "error", f"{scan.wrong_ids} ids do not follow from `@key({', '.join(type_.key)})`"
    for column, end in type_.ends.items():
        if lost := scan.lost.get(column):
            yield "error", f"`{column}` of {lost} edges names no `{end}`"
