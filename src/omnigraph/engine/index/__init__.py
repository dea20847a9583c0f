"""Indexes: what a schema wants indexed, and the work that brings datasets there.

May import the ground, the languages, the store and the kernel. No index ever changes a result.
"""

from omnigraph.engine.index.ensure import ensure_indices
from omnigraph.engine.index.report import IndexReport
from omnigraph.engine.index.wanted import wanted_indexes

__all__ = ["IndexReport", "ensure_indices", "wanted_indexes"]
