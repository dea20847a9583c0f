"""Garbage collection of one dataset: files that no kept version reaches, by two computations that must agree.

The first follows the manifests' own content; the second is Lance's list. Where they disagree, nothing of that dataset
is removed. Plans and deletes; which versions are kept is decided by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from omnigraph.errors import OmniGraphError, ReachabilityDisputed
from omnigraph.store.files.manifest_file import UnknownManifest
from omnigraph.store.files.reachability import (
    DatasetFork,
    NeededFiles,
    StoredManifest,
    TrackedFiles,
    dataset_of,
    fork_of,
    is_kept_by_lance,
    list_tracked,
    read_needed,
    versions_of,
)
from omnigraph.store.objects.backend import ObjectInfo
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.store import Store

# The versions of a dataset that stay, by fork.
KeptVersions = Mapping[str | None, Collection[int]]
_Tracked = tuple[TrackedFiles, TrackedFiles, TrackedFiles]


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything in storage, listed once."""

    objects: Mapping[str, Sequence[ObjectInfo]]
    versions: Mapping[DatasetFork, Mapping[int, int]]
    names: frozenset[str]

    @classmethod
    def read(cls, store: Store) -> Listing:
        infos = store.objects.list("")
        objects: dict[str, list[ObjectInfo]] = {}
        for info in infos:
            objects.setdefault(dataset_of(info.path), []).append(info)
        return cls(objects, versions_of(infos), frozenset(info.path for info in infos))

    def forks(self, path: str) -> set[str | None]:
        """Return the forks of a dataset that there is any file of, and None for the dataset itself."""
        return {None} | {fork_of(info.path, path) for info in self.objects.get(path, ())}


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """The files to remove from one dataset and its forks: manifests of versions first, then their files, then residue.

    `residue` was named by no version. `missing` is a file that must stay and that storage does not list.
    """

    path: str
    gone: tuple[DatasetRef, ...] = ()
    manifests: tuple[ObjectInfo, ...] = ()
    files: tuple[ObjectInfo, ...] = ()
    residue: tuple[ObjectInfo, ...] = ()
    missing: str | None = None
    error: OmniGraphError | None = None

    @property
    def of_versions(self) -> tuple[ObjectInfo, ...]:
        return (*self.manifests, *self.files)

    @property
    def objects(self) -> tuple[ObjectInfo, ...]:
        return (*self.of_versions, *self.residue)


