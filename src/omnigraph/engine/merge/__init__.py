"""Three-way merges, reverts and cherry-picks.

May import the rest of the engine but no surface above it; `row_merge` and `ancestry` are pure.
"""

from omnigraph.engine.merge.merge import merge
from omnigraph.engine.merge.merge_receipts import MergeReceipt
from omnigraph.engine.merge.replay import cherry_pick, revert

__all__ = ["MergeReceipt", "cherry_pick", "merge", "revert"]
