"""Changes: what differs between two states of a graph, and the feed of what every commit did.

Reads only; merges are built on the comparison of rows that lives here.
"""

from omnigraph.engine.changes.commit_diff import Block, CommitPage, commit_changes
from omnigraph.engine.changes.feed import FeedPage, baseline, changes
from omnigraph.engine.changes.state_diff import ChangeSet, diff

__all__ = ["Block", "ChangeSet", "CommitPage", "FeedPage", "baseline", "changes", "commit_changes", "diff"]
