"""Cedar: a bundle as permits, a schema and entities, and the one question that is asked of them.

The only importer of `cedarpy`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from omnigraph.errors import PolicyError, UsageError
from omnigraph.policy.bundle import GRAPH_ACTIONS, SERVER_ACTIONS, Bundle, BundleScope, Rule

_CONTEXT: Final = (
    "{has_branch: Bool, has_target_branch: Bool, branch_is_protected: Bool, target_branch_is_protected: Bool,"
    " has_type: Bool, type_name: String}"
)
_ENTITIES: Final = "entity Group; entity Actor in [Group]; entity Graph; entity Server;"


@dataclass(frozen=True, slots=True)
class Question:
    """What Cedar is asked; without a `type_name`, it is about any type."""

    actor: str
    action: str
    has_branch: bool
    has_target: bool
    type_name: str | None
    branch_is_protected: bool
    target_is_protected: bool


class Compiled:
    """A bundle as Cedar has it, strictly validated against the schema of the actions."""

    def __init__(self, bundle: Bundle, scope: BundleScope, graph_id: str) -> None:
        cedar = _cedar()
        self._resource = _uid("Graph", graph_id) if scope == "graph" else _uid("Server", "root")
        self.text = "\n".join(permits(bundle, scope, graph_id))
        self._schema = _schema()
        checked = cedar.validate_policies(self.text, self._schema)
        if not checked.validation_passed:
            found = "; ".join(str(one.error) for one in checked.errors)
            raise PolicyError(f"{bundle.name}: Cedar refuses what was made of it: {found}", problems=[found])
        self._policies = cedar.PolicySet.from_str(self.text)
        self._entities = cedar.Entities.from_json_str(json.dumps(_entities(bundle, self._resource)))

    def rule_for(self, question: Question) -> str | None:
        """Return the smallest id of the rules that allow what is asked; None when none does."""
        answer = _cedar().is_authorized(self._request(question), self._policies, self._entities, self._schema)
        if answer.diagnostics.errors:
            raise PolicyError(f"Cedar cannot decide: {'; '.join(map(str, answer.diagnostics.errors))}", problems=[])
        if not answer.allowed:
            return None
        suffix = f":{question.action}"
        return min(str(one).removesuffix(suffix) for one in answer.diagnostics.id_annotations_by_reason.values())

    def _request(self, question: Question) -> dict[str, Any]:
        context = {
            "has_branch": question.has_branch,
            "has_target_branch": question.has_target,
            "branch_is_protected": question.branch_is_protected,
            "target_branch_is_protected": question.target_is_protected,
            "has_type": question.type_name is not None,
            "type_name": question.type_name or "",
        }
        return {
            "principal": _uid("Actor", question.actor),
            "action": _uid("Action", question.action),
            "resource": self._resource,
            "context": context,
        }


@cache
def _schema() -> Any:
    return _cedar().Schema.from_str(schema_text())


def schema_text() -> str:
    """Return the Cedar schema that every bundle is checked against."""
    actions = [(one, "Graph") for one in GRAPH_ACTIONS] + [(one, "Server") for one in SERVER_ACTIONS]
    lines = [
        f"action {name} appliesTo {{ principal: [Actor], resource: [{resource}], context: {_CONTEXT} }};"
        for name, resource in actions
    ]
    return "\n".join(["namespace Omnigraph {", _ENTITIES, *lines, "}"])


def permits(bundle: Bundle, scope: BundleScope, graph_id: str) -> Iterator[str]:
    """Yield one permit for each action of each rule; its id is `<rule>:<action>`."""
    kind, name = ("Graph", graph_id) if scope == "graph" else ("Server", "root")
    for rule in bundle.rules:
        for action in rule.actions:
            yield (
                f"@id({_quoted(f'{rule.id}:{action}')}) permit(principal in Omnigraph::Group::{_quoted(rule.group)},"
                f" action == Omnigraph::Action::{_quoted(action)}, resource == Omnigraph::{kind}::{_quoted(name)})"
                f"{_conditions(rule)};"
            )


def _conditions(rule: Rule) -> str:
    found = []
    for scope, prefix in ((rule.branch_scope, "branch"), (rule.target_branch_scope, "target_branch")):
        if scope in ("protected", "unprotected"):
            no = "!" if scope == "unprotected" else ""
            found.append(f"context.has_{prefix} && {no}context.{prefix}_is_protected")
    if rule.types is not None:
        # Without a type, the question is whether the action is allowed for any type at all.
        listed = ", ".join(_quoted(one) for one in rule.types)
        found.append(f"!context.has_type || [{listed}].contains(context.type_name)")
    return f" when {{ {' && '.join(f'({one})' for one in found)} }}" if found else ""


def _entities(bundle: Bundle, resource: Mapping[str, str]) -> list[dict[str, Any]]:
    groups = [_uid("Group", name) for name in bundle.groups]
    found: list[dict[str, Any]] = [{"uid": one, "attrs": {}, "parents": []} for one in (*groups, resource)]
    for actor in sorted(bundle.actors):
        parents = [_uid("Group", name) for name, members in bundle.groups.items() if actor in members]
        found.append({"uid": _uid("Actor", actor), "attrs": {}, "parents": parents})
    return found


def _uid(kind: str, name: str) -> dict[str, str]:
    return {"type": f"Omnigraph::{kind}", "id": name}


def _quoted(text: str) -> str:
    r"""Return a text as Cedar quotes it.

    >>> print(_quoted('a"\n'))
    "a\u{22}\u{a}"
    """
    plain = (
        one if one.isascii() and one.isprintable() and one not in '"\\' else f"\\u{{{ord(one):x}}}" for one in text
    )
    return f'"{"".join(plain)}"'


def _cedar() -> Any:
    try:
        import cedarpy
    except ImportError:
        raise UsageError(
            'policies are decided by Cedar, which is not installed; run `pip install "omnigraph[server]"`'
        ) from None
    return cedarpy
