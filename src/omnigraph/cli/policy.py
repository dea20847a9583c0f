"""`omnigraph policy …`: validate, test and query policy bundles."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import Json
from omnigraph.cli.output import echo, plural, print_json, table

if TYPE_CHECKING:
    from omnigraph.policy import Policy


class Scope(StrEnum):
    """What a bundle applies to."""

    GRAPH = "graph"
    SERVER = "server"


Bundle = Annotated[Path, typer.Argument(metavar="BUNDLE", help="The bundle, a YAML file.")]
For = Annotated[Scope, typer.Option("--for", help="Kind of bundle: graph or server.")]
Tests = Annotated[Path, typer.Option("--tests", metavar="FILE", help="Test cases with their expected decisions.")]
Actor = Annotated[str, typer.Option("--actor", metavar="NAME", help="Actor to decide for.")]
Action = Annotated[str, typer.Option("--action", metavar="ACTION", help="Action to decide on.")]
Branch = Annotated[str | None, typer.Option("--branch", metavar="NAME", help="Branch that is read or written.")]
Target = Annotated[
    str | None,
    typer.Option("--target-branch", metavar="NAME", help="Branch that is created, deleted or merged into."),
]


def validate(bundle: Bundle, scope: For = Scope.GRAPH, as_json: Json = False) -> int:
    policy = _load(bundle, scope)
    actors, rules = len(policy.bundle.actors), len(policy.bundle.rules)
    if as_json:
        print_json({"bundle": str(bundle), "ok": True, "actors": actors, "rules": rules})
    else:
        echo(f"{bundle}: {plural(actors, 'actor')}, {plural(rules, 'rule')}: ok")
    return 0


def run_tests(bundle: Bundle, tests: Tests, scope: For = Scope.GRAPH, as_json: Json = False) -> int:
    from omnigraph.policy import load_cases, run_cases

    outcomes = run_cases(_load(bundle, scope), load_cases(tests))
    failed = [outcome for outcome in outcomes if not outcome.passed]
    if as_json:
        print_json({"ok": not failed, "cases": [outcome.to_json() for outcome in outcomes]})
    else:
        rows = (
            [outcome.case.id, "ok" if outcome.passed else "failed", outcome.decision.message]
            for outcome in (failed or outcomes)
        )
        for line in table(["case", "result", "decision"], rows):
            echo(line)
        echo(f"{plural(len(outcomes), 'case')}, {len(failed)} failed")
    return 1 if failed else 0


def explain(
    bundle: Bundle,
    actor: Actor,
    action: Action,
    branch: Branch = None,
    target_branch: Target = None,
    scope: For = Scope.GRAPH,
    as_json: Json = False,
) -> int:
    decision = _load(bundle, scope).decide(actor, action, branch=branch, target=target_branch)
    if as_json:
        print_json(decision.to_json())
    else:
        echo(f"{'allow' if decision.allowed else 'deny'}: {decision.message}")
    return 0


def _load(bundle: Path, scope: Scope) -> Policy:
    # Cedar is imported here so that `--help` and `version` do not pay for it.
    from omnigraph.policy import load_bundle

    return load_bundle(bundle, scope=scope.value)
