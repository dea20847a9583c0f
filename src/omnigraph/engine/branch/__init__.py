"""Branches of a graph, as users handle them.

May import the ground, the languages, the store and the kernel.
"""

from omnigraph.engine.branch.handle import Branches

__all__ = ["Branches"]
