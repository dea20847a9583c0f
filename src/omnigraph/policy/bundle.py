"""Bundles: groups of actors, protected branches, and the rules that allow things, read from YAML and checked.

Pure. A bundle only ever allows; what no rule allows is denied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import yaml

from omnigraph.policy.yaml_document import Document

BundleScope = Literal["graph", "server"]

# PolicyBranch by the branch that is read or written, and limited to types if a rule names some.
BRANCH_ACTIONS: Final = ("read", "export", "change")
# PolicyBranch by the branch that comes, goes or changes as a whole.
TARGET_ACTIONS: Final = (
    "schema_apply",
    "branch_create",
    "branch_delete",
    "branch_merge",
    "tag_create",
    "tag_delete",
)
PLAIN_ACTIONS: Final = ("admin", "invoke_query")
GRAPH_ACTIONS: Final = (*BRANCH_ACTIONS, *TARGET_ACTIONS, *PLAIN_ACTIONS)
SERVER_ACTIONS: Final = ("graph_list", "metrics_read")
ACTIONS: Final = (*GRAPH_ACTIONS, *SERVER_ACTIONS)


def own_actions(scope: BundleScope) -> tuple[str, ...]:
    """Return the actions that the bundle of a graph, or of a server, may allow."""
    return GRAPH_ACTIONS if scope == "graph" else SERVER_ACTIONS


SCOPES: Final = ("any", "protected", "unprotected")


@dataclass(frozen=True, slots=True)
class Rule:
    """What a group may do. `types` None is all of them; at most one of the two scopes is set."""

    id: str
    group: str
    actions: tuple[str, ...]
    branch_scope: str | None = None
    target_branch_scope: str | None = None
    types: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """A checked bundle."""

    name: str
    groups: Mapping[str, tuple[str, ...]]
    protected_branches: frozenset[str]
    rules: tuple[Rule, ...]

    @property
    def actors(self) -> frozenset[str]:
        return frozenset(actor for members in self.groups.values() for actor in members)


def parse_bundle(text: str, *, name: str = "policy.yaml", scope: BundleScope = "graph") -> Bundle:
    """Read a bundle; every problem is told, with its place, in one `PolicyError`.

    >>> parse_bundle("version: 1\\ngroups: {team: [ann, bob]}").actors == {"ann", "bob"}
    True
    """
    document = Document(name)
    known = ("version", "groups", "protected_branches", "rules")
    fields = document.fields(document.open(text), known, ("version",))
    if "version" in fields:
        document.version(fields["version"])
    groups = _groups(document, fields.get("groups"))
    branches = fields.get("protected_branches")
    protected = frozenset(document.texts(branches)) if branches is not None and not _is_empty(branches) else frozenset()
    rules = _rules(document, fields.get("rules"), groups, scope)
    document.finish()
    return Bundle(name, groups, protected, rules)


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.SequenceNode) and not node.value


def _groups(document: Document, node: yaml.Node | None) -> dict[str, tuple[str, ...]]:
    if node is None:
        return {}
    return {name: document.texts(members) for name, members in document.entries(node).items()}


def _rules(
    document: Document, node: yaml.Node | None, groups: Mapping[str, tuple[str, ...]], scope: BundleScope
) -> tuple[Rule, ...]:
    found: dict[str, Rule] = {}
    for one in document.items(node) if node is not None else ():
        rule = _rule(document, one, groups, scope)
        if rule is not None and rule.id in found:
            document.fault(one, f"there are two rules `{rule.id}`; give each an id of its own")
        elif rule is not None:
            found[rule.id] = rule
    return tuple(found.values())


def _rule(
    document: Document, node: yaml.Node, groups: Mapping[str, tuple[str, ...]], scope: BundleScope
) -> Rule | None:
    outer = document.fields(node, ("id", "allow"), ("id", "allow"))
    if not outer.keys() >= {"id", "allow"}:
        return None
    limits = ("branch_scope", "target_branch_scope", "types")
    inner = document.fields(outer["allow"], ("actors", "actions", *limits), ("actors", "actions"))
    if not inner.keys() >= {"actors", "actions"}:
        return None
    rule_id = document.text(outer["id"])
    group = _group(document, inner["actors"], groups)
    actions = _actions(document, inner["actions"], scope)
    scopes = {name: document.word(inner[name], SCOPES) for name in limits[:2] if name in inner}
    types = document.texts(inner["types"]) if "types" in inner else None
    _check_limits(document, node, inner, actions)
    if rule_id is None or group is None:
        return None
    return Rule(rule_id, group, actions, scopes.get("branch_scope"), scopes.get("target_branch_scope"), types)


def _group(document: Document, node: yaml.Node, groups: Mapping[str, tuple[str, ...]]) -> str | None:
    fields = document.fields(node, ("group",), ("group",))
    name = document.text(fields["group"]) if "group" in fields else None
    if name is not None and name not in groups:
        document.fault(fields["group"], f"there is no group `{name}`; add it to `groups`")
    return name


def _actions(document: Document, node: yaml.Node, scope: BundleScope) -> tuple[str, ...]:
    own = own_actions(scope)
    actions = document.texts(node)
    for one in actions:
        if one not in ACTIONS:
            document.fault(node, f"there is no action `{one}`; there are {', '.join(f'`{name}`' for name in own)}")
        elif one not in own:
            place = "server" if scope == "graph" else "graph"
            document.fault(node, f"`{one}` belongs into the bundle of a {place}, and this is one of a {scope}")
    return actions


def _check_limits(
    document: Document, node: yaml.Node, fields: Mapping[str, yaml.Node], actions: tuple[str, ...]
) -> None:
    """Refuse limits that an action of the rule does not know: they would look like they hold and never would."""
    if {"branch_scope", "target_branch_scope"} <= fields.keys():
        document.fault(node, "a rule has a `branch_scope` or a `target_branch_scope`, not both; write two rules")
    for limit, meant in (
        ("branch_scope", BRANCH_ACTIONS),
        ("target_branch_scope", TARGET_ACTIONS),
        ("types", BRANCH_ACTIONS),
    ):
        other = [one for one in actions if one in ACTIONS and one not in meant]
        if limit in fields and other:
            listed = ", ".join(f"`{one}`" for one in meant)
            document.fault(fields[limit], f"`{limit}` does not limit `{other[0]}`, only {listed}; write two rules")
