"""Tests of a policy: a file of questions with the answers that are expected.

Decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from omnigraph.policy.bundle import ACTIONS
from omnigraph.policy.policy import Decision, Policy
from omnigraph.policy.yaml_document import Document, read_text

_OPTIONAL: Final = ("branch", "target_branch")
_REQUIRED: Final = ("id", "actor", "action", "expect")


@dataclass(frozen=True, slots=True)
class Case:
    """One question, and whether the answer should be yes."""

    id: str
    actor: str
    action: str
    branch: str | None
    target_branch: str | None
    expect_allowed: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case and what the policy says to it."""

    case: Case
    decision: Decision

    @property
    def passed(self) -> bool:
        return self.decision.allowed == self.case.expect_allowed

    def to_json(self) -> dict[str, object]:
        """Return the outcome as every surface shows it."""
        expected = "allow" if self.case.expect_allowed else "deny"
        return {"id": self.case.id, "passed": self.passed, "expected": expected, "decision": self.decision.to_json()}


def load_cases(path: Path) -> tuple[Case, ...]:
    """Read a tests file; every problem is told, with its place, in one `PolicyError`."""
    document = Document(str(path))
    fields = document.fields(document.open(read_text(path)), ("version", "cases"), ("version", "cases"))
    if "version" in fields:
        document.version(fields["version"])
    cases: dict[str, Case] = {}
    for node in document.items(fields["cases"]) if "cases" in fields else ():
        case = _case(document, node)
        if case is not None and case.id in cases:
            document.fault(node, f"there are two cases `{case.id}`; give each an id of its own")
        elif case is not None:
            cases[case.id] = case
    document.finish()
    return tuple(cases.values())


def run_cases(policy: Policy, cases: Sequence[Case]) -> tuple[Outcome, ...]:
    """Ask a policy all questions."""
    return tuple(
        Outcome(one, policy.decide(one.actor, one.action, branch=one.branch, target=one.target_branch)) for one in cases
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
