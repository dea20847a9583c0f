"""`omnigraph revert` and `omnigraph cherry-pick`: the change of one commit, backwards or forwards."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.bind import Writes
from omnigraph.cli.merge import decided, opened, report
from omnigraph.cli.options import Branch, DryRun, Json, ResolutionFile

CommitId = Annotated[str, typer.Argument(metavar="ID", help="The commit, or a tag that names it.")]


def revert(
    target: Writes,
    commit_id: CommitId,
    branch: Branch = "main",
    dry_run: DryRun = False,
    resolutions: ResolutionFile = None,
    as_json: Json = False,
) -> int:
    given = decided(resolutions)
    with opened(target, dry_run=dry_run) as graph:
        return report(
            graph,
            f"revert of {commit_id} on {branch}",
            ("revert", commit_id, "--branch", branch, *target.words),
            lambda: graph.revert(commit_id, branch, dry_run=dry_run, resolutions=given),
            as_json=as_json,
        )


def cherry_pick(
    target: Writes,
    commit_id: CommitId,
    branch: Branch = "main",
    dry_run: DryRun = False,
    resolutions: ResolutionFile = None,
    as_json: Json = False,
) -> int:
    given = decided(resolutions)
    with opened(target, dry_run=dry_run) as graph:
        return report(
            graph,
            f"cherry-pick of {commit_id} onto {branch}",
            ("cherry-pick", commit_id, "--branch", branch, *target.words),
            lambda: graph.cherry_pick(commit_id, branch, dry_run=dry_run, resolutions=given),
            as_json=as_json,
        )
