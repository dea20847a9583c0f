"""Retention rules: which catalog versions stay.

Deletes nothing. The age of a version counts from when it was replaced, so that everything that was current within the
retention period stays readable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from omnigraph.ids import BranchId, CommitId
from omnigraph.limits import CLEANUP_DEADLINES_MIN, PUBLISH_DEADLINE_SECONDS
from omnigraph.manifest.intents import Intent
from omnigraph.manifest.model import Commit, Snapshot


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


def kept_versions(versions: Mapping[int, int], commits: Collection[int], policy: Policy, since_us: int) -> set[int]:
    """Return the retained versions of one branch's catalog: recent ones, and those current since a timestamp.

    `versions` maps versions to their write times. `commits` are the versions made by commits; changes of branches and
    tags make others, which do not count towards `keep`. `since_us` is the start of the oldest running operation, which
    must not lose what was current when it began. All times are storage's.
    """
    # Writers and readers of a version may be at work until the deadline of a publish after it was replaced; within that
    # time nothing goes, whatever the policy says.
    newest_first = sorted(versions, reverse=True)
    cutoff = min(policy.now_us - DEADLINE_US, since_us)
    asked = policy.now_us - int((policy.older_than_seconds or 0) * 1_000_000)
    kept = {number for number in newest_first if number in commits}
    kept = set(sorted(kept, reverse=True)[: max(policy.keep or 0, 1)]) | set(newest_first[:1])
    # A version was current until the next one was written, so that is when its age begins.
    for newer, older in pairwise(newest_first):
        replaced_us = versions[newer]
        is_asked_for = policy.older_than_seconds is not None and replaced_us >= asked
        if replaced_us >= cutoff or is_asked_for:
            kept.add(older)
    return kept
