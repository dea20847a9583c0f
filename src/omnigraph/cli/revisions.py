"""Names of commits on the command line: short ids, `HEAD~n`, points in time; and how lists of commits are drawn.

Everything is looked up in what the graph lists, so an actor can only name commits that it may read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from omnigraph.errors import GraphError, PolicyDenied
from omnigraph.limits import AMBIGUOUS_COMMITS_SHOWN, COMMIT_ID_CHARACTERS_MIN

if TYPE_CHECKING:
    from omnigraph.client import Graph as ServedGraph
    from omnigraph.graph import Graph

HEAD: Final = "HEAD"
_ULID_LENGTH: Final = 26
_SHORT_ID: Final = re.compile(f"[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{{{COMMIT_ID_CHARACTERS_MIN},{_ULID_LENGTH - 1}}}")
_ANCESTOR: Final = re.compile(r"(?P<start>.+)~(?P<steps>\d{0,6})")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?")


def resolve_revision(graph: Graph | ServedGraph, text: str, branch: str = "main") -> str:
    """Return the id of the commit that a text names; names of branches, tags and commits stay as they are."""
    ancestor = _ANCESTOR.fullmatch(text)
    if ancestor is not None:
        return _ancestor(graph, ancestor["start"], int(ancestor["steps"] or "1"), branch)
    if text == HEAD:
        return str(graph.commits(branch, limit=1)[0].commit_id)
    if _TIME.fullmatch(text):
        return _newest_until(graph, text, branch)
    if _SHORT_ID.fullmatch(text) and not _is_name(graph, text):
        return _expand(graph, text)
    return text


def resolve_commit(graph: Graph | ServedGraph, text: str, branch: str = "main") -> str:
    """Return the id of the commit that a text names, be it the name of a tag or a branch."""
    text = resolve_revision(graph, text, branch)
    if len(text) == _ULID_LENGTH:
        return text
    for tag in graph.tags.list():
        if tag.name == text:
            return str(tag.commit_id)
    return str(graph.commits(text, limit=1)[0].commit_id) if text in graph.branches.list() else text


def resolve_at(graph: Graph | ServedGraph, text: str | None, branch: str | None) -> str | None:
    """Return the state that `--at` names."""
    return None if text is None else resolve_revision(graph, text, branch or "main")


def _is_name(graph: Graph | ServedGraph, text: str) -> bool:
    return text in graph.branches.list() or any(tag.name == text for tag in graph.tags.list())


def _ancestor(graph: Graph | ServedGraph, start: str, steps: int, branch: str) -> str:
    commit_id = resolve_commit(graph, start, branch)
    for step in range(steps):
        parent = graph.commit(commit_id).parent
        if parent is None:
            raise GraphError(
                f"`{start}~{steps}` does not exist: the history of `{start}` has {step} earlier commits; list them with"
                " `omnigraph commit list`",
                code="commit.not_found",
                at=f"{start}~{steps}",
            )
        commit_id = parent
    return str(commit_id)


def _newest_until(graph: Graph | ServedGraph, text: str, branch: str) -> str:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        # Not a point in time, so it may be the name of a tag.
        return text
    until = (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1_000_000
    commits = graph.commits(branch)
    # Merged commits were not on the branch before the merge, so only first parents are.
    expected = commits[0].commit_id if commits else None
    for commit in commits:
        if commit.commit_id == expected:
            if commit.created_at_us <= until:
                return str(commit.commit_id)
            expected = commit.parent
    raise GraphError(
        f"branch `{branch}` has no commit as old as {text}; list them with `omnigraph commit list`",
        code="commit.not_found",
        at=text,
    )


def _expand(graph: Graph | ServedGraph, prefix: str) -> str:
    """Return the only commit whose id begins with a text; the text itself if there is none."""
    matches: set[str] = set()
    for branch in graph.branches.list():
        # A branch may be listed for an actor who may not read it.
        with suppress(PolicyDenied):
            ids = (str(commit.commit_id) for commit in graph.commits(branch))
            matches.update(commit_id for commit_id in ids if commit_id.startswith(prefix.upper()))
    if len(matches) > 1:
        shown = ", ".join(sorted(matches)[:AMBIGUOUS_COMMITS_SHOWN])
        more = f" and {len(matches) - AMBIGUOUS_COMMITS_SHOWN} more" if len(matches) > AMBIGUOUS_COMMITS_SHOWN else ""
        raise GraphError(
            f"`{prefix}` is the beginning of {len(matches)} commits: {shown}{more}; write more characters",
            code="commit.ambiguous",
            commits=sorted(matches),
        )
    return next(iter(matches), prefix)


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
        place = columns.index(commit_id)
        while columns.count(commit_id) > 1:
            last = len(columns) - 1 - columns[::-1].index(commit_id)
            yield _join_line(len(columns), place, last), None
            del columns[last]
        yield " ".join("*" if index == place else "|" for index in range(len(columns))), commit
        parent, merged = commit["parent_commit_id"], commit["merged_parent_commit_id"]
        if parent is None:
            if place < len(columns) - 1:
                yield _join_line(len(columns), place, place), None
            del columns[place]
            continue
        columns[place] = parent
        if merged is not None:
            yield _split_line(len(columns), place), None
            columns.insert(place + 1, merged)


def _join_line(count: int, place: int, last: int) -> str:
    """Draw column `last` going into column `place`, and those to its right moving up."""
    line = [" "] * (2 * count)
    for index in range(count):
        if index < last:
            line[2 * index] = "|"
        elif index > 0 and (index > last or last != place):
            line[2 * index - 1] = "/"
        if place <= index < last - 1:
            line[2 * index + 1] = "_"
    return "".join(line).rstrip()


def _split_line(count: int, place: int) -> str:
    """Draw a new column to the right of a merge, and those further right making room."""
    line = [" "] * (2 * count + 1)
    for index in range(count):
        if index <= place:
            line[2 * index] = "|"
        if index >= place:
            line[2 * index + 1] = "\\"
    return "".join(line).rstrip()
