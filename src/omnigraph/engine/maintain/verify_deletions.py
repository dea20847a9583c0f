"""Deletion files against their checksums: they are small, so a plain `verify` reads them all.

A file that was exchanged for another with as many rows shows nowhere else: counts agree, and so do ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from threading import Lock

from omnigraph.engine.maintain.verify_files import Recorded, add_packed, find_fault
from omnigraph.ids import CommitId
from omnigraph.manifest import commit_log
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import Commit
from omnigraph.store.checksums import path_key, read_overwritten_checksums
from omnigraph.store.dataset import Dataset
from omnigraph.store.deletions import deletion_paths


class DeletionChecksums:
    """What commits recorded of deletion files; each file is compared once, and the commit log read when needed."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._recorded: Recorded = {}
        self._seen: set[CommitId] = set()
        self._faults: dict[str, str | None] = {}
        self._is_log_read = False
        self._turn = Lock()

    def add(self, commits: Iterable[Commit]) -> None:
        """Take in the checksums of commits that are at hand."""
        for commit in commits:
            if commit.commit_id not in self._seen:
                self._seen.add(commit.commit_id)
                add_packed(self._recorded, commit.checksums)

    def find_faults(self, dataset: Dataset) -> list[str]:
        """Return what is wrong with the deletion files of a version; those without a checksum are passed over."""
        faults = [(path, self._find_fault(path)) for path in deletion_paths(dataset)]
        return [f"`{path}`: {fault}" for path, fault in faults if fault]

    def _find_fault(self, path: str) -> str | None:
        with self._turn:
            if path in self._faults:
                return self._faults[path]
            if path_key(path) not in self._recorded and not self._is_log_read:
                self.add(commit_log.read(self._kernel.store).values())
                self._is_log_read = True
            is_recorded = path_key(path) in self._recorded
        info = self._kernel.store.objects.info(path) if is_recorded else None
        # That a file is missing shows when its rows are read.
        fault = None if info is None else find_fault(self._kernel, info, self._recorded, self._overwritten)
        with self._turn:
            return self._faults.setdefault(path, fault)

    @cached_property
    def _overwritten(self) -> dict[int, set[int]]:
        return read_overwritten_checksums(self._kernel.store)
