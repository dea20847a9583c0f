"""`omnigraph changes …`: the feed of a branch, and the baseline to begin with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.bind import ReadsUri
from omnigraph.cli.changetext import block_lines
from omnigraph.cli.options import Json, Kinds, Limit, Ops, PageToken, ReadBranch, Types
from omnigraph.cli.output import print_json
from omnigraph.cli.terminal import echo
from omnigraph.cli.whole import write_whole
from omnigraph.limits import CHANGE_PAGE_CHANGES, FEED_COMMITS

Cursor = Annotated[str | None, typer.Option("--cursor", metavar="CURSOR", help="Go on after this position.")]
Start = Annotated[
    str | None, typer.Option("--start", metavar="PLACE", help="`now`, `beginning` or `after:COMMIT`; `now` if unset.")
]
CommitsMax = Annotated[int, typer.Option("--max-commits", metavar="N", help="Most commits to walk in this poll.")]
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write; it appears only when whole.")]


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
    commits_max: CommitsMax = FEED_COMMITS,
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
        write_whole(out, records(graph.baseline(branch or "main", kinds=kinds, types=types, ops=ops)))
    found = json.loads(handshake)["baseline"]
    if as_json:
        print_json({"path": str(out), **found})
    else:
        echo(f"{branch or 'main'} at commit {found['snapshot_commit_id']} is in {out}")
        echo(f"cursor {found['resume_cursor']}")
    return 0