@dataclass(frozen=True)
class Planner:
    """Plans the removal from several datasets; `may_go` decides which orphan files are old enough and unclaimed.

    `waiting` are manifests of published versions that do not have their final names yet; `known` is what versions
    need that were read already.
    """

    store: Store
    listing: Listing
    may_go: Callable[[ObjectInfo], bool]
    waiting: Collection[StoredManifest] = ()
    known: Mapping[str, NeededFiles] = field(default_factory=dict)

    def plan(self, kept: Mapping[str, KeptVersions]) -> list[RemovalPlan]:
        """Return the plans of datasets, in their order; each kept version is read once by either computation."""
        # Mark and sweep with two independent marks: our own decoding of the manifests, and the list of Lance. A bug in
        # one alone cannot delete a live file, since a file goes only if neither reaches it.
        needed = read_needed(self.store, {path: self._manifests(path, kept[path]) for path in kept}, self.known)
        plans = {path: self._plan_by_content(path, kept[path], needed[path]) for path in kept}
        # The second mark is only needed where the first one would remove something.
        doubtful = [path for path, plan in plans.items() if plan.gone or any(map(self.may_go, plan.residue))]
        forks = [(path, fork) for path in doubtful for fork in sorted(kept[path], key=str) if kept[path][fork]]
        # All versions pass through once; keeping them would evict what readers use.
        passing = self.store.opened_once()
        tasks = [partial(self._list_tracked, passing, path, fork, set(kept[path][fork])) for path, fork in forks]
        listed = dict(zip(forks, self.store.in_parallel(tasks), strict=True))
        for path in doubtful:
            versions = {fork: listed[path, fork] for fork in kept[path] if (path, fork) in listed}
            plans[path] = self._confirm(plans[path], kept[path], versions)
        return [plan if plan.path in doubtful else replace(plan, residue=()) for plan in plans.values()]

    def _list_tracked(self, store: Store, path: str, fork: str | None, kept: set[int]) -> _Tracked | OmniGraphError:
        try:
            return list_tracked(store, path, fork, kept, self._listed(path, fork).keys() - kept)
        except UnknownManifest as error:
            return _disputed(path, f"what Lance lists for `{path}` cannot be interpreted: {error}")
        except OmniGraphError as error:
            # A failure affects only this dataset: without the second computation none of its files are removed.
            return error

    def _manifests(self, path: str, kept: KeptVersions) -> list[StoredManifest]:
        listed = [StoredManifest.of(DatasetRef(path, fork, version)) for fork in kept for version in sorted(kept[fork])]
        return [*listed, *(manifest for manifest in self.waiting if dataset_of(manifest.path) == path)]

    def _plan_by_content(self, path: str, kept: KeptVersions, needed: NeededFiles | UnknownManifest) -> RemovalPlan:
        if isinstance(needed, UnknownManifest):
            return RemovalPlan(path, error=_disputed(path, str(needed)))
        objects = self.listing.objects.get(path, ())
        # A manifest holds a copy of its transaction, whose own file is not synced: a power cut may take it.
        missing = needed.files - {info.path for info in objects}
        lost = self._find_lost({path for path in missing if "/_transactions/" not in path})
        if lost is not None:
            return RemovalPlan(path, missing=lost)
        live = {fork for fork in kept if kept[fork]}
        unreachable = [
            info for info in objects if not (needed.covers(info.path) or is_kept_by_lance(info.path, path, live))
        ]
        # A location of which nothing is kept may be one that is being created. It is removed as a whole, so that no
        # version of it is there without its files.
        young = {fork_of(info.path, path) for info in unreachable if not self.may_go(info)} - live
        if young:
            needed.update(self._read_unkept(path, young))
            unreachable = [
                info for info in unreachable if fork_of(info.path, path) not in young and not needed.covers(info.path)
            ]
        gone = [
            DatasetRef(path, fork, number)
            for fork in sorted(live, key=str)
            for number in sorted(self._listed(path, fork).keys() - set(kept[fork]))
        ]
        return RemovalPlan(path, tuple(gone), residue=tuple(unreachable))

    def _read_unkept(self, path: str, forks: Collection[str | None]) -> NeededFiles:
        """Return what versions need that are not kept and do not go yet; a sweep elsewhere may be taking them away."""
        needed = NeededFiles()
        for ref in (DatasetRef(path, fork, number) for fork in forks for number in self._listed(path, fork)):
            raw = self.store.objects.read_if_exists(ref.manifest_path)
            with suppress(UnknownManifest):
                if raw is not None:
                    needed.add(StoredManifest.of(ref), raw)
        return needed

    def _find_lost(self, missing: set[str]) -> str | None:
        """Return a file that must stay and that storage lists nowhere; under another spelling it would be deleted.

        A version may be listed, and its files not, when both came while storage was listed; so it is listed again.
        """
        for folder in sorted({path.rpartition("/")[0] for path in missing}):
            missing = missing - {info.path for info in self.store.objects.list(folder)}
        return min(missing, default=None)

    def _confirm(
        self, plan: RemovalPlan, kept: KeptVersions, listed: Mapping[str | None, _Tracked | OmniGraphError]
    ) -> RemovalPlan:
        """Compare a plan with what Lance lists, and separate the files of old versions from orphans."""
        # Invariant: nothing that `stays` or `newer` reaches is in the returned plan.
        stays, goes, newer = TrackedFiles(), TrackedFiles(), TrackedFiles()
        for fork, versions in listed.items():
            if isinstance(versions, OmniGraphError):
                return RemovalPlan(plan.path, error=versions)
            own_stays, own_goes, own_newer = versions
            if lost := sorted(set(kept[fork]) - own_stays.versions):
                reason = f"Lance does not list version {lost[0]} of `{DatasetRef(plan.path, fork, 0).directory}`"
                return RemovalPlan(plan.path, error=_disputed(plan.path, reason))
            stays.update(own_stays)
            goes.update(own_goes)
            newer.update(own_newer)
        # Versions staged when storage was listed may have been published since; they must be kept.
        plan = replace(plan, residue=tuple(info for info in plan.residue if not newer.reaches(info.path)))
        for info in plan.residue:
            if stays.reaches(info.path):
                reason = f"Lance lists `{info.path}` for a version that stays, and its manifest does not name it"
                return RemovalPlan(plan.path, error=_disputed(plan.path, reason))
        names = {ref.manifest_path for ref in plan.gone}
        manifests = [info for info in plan.residue if info.path in names]
        files = [info for info in plan.residue if info.path not in names and goes.reaches(info.path)]
        published = names | {info.path for info in files}
        residue = [info for info in plan.residue if info.path not in published and self.may_go(info)]
        if not listed:
            return self._plan_whole(plan.path, residue)
        return RemovalPlan(plan.path, plan.gone, tuple(manifests), tuple(files), tuple(residue))

    def _plan_whole(self, path: str, objects: Sequence[ObjectInfo]) -> RemovalPlan:
        """Return the plan of a dataset of which no version is kept: a dropped type."""
        names = {info.path for info in objects}
        refs = [
            DatasetRef(path, fork, number) for fork in self.listing.forks(path) for number in self._listed(path, fork)
        ]
        gone = tuple(ref for ref in refs if ref.manifest_path in names)
        manifests = {ref.manifest_path for ref in gone}
        first = tuple(info for info in objects if info.path in manifests)
        return RemovalPlan(path, gone, first, tuple(info for info in objects if info.path not in manifests))

    def _listed(self, path: str, fork: str | None) -> Mapping[int, int]:
        return self.listing.versions.get((path, fork), {})


def _disputed(path: str, reason: str) -> ReachabilityDisputed:
    return ReachabilityDisputed(
        f"{reason}; two computations of what must stay disagree, so nothing of `{path}` was removed. Run `omnigraph"
        " verify`; if the graph was written by a newer release, run cleanup with that one",
        object=path,
    )


def remove(store: Store, plan: RemovalPlan) -> None:
    """Delete the files of a plan, in bulk: referrers before the files they refer to."""
    # A fork of which nothing is kept is residue as a whole; its manifests name its other files.
    naming = [info for info in plan.residue if info.path.endswith(".manifest")]
    others = [info for info in plan.residue if not info.path.endswith(".manifest")]
    # Referrers before referents: after a crash, files may be left without a version, which the next sweep removes, but
    # never a version without its files.
    for group in (plan.manifests, plan.files, naming, others):
        delete_in_bulk(store, group)
    store.forget(plan.gone)


def delete_in_bulk(store: Store, objects: Iterable[ObjectInfo]) -> None:
    """Delete stored objects in as few requests as storage takes."""
    store.objects.delete_many([info.path for info in objects])
