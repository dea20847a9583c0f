"""Differences between two states of a graph, and the change feed of a branch.

Reads only. Merges are built on the row comparison in this package.
"""

from omnigraph.engine.changes.commit_diff import CommitPage, commit_changes, diff_with_images
from omnigraph.engine.changes.cursor import ChangeFilter
from omnigraph.engine.changes.feed import FeedPage, baseline, changes
from omnigraph.engine.changes.state_diff import ChangeSet, diff

__all__ = [
    "ChangeFilter",
    "ChangeSet",
    "CommitPage",
    "FeedPage",
    "baseline",
    "changes",
    "commit_changes",
    "diff",
    "diff_with_images",
]
