"""`omnigraph commit …`, `diff` and `changes …`: history, differences and the change feed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.cli.app import Reads, ReadsUri
from omnigraph.cli.atomic_file import write_atomically
from omnigraph.cli.options import Json, Kinds, Limit, Names, Naming, Ops, PageToken, ReadBranch, Types
from omnigraph.cli.output import echo, format_time, format_value, plural, print_json, table, truncate
from omnigraph.limits import CHANGE_PAGE_CHANGES, FEED_COMMITS


def block_lines(block: Mapping[str, Any], *, is_continued: bool = False) -> Iterator[str]:
    """Yield the line of a commit, unless an earlier page had it, and one line per change."""
    if not is_continued:
        cause = block["cause"]
        actor = f" by {cause['actor_id']}" if "actor_id" in cause else ""
        position = f"on {cause['authored_branch']} at {format_time(cause['authored_at'])}"
        yield f"commit {cause['graph_commit_id']}{actor} {position}"
    yield from (f"  {change_line(change)}" for change in block["changes"])


def change_line(change: Mapping[str, Any]) -> str:
    """Return one change as a line: what an insert brings, and what an update changes.

    >>> before, after = {"properties": {"age": 40, "name": "ann"}}, {"properties": {"age": 41, "name": "ann"}}
    >>> change = {"kind": "node", "type": {"id": "t1", "name": "Person"}, "id": "ann", "op": "update"}
    >>> change_line({**change, "before": before, "after": after})
    'update node Person ann: age 40 → 41'
    """
    before, after = change.get("before"), change.get("after")
    image = after or before
    assert image is not None, "a change has a state before it or after it"
    ends = image.get("endpoints")
    line = f"{change['op']} {change['kind']} {change['type']['name']} {change['id']}"
    if ends is not None:
        line += f" ({ends['from']} → {ends['to']})"
    values = _updated_values(before, after) if before and after else _inserted_values(after)
    return f"{line}: {', '.join(values)}" if values else line


def _inserted_values(after: Mapping[str, Any] | None) -> list[str]:
    members = after["properties"].items() if after else ()
    return [f"{name} {_value(value)}" for name, value in members if value is not None]


def _updated_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    old, new = _values(before), _values(after)
    # A commit that changed the shape of a type has no images, so both have the same members.
    return [f"{name} {_value(old[name])} → {_value(new[name])}" for name in new if old[name] != new[name]]


def _values(image: Mapping[str, Any]) -> dict[str, Any]:
    return {**image.get("endpoints", {}), **image["properties"]}


def _value(value: object) -> str:
    return truncate(json.dumps(value, ensure_ascii=False))


CommitId = Annotated[str, typer.Argument(metavar="ID", help="The commit.")]


CommitsMax = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Maximum number of commits.")]
Before = Annotated[
    str | None, typer.Option("--before", metavar="ID", help="List commits before this one: the next page.")
]


def list_commits(
    target: ReadsUri,
    branch: ReadBranch = None,
    limit: CommitsMax = None,
    before: Before = None,
    as_json: Json = False,
) -> int:
    with target.open_to_read() as graph:
        commits = [commit.to_json() for commit in graph.commits(branch or "main", limit=limit, before=before)]
    if as_json:
        print_json({"commits": commits})
        return 0
    shown = ("graph_commit_id", "kind", "graph_branch", "actor_id", "created_at")
    rows = (
        [format_time(commit[name]) if name == "created_at" else commit[name] for name in shown] for commit in commits
    )
    for line in table(["commit", "kind", "branch", "actor", "created"], rows):
        echo(line)
    return 0


def show(target: Reads, commit_id: CommitId, as_json: Json = False) -> int:
    with target.open_to_read() as graph:
        commit = graph.commit(commit_id).to_json()
    if as_json:
        print_json(commit)
        return 0
    width = max(map(len, commit))
    for name, value in commit.items():
        echo(f"{name:<{width}}  {format_time(value) if name == 'created_at' else format_value(value)}")
    return 0


def changes(
    target: Reads,
    commit_id: CommitId,
    kinds: Kinds = None,
    types: Types = None,
    ops: Ops = None,
    limit: Limit = None,
    page_token: PageToken = None,
    names: Names = Naming.NOW,
    as_json: Json = False,
) -> int:
    # With paging options or JSON output return one page, otherwise the whole commit.
    is_one_page = as_json or limit is not None or page_token is not None
    size = CHANGE_PAGE_CHANGES if limit is None else limit
    is_begun = False
    with target.open_to_read() as graph:
        while True:
            page = graph.commit_changes(
                commit_id,
                kinds=kinds,
                types=types,
                ops=ops,
                limit=size,
                page_token=page_token,
                names=names.value,
            )
            if as_json:
                print_json(page.to_json())
                return 0
            for line in block_lines(page.block.to_json(), is_continued=is_begun):
                echo(line)
            is_begun, page_token = True, page.next_page_token
            if is_one_page or page_token is None:
                break
    if page_token is not None:
        echo(f"page token {page_token}")
    return 0


A = Annotated[str, typer.Argument(metavar="A", help="A branch, tag or commit.")]
B = Annotated[str, typer.Argument(metavar="B", help="Branch, tag or commit to compare with.")]


def diff(
    target: Reads,
    a: A,
    b: B,
    kinds: Kinds = None,
    types: Types = None,
    ops: Ops = None,
    names: Names = Naming.NOW,
    as_json: Json = False,
) -> int:
    with target.open_to_read() as graph:
        difference = graph.diff(a, b, kinds=kinds, types=types, ops=ops, names=names.value)
    if as_json:
        print_json(difference.to_json())
        return 0
    changes = difference.changes.select(["op", "kind", "type_name", "id", "from", "to"]).to_pylist()
    if changes:
        rows = (["" if value is None else value for value in row.values()] for row in changes)
        for line in table(["op", "kind", "type", "id", "from", "to"], rows):
            echo(line)
    stats = difference.stats()
    counts = ", ".join(plural(stats[f"{op}s"], op) for op in ("insert", "update", "delete"))
    echo(f"{counts} in {plural(stats['types_affected'], 'type')}")
    return 0


Cursor = Annotated[str | None, typer.Option("--cursor", metavar="CURSOR", help="Continue after this cursor.")]
Start = Annotated[
    str | None, typer.Option("--start", metavar="PLACE", help="`now`, `beginning` or `after:COMMIT`; default `now`.")
]
FeedCommitsMax = Annotated[int, typer.Option("--max-commits", metavar="N", help="Maximum number of commits to read.")]
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="Output file; written atomically.")]


def poll(
    target: ReadsUri,
    branch: ReadBranch = None,
    start: Start = None,
    cursor: Cursor = None,
    page_token: PageToken = None,
    kinds: Kinds = None,
    types: Types = None,
    ops: Ops = None,
    limit: Limit = None,
    commits_max: FeedCommitsMax = FEED_COMMITS,
    as_json: Json = False,
) -> int:
    is_one_page = as_json or limit is not None or page_token is not None
    size = CHANGE_PAGE_CHANGES if limit is None else limit
    shown: str | None = None
    with target.open_to_read() as graph:
        while True:
            page = graph.changes(
                branch or "main",
                start=start,
                cursor=cursor,
                page_token=page_token,
                kinds=kinds,
                types=types,
                ops=ops,
                limit=size,
                commits_max=commits_max,
            )
            if as_json:
                print_json(page.to_json())
                return 0
            for block in page.blocks:
                commit_id = str(block.cause["graph_commit_id"])
                for line in block_lines(block.to_json(), is_continued=commit_id == shown):
                    echo(line)
                shown = commit_id
            start, cursor, page_token = None, None, page.next_page_token
            if is_one_page or page_token is None:
                break
    if page.cursor is None:
        echo(f"page token {page_token}")
    else:
        echo(f"cursor {page.cursor}")
        echo("caught up" if page.caught_up else "more is there: poll again with this cursor")
    return 0


def baseline(
    target: ReadsUri,
    out: Out,
    branch: ReadBranch = None,
    kinds: Kinds = None,
    types: Types = None,
    ops: Ops = None,
    as_json: Json = False,
) -> int:
    handshake = b""

    def records(stream: Iterator[bytes]) -> Iterator[bytes]:
        # The last record says where the feed goes on. It is no entity, so the file is one that an ingest takes.
        nonlocal handshake
        for chunk in stream:
            if handshake:
                yield handshake
            handshake = chunk

    with target.open_to_read() as graph:
        write_atomically(out, records(graph.baseline(branch or "main", kinds=kinds, types=types, ops=ops)))
    position = json.loads(handshake)["baseline"]
    if as_json:
        print_json({"path": str(out), **position})
    else:
        echo(f"{branch or 'main'} at commit {position['snapshot_commit_id']} is in {out}")
        echo(f"cursor {position['resume_cursor']}")
    return 0
