"""Three-way merges, reverts and cherry-picks.

May import the rest of the engine but no surface above it; `row_merge` and `ancestry` are pure.
"""

from omnigraph.engine.merge.merge import cherry_pick, merge, revert

__all__ = ["cherry_pick", "merge", "revert"]
