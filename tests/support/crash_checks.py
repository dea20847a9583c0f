"""The oracle of the crash suite: what a graph says after a crash, and everything that is wrong with it.

Runs in a process that has nothing from before the crash but the files.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from omnigraph.errors import GraphError, StorageError, StorageKind
from omnigraph.ids import CommitId
from omnigraph.manifest import recovery
from omnigraph.manifest.history import LOG_PATH
from omnigraph.manifest.intents import pending
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, MANIFEST_PATH
from omnigraph.store.objects.conditional_puts import ENDPOINTS_FOLDER
from omnigraph.store.objects.local_objects import RESERVE_PATH
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.store import Store
from tests.support.crash_scenarios import SCENARIOS
from tests.support.kernel_fixtures import PERSON, check_invariants, ids_of, insert, open_graph
from tests.support.orphan_sweep import sweep

Image = dict[str, Any]
PROBE = "after-the-crash"


def image_of(kernel: Kernel) -> Image | None:
    """Return all that can be seen of a graph, without names that differ from run to run; None: there is none."""
    try:
        main = kernel.snapshot(MAIN)
    except GraphError as error:
        if error.code != "graph.not_found":
            raise
        return None
    branches = {name: _branch_image(kernel, name) for name in (MAIN, *main.state.branches)}
    tags = {tag.name: [tag.branch is None, tag.manifest_version] for tag in main.state.tags.values()}
    return {"branches": branches, "tags": tags}


def _branch_image(kernel: Kernel, branch: str) -> Image:
    snapshot = kernel.snapshot(branch)
    types = {}
    for table_key, pin in snapshot.state.pins.items():
        dataset = kernel.dataset(snapshot, table_key)
        ids = sorted(map(str, dataset.read(["id"])["id"].to_pylist()))
        types[table_key] = {"ids": ids, "version": pin.version, "on_fork": pin.fork is not None}
    return {
        "version": snapshot.version,
        "schema": _shape_of(snapshot.state.schema.source),
        "kinds": [commit.kind for commit in kernel.history(branch)],
        "types": types,
    }


def _shape_of(source: str) -> list[str]:
    return source.split()


def essence_of(image: Image | None) -> Image | None:
    """Return what a user sees of an image: without physical versions, and without what the check itself wrote."""
    if image is None:
        return None
    return {
        "tags": sorted(image["tags"]),
        "branches": {
            name: {
                "schema": branch["schema"],
                "types": {key: [one for one in held["ids"] if one != PROBE] for key, held in branch["types"].items()},
            }
            for name, branch in image["branches"].items()
        },
    }


@dataclass
class Check:
    """One crashed graph under examination. `before` and `after` are the only two states it may be in."""

    root: str
    scenario: str
    before: Image | None
    after: Image | None
    acknowledged: bool
    violations: list[str] = field(default_factory=list)

    def run(self) -> list[str]:
        """Return everything that is wrong; the steps build on each other, so a failed one ends the examination."""
        for step in (self._reads, self._writes, self._sweeps):
            try:
                step()
            except Exception as error:  # noqa: BLE001 - whatever a reader or writer meets is a violation
                where = "".join(traceback.format_tb(error.__traceback__)[-3:])
                self.violations.append(f"{step.__name__}: {type(error).__name__}: {error}\n{where}")
                break
        return self.violations

    def _claim(self, holds: bool, message: Callable[[], str]) -> None:
        if not holds:
            self.violations.append(message())

    # -- reading -----------------------------------------------------------------------------------------------

    def _reads(self) -> None:
        files = _files(self.root)
        seen = image_of(open_graph(self.root, read_only=True))
        self._claim(_files(self.root) == files, lambda: "a read-only open changed files")
        kernel = open_graph(self.root)
        self.found = image_of(kernel)
        self._claim(self.found == seen, lambda: f"read-only sees {seen}, writers see {self.found}")
        self._claim(self.found in (self.before, self.after), lambda: f"between before and after: {self.found}")
        if self.acknowledged:
            self._claim(self.found == self.after, lambda: f"acknowledged, and yet: {self.found}")
        if self.found is not None:
            check_invariants(kernel)
            self._travel(kernel)

    # -- writing -----------------------------------------------------------------------------------------------

    def _writes(self) -> None:
        """Other work goes on at once, and the interrupted work can simply be done again."""
        kernel = open_graph(self.root)
        if self.found is not None:
            for branch in self.found["branches"]:
                insert(kernel, {PERSON: [PROBE]}, branch)
                self._claim(PROBE in ids_of(kernel, PERSON, branch), lambda: "the next write is not there")
        # Equal images: the work is invisible, so it can be done again whatever became of it.
        if self.found != self.after or self.before == self.after:
            SCENARIOS[self.scenario].run(kernel)
            again = essence_of(image_of(kernel))
            self._claim(again == essence_of(self.after), lambda: f"done again, it left {again}")
        kernel.close()

    # -- sweeping ----------------------------------------------------------------------------------------------

    def _sweeps(self) -> None:
        kernel = open_graph(self.root)
        before = image_of(kernel)
        intents, _ = pending(kernel.store)
        names = (MAIN, *kernel.snapshot(MAIN).state.branches)
        published = {one.operation_id: one.commit_id for name in names for one in kernel.history(name)}
        sweep(kernel, 0.0)
        kernel.close()
        kernel = open_graph(self.root)
        self._claim(image_of(kernel) == before, lambda: f"the sweep changed the graph: {image_of(kernel)}")
        check_invariants(kernel)
        self._travel(kernel)
        self._claim(pending(kernel.store) == ([], []), lambda: "the sweep left intents of the dead")
        rows = [(row.operation_id, row.commit_id) for row in recovery.read_audit(kernel.store)]
        expected = [(one.operation_id, published.get(one.operation_id)) for one in intents]
        self._claim(set(expected) <= set(rows), lambda: f"the audit says {rows}, not {expected}")
        self._claim(len(rows) == len({row[0] for row in rows}), lambda: f"audited twice: {rows}")
        self._count_files(kernel)
        second = sweep(kernel, 0.0)
        self._claim(second.files_removed == 0, lambda: f"a second sweep removed {second.files_removed} files")

    def _travel(self, kernel: Kernel) -> None:
        """Raise unless every commit of every branch can still be read whole, or says that it was removed on purpose."""
        for branch in (MAIN, *kernel.snapshot(MAIN).state.branches):
            for commit in kernel.history(branch):
                try:
                    _read_whole(kernel, commit.commit_id)
                except GraphError as error:
                    is_head = commit.commit_id == kernel.snapshot(branch).head
                    if is_head or not SCENARIOS[self.scenario].forgets or error.code != "graph.version_reclaimed":
                        raise

    def _count_files(self, kernel: Kernel) -> None:
        # The proof of an endpoint stays for the next writer.
        present = {path for path in _files(self.root) if not path.startswith(ENDPOINTS_FOLDER)}
        named, owned = _named(kernel)
        # Manifests hold a copy of their transaction, so its own file may be lost; that they do, `_travel` has checked.
        missing = sorted(path for path in named - present if "/_transactions/" not in path)
        self._claim(not missing, lambda: f"named, but missing: {missing}")
        self._claim(
            not present - named - owned, lambda: f"left over after the sweep: {sorted(present - named - owned)}"
        )


def _read_whole(kernel: Kernel, commit_id: CommitId) -> None:
    snapshot = kernel.at_commit(commit_id)
    for table_key, pin in snapshot.state.pins.items():
        dataset = kernel.dataset(snapshot, table_key)
        count = dataset.read(["id"]).num_rows
        assert count == pin.row_count, f"{commit_id} {table_key}: {count} rows, not {pin.row_count}"
        assert dataset.transaction(pin.version) is not None, f"{commit_id} {table_key}: no transaction"


def _files(root: str) -> set[str]:
    """Return every file, hidden ones too: by walking a local root, by listing a remote one."""
    if "://" in root:
        return {info.path for info in open_graph(root).store.objects.list("")}
    found = (os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)
    return {os.path.relpath(path, root) for path in found}


def _named(kernel: Kernel) -> tuple[set[str], set[str]]:
    """Return the files that some version names, and those that Lance or the graph may keep beside them.

    Follows the manifests themselves: every version of every live branch, every pin of each of those.
    """
    main = kernel.snapshot(MAIN)
    owners = [None, *(one.branch_id for one in main.state.branches.values())]
    forks: set[tuple[str, str | None]] = {(MANIFEST_PATH, owner) for owner in owners}
    for branch in (MAIN, *main.state.branches):
        head = kernel.store.open(kernel.snapshot(branch).ref)
        for version in head.lance.versions():
            state = kernel.at_version(branch, version["version"]).state
            forks |= {(pin.path, pin.fork) for pin in state.pins.values()}
            forks |= {(pin.path, None) for pin in state.pins.values()}
            forks |= {(one.path, None) for one in state.tombstones}
    forks |= {(path, None) for path in (LOG_PATH, recovery.AUDIT_PATH)}
    named, owned = set[str](), {"_schema.pg", RESERVE_PATH}
    for path, fork in forks:
        named |= _tracked(kernel.store, path, fork)
        owned.add(f"{DatasetRef(path, fork, 0).directory}/_versions/latest_version_hint.json")
        if fork is not None:
            named.add(f"{path}/_refs/branches/{fork}.json")
    return named, owned


def _tracked(store: Store, path: str, fork: str | None) -> set[str]:
    try:
        dataset = store.open_latest(path, fork)
    except StorageError as error:
        if error.storage_kind is StorageKind.NOT_FOUND and path in (LOG_PATH, recovery.AUDIT_PATH):
            return set()
        raise
    rows = dataset.lance.tracked_files().read_all().to_pylist()
    absolute = {f"{row['base_uri'].removeprefix('file://')}/{row['path']}" for row in rows}
    # Lance gives the base of remote files without their scheme.
    prefixes = (f"{store.root.uri}/", f"{store.root.path}/", f"/{store.root.path}/")
    return {_below(one, prefixes) for one in absolute}


def _below(path: str, prefixes: tuple[str, ...]) -> str:
    for prefix in prefixes:
        if path.startswith(prefix):
            return path.removeprefix(prefix)
    raise AssertionError(f"`{path}` lies outside of the graph")
