"""The commit graph on a terminal: abbreviated commit ids, and lines drawn as by `git log --graph`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omnigraph.limits import COMMIT_ID_CHARACTERS_MIN


def shorten_ids(commit_ids: Sequence[str]) -> dict[str, str]:
    """Return ids by their full form, cut to the shortest common length at which they differ.

    >>> shorten_ids(["01M7M8T66NZHZEDHK2YWZS1BBQ", "01M7M8T66NZ0000000000000ZZ"])["01M7M8T66NZ0000000000000ZZ"]
    '01M7M8T66NZ0'
    """
    unique = set(commit_ids)
    length = COMMIT_ID_CHARACTERS_MIN + 2
    while len({commit_id[:length] for commit_id in unique}) < len(unique):
        length += 1
    return {commit_id: commit_id[:length] for commit_id in unique}


def draw_history(commits: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    r"""Yield lines of a drawn history, as `git log --graph` does, each with its commit unless it only joins lines.

    The commits come newest first, children before parents.

    >>> ids = [("d", "c", "b"), ("c", "a", None), ("b", "a", None), ("a", None, None)]
    >>> names = ("graph_commit_id", "parent_commit_id", "merged_parent_commit_id")
    >>> print("\n".join(line for line, _ in draw_history([dict(zip(names, row)) for row in ids])))
    *
    |\
    * |
    | *
    |/
    *
    """
    columns: list[str] = []
    for commit in commits:
        commit_id = commit["graph_commit_id"]
        if commit_id not in columns:
            columns.append(commit_id)
        column = columns.index(commit_id)
        while columns.count(commit_id) > 1:
            last = len(columns) - 1 - columns[::-1].index(commit_id)
            yield _join_line(len(columns), column, last), None
            del columns[last]
        yield " ".join("*" if index == column else "|" for index in range(len(columns))), commit
        parent, merged = commit["parent_commit_id"], commit["merged_parent_commit_id"]
        if parent is None:
            if column < len(columns) - 1:
                yield _join_line(len(columns), column, column), None
            del columns[column]
            continue
        columns[column] = parent
        if merged is not None:
            yield _split_line(len(columns), column), None
            columns.insert(column + 1, merged)


def _join_line(count: int, column: int, last: int) -> str:
    """Draw column `last` going into column `column`, and those to its right moving up."""
    line = [" "] * (2 * count)
    for index in range(count):
        if index < last:
            line[2 * index] = "|"
        elif index > 0 and (index > last or last != column):
            line[2 * index - 1] = "/"
        if column <= index < last - 1:
            line[2 * index + 1] = "_"
    return "".join(line).rstrip()


def _split_line(count: int, column: int) -> str:
    """Draw a new column to the right of a merge, and those further right making room."""
    line = [" "] * (2 * count + 1)
    for index in range(count):
        if index <= column:
            line[2 * index] = "|"
        if index >= column:
            line[2 * index + 1] = "\\"
    return "".join(line).rstrip()
