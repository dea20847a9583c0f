"""The policy of a graph or server: loads a bundle, is the hook that the engine calls, and runs files of policy tests.

Cedar makes the decisions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

import yaml

from omnigraph.engine.authorization import PolicyBranch, Scope
from omnigraph.errors import PolicyDenied, UsageError
from omnigraph.limits import CATALOG_CACHE_MAX, POLICY_ANSWERS_MAX
from omnigraph.lru import LruCache
from omnigraph.policy.bundle import ACTIONS, Bundle, BundleScope, actions_of, parse_bundle, read_text
from omnigraph.policy.cedar import AccessRequest, CompiledBundle
from omnigraph.public_values import PublicValue, named
from omnigraph.yaml_document import Document


@dataclass(frozen=True, slots=True)
class Decision(PublicValue):
    """The decision on an action of an actor; `rule` is the smallest id of the rules that allow it."""

    computed: ClassVar = {"message": "message"}
    allowed: bool
    rule: str | None
    actor: str | None
    action: str
    branch: str | None = None
    target: str | None = field(default=None, metadata=named("target_branch"))

    @property
    def message(self) -> str:
        request = f"`{self.action}`{_branches(self.branch, self.target)}"
        if self.actor is None:
            return f"{request} requires an actor, because there is a policy; open the graph with `actor=…`, or log in"
        if self.allowed:
            return f"{request} is allowed for `{self.actor}` by rule `{self.rule}`"
        return f"{request} is not allowed for `{self.actor}`; ask the policy's administrator for a rule that allows it"


def _branches(branch: str | None, target: str | None) -> str:
    """Name the branches that a decision is about.

    >>> _branches("review", "main"), _branches("main", None), _branches(None, None)
    (' from branch `review` to branch `main`', ' on branch `main`', '')
    """
    if branch is not None and target is not None:
        return f" from branch `{branch}` to branch `{target}`"
    if branch is None and target is None:
        return ""
    return f" on branch `{branch if target is None else target}`"


_log: Final = logging.getLogger("omnigraph.policy")


class Policy:
    """A compiled bundle. Safe to share between threads and between all actors of a graph."""

    def __init__(self, bundle: Bundle, scope: BundleScope, graph_id: str) -> None:
        self.bundle = bundle
        self.scope = scope
        self._compiled = CompiledBundle(bundle, scope, graph_id)
        self._actors = bundle.actors
        self._samples = _sample_actors(bundle)
        self._limits_types = any(rule.types is not None for rule in bundle.rules)
        self._rule_cache: LruCache[AccessRequest, str | None] = LruCache(POLICY_ANSWERS_MAX)
        self._hidden_cache: LruCache[tuple[object, ...], frozenset[str]] = LruCache(CATALOG_CACHE_MAX)

    def decide(
        self, actor: str | None, action: str, *, branch: str | None = None, target: str | None = None
    ) -> Decision:
        """Decide whether an actor may do an action on branches of these names, and log the decision."""
        return self._decide(actor, action, Scope(branch, target))

    def _decide(self, actor: str | None, action: str, scope: Scope) -> Decision:
        if action not in ACTIONS:
            raise UsageError(f"unknown action `{action}`; expected one of {', '.join(ACTIONS)}", action=action)
        branch, target = scope.branch_names or scope.branch, scope.target_names or scope.target
        rule = self._rule(actor, action, branch, target, None)
        decision = Decision(rule is not None, rule, actor, action, scope.branch, scope.target)
        fields = {"actor": actor, "action": action, "branch": scope.branch, "target_branch": scope.target, "rule": rule}
        if not scope.is_probe and _log.isEnabledFor(logging.INFO):
            _log.info("%s", decision.message, extra={**fields, "decision": "allow" if decision.allowed else "deny"})
        return decision

    def enforce(self, action: str, scope: Scope, actor: str | None) -> None:
        """Raise `PolicyDenied` unless an actor may do an action; see `engine.authorization.PolicyHook`."""
        decision = self._decide(actor, action, scope)
        if not decision.allowed:
            raise PolicyDenied(
                decision.message, actor=actor, action=action, branch=decision.branch, target_branch=decision.target
            )

    def hidden_types(
        self, actor: str | None, action: str, names: Iterable[str], branch: PolicyBranch | None = None
    ) -> frozenset[str]:
        """Return the types on which an actor may not do an action; all of them if the action is not allowed at all."""
        names = frozenset(names)
        if self._rule(actor, action, branch, None, None) is None:
            return names
        if not self._limits_types:
            return frozenset()
        key = (actor, action, branch is None, branch is not None and self.is_protected(branch), names)
        return self._hidden_cache.get_or_create(
            key, lambda: frozenset(name for name in names if self._rule(actor, action, branch, None, name) is None)
        )

    def is_protected(self, branch: PolicyBranch) -> bool:
        """Return True if any present or former name of a branch is protected, or if its names are not all known."""
        if isinstance(branch, str):
            return branch.strip() in self.bundle.protected_branches
        return not branch.is_complete or not self.bundle.protected_branches.isdisjoint(branch.names)

    def sample_actors(self) -> Iterable[str]:
        """Return an actor of each combination of groups; actors with the same groups have the same permissions."""
        return self._samples

    def _rule(
        self,
        actor: str | None,
        action: str,
        branch: PolicyBranch | None,
        target: PolicyBranch | None,
        type_name: str | None,
    ) -> str | None:
        if actor is None or actor not in self._actors or action not in actions_of(self.scope):
            return None
        # Rules see only whether a branch is protected, so all unprotected branches share a cache entry.
        is_branch_protected = None if branch is None else self.is_protected(branch)
        is_target_protected = None if target is None else self.is_protected(target)
        request = AccessRequest(actor, action, is_branch_protected, is_target_protected, type_name)
        return self._rule_cache.get_or_create(request, lambda: self._compiled.rule_for(request))


def load_bundle(path_or_text: str | Path, *, scope: BundleScope = "graph", graph_id: str = "graph") -> Policy:
    """Read, validate and compile a bundle, passed as a path or as YAML text.

    A string with a line break or a brace is YAML text, any other a path. Raises `PolicyError` that lists every problem
    with its position.
    """
    if isinstance(path_or_text, str) and any(char in path_or_text for char in "\n{"):
        bundle = parse_bundle(path_or_text, scope=scope)
    else:
        bundle = parse_bundle(read_text(Path(path_or_text)), name=str(path_or_text), scope=scope)
    return Policy(bundle, scope, graph_id)


def _sample_actors(bundle: Bundle) -> tuple[str, ...]:
    """Return the first actor of each combination of groups that occurs."""
    samples: dict[tuple[str, ...], str] = {}
    for actor in sorted(bundle.actors):
        samples.setdefault(bundle.groups_of(actor), actor)
    return tuple(samples.values())


_OPTIONAL: Final = ("branch", "target_branch")
_REQUIRED: Final = ("id", "actor", "action", "expect")


@dataclass(frozen=True, slots=True)
class Case:
    """An access request and the expected decision."""

    id: str
    actor: str
    action: str
    branch: str | None
    target_branch: str | None
    expect_allowed: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case and the actual decision."""

    case: Case
    decision: Decision

    @property
    def passed(self) -> bool:
        return self.decision.allowed == self.case.expect_allowed

    def to_json(self) -> dict[str, object]:
        expected = "allow" if self.case.expect_allowed else "deny"
        return {"id": self.case.id, "passed": self.passed, "expected": expected, "decision": self.decision.to_json()}


