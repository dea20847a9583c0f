"""Reads YAML documents strictly: duplicate and unknown keys, aliases and wrong types are problems with a position.

Shared by policy bundles, policy tests and cluster configurations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from omnigraph.errors import OmniGraphError, PolicyError
from omnigraph.limits import POLICY_BYTES_MAX, POLICY_PROBLEMS_SHOWN, YAML_NESTING_MAX

# The C loader, if available, is ten times as fast.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STRING = "tag:yaml.org,2002:str"
_INTEGER = "tag:yaml.org,2002:int"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a document, and where; lines and columns count from 1. Only some kinds have a code."""

    message: str
    line: int | None = None
    column: int | None = None
    code: str | None = None

    @classmethod
    def at(cls, mark: Any, message: str, code: str | None = None) -> Problem:
        """Return a problem at a mark of the parser; an empty document has none."""
        return cls(message, code=code) if mark is None else cls(message, mark.line + 1, mark.column + 1, code)

    def render(self, name: str) -> str:
        """Return the problem after the name of its document and its position."""
        return f"{name}: {self.message}" if self.line is None else f"{name}:{self.line}:{self.column}: {self.message}"


def find_deep_nesting(text: str) -> Problem | None:
    """Return the place where mappings and lists are nested too deeply, or None; raises `YAMLError`.

    To be called before a text is composed: that recurses, in C, and ends the process when its stack is used up.
    """
    depth = 0
    for event in yaml.parse(text, _LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > YAML_NESTING_MAX:
            message = f"mappings and lists are nested more than {YAML_NESTING_MAX} levels deep"
            return Problem.at(event.start_mark, message, "nesting_limit")
    return None


@dataclass
class Document:
    """A document being read, and the problems so far; `bytes_max` bounds its size."""

    name: str
    bytes_max: int = POLICY_BYTES_MAX
    problems: list[Problem] = field(default_factory=list)

    def open(self, text: str) -> yaml.Node | None:
        """Return the root of a YAML text; raises at once if it is not YAML."""
        size = len(text.encode(errors="replace"))
        if size > self.bytes_max:
            raise self.error([Problem(f"the file has {size:,} bytes; the limit is {self.bytes_max:,}")])
        try:
            if (problem := find_deep_nesting(text)) is not None:
                raise self.error([problem])
            for event in yaml.parse(text, _LOADER):
                if isinstance(event, yaml.AliasEvent):
                    message = "aliases are not supported; write the value out"
                    raise self.error([Problem.at(event.start_mark, message)])
            root: yaml.Node | None = yaml.compose(text, _LOADER)
        except (yaml.YAMLError, RecursionError) as error:
            mark, reason = getattr(error, "problem_mark", None), getattr(error, "problem", None)
            raise self.error([Problem.at(mark, f"invalid YAML: {reason or error}")]) from None
        return root

    def fault(self, node: yaml.Node | None, message: str, code: str | None = None) -> None:
        """Record a problem at the position of a node; an empty document has no position."""
        self.problems.append(Problem.at(node.start_mark if node is not None else None, message, code))

    def finish(self) -> None:
        """Raise the document's error if there were any problems."""
        if self.problems:
            raise self.error(self.problems)

    def error(self, problems: Sequence[Problem]) -> OmniGraphError:
        """Return the error of a document with these problems; kinds of documents override it."""
        lines = [problem.render(self.name) for problem in problems]
        more = [f"and {len(lines) - POLICY_PROBLEMS_SHOWN} more"] if len(lines) > POLICY_PROBLEMS_SHOWN else []
        return PolicyError("\n".join([*lines[:POLICY_PROBLEMS_SHOWN], *more]), problems=lines)

    def fields(self, node: yaml.Node | None, allowed: Sequence[str], required: Sequence[str]) -> dict[str, yaml.Node]:
        """Return the fields of a mapping; reports unknown fields and missing required ones."""
        names = ", ".join(f"`{name}`" for name in allowed)
        if not isinstance(node, yaml.MappingNode):
            self.fault(node, f"expected a mapping with the fields {names}")
            return {}
        entries = self.entries(node)
        for key in node.value:
            if isinstance(key[0], yaml.ScalarNode) and key[0].value not in allowed:
                self.fault(key[0], f"unknown field `{key[0].value}`; expected one of {names}", "unknown_key")
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
            name = self.key(key)
            if name in entries:
                self.fault(key, f"duplicate key `{name}`", "duplicate_yaml_key")
            elif name is not None:
                entries[name] = value
        return entries

    def key(self, node: yaml.Node) -> str | None:
        return self.text(node)

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
        if not isinstance(node, yaml.SequenceNode):
            self.fault(node, "expected a list")
            return []
        return list(node.value)

    def version(self, node: yaml.Node) -> None:
        """Check the format version; 1 is the only one."""
        is_one = isinstance(node, yaml.ScalarNode) and node.tag == _INTEGER and node.value == "1"
        if not is_one:
            self.fault(node, "unsupported version; expected 1")
