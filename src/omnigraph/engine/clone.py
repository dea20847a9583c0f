"""Clone and incremental backup: copy missing files in an order that is safe to interrupt.

Data files come first, then the catalogs of branches, and the newest catalog of main last. An interrupted clone is
therefore either no graph yet or the previous clone, and repeating the call resumes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Final, Self

import orjson

from omnigraph.engine.authorization import ALLOW_ALL, GRAPH, on_branch
from omnigraph.engine.embed.cache import FOLDER as EMBEDDINGS_FOLDER
from omnigraph.engine.maintain.verify import verify
from omnigraph.engine.session import GraphSession
from omnigraph.engine.tasks import report_progress
from omnigraph.errors import GraphError, OmniGraphError, PolicyDenied, StorageError, StorageKind, UsageError
from omnigraph.limits import CLONE_ATTEMPTS_MAX, CLONE_BATCH_FILES
from omnigraph.manifest.create import SCHEMA_COPY
from omnigraph.manifest.encoding import read_pins
from omnigraph.manifest.file_removal import Listing
from omnigraph.manifest.history import LOG_PATH
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, MANIFEST_PATH, UNKNOWN_NAMES, Snapshot
from omnigraph.manifest.recovery import AUDIT_PATH
from omnigraph.public_values import PublicValue
from omnigraph.store.files.manifest_file import UnknownManifest
from omnigraph.store.files.reachability import NeededFiles, StoredManifest, dataset_of, read_needed
from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.objects.uri import Location
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.store import Store
from omnigraph.store.write.file_proof import (
    OVERWRITTEN_PATH,
    ChecksumKind,
    path_key,
    read_overwritten_checksums,
    record_copied,
)

MARKER_PATH: Final = "__clone.json"


@dataclass(frozen=True, slots=True)
class CloneMarker:
    """Identifies the cloned graph by its first commit, and records the catalog version of each branch."""

    graph: str
    complete: bool
    heads: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, objects: Objects) -> Self | None:
        raw = objects.read_if_exists(MARKER_PATH)
        if raw is None:
            return None
        try:
            return cls(**orjson.loads(raw))
        except (TypeError, ValueError) as error:
            raise GraphError(
                f"`{MARKER_PATH}` of the clone cannot be read; clone to another location", code="clone.diverged"
            ) from error

    def write(self, objects: Objects) -> None:
        objects.write(MARKER_PATH, orjson.dumps(asdict(self)))


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of a clone with their sizes, grouped by copy step, and the heads they belong to.

    `files` are invisible until a catalog refers to them. They are followed by `branches`, the manifests of branch
    catalogs, and by those of `main`, newest first: copying it publishes the captured state.
    """

    files: Mapping[str, int]
    branches: Mapping[str, int]
    main: Mapping[str, int]
    heads: Mapping[str, int]

    @property
    def steps(self) -> tuple[Mapping[str, int], ...]:
        newest = next(iter(self.main))
        older = {path: size for path, size in self.main.items() if path != newest}
        return self.files, self.branches, {newest: self.main[newest]}, older


def capture_contents(kernel: Kernel) -> Contents:
    """Return the files that a clone of the newest state of every branch needs, with all retained history."""
    snapshots = kernel.live_snapshots()
    listing = Listing.read(kernel.store)
    refs = [
        DatasetRef(MANIFEST_PATH, snapshot.state.branch_id, number)
        for snapshot in snapshots
        for number in sorted(listing.versions.get((MANIFEST_PATH, snapshot.state.branch_id), {}))
        if number <= snapshot.version
    ]
    pins = read_pins(kernel.store, refs)
    waiting = {link.ref: link.manifest for snapshot in snapshots for link in snapshot.links}
    manifests = _find_manifests(pins.versions, waiting, listing)
    _check_heads(snapshots, {manifest.path for stored in manifests.values() for manifest in stored})
    for path in (LOG_PATH, AUDIT_PATH):
        if versions := listing.versions.get((path, None)):
            manifests[path] = [StoredManifest.of(DatasetRef(path, None, max(versions)))]
    needed = read_needed(kernel.store, manifests, {})
    if pins.needed is not None:
        needed[MANIFEST_PATH] = pins.needed
    return _sort_files(listing, needed, refs, snapshots)


def _find_manifests(
    versions: Mapping[tuple[str, str | None], Iterable[int]], waiting: Mapping[DatasetRef, str], listing: Listing
) -> dict[str, list[StoredManifest]]:
    """Return the manifests of pinned versions, under their staged names if they are not linked yet.

    Past versions that were reclaimed are left out; they cannot be read at the source either.
    """
    manifests: dict[str, list[StoredManifest]] = {}
    for (path, fork), numbers in versions.items():
        for number in sorted(numbers):
            ref = DatasetRef(path, fork, number)
            names = (ref.manifest_path, waiting.get(ref))
            stored = next((name for name in names if name in listing.names), None)
            if stored is not None:
                manifests.setdefault(path, []).append(StoredManifest(ref.directory, stored))
    return manifests


