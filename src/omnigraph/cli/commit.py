"""`omnigraph commit …`: history, and what one commit of it changed."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.bind import Reads, ReadsUri
from omnigraph.cli.changetext import block_lines
from omnigraph.cli.describe import commits_of
from omnigraph.cli.formats import plain, table, when
from omnigraph.cli.options import Json, Kinds, Limit, Names, Naming, Ops, PageToken, ReadBranch, Types
from omnigraph.cli.output import print_json
from omnigraph.cli.terminal import echo
from omnigraph.limits import CHANGE_PAGE_CHANGES

CommitId = Annotated[str, typer.Argument(metavar="ID", help="The commit.")]


CommitsMax = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="The most commits to list.")]
Before = Annotated[
    str | None, typer.Option("--before", metavar="ID", help="List those before this commit: the next page.")
]


def list_commits(
    target: ReadsUri,
    branch: ReadBranch = None,
    limit: CommitsMax = None,
    before: Before = None,
    as_json: Json = False,
) -> int:
    with target.open_to_read() as graph:
        commits = commits_of(graph, graph.commits(branch or "main", limit=limit, before=before))
    if as_json:
        print_json({"commits": commits})
        return 0
    shown = ("graph_commit_id", "kind", "graph_branch", "actor_id", "created_at")
    rows = ([when(one[name]) if name == "created_at" else one[name] for name in shown] for one in commits)
    for line in table(["commit", "kind", "branch", "actor", "created"], rows):
        echo(line)
    return 0


def show(target: Reads, commit_id: CommitId, as_json: Json = False) -> int:
    with target.open_to_read() as graph:
        [found] = commits_of(graph, [graph.commit(commit_id)])
    if as_json:
        print_json(found)
        return 0
    width = max(map(len, found))
    for name, value in found.items():
        echo(f"{name:<{width}}  {when(value) if name == 'created_at' else plain(value)}")
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
    # Whoever asks for a page gets one page; a person who asks for a commit gets all of it.
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
