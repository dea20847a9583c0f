"""Compiles a bundle to Cedar policies, schema and entities, and evaluates authorization requests.

The only importer of `cedarpy`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from omnigraph.errors import PolicyError
from omnigraph.extras import requiring_extra
from omnigraph.policy.bundle import GRAPH_ACTIONS, SERVER_ACTIONS, Bundle, BundleScope, Rule

_CONTEXT: Final = (
    "{has_branch: Bool, has_target_branch: Bool, branch_is_protected: Bool, target_branch_is_protected: Bool,"
    " has_type: Bool, type_name: String}"
)
_ENTITIES: Final = "entity Group; entity Actor in [Group]; entity Graph; entity Server;"


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """An authorization request; without a `type_name` it asks whether the action is allowed for any type.

    Of a branch, Cedar needs to know whether it is protected; None without one.
    """

    actor: str
    action: str
    is_branch_protected: bool | None
    is_target_protected: bool | None
    type_name: str | None


class CompiledBundle:
    """A bundle compiled to Cedar, strictly validated against the schema of the actions."""

    def __init__(self, bundle: Bundle, scope: BundleScope, graph_id: str) -> None:
        cedar = _cedar()
        self._resource = _uid("Graph", graph_id) if scope == "graph" else _uid("Server", "root")
        self.text = "\n".join(compile_permits(bundle, scope, graph_id))
        self._schema = _schema()
        checked = cedar.validate_policies(self.text, self._schema)
        if not checked.validation_passed:
            problem = "; ".join(str(error.error) for error in checked.errors)
            raise PolicyError(f"{bundle.name}: Cedar rejects the compiled policies: {problem}", problems=[problem])
        self._policies = cedar.PolicySet.from_str(self.text)
        self._entities = cedar.Entities.from_json_str(json.dumps(_entities(bundle, self._resource)))

    def rule_for(self, request: AccessRequest) -> str | None:
        """Return the smallest id of the rules that allow a request; None if no rule does."""
        answer = _cedar().is_authorized(self._request(request), self._policies, self._entities, self._schema)
        if answer.diagnostics.errors:
            raise PolicyError(f"Cedar cannot decide: {'; '.join(map(str, answer.diagnostics.errors))}", problems=[])
        if not answer.allowed:
            return None
        suffix = f":{request.action}"
        return min(
            str(permit_id).removesuffix(suffix) for permit_id in answer.diagnostics.id_annotations_by_reason.values()
        )

    def _request(self, request: AccessRequest) -> dict[str, Any]:
        context = {
            "has_branch": request.is_branch_protected is not None,
            "has_target_branch": request.is_target_protected is not None,
            "branch_is_protected": bool(request.is_branch_protected),
            "target_branch_is_protected": bool(request.is_target_protected),
            "has_type": request.type_name is not None,
            "type_name": request.type_name or "",
        }
        return {
            "principal": _uid("Actor", request.actor),
            "action": _uid("Action", request.action),
            "resource": self._resource,
            "context": context,
        }


@cache
def _schema() -> Any:
    return _cedar().Schema.from_str(schema_text())


def schema_text() -> str:
    """Return the Cedar schema that every bundle is validated against."""
    actions = [(name, "Graph") for name in GRAPH_ACTIONS] + [(name, "Server") for name in SERVER_ACTIONS]
    lines = [
        f"action {name} appliesTo {{ principal: [Actor], resource: [{resource}], context: {_CONTEXT} }};"
        for name, resource in actions
    ]
    return "\n".join(["namespace Omnigraph {", _ENTITIES, *lines, "}"])


def compile_permits(bundle: Bundle, scope: BundleScope, graph_id: str) -> Iterator[str]:
    """Yield a Cedar permit for each action of each rule; its id is `<rule>:<action>`."""
    kind, name = ("Graph", graph_id) if scope == "graph" else ("Server", "root")
    for rule in bundle.rules:
        for action in rule.actions:
            yield (
                f"@id({_quoted(f'{rule.id}:{action}')}) permit(principal in Omnigraph::Group::{_quoted(rule.group)},"
                f" action == Omnigraph::Action::{_quoted(action)}, resource == Omnigraph::{kind}::{_quoted(name)})"
                f"{_conditions(rule)};"
            )


def _conditions(rule: Rule) -> str:
    conditions = []
    for scope, prefix in ((rule.branch_scope, "branch"), (rule.target_branch_scope, "target_branch")):
        if scope in ("protected", "unprotected"):
            negation = "!" if scope == "unprotected" else ""
            conditions.append(f"context.has_{prefix} && {negation}context.{prefix}_is_protected")
    if rule.types is not None:
        # A request without a type asks whether the action is allowed for any type at all.
        names = ", ".join(_quoted(name) for name in rule.types)
        conditions.append(f"!context.has_type || [{names}].contains(context.type_name)")
    return f" when {{ {' && '.join(f'({condition})' for condition in conditions)} }}" if conditions else ""


def _entities(bundle: Bundle, resource: Mapping[str, str]) -> list[dict[str, Any]]:
    groups = [_uid("Group", name) for name in bundle.groups]
    entities: list[dict[str, Any]] = [{"uid": uid, "attrs": {}, "parents": []} for uid in (*groups, resource)]
    for actor in sorted(bundle.actors):
        parents = [_uid("Group", name) for name in bundle.groups_of(actor)]
        entities.append({"uid": _uid("Actor", actor), "attrs": {}, "parents": parents})
    return entities


def _uid(kind: str, name: str) -> dict[str, str]:
    return {"type": f"Omnigraph::{kind}", "id": name}


def _quoted(text: str) -> str:
    r"""Return a string as a Cedar literal.

    >>> print(_quoted('a"\n'))
    "a\u{22}\u{a}"
    """
    plain = (
        char if char.isascii() and char.isprintable() and char not in '"\\' else f"\\u{{{ord(char):x}}}"
        for char in text
    )
    return f'"{"".join(plain)}"'


def _cedar() -> Any:
    with requiring_extra("policies"):
        import cedarpy
    return cedarpy
