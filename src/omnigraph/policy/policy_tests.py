"""Policy tests: a YAML file of access requests with the expected decisions, and its runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from omnigraph.policy.bundle import ACTIONS, read_text
from omnigraph.policy.policy import Decision, Policy
from omnigraph.yaml_document import Document

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
        """Return the public JSON form, the same on every surface."""
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
    """Return the outcome of each case."""
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
