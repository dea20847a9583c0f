"""Retention rules: which versions of catalogs and datasets cleanup must keep.

Deletes nothing. The age of a version counts from when it was replaced, so that everything that was current within the
retention period stays readable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, combinations, islice, pairwise

from omnigraph.engine.maintain.repair import find_drift
from omnigraph.engine.merge.ancestry import merge_base
from omnigraph.errors import ConflictError, GraphError, ReachabilityDisputed
from omnigraph.ids import BranchId, CommitId
from omnigraph.limits import (
    CLEANUP_DEADLINES_MIN,
    CLEANUP_PAIRS_MAX,
    PUBLISH_DEADLINE_SECONDS,
    REPREPARE_MAX,
    RESIDUE_AGE_SECONDS,
)
from omnigraph.manifest import history
from omnigraph.manifest.encoding import CatalogPins, read_pins
from omnigraph.manifest.file_removal import Listing
from omnigraph.manifest.history import LOG_PATH
from omnigraph.manifest.intents import CLEANUP, Intent, pending, reject_unreadable
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, MANIFEST_PATH, Commit, Snapshot, fork_owner
from omnigraph.manifest.recovery import AUDIT_PATH, Claims
from omnigraph.store.files.reachability import DatasetFork, NeededFiles
from omnigraph.store.read.dataset import DatasetRef


def merge_points(commits: Mapping[CommitId, Commit], heads: Iterable[CommitId]) -> set[CommitId]:
    """Return every commit that can be a best common ancestor of two heads, or of two such ancestors, recursively.

    Walks from children to parents and hands down the set of heads that descend from each commit, as bits. A best common
    ancestor of two heads is a commit whose children all lack one of the two: if a child had the same set as the commit,
    it would be a better common ancestor of any pair in it. Such a commit then counts as a head itself, which finds the
    ancestors of ancestors in the same pass. The result may hold a few commits too many (three heads that meet in pairs
    further on), but never more than heads and commits with several children.
    """
    parents, waiting = _ancestry(commits, heads)
    bits = {head: 1 << number for number, head in enumerate(dict.fromkeys(head for head in heads if head in parents))}
    above: dict[CommitId, list[int]] = {commit_id: [] for commit_id in parents}
    # Kahn's topological order: a commit is visited once all its children are, so its set of heads is complete.
    ready = [commit_id for commit_id, children in waiting.items() if children == 0]
    points: set[CommitId] = set()
    while ready:
        commit_id = ready.pop()
        children = above.pop(commit_id)
        reached = bits.get(commit_id, 0)
        for child in children:
            reached |= child
        # Only a set that no child has makes a merge point; linear history shares one set.
        same = next((child for child in children if child == reached), None)
        if same is None and reached.bit_count() > 1:
            points.add(commit_id)
            if commit_id not in bits:
                bits[commit_id] = 1 << len(bits)
                reached |= bits[commit_id]
        for parent in parents[commit_id]:
            above[parent].append(reached if same is None else same)
            waiting[parent] -= 1
            if waiting[parent] == 0:
                ready.append(parent)
    return points


def _ancestry(
    commits: Mapping[CommitId, Commit], heads: Iterable[CommitId]
) -> tuple[dict[CommitId, set[CommitId]], dict[CommitId, int]]:
    """Return the parents of every ancestor of the heads, and how many children each has among them."""
    parents: dict[CommitId, set[CommitId]] = {}
    children: dict[CommitId, int] = {}
    pending = [head for head in heads if head in commits]
    while pending:
        commit_id = pending.pop()
        if commit_id in parents:
            continue
        commit = commits[commit_id]
        parents[commit_id] = {
            parent_id for parent_id in (commit.parent, commit.merged_parent) if parent_id and parent_id in commits
        }
        children.setdefault(commit_id, 0)
        for parent in parents[commit_id]:
            children[parent] = children.get(parent, 0) + 1
            pending.append(parent)
    return parents, children


DEADLINE_US = CLEANUP_DEADLINES_MIN * PUBLISH_DEADLINE_SECONDS * 1_000_000


@dataclass(frozen=True, slots=True)
class Policy:
    """The retention rule and storage's time; a version is deleted only if every part allows it."""

    keep: int | None
    older_than_seconds: float | None
    now_us: int


