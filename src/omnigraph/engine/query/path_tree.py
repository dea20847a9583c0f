"""Trees of best paths, one path to each node: their order and their nodes, without a row per path.

Levels hold the nodes at one number of hops. The children of a node stand together and in order, so that the order of
all paths by their nodes from the start is the preorder of the trees.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from omnigraph.engine.query.vectors import places_in_runs

Indices = npt.NDArray[np.int64]


def preorder_positions(roots: Indices, parents: Sequence[Indices]) -> list[Indices]:
    """Return the place of every node in the preorder of all trees, level by level.

    Args:
        roots: The rank of each tree.
        parents: For each level after the roots, the index of each node's parent in the level before, children of one
            parent together.

    >>> preorder_positions(np.array([1, 0]), [np.array([0, 0, 1]), np.array([2, 0])])
    [array([3, 0]), array([4, 6, 1]), array([2, 5])]
    """
    sizes = _tree_sizes(len(roots), parents)
    order = np.argsort(roots)
    positions = np.empty(len(roots), np.int64)
    positions[order] = np.cumsum(sizes[0][order]) - sizes[0][order]
    levels = [positions]
    for before, size in zip(parents, sizes[1:], strict=True):
        ahead = np.cumsum(size) - size
        elder = ahead - ahead[np.arange(len(before)) - places_in_runs(before)]
        levels.append(levels[-1][before] + 1 + elder)
    return levels


def _tree_sizes(roots: int, parents: Sequence[Indices]) -> list[Indices]:
    sizes = [np.ones(len(level), np.int64) for level in (np.empty(roots), *parents)]
    for hop in range(len(parents), 0, -1):
        np.add.at(sizes[hop - 1], parents[hop - 1], sizes[hop])
    return sizes
