"""Branches and tags of a graph, as users handle them.

May import the ground, the languages, the store, the kernel, and merges.
"""

from omnigraph.engine.branch.handle import Branches
from omnigraph.engine.branch.tags import Tags

__all__ = ["Branches", "Tags"]
