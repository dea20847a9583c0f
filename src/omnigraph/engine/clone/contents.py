"""Contents of a clone: every file that a kept state of the source needs, known from its manifests.

The heads are captured before storage is listed, and files never change, so whatever writers do meanwhile, the listing
holds all that these heads need. Only reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from omnigraph.errors import GraphError
from omnigraph.manifest.audit import AUDIT_PATH
from omnigraph.manifest.commit_log import LOG_PATH
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, MANIFEST_PATH, Snapshot
from omnigraph.manifest.pins import read_pins
from omnigraph.manifest.removal import Listing
from omnigraph.store.checksums import OVERWRITTEN_PATH
from omnigraph.store.dataset import DatasetRef
from omnigraph.store.manifest_file import UnknownManifest
from omnigraph.store.reach import NeededFiles, StoredManifest, read_needed
from omnigraph.store.residue import dataset_of

SCHEMA_COPY = "_schema.pg"
EMBEDDINGS = "_embeddings"


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of a clone, by the step in which they may appear, and the heads that they lead up to.

    `files` are seen by nobody before a catalog names them. Then come the `branches`, the manifests of branch catalogs,
    and last those of `main`, the newest first: with it the clone is the graph that was captured.
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
    """Return what a clone of the newest state of every branch holds, with all of the history that is kept."""
    snapshots = kernel.live_snapshots()
    listing = Listing.read(kernel.store)
    catalogs = {
        snapshot.state.branch_id: sorted(
            number
            for number in listing.versions.get((MANIFEST_PATH, snapshot.state.branch_id), {})
            if number <= snapshot.version
        )
        for snapshot in snapshots
    }
    refs = [DatasetRef(MANIFEST_PATH, branch, number) for branch in catalogs for number in catalogs[branch]]
    pins = read_pins(kernel.store, refs)
    waiting = {link.ref: link.manifest for snapshot in snapshots for link in snapshot.links}
    manifests = _find_manifests(pins.versions, waiting, listing)
    _check_heads(snapshots, {one for listed in manifests.values() for one in listed})
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
    """Return the manifests of pinned versions, under their staged names where they have no other yet.

    A version of the past that is not there any more is left out; it cannot be read at the source either.
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


def _check_heads(snapshots: Sequence[Snapshot], manifests: set[StoredManifest]) -> None:
    stored = {one.path for one in manifests}
    for snapshot in snapshots:
        waiting = {link.ref: link.manifest for link in snapshot.links}
        for pin in snapshot.state.pins.values():
            ref = DatasetRef(pin.path, pin.fork, pin.version)
            if not {ref.manifest_path, waiting.get(ref)} & stored:
                raise GraphError(
                    f"`{ref}`, the newest version of `{pin.table_key}` on branch `{snapshot.branch}`, is not there;"
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
    for path, one in needed.items():
        if isinstance(one, UnknownManifest):
            raise GraphError(f"`{path}` cannot be copied: {one}", code="graph.corrupt", object=path)
    of_main = {ref.manifest_path: None for ref in reversed(catalogs) if ref.branch is None}
    of_branches = {ref.manifest_path for ref in catalogs if ref.branch is not None}
    sizes = {info.path: info.size_bytes for infos in listing.objects.values() for info in infos}
    files = {
        path: size
        for path, size in sizes.items()
        if path not in of_main and path not in of_branches and _is_wanted(path, needed)
    }
    heads = {str(snapshot.state.branch_id or MAIN): snapshot.version for snapshot in snapshots}
    return Contents(
        files,
        {path: sizes[path] for path in sorted(of_branches)},
        {path: sizes[path] for path in of_main},
        heads,
    )


def _is_wanted(path: str, needed: Mapping[str, NeededFiles | UnknownManifest]) -> bool:
    dataset = dataset_of(path)
    if dataset in (SCHEMA_COPY, EMBEDDINGS, OVERWRITTEN_PATH):
        return True
    of_dataset = needed.get(dataset)
    if not isinstance(of_dataset, NeededFiles):
        return False
    if path.startswith(f"{dataset}/_refs/branches/"):
        fork = path.rpartition("/")[2].removesuffix(".json")
        return any(name.startswith(f"{dataset}/tree/{fork}/") for name in of_dataset.files)
    return of_dataset.covers(path)