def fixed_versions(
    commits: Mapping[CommitId, Commit], snapshots: Iterable[Snapshot], intents: Iterable[Intent]
) -> set[tuple[BranchId | None, int]]:
    """Return the catalog versions that must stay: tags, where branches begin and meet, and the bases of live work."""
    heads = list(snapshots)
    main = next(head for head in heads if head.state.branch_id is None)
    fixed = {(tag.branch, tag.manifest_version) for tag in main.state.tags.values()}
    fixed |= {(branch.parent, branch.parent_version) for branch in main.state.branches.values()}
    fixed |= {(intent.branch_id, intent.base_version) for intent in intents}
    # Merges read merge bases, and branches may be created from tags.
    tips = [head.head for head in heads if head.head] + [tag.commit_id for tag in main.state.tags.values()]
    points = merge_points(commits, tips)
    return fixed | {(commits[commit_id].branch, commits[commit_id].manifest_version) for commit_id in points}


def check_mergeable(
    commits: Mapping[CommitId, Commit],
    snapshots: Sequence[Snapshot],
    listing: Listing,
    kept: Mapping[str | None, Collection[int]],
    incomplete: Collection[tuple[BranchId | None, int]] = (),
) -> None:
    """Raise if two live branches could not be merged any more: their merge base is stored and would be removed.

    `incomplete` are catalogs of which an earlier release has removed a part: they are lost already.

    Asks the walk that merges use, for each pair of heads, and so shares nothing with `merge_points`.
    """
    # A parent that no log knows any more ends the walk, as it does in `merge_points`.
    known = {
        commit_id: replace(
            commit,
            parent=commit.parent if commit.parent in commits else None,
            merged_parent=commit.merged_parent if commit.merged_parent in commits else None,
        )
        for commit_id, commit in commits.items()
    }
    heads = {head: snapshot.branch for snapshot in snapshots if (head := snapshot.head) in known and head}
    for ours, theirs in islice(combinations(heads, 2), CLEANUP_PAIRS_MAX):
        base = merge_base(known, ours, theirs)
        for commit_id in set(base.states()) if base is not None else ():
            branch, version = commits[commit_id].branch, commits[commit_id].manifest_version
            is_stored = version in listing.versions.get((MANIFEST_PATH, branch), {})
            if is_stored and version not in kept.get(branch, ()) and (branch, version) not in incomplete:
                raise ReachabilityDisputed(
                    f"merges of `{heads[ours]}` and `{heads[theirs]}` start from commit {commit_id}, which this cleanup"
                    " would remove; nothing was removed. Report this as a bug",
                    commit_id=commit_id,
                    branches=[heads[ours], heads[theirs]],
                )


def kept_versions(versions: Mapping[int, int], commits: Collection[int], policy: Policy, since_us: int) -> set[int]:
    """Return the retained versions of one branch's catalog: recent ones, and those current since a timestamp.

    `versions` maps versions to their write times. `commits` are the versions made by commits; changes of branches and
    tags make others, which do not count towards `keep`. `since_us` is the start of the oldest running operation, which
    must not lose what was current when it began. All times are storage's.
    """
    # Writers and readers of a version may be at work until the deadline of a publish after it was replaced; within that
    # time nothing is removed, regardless of the policy.
    newest_first = sorted(versions, reverse=True)
    cutoff = min(policy.now_us - DEADLINE_US, since_us)
    cutoff_us = policy.now_us - int((policy.older_than_seconds or 0) * 1_000_000)
    retained = {number for number in newest_first if number in commits}
    retained = set(sorted(retained, reverse=True)[: max(policy.keep or 0, 1)]) | set(newest_first[:1])
    # A version was current until the next one was written, so that is when its age begins.
    for newer, older in pairwise(newest_first):
        replaced_us = versions[newer]
        is_asked_for = policy.older_than_seconds is not None and replaced_us >= cutoff_us
        if replaced_us >= cutoff or is_asked_for:
            retained.add(older)
    return retained


def find_kept(kernel: Kernel, policy: Policy) -> KeptStates:
    """Return the retained states; starts over if a branch is deleted meanwhile."""
    for _ in range(REPREPARE_MAX):
        intents, unreadable = pending(kernel.store)
        reject_unreadable(unreadable, CLEANUP)
        states = KeptStates(kernel, policy, intents, _live_snapshots(kernel), Listing.read(kernel.store))
        try:
            states.find()
        except GraphError as error:
            if error.code not in ("branch.not_found", "graph.version_reclaimed") or not states.lost_a_branch():
                raise
        else:
            return states
    raise ConflictError("branches were deleted faster than they could be read; no version was removed, retry later")


def _live_snapshots(kernel: Kernel) -> list[Snapshot]:
    """Return the snapshots of main and all branches, read in parallel; deleted ones are left out."""
    main = kernel.snapshot(MAIN)
    tasks = [partial(kernel.snapshots_of, [name]) for name in sorted(main.state.branches)]
    return [main, *chain.from_iterable(kernel.store.in_parallel(tasks))]


