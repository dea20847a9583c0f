"""Merge points: the commits at which a merge of live heads may have to look.

A merge reads the best common ancestors of two heads, and the best common ancestors of those when there are several
(criss-cross histories). Looking for them pair by pair is quadratic in branches; one pass over the history is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omnigraph.ids import CommitId
from omnigraph.manifest.model import Commit


def merge_points(commits: Mapping[CommitId, Commit], heads: Iterable[CommitId]) -> set[CommitId]:
    """Return every commit that can be a best common ancestor of two heads, or of two such ancestors, recursively.

    Walks from children to parents and hands down the set of heads that descend from each commit, as bits. A best common
    ancestor of two heads is a commit whose children all lack one of the two: if a child had the same set as the commit,
    it would be a better common ancestor of any pair in it. Such a commit then counts as a head itself, which finds the
    ancestors of ancestors in the same pass. The result may hold a few commits too many (three heads that meet in pairs
    further on), but never more than heads and commits with several children.
    """
    parents, waiting = _ancestry(commits, heads)
    bits = {head: 1 << number for number, head in enumerate(dict.fromkeys(one for one in heads if one in parents))}
    above: dict[CommitId, list[int]] = {commit_id: [] for commit_id in parents}
    ready = [commit_id for commit_id, children in waiting.items() if children == 0]
    points: set[CommitId] = set()
    while ready:
        commit_id = ready.pop()
        children = above.pop(commit_id)
        reached = bits.get(commit_id, 0)
        for one in children:
            reached |= one
        # Only a set that no child has needs to be kept; along a line all commits share one.
        same = next((one for one in children if one == reached), None)
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
        parents[commit_id] = {one for one in (commit.parent, commit.merged_parent) if one and one in commits}
        children.setdefault(commit_id, 0)
        for parent in parents[commit_id]:
            children[parent] = children.get(parent, 0) + 1
            pending.append(parent)
    return parents, children