def _check_heads(snapshots: Sequence[Snapshot], stored: Set[str]) -> None:
    for snapshot in snapshots:
        waiting = {link.ref: link.manifest for link in snapshot.links}
        for pin in snapshot.state.pins.values():
            ref = DatasetRef(pin.path, pin.fork, pin.version)
            if not {ref.manifest_path, waiting.get(ref)} & stored:
                raise GraphError(
                    f"`{ref}`, the newest version of `{pin.table_key}` on branch `{snapshot.branch}`, is missing;"
                    " run `omnigraph verify`",
                    code="graph.version_reclaimed",
                    object=str(ref),
                )


def _sort_files(
    listing: Listing,
    needed: Mapping[str, NeededFiles | UnknownManifest],
    catalogs: Sequence[DatasetRef],
    snapshots: Sequence[Snapshot],
) -> Contents:
    for path, files_or_fault in needed.items():
        if isinstance(files_or_fault, UnknownManifest):
            raise GraphError(f"`{path}` cannot be copied: {files_or_fault}", code="graph.corrupt", object=path)
    of_main = {ref.manifest_path: None for ref in reversed(catalogs) if ref.branch is None}
    of_branches = {ref.manifest_path for ref in catalogs if ref.branch is not None}
    sizes = {info.path: info.size_bytes for infos in listing.objects.values() for info in infos}
    files = {
        path: size
        for path, size in sizes.items()
        if path not in of_main and path not in of_branches and _is_wanted(path, needed)
    }
    return Contents(
        files,
        {path: sizes[path] for path in sorted(of_branches)},
        {path: sizes[path] for path in of_main},
        _head_versions(snapshots),
    )


def _head_versions(snapshots: Iterable[Snapshot]) -> dict[str, int]:
    return {str(snapshot.state.branch_id or MAIN): snapshot.version for snapshot in snapshots}


def _is_wanted(path: str, needed: Mapping[str, NeededFiles | UnknownManifest]) -> bool:
    dataset = dataset_of(path)
    if dataset in (SCHEMA_COPY, EMBEDDINGS_FOLDER, OVERWRITTEN_PATH):
        return True
    of_dataset = needed.get(dataset)
    if not isinstance(of_dataset, NeededFiles):
        return False
    if path.startswith(f"{dataset}/_refs/branches/"):
        fork = path.rpartition("/")[2].removesuffix(".json")
        return any(name.startswith(f"{dataset}/tree/{fork}/") for name in of_dataset.files)
    return of_dataset.covers(path)


@dataclass(frozen=True, slots=True)
class CloneReport(PublicValue):
    """The contents of a clone, and how much of it was copied by this call."""

    source: str
    target: str
    commit: str
    branches: int
    tags: int
    files: int
    bytes: int
    copied_files: int
    copied_bytes: int


def clone_graph(session: GraphSession, target: str, *, update: bool = False) -> CloneReport:
    """Copy a whole graph to another location, and verify the copy; see `Graph.clone`."""
    _require_everything(session)
    source, location = session.kernel.store.root, Location.parse(target)
    if source.contains(location) or location.contains(source):
        raise UsageError(
            f"`{location.uri}` and the graph at `{source.uri}` overlap; nothing was written, clone to another location",
            uri=location.uri,
        )
    store = Store(location)
    identity = _identity_of(session.kernel)
    _check_target(store, identity, update=update)
    store.objects.require_conditional_puts()
    contents, copied = _copy_all(session.kernel, store, identity)
    CloneMarker(identity, complete=True, heads=dict(contents.heads)).write(store.objects)
    _verify_clone(store, contents)
    state = session.kernel.snapshot(MAIN).state
    everything = {path: size for step in contents.steps for path, size in step.items()}
    return CloneReport(
        source.uri,
        store.root.uri,
        str(Kernel(store, read_only=True).snapshot(MAIN).head),
        len(contents.heads) - 1,
        len(state.tags),
        len(everything),
        sum(everything.values()),
        len(copied),
        sum(copied.values()),
    )


def _require_everything(session: GraphSession) -> None:
    """Raise `PolicyDenied` unless the actor may export all types of all branches: a copy has no policy to hide them."""
    session.require("export", GRAPH)
    if session.policy is ALLOW_ALL:
        return
    for snapshot in session.kernel.live_snapshots():
        names = session.names_of(snapshot)
        session.require("export", on_branch(names))
        # The history of deleted branches, whose names are unknown, is copied as well.
        hidden = [
            session.hidden_in(session.catalog(snapshot), branch_names, action)
            for branch_names in (names, UNKNOWN_NAMES)
            for action in ("export", "read")
        ]
        if any(hidden):
            raise PolicyDenied(
                f"a clone holds all types of branch `{snapshot.branch}`, and the policy hides some of them",
                action="export",
                branch=snapshot.branch,
                target_branch=None,
            )


