"""Merges: three states of a graph to one, and what reverts and cherry-picks make of the same core.

May import the rest of the engine but the surfaces above it; `rows`, `values` and `ancestry` are pure.
"""

from omnigraph.engine.merge.merge import merge
from omnigraph.engine.merge.merge_receipts import MergeReceipt
from omnigraph.engine.merge.replay import cherry_pick, revert

__all__ = ["MergeReceipt", "cherry_pick", "merge", "revert"]
