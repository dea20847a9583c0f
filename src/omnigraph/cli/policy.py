"""`omnigraph policy …`: validate and test policy bundles, and explain decisions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from omnigraph.cli.options import OfCluster, OptionGroup, argument, option, switch
from omnigraph.cli.output import Output, plural, table
from omnigraph.cli.target import open_ledger
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.policy import Policy


Scope = Literal["graph", "server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChoice(OptionGroup):
    """A bundle, or the policy that is applied to a graph of a cluster or to its server."""

    bundle: Annotated[Path | None, argument("BUNDLE", "The bundle, a YAML file; a cluster has its own.")] = None
    scope: Annotated[Scope, switch("--for", "Kind of bundle: graph or server.")] = "graph"
    cluster: OfCluster = None
    graph: Annotated[str | None, option("--graph", "ID", "Graph of the cluster.")] = None

    def load(self) -> Policy:
        # Cedar is imported here so that `--help` and `version` do not pay for it.
        from omnigraph.policy import load_bundle

        if (self.bundle is None) == (self.cluster is None):
            raise UsageError("give either a bundle or a cluster with `--cluster DIR`")
        if self.cluster is not None:
            return load_bundle(_applied_bundle(self.cluster, self.scope, self.graph), scope=self.scope)
        if self.graph is not None:
            raise UsageError("`--graph` names a graph of a cluster; add `--cluster DIR`, or leave it out")
        assert self.bundle is not None
        return load_bundle(self.bundle, scope=self.scope)


def validate(choice: PolicyChoice) -> Output:
    policy = choice.load()
    name, actors, rules = str(choice.bundle or choice.cluster), len(policy.bundle.actors), len(policy.bundle.rules)
    line = f"{name}: {plural(actors, 'actor')}, {plural(rules, 'rule')}: ok"
    return Output({"bundle": name, "ok": True, "actors": actors, "rules": rules}, [line])


def run_tests(
    tests: Annotated[Path, option("--tests", "FILE", "Test cases with their expected decisions.")], choice: PolicyChoice
) -> Output:
    from omnigraph.policy import load_cases, run_cases

    outcomes = run_cases(choice.load(), load_cases(tests))
    failed = [outcome for outcome in outcomes if not outcome.passed]
    rows = (
        [outcome.case.id, "ok" if outcome.passed else "failed", outcome.decision.message]
        for outcome in (failed or outcomes)
    )
    lines = (*table(["case", "result", "decision"], rows), f"{plural(len(outcomes), 'case')}, {len(failed)} failed")
    document = {"ok": not failed, "cases": [outcome.to_json() for outcome in outcomes]}
    return Output(document, lines, 1 if failed else 0)


def explain(
    actor: Annotated[str, option("--actor", "NAME", "Actor to decide for.")],
    action: Annotated[str, option("--action", "ACTION", "Action to decide on.")],
    branch: Annotated[str | None, option("--branch", "NAME", "Branch that is read or written.")] = None,
    target_branch: Annotated[
        str | None, option("--target-branch", "NAME", "Branch that is created, deleted or merged into.")
    ] = None,
    *,
    choice: PolicyChoice,
) -> Output:
    decision = choice.load().decide(actor, action, branch=branch, target=target_branch)
    return Output(decision.to_json(), [f"{'allow' if decision.allowed else 'deny'}: {decision.message}"])


def _applied_bundle(cluster: str, scope: Scope, graph: str | None) -> str:
    """Return the text of the bundle that is applied to a graph of a cluster, or to its server."""
    from omnigraph.cluster.applied_state import choose_graph, read_applied, read_policies

    if graph is not None and scope == "server":
        raise UsageError("`--graph` names a graph, and `--for server` its server; leave out one of them", graph=graph)
    ledger = open_ledger(cluster)
    state = read_applied(ledger)
    binding = "cluster" if scope == "server" else f"graph.{choose_graph(state, graph)}"
    text = read_policies(ledger, state).get(binding)
    if text is None:
        raise UsageError(f"no policy is bound to `{binding}` of the cluster; see `omnigraph cluster status`")
    return text
