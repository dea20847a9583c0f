"""`omnigraph branch …`, `tag …`, `revert` and `cherry-pick`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from omnigraph.cli.app import Destroys, ReadsUri, Writes
from omnigraph.cli.load import Engine, Master, Where
from omnigraph.cli.options import Branch, DryRun, Json, ReadBranch, ResolutionFile
from omnigraph.cli.output import echo, echo_styled, format_time, plural, print_json, table
from omnigraph.errors import MergeConflict, UsageError
from omnigraph.limits import MERGE_CONFLICTS_SHOWN

if TYPE_CHECKING:
    from omnigraph.cli.target import Target
    from omnigraph.client import Graph as ServedGraph
    from omnigraph.graph import Graph
    from omnigraph.pipeline.spark.executors import Engine as EngineName
    from omnigraph.public_values import MergeReceipt


BranchName = Annotated[str, typer.Argument(metavar="NAME", help="The branch.")]
NewName = Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")]
From = Annotated[str, typer.Option("--from", metavar="NAME", help="Branch, commit or tag to start from.")]


def create_branch(
    target: Writes,
    name: BranchName,
    from_: From = "main",
    as_json: Json = False,
) -> int:
    target.announce()
    with target.open_to_write() as graph:
        branch = graph.branches.create(name, from_)
    if as_json:
        print_json({"uri": graph.uri, "from": from_, "name": branch.name, "actor_id": branch.actor})
    else:
        echo(f"branch {branch.name} starts where {from_} is")
    return 0


def list_branches(target: ReadsUri, as_json: Json = False) -> int:
    with target.open_to_read() as graph:
        names = graph.branches.list()
    if as_json:
        print_json({"branches": names})
    else:
        echo("\n".join(names))
    return 0


def rename(
    target: Writes,
    name: BranchName,
    new_name: NewName,
    as_json: Json = False,
) -> int:
    target.announce()
    with target.open_to_write() as graph:
        branch = graph.branches.rename(name, new_name)
    if as_json:
        print_json({"uri": graph.uri, "from": name.strip(), "name": branch.name, "actor_id": branch.actor})
    else:
        echo(f"branch {name.strip()} is now {branch.name}")
    return 0


def delete_branch(
    target: Destroys,
    name: BranchName,
    as_json: Json = False,
) -> int:
    target.announce()
    target.confirm(f"deleting branch `{name}`", as_json=as_json)
    with target.open_to_write() as graph:
        graph.branches.delete(name)
    if as_json:
        print_json({"uri": graph.uri, "name": name, **target.actor_json})
    else:
        echo(f"branch {name} is gone")
    return 0


Source = Annotated[str, typer.Argument(metavar="SOURCE", help="Branch to merge.")]
Into = Annotated[str, typer.Option("--into", metavar="NAME", help="Branch to merge into.")]
DeleteBranch = Annotated[bool, typer.Option("--delete-branch", help="Delete the source after the merge.")]


def merge(
    target: Writes,
    source: Source,
    into: Into = "main",
    delete_branch: DeleteBranch = False,
    dry_run: DryRun = False,
    resolutions: ResolutionFile = None,
    engine: Where = Engine.AUTO,
    master: Master = None,
    as_json: Json = False,
) -> int:
    on: EngineName = engine.value
    decisions = read_resolutions(resolutions)
    is_here = target.is_served or dry_run
    if is_here and (engine is Engine.SPARK or master is not None):
        raise UsageError("a dry run, and a merge by a server, run in one process; leave out `--engine` and `--master`")
    what, command = f"merge of {source} into {into}", ("branch", "merge", source, "--into", into, *target.words)
    if is_here or engine is Engine.LOCAL:
        with open_graph_for(target, dry_run=dry_run) as graph:
            merge = graph.branches.merge
            return run_and_report(
                graph,
                what,
                command,
                lambda: merge(source, into, delete_branch=delete_branch, dry_run=dry_run, resolutions=decisions),
                as_json=as_json,
            )
    from omnigraph import pipeline

    target.announce()
    with target.store_to_write() as stored:
        run = partial(
            pipeline.merge,
            stored,
            source,
            into,
            delete_branch=delete_branch,
            resolutions=decisions,
            engine=on,
            master=master,
        )
        return run_and_report(stored, what, command, run, as_json=as_json)


def read_resolutions(file: Path | None) -> Path | bytes | None:
    """Return the resolutions as the engine accepts them; `-` reads standard input."""
    return sys.stdin.buffer.read() if str(file) == "-" else file


def open_graph_for(target: Target, *, dry_run: bool) -> Graph | ServedGraph:
    """Open a graph for a write, or read-only for a dry run."""
    if dry_run:
        return target.open_to_read()
    target.announce()
    return target.open_to_write()


def run_and_report(
    graph: Graph | ServedGraph, what: str, command: Sequence[str], run: Callable[[], MergeReceipt], *, as_json: bool
) -> int:
    """Run a merge, revert or cherry-pick, print its receipt, and return the exit status: 1 with conflicts."""
    try:
        receipt = run()
    except MergeConflict as error:
        conflicts = error.context["conflicts"]
        if as_json or not isinstance(conflicts, list):
            raise
        count = plural(len(conflicts), "conflict")
        echo_styled(f"error[{error.code}]", "red", f": the {what} has {count}, and nothing was changed")
        for line in (*conflict_lines(conflicts), *_conflict_hints(command)):
            echo(line, err=True)
        return error.kind.exit_status
    status = 1 if receipt.conflicts else 0
    if as_json:
        print_json({"uri": graph.uri, **receipt.to_json()})
        return status
    for line in (*_receipt_lines(what, receipt), *(_conflict_hints(command) if receipt.conflicts else ())):
        echo(line)
    if receipt.branch_delete_error is not None:
        echo(f"warning: {receipt.source} was not deleted: {receipt.branch_delete_error}", err=True)
    return status


def conflict_lines(conflicts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield conflicts by kind, with the first few of each.

    >>> list(conflict_lines([{"kind": "OrphanEdge", "message": "`k1` of `Knows`: `ann` is gone"}]))
    ['1 OrphanEdge', '  `k1` of `Knows`: `ann` is gone']
    """
    by_kind: dict[str, list[str]] = {}
    for conflict in conflicts:
        by_kind.setdefault(conflict["kind"], []).append(conflict["message"])
    for kind, messages in by_kind.items():
        yield f"{len(messages)} {kind}"
        yield from (f"  {message}" for message in messages[:MERGE_CONFLICTS_SHOWN])
        if len(messages) > MERGE_CONFLICTS_SHOWN:
            yield f"  and {len(messages) - MERGE_CONFLICTS_SHOWN} more"


