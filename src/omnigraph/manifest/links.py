"""Links: published dataset versions get their final name, so that tools which open datasets by path see them.

A publish names staged manifests. Linking each one under its version number comes after the commit point and is
idempotent: the writer does it right away, and after a crash any later reader or writer finishes it.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress

from omnigraph.errors import GraphError, OmniGraphError, StorageError, StorageKind
from omnigraph.limits import LINK_CACHE_MAX
from omnigraph.lru import LruCache
from omnigraph.manifest.heads import BranchHeads
from omnigraph.manifest.model import MAIN, Link, Pin, Snapshot
from omnigraph.manifest.plan import Receipt
from omnigraph.store.files.reachability import stored_versions
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.store import Store


class Links:
    """The links of one opened graph."""

    def __init__(self, store: Store, heads: BranchHeads, *, read_only: bool) -> None:
        self._store = store
        self._heads = heads
        self._read_only = read_only
        # Versions known to be linked; an evicted one is checked again.
        self._linked: LruCache[DatasetRef, bool] = LruCache(LINK_CACHE_MAX)
        self._background: list[Future[None]] = []

    def open_pin(self, snapshot: Snapshot, pin: Pin) -> Dataset:
        """Open the dataset version that a snapshot pins; link it first if its writer has not done so."""
        if (cached := self._store.cached(pin.ref)) is not None:
            return cached
        link = next((link for link in self.unfinished(snapshot) if link.ref == pin.ref.stored), None)
        if link is not None and self._read_only and not self.is_linked(link):
            return self._store.reshaped(self._store.open_unlinked(link.ref, link.manifest), pin.shape)
        if link is not None and not self._read_only:
            self._finish(link)
        try:
            return self._store.open(pin.ref)
        except StorageError as error:
            if error.storage_kind is not StorageKind.NOT_FOUND:
                raise
            raise self._removed(snapshot, pin) from error

    def _removed(self, snapshot: Snapshot, pin: Pin) -> GraphError:
        """Return the error for a version that is gone; cleanup never removes one that a head pins."""
        if not self._is_head(snapshot):
            return GraphError(
                f"version {pin.version} of `{pin.table_key}` was removed by cleanup; read a newer commit",
                code="graph.version_reclaimed",
                type_key=pin.table_key,
                version=pin.version,
            )
        return GraphError(
            f"version {pin.version} of `{pin.table_key}`, which the newest commit needs, is missing: another tool has"
            " removed it. Run `omnigraph repair` to see what is left of it",
            code="graph.version_lost",
            type_key=pin.table_key,
            version=pin.version,
        )

    def _is_head(self, snapshot: Snapshot) -> bool:
        """Return True if a snapshot is the newest of a branch that exists; the catalog of a deleted one may be left."""
        branches = self._heads.refresh(MAIN, None).snapshot.state.branches.values()
        if snapshot.ref.branch is not None and all(branch.branch_id != snapshot.ref.branch for branch in branches):
            return False
        # Cleanup may have removed the next version of the catalog too, so what counts is the newest.
        newest = max(stored_versions(self._store, snapshot.ref.path, snapshot.ref.branch), default=0)
        return newest <= snapshot.version

    def unfinished(self, snapshot: Snapshot) -> tuple[Link, ...]:
        """Return the links of a snapshot that are not known to be in place."""
        return tuple(link for link in snapshot.links if self._linked.get(link.ref) is None)

    def is_displaced(self, snapshot: Snapshot, pin: Pin) -> bool:
        """Return True if another tool wrote to the path where a published version has yet to be linked."""
        link = next((link for link in self.unfinished(snapshot) if link.ref == pin.ref), None)
        return link is not None and self._store.has_version(link.ref) and not self.is_linked(link)

    def is_lost(self, snapshot: Snapshot, pin: Pin) -> bool:
        """Return True if neither the path of a published version nor its staged manifest is there."""
        staged = [link.manifest for link in snapshot.links if link.ref == pin.ref.stored]
        return not any(map(self._store.objects.exists, staged)) and not self._store.has_version(pin.ref.stored)

    def is_linked(self, link: Link) -> bool:
        """Return True if the published manifest is in its final place; another tool may have written there first."""
        staged = self._store.objects.read_if_exists(link.manifest)
        # The staged name is deleted only after the version was linked.
        return staged is None or staged == self._store.objects.read_if_exists(link.ref.manifest_path)

    def finish(self, snapshot: Snapshot) -> int:
        """Link every published version of a snapshot; return how many were missing."""
        return sum([self._finish(link) for link in self.unfinished(snapshot)])

    def finish_pin(self, snapshot: Snapshot, pin: Pin) -> None:
        """Link the version that a snapshot pins, for work that needs it by path; a failed link is an error here."""
        for link in self.unfinished(snapshot):
            if link.ref == pin.ref.stored:
                self._finish(link)

    def _finish(self, link: Link) -> bool:
        is_missing = not self.is_linked(link)
        if is_missing:
            self._store.link(link.ref, link.manifest)
        self._linked.put(link.ref, True)
        return is_missing

    def link_published(self, receipt: Receipt) -> None:
        """Link what was just published; on remote storage in the background, since any process may finish it."""
        if not self._store.root.kind.has_round_trips:
            # The commit stands; the next process to open the version finishes a link that fails here.
            with suppress(OmniGraphError):
                self._link_published(receipt)
                self._store.objects.keep_reserve()
        else:
            self._background[:] = [task for task in self._background if not task.done()]
            self._background.append(self._store.pool.submit(self._link_published, receipt))

    def _link_published(self, receipt: Receipt) -> None:
        staged_by_ref = {staged.ref: staged for staged in receipt.staged}
        for link in receipt.snapshot.links:
            if (staged := staged_by_ref.get(link.ref)) is not None:
                self._store.link(staged.ref, staged.manifest, staged.passed)
                self._linked.put(link.ref, True)
            elif self._linked.get(link.ref) is None:
                self._finish(link)

    def wait(self) -> None:
        """Wait for background links. Their errors are dropped, since any process may finish a link."""
        for task in self._background:
            task.exception()
        self._background.clear()