def load_cases(path: Path) -> tuple[Case, ...]:
    """Read a tests file; raises a single `PolicyError` that lists every problem with its position."""
    document = Document(str(path))
    fields = document.fields(document.open(read_text(path)), ("version", "cases"), ("version", "cases"))
    if "version" in fields:
        document.version(fields["version"])
    cases: dict[str, Case] = {}
    for node in document.items(fields["cases"]) if "cases" in fields else ():
        case = _case(document, node)
        if case is not None and case.id in cases:
            document.fault(node, f"duplicate case `{case.id}`; case ids must be unique")
        elif case is not None:
            cases[case.id] = case
    document.finish()
    return tuple(cases.values())


def run_cases(policy: Policy, cases: Sequence[Case]) -> tuple[Outcome, ...]:
    return tuple(
        Outcome(case, policy.decide(case.actor, case.action, branch=case.branch, target=case.target_branch))
        for case in cases
    )


def _case(document: Document, node: yaml.Node) -> Case | None:
    fields = document.fields(node, (*_REQUIRED, *_OPTIONAL), _REQUIRED)
    if not fields.keys() >= {*_REQUIRED}:
        return None
    words = {name: document.text(fields[name]) for name in ("id", "actor", *_OPTIONAL) if name in fields}
    action = document.word(fields["action"], ACTIONS)
    expect = document.word(fields["expect"], ("allow", "deny"))
    name, actor = words["id"], words["actor"]
    if name is None or actor is None or action is None or expect is None:
        return None
    return Case(name, actor, action, words.get("branch"), words.get("target_branch"), expect == "allow")
