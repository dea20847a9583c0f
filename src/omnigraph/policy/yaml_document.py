"""Strict reader of YAML configuration that collects all problems, each with its line and column.

Rejects duplicate keys and aliases, which a reader of the file easily overlooks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
        shown = "\n".join(problems[:POLICY_PROBLEMS_SHOWN])
        more = len(problems) - POLICY_PROBLEMS_SHOWN
        return PolicyError(f"{shown}{f'{chr(10)}and {more} more' if more > 0 else ''}", problems=list(problems))

    def fields(self, node: yaml.Node | None, known: Sequence[str], required: Sequence[str]) -> dict[str, yaml.Node]:
        """Return the fields of a mapping; reports unknown fields and missing required ones."""
        names = ", ".join(f"`{name}`" for name in known)
        if not isinstance(node, yaml.MappingNode):
            self.fault(node, f"expected a mapping with the fields {names}")
            return {}
        entries = self.entries(node)
        for key in node.value:
            if isinstance(key[0], yaml.ScalarNode) and key[0].value not in known:
                self.fault(key[0], f"unknown field `{key[0].value}`; expected one of {names}")
        for name in required:
            if name not in entries:
                self.fault(node, f"the field `{name}` is missing")
        return {name: value for name, value in entries.items() if name in known}

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

    def word(self, node: yaml.Node, known: Sequence[str]) -> str | None:
        """Return a string that must be one of the known words."""
        text = self.text(node)
        if text is None or text in known:
            return text
        self.fault(node, f"`{text}` is not one of {', '.join(f'`{word}`' for word in known)}")
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
