"""`omnigraph revert` and `omnigraph cherry-pick`: the change of one commit, backwards or forwards."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.merge import decided, opened, report
from omnigraph.cli.options import Actor, Branch, DryRun, Json, Quiet, ResolutionFile, Store
from omnigraph.cli.target import address

CommitId = Annotated[str, typer.Argument(metavar="ID", help="The commit, or a tag that names it.")]


def revert(
    commit_id: CommitId,
    store: Store = None,
    branch: Branch = "main",
    dry_run: DryRun = False,
    resolutions: ResolutionFile = None,
    actor: Actor = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:
    given = decided(resolutions)
    with opened("revert", store, actor, dry_run=dry_run, quiet=quiet) as graph:
        return report(
            graph,
            f"revert of {commit_id} on {branch}",
            ("revert", commit_id, "--branch", branch, "--store", address(None, store)),
            lambda: graph.revert(commit_id, branch, dry_run=dry_run, resolutions=given),
            as_json=as_json,
        )


def cherry_pick(
    commit_id: CommitId,
    store: Store = None,
    branch: Branch = "main",
    dry_run: DryRun = False,
    resolutions: ResolutionFile = None,
    actor: Actor = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:
    given = decided(resolutions)
    with opened("cherry-pick", store, actor, dry_run=dry_run, quiet=quiet) as graph:
        return report(
            graph,
            f"cherry-pick of {commit_id} onto {branch}",
            ("cherry-pick", commit_id, "--branch", branch, "--store", address(None, store)),
            lambda: graph.cherry_pick(commit_id, branch, dry_run=dry_run, resolutions=given),
            as_json=as_json,
        )
