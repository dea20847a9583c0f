"""Graphs with a long history and many branches, built quickly: nothing is synced, and each commit is one row."""

from __future__ import annotations

import os
from unittest.mock import patch

import omnigraph as og

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key }
edge Knows: Person -> Person
"""
EARLY = "early"
# Of all branches: every so many has a commit of its own, is merged into main, or begins at the branch before it.
_COMMITTED, _MERGED, _NESTED = 2, 6, 7


def build_history(root: str, commits: int, branches: int, kept: int) -> None:
    """Make a graph with so many commits, and branches that begin all along its history; delete all but some of these.

    Graphs that differ in the number of kept branches have the same number of merges.
    """
    with patch.dict(os.environ, OMNIGRAPH_DURABILITY="process"), og.init(root, schema=SCHEMA) as graph:
        _put(graph, "first")
        graph.branches.create(EARLY)
        _put(graph, "on early", EARLY)
        made, branched = 3, 1
        while made < commits:
            # Spread evenly, so that branches begin at commits of every age.
            if branched < branches and branched * commits <= made * branches:
                made += _add_branch(graph, branched, is_kept=branched < kept)
                branched += 1
            else:
                _put(graph, f"p{made}")
                made += 1


def _add_branch(graph: og.Graph, number: int, *, is_kept: bool) -> int:
    """Make a branch, and what belongs to it; return the number of commits."""
    name, previous = f"b{number}", f"b{number - 1}"
    graph.branches.create(name, previous if is_kept and number > 1 and number % _NESTED == 0 else "main")
    commits = 0
    if number % _COMMITTED == 0:
        _put(graph, f"of {name}", name)
        commits = 1
        if number % _MERGED == 0:
            graph.branches.merge(name)
            commits = 2
    if not is_kept:
        graph.branches.delete(name)
    return commits


def _put(graph: og.Graph, name: str, branch: str = "main") -> None:
    graph.ingest([{"type": "Person", "data": {"name": name}}], mode="append", branch=branch)