def _receipt_lines(what: str, receipt: MergeReceipt) -> Iterator[str]:
    for item in receipt.types:
        counts = f"{item.inserted} inserted, {item.updated} updated, {item.deleted} deleted"
        yield f"{item.type_key.replace(':', ' ')}: {counts}"
    outcome = "done" if receipt.outcome == "merged" else receipt.outcome.value.replace("_", " ")
    if receipt.conflicts:
        yield f"the {what} would have {plural(len(receipt.conflicts), 'conflict')}"
        yield from conflict_lines([item.to_json() for item in receipt.conflicts])
    elif receipt.commit is not None:
        yield f"{what}: {outcome}, commit {receipt.commit.commit_id}"
    else:
        yield f"{what}{', if it were run now' if receipt.dry_run else ''}: {outcome}"
    if receipt.branch_deleted:
        yield f"branch {receipt.source} is gone"


def _conflict_hints(command: Sequence[str]) -> Iterator[str]:
    yield f"see both sides of each: omnigraph {shlex.join(command)} --dry-run --json"
    yield 'decide in a file for --resolutions, one a line: {"type_key": …, "entity_id": …, "take": "ours" or "theirs"}'


CommitId = Annotated[str, typer.Argument(metavar="ID", help="The commit, or a tag that names it.")]


def revert(
    target: Writes,
    commit_id: CommitId,
    branch: Branch = "main",
    dry_run: DryRun = False,
    resolutions: ResolutionFile = None,
    as_json: Json = False,
) -> int:
    return _replay("revert", target, commit_id, branch, dry_run, resolutions, as_json)


def cherry_pick(
    target: Writes,
    commit_id: CommitId,
    branch: Branch = "main",
    dry_run: DryRun = False,
    resolutions: ResolutionFile = None,
    as_json: Json = False,
) -> int:
    return _replay("cherry-pick", target, commit_id, branch, dry_run, resolutions, as_json)


def _replay(
    command: Literal["revert", "cherry-pick"],
    target: Target,
    commit_id: str,
    branch: str,
    dry_run: bool,
    resolutions: Path | None,
    as_json: bool,
) -> int:
    decisions = read_resolutions(resolutions)
    what = f"{command} of {commit_id} {'on' if command == 'revert' else 'onto'} {branch}"
    words = (command, commit_id, "--branch", branch, *target.words)
    with open_graph_for(target, dry_run=dry_run) as graph:
        replay = graph.revert if command == "revert" else graph.cherry_pick
        run = partial(replay, commit_id, branch, dry_run=dry_run, resolutions=decisions)
        return run_and_report(graph, what, words, run, as_json=as_json)


TagName = Annotated[str, typer.Argument(metavar="NAME", help="The tag.")]
At = Annotated[str | None, typer.Option("--at", metavar="ID", help="Commit to tag; default the newest.")]


def create_tag(
    target: Writes,
    name: TagName,
    at: At = None,
    branch: ReadBranch = None,
    as_json: Json = False,
) -> int:
    target.announce()
    with target.open_to_write() as graph:
        tag = graph.tags.create(name, at, branch=branch or "main")
    if as_json:
        print_json({"uri": graph.uri, **tag.to_json()})
    else:
        echo(f"tag {tag.name} names commit {tag.commit_id}")
    return 0


def list_tags(target: ReadsUri, as_json: Json = False) -> int:
    with target.open_to_read() as graph:
        tags = graph.tags.list()
    if as_json:
        print_json({"tags": [tag.to_json() for tag in tags]})
        return 0
    rows = ([tag.name, tag.commit_id, tag.actor, format_time(tag.created_at_us)] for tag in tags)
    for line in table(["tag", "commit", "actor", "created"], rows):
        echo(line)
    return 0


def delete_tag(target: Writes, name: TagName, as_json: Json = False) -> int:
    target.announce()
    with target.open_to_write() as graph:
        graph.tags.delete(name)
    if as_json:
        print_json({"uri": graph.uri, "name": name.strip(), **target.actor_json})
    else:
        echo(f"tag {name.strip()} is gone")
    return 0