@dataclass
class KeptStates:
    """The versions in storage that must be kept, by dataset and fork."""

    kernel: Kernel
    policy: Policy
    intents: list[Intent]
    snapshots: list[Snapshot]
    listing: Listing
    versions: dict[str, dict[str | None, set[int]]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    drifted: set[str] = field(default_factory=set)
    # Datasets that lack a version that must be kept: nothing of them is removed.
    damaged: dict[str, GraphError] = field(default_factory=dict)
    incomplete: set[tuple[BranchId | None, int]] = field(default_factory=set)

    def find(self) -> None:
        """Find out what stays, and that every kept catalog can be read."""
        self.alive = [intent for intent in self.intents if not intent.is_dead and intent.kind != CLEANUP]
        self.claims = Claims.of(self.alive)
        self.since_us = min([self.policy.now_us, *(intent.began_us for intent in self.alive)])
        self.catalog_files = NeededFiles()
        # Mark and sweep. The roots are heads, tags, the starts and meeting points of branches, and what live operations
        # read; from there the kept catalogs, and from them the versions of types that they pin. All else may go.
        pins = self._keep_catalogs(self._read_commits())
        for path in (LOG_PATH, AUDIT_PATH):
            self._keep_log(path)
        self._keep_types(pins)
        self._find_drift()

    def lost_a_branch(self) -> bool:
        """Return True if a branch was deleted since this run began."""
        live = {snapshot.state.branch_id for snapshot in _live_snapshots(self.kernel)}
        return any(snapshot.state.branch_id not in live for snapshot in self.snapshots)

    def _read_commits(self) -> dict[CommitId, Commit]:
        # Commits go from branches to the log, and the branches were read before.
        commits = {CommitId(commit_id): commit for commit_id, commit in history.read(self.kernel.store).items()}
        for snapshot in self.snapshots:
            commits.update((commit.commit_id, commit) for commit in snapshot.state.commits)
        return commits

    def _keep_catalogs(self, commits: Mapping[CommitId, Commit]) -> CatalogPins:
        fixed: dict[BranchId | None, set[int]] = {}
        for branch, version in fixed_versions(commits, self.snapshots, self.alive):
            fixed.setdefault(branch, set()).add(version)
        commit_versions: dict[BranchId | None, set[int]] = {}
        for commit in commits.values():
            commit_versions.setdefault(commit.branch, set()).add(commit.manifest_version)
        catalogs: dict[str | None, set[int]] = {}
        for snapshot in self.snapshots:
            branch_id = snapshot.state.branch_id
            versions = self.listing.versions.get((MANIFEST_PATH, branch_id), {})
            retained = kept_versions(versions, commit_versions.get(branch_id, set()), self.policy, self.since_us)
            # Versions written after the snapshot was read are kept.
            retained |= fixed.get(branch_id, set()) | {number for number in versions if number >= snapshot.version}
            catalogs[branch_id] = retained & versions.keys()
        catalogs.update(self._keep_deleted_branches(fixed, set(catalogs)))
        check_mergeable(commits, self.snapshots, self.listing, catalogs, self.incomplete)
        self.versions[MANIFEST_PATH], self.names[MANIFEST_PATH] = catalogs, MANIFEST_PATH
        return self._read_pins(catalogs, commits)

    def _keep_deleted_branches(
        self, fixed: Mapping[BranchId | None, set[int]], live: Collection[str | None]
    ) -> dict[str | None, set[int]]:
        """Return the catalogs of deleted branches that merges of live ones start from, as far as they are complete."""
        kept: dict[str | None, set[int]] = {}
        for branch_id in fixed.keys() - live:
            for version in fixed[branch_id] & self.listing.versions.get((MANIFEST_PATH, branch_id), {}).keys():
                pins = read_pins(self.kernel.store, [DatasetRef(MANIFEST_PATH, branch_id, version)])
                pinned = ((location, number) for location, numbers in pins.versions.items() for number in numbers)
                if all(self._is_stored(location, number) for location, number in pinned):
                    kept.setdefault(branch_id, set()).add(version)
                else:
                    # An earlier release has removed a part of the state; the rest is of no use.
                    self.incomplete.add((branch_id, version))
        return kept

    def _read_pins(self, catalogs: dict[str | None, set[int]], commits: Mapping[CommitId, Commit]) -> CatalogPins:
        """Return the pins of the kept catalogs, and keep the versions of their commits, by which states are found."""
        pins, unread = CatalogPins(), _refs(catalogs)
        # A fixed point: a kept catalog can add the version of its commit, and the number of versions is finite.
        while unread:
            unread_pins = read_pins(self.kernel.store, unread)
            for commit_id in set(unread_pins.heads.values()):
                commit = commits.get(commit_id) if commit_id else None
                # Of a deleted branch only merge bases are kept.
                if commit is not None and commit.branch in catalogs:
                    versions = self.listing.versions.get((MANIFEST_PATH, commit.branch), {})
                    catalogs[commit.branch] |= versions.keys() & {commit.manifest_version}
            pins.update(unread_pins)
            unread = [ref for ref in _refs(catalogs) if ref not in pins.heads]
        if pins.needed is not None:
            self.catalog_files = pins.needed
        return pins

    def _keep_log(self, path: str) -> None:
        versions = self.listing.versions.get((path, None), {})
        # One that was made after storage was listed has no version that may go.
        if versions:
            young = self._young(versions)
            # Readers may still use the version before the recent ones, whose files those may have compacted away.
            newest = sorted(versions.keys() - young)[-1:]
            self.versions[path], self.names[path] = {None: young.union(newest)}, path

    def _keep_types(self, pins: CatalogPins) -> None:
        pinned, names = pins.versions, dict(pins.names)
        for snapshot in self.snapshots:
            for pin in snapshot.state.pins.values():
                pinned.setdefault((pin.path, pin.fork), set()).add(pin.version)
                names.setdefault(pin.path, pin.table_key)
        for snapshot in self.snapshots:
            for tombstone in snapshot.state.tombstones:
                names.setdefault(tombstone.path, tombstone.table_key)
        live = {snapshot.state.branch_id for snapshot in self.snapshots}
        for path in sorted(names):
            self.names[path] = names[path]
            self.versions[path] = {
                fork: self._keep_type((path, fork), pinned.get((path, fork), set()), live)
                for fork in self.listing.forks(path)
            }

    def _keep_type(self, location: DatasetFork, pinned: set[int], live: Collection[BranchId | None]) -> set[int]:
        versions = self.listing.versions.get(location, {})
        if not pinned:
            # A fork that is being made belongs to a live branch. What a deleted branch left is a sweep's, which may be
            # taking it away right now.
            is_live = location[1] is None or fork_owner(location[1]) in live
            return self._younger(versions, RESIDUE_AGE_SECONDS * 1_000_000) if is_live else set()
        lost = sorted(pinned - versions.keys())
        # A version newer than all stored ones was published by another process that has not linked it yet.
        if lost and lost[0] <= max(versions, default=lost[0]) and not self._is_stored(location, lost[0]):
            key = self.names[location[0]]
            self.damaged[location[0]] = GraphError(
                f"version {lost[0]} of `{key}` must be retained, but is missing; nothing of `{key}` was removed. Run"
                " `omnigraph verify`",
                code="graph.corrupt",
                type_key=key,
            )
            return set(versions)
        # Versions above all pinned ones are being published: their catalogs may not be visible yet.
        newer = {number for number in versions if number >= max(pinned)}
        return (pinned & versions.keys()) | newer | self._young(versions)

    def _is_stored(self, location: DatasetFork, version: int) -> bool:
        is_listed = version in self.listing.versions.get(location, {})
        return is_listed or self.kernel.store.has_version(DatasetRef(*location, version))

    def _young(self, versions: Mapping[int, int]) -> set[int]:
        return self._younger(versions, DEADLINE_US)

    def _younger(self, versions: Mapping[int, int], age_us: int) -> set[int]:
        cutoff = min(self.policy.now_us - age_us, self.since_us)
        return {number for number, modified_us in versions.items() if modified_us >= cutoff}

    def _find_drift(self) -> None:
        for snapshot in self.snapshots:
            waiting = {link.ref for link in snapshot.links if link.manifest in self.listing.names}
            for pin in snapshot.state.pins.values():
                # Only where the pin is not the newest that is listed, or a link is waiting, can a foreign tool have
                # written or removed something.
                newest = max(self.listing.versions.get((pin.path, pin.fork), {}), default=0)
                is_doubtful = pin.ref in waiting or newest != pin.version
                if is_doubtful and find_drift(self.kernel, snapshot, pin) is not None:
                    self.drifted.add(pin.path)


def _refs(catalogs: Mapping[str | None, Iterable[int]]) -> list[DatasetRef]:
    return [DatasetRef(MANIFEST_PATH, fork, number) for fork in catalogs for number in sorted(catalogs[fork])]
