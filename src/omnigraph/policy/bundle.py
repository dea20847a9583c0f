"""Policy bundles: groups of actors, protected branches and allow rules, parsed from YAML and validated.

Pure. Rules only allow; anything that no rule allows is denied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from omnigraph.errors import PolicyError
from omnigraph.limits import POLICY_BYTES_MAX, POLICY_PROBLEMS_SHOWN
from omnigraph.source_files import read_regular_file

# The C loader, if available, is ten times as fast.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STRING = "tag:yaml.org,2002:str"
_INTEGER = "tag:yaml.org,2002:int"


def read_text(path: Path) -> str:
    """Return the text of a policy file."""
    try:
        return read_regular_file(path, POLICY_BYTES_MAX)[0].decode()
    except UnicodeDecodeError as error:
        raise PolicyError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8", problems=[]) from None


@dataclass
class Document:
    """A document being read, and the problems so far."""

    name: str
    problems: list[str] = field(default_factory=list)

    def open(self, text: str) -> yaml.Node | None:
        """Return the root of a YAML text; raises at once if it is not YAML."""
        size = len(text.encode(errors="replace"))
        if size > POLICY_BYTES_MAX:
            raise self._error([f"{self.name}: the file has {size:,} bytes; the limit is {POLICY_BYTES_MAX:,}"])
        try:
            for event in yaml.parse(text, _LOADER):
                if isinstance(event, yaml.AliasEvent):
                    raise self._error(
                        [f"{self._position(event.start_mark)}: aliases are not supported; write the value out"]
                    )
            root: yaml.Node | None = yaml.compose(text, _LOADER)
        except (yaml.YAMLError, RecursionError) as error:
            mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
            raise self._error([f"{self._position(mark)}: invalid YAML: {problem or error}"]) from None
        return root

    def fault(self, node: yaml.Node | None, message: str) -> None:
        """Record a problem at the position of a node; an empty document has no position."""
        self.problems.append(f"{self._position(node.start_mark if node is not None else None)}: {message}")

    def finish(self) -> None:
        """Raise `PolicyError` if there were any problems."""
        if self.problems:
            raise self._error(self.problems)

    def _error(self, problems: Sequence[str]) -> PolicyError:
        first_problems = "\n".join(problems[:POLICY_PROBLEMS_SHOWN])
        more = len(problems) - POLICY_PROBLEMS_SHOWN
        return PolicyError(
            f"{first_problems}{f'{chr(10)}and {more} more' if more > 0 else ''}", problems=list(problems)
        )

    def fields(self, node: yaml.Node | None, allowed: Sequence[str], required: Sequence[str]) -> dict[str, yaml.Node]:
        """Return the fields of a mapping; reports unknown fields and missing required ones."""
        names = ", ".join(f"`{name}`" for name in allowed)
        if not isinstance(node, yaml.MappingNode):
            self.fault(node, f"expected a mapping with the fields {names}")
            return {}
        entries = self.entries(node)
        for key in node.value:
            if isinstance(key[0], yaml.ScalarNode) and key[0].value not in allowed:
                self.fault(key[0], f"unknown field `{key[0].value}`; expected one of {names}")
        for name in required:
            if name not in entries:
                self.fault(node, f"the field `{name}` is missing")
        return {name: value for name, value in entries.items() if name in allowed}

    def entries(self, node: yaml.Node) -> dict[str, yaml.Node]:
        """Return the entries of a mapping with arbitrary keys; reports duplicates."""
        if not isinstance(node, yaml.MappingNode):
            self.fault(node, "expected a mapping")
            return {}
        entries: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = self.text(key)
            if name in entries:
                self.fault(key, f"duplicate key `{name}`")
            elif name is not None:
                entries[name] = value
        return entries

    def text(self, node: yaml.Node) -> str | None:
        """Return a string that is not blank."""
        if not isinstance(node, yaml.ScalarNode) or node.tag != _STRING:
            self.fault(node, "expected a string; quote it if it looks like a number or a date")
            return None
        if not node.value.strip():
            self.fault(node, "a name must not be blank")
            return None
        return str(node.value).strip()

    def word(self, node: yaml.Node, allowed: Sequence[str]) -> str | None:
        """Return a string that must be one of the known words."""
        text = self.text(node)
        if text is None or text in allowed:
            return text
        self.fault(node, f"`{text}` is not one of {', '.join(f'`{word}`' for word in allowed)}")
        return None

    def texts(self, node: yaml.Node) -> tuple[str, ...]:
        """Return the strings of a list that must be non-empty and without duplicates."""
        texts: list[str] = []
        for item in self.items(node):
            text = self.text(item)
            if text in texts:
                self.fault(item, f"duplicate value `{text}`")
            elif text is not None:
                texts.append(text)
        if isinstance(node, yaml.SequenceNode) and not node.value:
            self.fault(node, "the list is empty; add a value, or omit the field")
        return tuple(texts)

    def items(self, node: yaml.Node) -> list[yaml.Node]:
        """Return the items of a list."""
        if not isinstance(node, yaml.SequenceNode):
            self.fault(node, "expected a list")
            return []
        return list(node.value)

    def version(self, node: yaml.Node) -> None:
        """Check the format version; 1 is the only one."""
        is_one = isinstance(node, yaml.ScalarNode) and node.tag == _INTEGER and node.value == "1"
        if not is_one:
            self.fault(node, "unsupported version; expected 1")

    def _position(self, mark: Any) -> str:
        return self.name if mark is None else f"{self.name}:{mark.line + 1}:{mark.column + 1}"


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
SERVER_ACTIONS: Final = ("graph_list", "metrics_read")
ACTIONS: Final = (*GRAPH_ACTIONS, *SERVER_ACTIONS)


def actions_of(scope: BundleScope) -> tuple[str, ...]:
    """Return the actions that a bundle of this scope may allow."""
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


def parse_bundle(text: str, *, name: str = "policy.yaml", scope: BundleScope = "graph") -> Bundle:
    """Parse a bundle; raises a single `PolicyError` that lists every problem with its position.

    >>> parse_bundle("version: 1\\ngroups: {team: [ann, bob]}").actors == {"ann", "bob"}
    True
    """
    document = Document(name)
    keys = ("version", "groups", "protected_branches", "rules")
    fields = document.fields(document.open(text), keys, ("version",))
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