def _identity_of(kernel: Kernel) -> str:
    """Return the id of the first commit, which identifies a graph and all its copies."""
    first = min(kernel.all_commits().values(), key=lambda commit: (commit.parent is not None, commit.created_at_us))
    return str(first.commit_id)


def _check_target(store: Store, identity: str, *, update: bool) -> None:
    uri, marker = store.root.uri, CloneMarker.read(store.objects)
    if marker is None:
        if next(iter(store.objects.list("")), None) is not None:
            message = f"`{uri}` is not empty and is not a clone; clone to another location"
            raise GraphError(message, code="graph.already_initialized", uri=uri)
        if update:
            message = f"there is no clone at `{uri}` to update; clone without --update first"
            raise GraphError(message, code="graph.not_found", uri=uri)
        return
    if marker.graph != identity:
        raise _diverged(uri, "is a clone of another graph")
    if not marker.complete:
        return
    if not update:
        message = f"there is a clone of this graph at `{uri}`; bring it up to date with --update"
        raise GraphError(message, code="graph.already_initialized", uri=uri)
    if _head_versions(Kernel(store, read_only=True).live_snapshots()) != marker.heads:
        raise _diverged(uri, "was written to since it was made")


def _diverged(uri: str, subject: str) -> GraphError:
    message = f"`{uri}` {subject}; nothing was copied. Clone to another location"
    return GraphError(message, code="clone.diverged", uri=uri)


def _copy_all(kernel: Kernel, target: Store, identity: str) -> tuple[Contents, dict[str, int]]:
    """Copy one captured state completely; starts over if a cleanup of the source removes files meanwhile."""
    copied: dict[str, int] = {}
    for attempt in range(1, CLONE_ATTEMPTS_MAX + 1):
        contents = capture_contents(kernel)
        marker = CloneMarker.read(target.objects)
        begun = CloneMarker(identity, complete=False) if marker is None else replace(marker, complete=False)
        begun.write(target.objects)
        try:
            present = {info.path: info.size_bytes for info in target.objects.list("")}
            # An ETag does not travel with a copy, so that one counts only with the checksum of its bytes.
            has_etags = kernel.store.checksum_kind is ChecksumKind.ETAG
            recorded = read_overwritten_checksums(target) if has_etags else None
            total = sum(map(len, contents.steps))
            for step in contents.steps:
                missing = {
                    path: size
                    for path, size in step.items()
                    if present.get(path) != size or (recorded is not None and path_key(path) not in recorded)
                }
                _copy_files(kernel.store, target, missing, copied, total)
        except StorageError as error:
            if error.storage_kind is not StorageKind.NOT_FOUND or attempt == CLONE_ATTEMPTS_MAX:
                raise
        else:
            return contents, copied
    raise AssertionError("the last attempt returns or raises")


def _copy_files(source: Store, target: Store, files: Mapping[str, int], copied: dict[str, int], total: int) -> None:
    paths = list(files)
    for start in range(0, len(paths), CLONE_BATCH_FILES):
        batch = paths[start : start + CLONE_BATCH_FILES]
        checksums = target.in_parallel([partial(source.objects.copy_to, target.objects, path) for path in batch])
        if source.checksum_kind is ChecksumKind.ETAG:
            record_copied(target, dict(zip(batch, checksums, strict=True)))
        copied.update((path, files[path]) for path in batch)
        report_progress("files copied", len(copied), total)


def _verify_clone(store: Store, contents: Contents) -> None:
    """Check that every file has its size, and that the clone reads as a graph does."""
    present = {info.path: info.size_bytes for info in store.objects.list("")}
    wrong = [path for step in contents.steps for path, size in step.items() if present.get(path) != size]
    if wrong:
        raise _unsound(store, f"`{wrong[0]}` is not as large as at the source")
    try:
        report = verify(GraphSession(Kernel(store, read_only=True)))
    except OmniGraphError as error:
        raise _unsound(store, error.message) from error
    errors = [finding.message for finding in report.findings if finding.severity == "error"]
    if errors:
        raise _unsound(store, errors[0])


def _unsound(store: Store, why: str) -> GraphError:
    return GraphError(
        f"the clone at `{store.root.uri}` is incomplete: {why}. Run `omnigraph verify` on the source, then clone again",
        code="clone.unsound",
        uri=store.root.uri,
    )
