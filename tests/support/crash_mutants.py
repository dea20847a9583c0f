"""Broken variants of the product, applied in a child process: the crash oracle must catch each of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from omnigraph.engine.merge import graph_merge
from omnigraph.manifest import create as birth
from omnigraph.manifest import file_removal, history, recovery
from omnigraph.manifest.intents import Owner
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import State
from omnigraph.store.files.reachability import NeededFiles, TrackedFiles, list_tracked
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.store import Staged, Store, Strict


def link_before_publish() -> None:
    """The order of the seeds: a dataset's newest version moves before the catalog knows."""
    sync = Store.sync

    def broken(self: Store, staged: Iterable[Staged], strict: Strict) -> None:
        staged = list(staged)
        sync(self, staged, strict)
        for one in staged:
            self.link(one.ref, one.manifest, one.passed)

    Store.sync = broken  # type: ignore[method-assign]


def sweep_ignores_live_owners() -> None:
    """Every owner counts as dead."""
    Owner.is_dead = lambda self, silent_us: True  # type: ignore[method-assign]


def sweep_ignores_intents() -> None:
    """No claim protects anything."""

    def broken(kernel: Kernel, report: recovery.SweepReport, *, spared: Collection[str] = ()) -> recovery.Claims:
        return recovery.Claims()

    recovery.resolve_intents = broken


def sweep_ignores_links() -> None:
    """Staged manifests of published versions count as residue, and nobody finishes them first."""
    Kernel.finish_links = lambda self, snapshot: 0  # type: ignore[method-assign]
    vars(recovery)["waiting_manifests"] = lambda kernel, snapshots, listing: []


def sweep_ignores_forks() -> None:
    """Only what main reads is alive."""

    vars(recovery)["_live_forks"] = lambda listing, path, snapshots: set()


def publish_skips_sync() -> None:
    """What a commit relies on is never synced; only the commit itself is."""
    Store.sync = lambda self, staged, strict: None  # type: ignore[method-assign]


def publish_syncs_afterwards() -> None:
    """What a commit relies on is synced only once the commit is visible."""
    sync, sync_manifest = Store.sync, Store.sync_manifest
    late: list[Callable[[], None]] = []

    def remember(self: Store, staged: Iterable[Staged], strict: Strict) -> None:
        kept = list(staged)
        late.append(lambda: sync(self, kept, strict))

    def broken(self: Store, dataset: Dataset) -> None:
        sync_manifest(self, dataset)
        while late:
            late.pop()()

    Store.sync = remember  # type: ignore[method-assign]
    Store.sync_manifest = broken  # type: ignore[method-assign]


def publish_never_syncs_the_manifest() -> None:
    """A commit is acknowledged while the disk may still forget it."""
    Store.sync_manifest = lambda self, dataset: None  # type: ignore[method-assign]


def init_releases_its_claim_early() -> None:
    """The claim goes before the manifest comes."""
    create_manifest = birth._create_manifest

    def broken(store: Store, state: State, operation_id: str, claims: list[str]) -> None:
        birth._release(store, claims)
        create_manifest(store, state, operation_id, claims)  # type: ignore[arg-type]

    birth._create_manifest = broken


def spill_forgets() -> None:
    """Commits leave the window without having reached the log."""
    history.spill = lambda store, commits: None


def audit_repeats() -> None:
    """A sweep does not look whether an earlier one has audited the same intent."""
    vars(recovery)["read"] = lambda store: []


def merge_publishes_half() -> None:
    """A merge stages only the first of the types that it changes, and counts as merged all the same."""
    stage = graph_merge._Run._effects
    graph_merge._Run._effects = lambda self: stage(self)[:1]  # type: ignore[method-assign]


def cleanup_forgets_shared_files() -> None:
    """What a version that goes has in common with one that stays counts as its own, by both computations."""
    covers = NeededFiles.covers

    def blind(
        store: Store, path: str, fork: str | None, kept: Collection[int], gone: Collection[int]
    ) -> tuple[TrackedFiles, TrackedFiles, TrackedFiles]:
        stays, goes, newer = list_tracked(store, path, fork, kept, gone)
        return TrackedFiles(stays.versions), goes, newer

    NeededFiles.covers = lambda self, path: "/data/" not in path and covers(self, path)  # type: ignore[method-assign]
    vars(file_removal)["list_tracked"] = blind


MUTANTS: dict[str, Callable[[], None]] = {
    one.__name__: one
    for one in (
        link_before_publish,
        sweep_ignores_live_owners,
        sweep_ignores_intents,
        sweep_ignores_links,
        sweep_ignores_forks,
        publish_skips_sync,
        publish_syncs_afterwards,
        publish_never_syncs_the_manifest,
        init_releases_its_claim_early,
        spill_forgets,
        audit_repeats,
        merge_publishes_half,
        cleanup_forgets_shared_files,
    )
}
