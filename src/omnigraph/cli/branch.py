"""`omnigraph branch …`, `tag …`, `revert` and `cherry-pick`: change branches and tags, merge and replay commits."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from omnigraph.cli.app import Destroys, Reads, Writes
from omnigraph.cli.history_output import (
    SCHEMA_KINDS,
    conflict_lines,
    date_properties,
    readable_conflict,
    resolve_conflicts,
    shorten_ids,
)
from omnigraph.cli.options import (
    Branch,
    CommitId,
    DryRun,
    Json,
    Master,
    Message,
    OptionGroup,
    ReadBranch,
    Where,
    argument,
    option,
    switch,
)
from omnigraph.cli.output import Output, echo, echo_lines, echo_styled, format_time, plural, print_json, table
from omnigraph.errors import MergeConflict, PolicyDenied, UsageError
from omnigraph.limits import MERGE_CONFLICTS_MAX

if TYPE_CHECKING:
    from omnigraph.cli.target import Target
    from omnigraph.client import Graph as ServedGraph
    from omnigraph.engine.merge.conflicts import ResolutionsInput
    from omnigraph.graph import Graph
    from omnigraph.public_values import Commit, MergeReceipt


BranchName = Annotated[str, argument("NAME", "Name of the branch.")]
NewName = Annotated[str, argument("NEW", "New name of the branch.")]
From = Annotated[str, option("--from", "NAME", "Branch, commit or tag to start from.")]
StartAt = Annotated[str | None, option("--at", "ID", "Start at this commit, tag, `HEAD~1` or time.")]


def create_branch(target: Writes, name: BranchName, from_: From = "main", at: StartAt = None) -> Output:
    target.announce()
    with target.open_to_write() as graph:
        branch = graph.branches.create(name, from_, at=at)
    line = f"branch {branch.name} starts {f'at {at}' if at is not None else f'where {from_} is'}"
    return Output({"uri": graph.uri, "from": from_, "name": branch.name, "actor_id": branch.actor}, [line])


def list_branches(target: Reads) -> Output:
    with target.open_to_read() as graph:
        names = graph.branches.list()
        heads = {name: commit for name in names if (commit := _head(graph, name)) is not None}
    listed = [
        {"name": name, "graph_commit_id": c.commit_id, "created_at": c.created_at_us} for name, c in heads.items()
    ]
    ids = shorten_ids([commit.commit_id for commit in heads.values()])
    rows = (
        [name, ids[heads[name].commit_id], format_time(heads[name].created_at_us)] if name in heads else [name, "", ""]
        for name in names
    )
    return Output({"branches": names, "heads": listed}, table(["branch", "head", "changed"], rows))


def _head(graph: Graph | ServedGraph, branch: str) -> Commit | None:
    # A branch may be listed for an actor who may not read it.
    with suppress(PolicyDenied):
        commits: Sequence[Commit] = graph.commits(branch, limit=1)
        return commits[0]
    return None


def rename(target: Writes, name: BranchName, new_name: NewName) -> Output:
    target.announce()
    with target.open_to_write() as graph:
        branch = graph.branches.rename(name, new_name)
    document = {"uri": graph.uri, "from": name.strip(), "name": branch.name, "actor_id": branch.actor}
    return Output(document, [f"branch {name.strip()} is now {branch.name}"])


def delete_branch(target: Destroys, name: BranchName) -> Output:
    target.announce()
    target.confirm(f"deleting branch `{name}`")
    with target.open_to_write() as graph:
        graph.branches.delete(name)
    return Output({"uri": graph.uri, "name": name, **target.actor_json}, [f"deleted branch {name}"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionOptions(OptionGroup):
    """How conflicts are resolved: by a file, for all alike, and one by one."""

    resolutions: Annotated[
        Path | None, option("--resolutions", "FILE", "File with conflict resolutions; `-` reads standard input.")
    ] = None
    ours: Annotated[bool, switch("--ours", "Resolve conflicts with the values of the branch that is written.")] = False
    theirs: Annotated[bool, switch("--theirs", "Resolve conflicts with the values that are brought in.")] = False
    take: Annotated[
        list[str] | None,
        option(
            "--take",
            "TYPE[:ID][.PROPERTY]=SIDE",
            "Resolve one conflict, of a schema without an id: ours or theirs; repeatable.",
        ),
    ] = None

    def resolutions_for(self, target: Target, run_dry: Callable[[Any, Any], MergeReceipt]) -> ResolutionsInput:
        """Return the resolutions of the file, and those of the other options for conflicts that a dry run finds."""
        from omnigraph.engine.merge.conflicts import resolution_objects

        if self.ours and self.theirs:
            raise UsageError("`--ours` and `--theirs` contradict each other; give one of them")
        side = "ours" if self.ours else "theirs" if self.theirs else None
        decisions = sys.stdin.buffer.read() if str(self.resolutions) == "-" else self.resolutions
        takes = self.take or ()
        if side is None and not takes:
            return decisions
        # `TYPE:ID` is an entity, `TYPE` alone the schema, whose conflicts come first.
        of_schema = {text for text in takes if ":" not in text.rpartition("=")[0]}
        resolutions, settled = resolution_objects(decisions), set[str]()
        with target.open_to_read() as graph:
            while True:
                conflicts = [item.to_json() for item in run_dry(graph, resolutions).conflicts]
                is_schema = any(conflict["kind"] in SCHEMA_KINDS for conflict in conflicts)
                open_takes = [text for text in takes if text not in settled and (text in of_schema or not is_schema)]
                settled |= of_schema if is_schema else set()
                new_resolutions = [
                    item for item in resolve_conflicts(conflicts, side, open_takes) if item not in resolutions
                ]
                resolutions = [*resolutions, *new_resolutions]
                # A dry run that stops at so many conflicts has not found the others.
                if not new_resolutions or not (is_schema or len(conflicts) >= MERGE_CONFLICTS_MAX):
                    return resolutions


def merge(
    target: Writes,
    source: Annotated[str, argument("SOURCE", "Branch to merge.")],
    into: Annotated[str, option("--into", "NAME", "Branch to merge into.")] = "main",
    delete_branch: Annotated[bool, switch("--delete-branch", "Delete the source after the merge.")] = False,
    dry_run: DryRun = False,
    *,
    options: ResolutionOptions,
    message: Message = None,
    engine: Where = "auto",
    master: Master = None,
    as_json: Json = False,
) -> int:
    decisions = options.resolutions_for(
        target, lambda graph, decided: graph.branches.merge(source, into, dry_run=True, resolutions=decided)
    )
    is_in_process = target.is_served or dry_run
    if is_in_process and (engine == "spark" or master is not None):
        raise UsageError("dry runs and merges on a server run in process; leave out `--engine` and `--master`")
    operation, command = f"merge of {source} into {into}", ("branch", "merge", source, "--into", into, *target.words)
    with open_graph_for(target, dry_run=dry_run) as graph:
        if is_in_process or engine == "local":
            run = partial(graph.branches.merge, source, into, dry_run=dry_run)
        else:
            from omnigraph import pipeline
            from omnigraph.graph import Graph

            assert isinstance(graph, Graph), "a graph that is not served is on storage"
            run = partial(pipeline.merge, graph, source, into, engine=engine, master=master)
        merge = partial(run, delete_branch=delete_branch, resolutions=decisions, message=message)
        return run_and_report(graph, operation, command, merge, as_json=as_json)


def open_graph_for(target: Target, *, dry_run: bool) -> Graph | ServedGraph:
    """Open a graph for a write, or read-only for a dry run."""
    if dry_run:
        return target.open_to_read()
    target.announce()
    return target.open_to_write()


def run_and_report(
    graph: Graph | ServedGraph,
    operation: str,
    command: Sequence[str],
    run: Callable[[], MergeReceipt],
    *,
    as_json: bool,
) -> int:
    """Run a merge, revert or cherry-pick, print its receipt, and return the exit status: 1 with conflicts."""
    try:
        receipt = run()
    except MergeConflict as error:
        conflicts = error.context["conflicts"]
        if as_json or not isinstance(conflicts, list):
            raise
        count = plural(len(conflicts), "conflict")
        echo_styled(f"error[{error.code}]", "red", f": the {operation} has {count}, and nothing was changed")
        shown = _readable(graph, conflicts)
        echo_lines((*conflict_lines(shown), *_conflict_hints(command, conflicts)), err=True)
        return error.kind.exit_status
    status = 1 if receipt.conflicts else 0
    if as_json:
        print_json({"uri": graph.uri, **receipt.to_json()})
        return status
    conflicts = _readable(graph, [item.to_json() for item in receipt.conflicts])
    echo_lines(_receipt_lines(operation, receipt, conflicts))
    if conflicts:
        echo_lines(_conflict_hints(command, conflicts))
    if receipt.branch_delete_error is not None:
        echo(f"warning: {receipt.source} was not deleted: {receipt.branch_delete_error}", err=True)
    return status


def _readable(graph: Graph | ServedGraph, conflicts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    dates = date_properties(graph) if conflicts else {}
    return [readable_conflict(conflict, dates) for conflict in conflicts]


def _receipt_lines(operation: str, receipt: MergeReceipt, conflicts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from receipt.schema_changes or ()
    for item in receipt.types:
        counts = f"{item.inserted} inserted, {item.updated} updated, {item.deleted} deleted"
        yield f"{item.type_key.kind} {item.type_key.name}: {counts}"
    outcome = "done" if receipt.outcome == "merged" else receipt.outcome.value.replace("_", " ")
    if receipt.conflicts:
        yield f"the {operation} would have {plural(len(receipt.conflicts), 'conflict')}"
        yield from conflict_lines(conflicts)
    elif receipt.commit is not None:
        yield f"{operation}: {outcome}, commit {receipt.commit.commit_id}"
    else:
        yield f"{operation}{', if it were run now' if receipt.dry_run else ''}: {outcome}"
    if receipt.branch_deleted:
        yield f"deleted branch {receipt.source}"


def _conflict_hints(command: Sequence[str], conflicts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if any(conflict["kind"] in SCHEMA_KINDS for conflict in conflicts):
        yield "resolve all with --ours or --theirs, or one with --take TYPE.PROPERTY=ours; or use --resolutions FILE"
        yield "or change the schema of a side: omnigraph schema apply --branch NAME --schema FILE, then try again"
        return
    yield f"all of both sides: omnigraph {shlex.join(command)} --dry-run --json"
    yield "resolve all with --ours or --theirs, or one with --take TYPE:ID.PROPERTY=ours; or use --resolutions FILE"


def replay(
    target: Writes,
    commit_id: CommitId,
    branch: Branch = "main",
    dry_run: DryRun = False,
    *,
    options: ResolutionOptions,
    message: Message = None,
    as_json: Json = False,
) -> int:
    """Run `revert` or `cherry-pick`, whichever the command is called."""
    command = target.command.removeprefix("omnigraph ")
    operation = f"{command} of {commit_id} {'on' if command == 'revert' else 'onto'} {branch}"
    words = (command, commit_id, "--branch", branch, *target.words)

    def run(graph: Any, decided: ResolutionsInput, *, dry_run: bool) -> MergeReceipt:
        method = graph.revert if command == "revert" else graph.cherry_pick
        receipt: MergeReceipt = method(commit_id, branch, dry_run=dry_run, resolutions=decided, message=message)
        return receipt

    decisions = options.resolutions_for(target, partial(run, dry_run=True))
    with open_graph_for(target, dry_run=dry_run) as graph:
        run_once = partial(run, graph, decisions, dry_run=dry_run)
        return run_and_report(graph, operation, words, run_once, as_json=as_json)


TagName = Annotated[str, argument("NAME", "The tag.")]
At = Annotated[str | None, option("--at", "ID", "State to tag: a commit, `HEAD~1` or a time; default the newest.")]


def create_tag(target: Writes, name: TagName, at: At = None, branch: ReadBranch = None) -> Output:
    target.announce()
    with target.open_to_write() as graph:
        tag = graph.tags.create(name, at, branch=branch or "main")
    return Output({"uri": graph.uri, **tag.to_json()}, [f"tag {tag.name} names commit {tag.commit_id}"])


def list_tags(target: Reads) -> Output:
    with target.open_to_read() as graph:
        tags = graph.tags.list()
    rows = ([tag.name, tag.commit_id, tag.actor, format_time(tag.created_at_us)] for tag in tags)
    return Output({"tags": [tag.to_json() for tag in tags]}, table(["tag", "commit", "actor", "created"], rows))


def delete_tag(target: Writes, name: TagName) -> Output:
    target.announce()
    with target.open_to_write() as graph:
        graph.tags.delete(name)
    return Output({"uri": graph.uri, "name": name.strip(), **target.actor_json}, [f"deleted tag {name.strip()}"])
