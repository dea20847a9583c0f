"""Policy bundles: groups of actors, protected branches and allow rules, parsed from YAML and validated.

Pure. Rules only allow; anything that no rule allows is denied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

import yaml

from omnigraph.errors import PolicyError
from omnigraph.limits import POLICY_BYTES_MAX
from omnigraph.source_files import read_regular_file
from omnigraph.yaml_document import Document


def read_text(path: Path) -> str:
    try:
        return read_regular_file(path, POLICY_BYTES_MAX)[0].decode()
    except UnicodeDecodeError as error:
        raise PolicyError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8", problems=[]) from None


BundleScope = Literal["graph", "server"]

# Scoped by the branch that is read or written, and by types if a rule names some.
BRANCH_ACTIONS: Final = ("read", "export", "change")
# Scoped by the branch that is created, deleted or changed as a whole.
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
# No route asks for `config_manage`: a cluster is changed by `cluster apply`, with access to its storage.
SERVER_ACTIONS: Final = ("graph_list", "metrics_read", "config_manage")
ACTIONS: Final = (*GRAPH_ACTIONS, *SERVER_ACTIONS)


def actions_of(scope: BundleScope) -> tuple[str, ...]:
    return GRAPH_ACTIONS if scope == "graph" else SERVER_ACTIONS


SCOPES: Final = ("any", "protected", "unprotected")


@dataclass(frozen=True, slots=True)
class Rule:
    """The actions that a group may do. `types` None means all types; at most one of the two scopes is set."""

    id: str
    group: str
    actions: tuple[str, ...]
    branch_scope: str | None = None
    target_branch_scope: str | None = None
    types: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """A validated bundle."""

    name: str
    groups: Mapping[str, tuple[str, ...]]
    protected_branches: frozenset[str]
    rules: tuple[Rule, ...]

    @property
    def actors(self) -> frozenset[str]:
        return frozenset(actor for members in self.groups.values() for actor in members)

    def groups_of(self, actor: str) -> tuple[str, ...]:
        return tuple(name for name, members in self.groups.items() if actor in members)

    def rules_of(self, actor: str | None) -> Iterator[Rule]:
        """Yield the rules that allow an actor something."""
        return (rule for rule in self.rules if actor in self.groups[rule.group])


def parse_bundle(text: str, *, name: str = "policy.yaml", scope: BundleScope = "graph") -> Bundle:
    """Parse a bundle; raises a single `PolicyError` that lists every problem with its position.

    >>> parse_bundle("version: 1\\ngroups: {team: [ann, bob]}").actors == {"ann", "bob"}
    True
    """
    document = Document(name)
    keys = ("version", "kind", "groups", "protected_branches", "rules")
    fields = document.fields(document.open(text), keys, ("version",))
    if "version" in fields:
        document.version(fields["version"])
    kind = document.word(fields["kind"], get_args(BundleScope)) if "kind" in fields else scope
    if kind not in (None, scope):
        document.fault(fields["kind"], f"a bundle of the kind `{kind}` cannot be used for a {scope}; use another file")
    members = document.entries(fields["groups"]) if "groups" in fields else {}
    groups = {group: document.texts(actors) for group, actors in members.items()}
    branches = fields.get("protected_branches")
    is_empty = isinstance(branches, yaml.SequenceNode) and not branches.value
    protected = frozenset(() if branches is None or is_empty else document.texts(branches))
    rules = _rules(document, fields.get("rules"), groups, scope)
    document.finish()
    return Bundle(name, groups, protected, rules)


def _rules(
    document: Document, node: yaml.Node | None, groups: Mapping[str, tuple[str, ...]], scope: BundleScope
) -> tuple[Rule, ...]:
    rules: dict[str, Rule] = {}
    for item in document.items(node) if node is not None else ():
        rule = _rule(document, item, groups, scope)
        if rule is not None and rule.id in rules:
            document.fault(item, f"duplicate rule `{rule.id}`; rule ids must be unique")
        elif rule is not None:
            rules[rule.id] = rule
    return tuple(rules.values())


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
        document.fault(fields["group"], f"unknown group `{name}`; add it to `groups`")
    return name


def _actions(document: Document, node: yaml.Node, scope: BundleScope) -> tuple[str, ...]:
    allowed = actions_of(scope)
    actions = document.texts(node)
    for action in actions:
        if action not in ACTIONS:
            expected = ", ".join(f"`{name}`" for name in allowed)
            document.fault(node, f"unknown action `{action}`; expected one of {expected}")
        elif action not in allowed:
            other = "server" if scope == "graph" else "graph"
            document.fault(node, f"`{action}` belongs in the bundle of a {other}; this is the bundle of a {scope}")
    return actions


def _check_limits(
    document: Document, node: yaml.Node, fields: Mapping[str, yaml.Node], actions: tuple[str, ...]
) -> None:
    """Reject limits that do not apply to an action of the rule: they would look effective and never be."""
    if {"branch_scope", "target_branch_scope"} <= fields.keys():
        document.fault(node, "a rule has a `branch_scope` or a `target_branch_scope`, not both; write two rules")
    for limit, limited in (
        ("branch_scope", BRANCH_ACTIONS),
        ("target_branch_scope", TARGET_ACTIONS),
        ("types", BRANCH_ACTIONS),
    ):
        others = [action for action in actions if action in ACTIONS and action not in limited]
        if limit in fields and others:
            names = ", ".join(f"`{action}`" for action in limited)
            document.fault(fields[limit], f"`{limit}` applies only to {names}, not to `{others[0]}`; write two rules")
