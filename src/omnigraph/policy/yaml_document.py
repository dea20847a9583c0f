"""YAML documents with places: each value knows its line, and whatever is wrong is told with it, all at once.

Refuses what a reader of the file would not see at a glance: keys that come twice, and aliases.
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

# The one in C, if there is one: it is ten times as fast.
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
    """A document that is being read, and everything that is wrong with it so far."""

    name: str
    problems: list[str] = field(default_factory=list)

    def open(self, text: str) -> yaml.Node | None:
        """Return the root of a YAML text; what is not YAML is refused at once."""
        size = len(text.encode(errors="replace"))
        if size > POLICY_BYTES_MAX:
            raise self.refusal([f"{self.name}: it has {size:,} bytes; at most {POLICY_BYTES_MAX:,} are read"])
        try:
            for event in yaml.parse(text, _LOADER):
                if isinstance(event, yaml.AliasEvent):
                    raise self.refusal([f"{self._place(event.start_mark)}: aliases are not read; write it out"])
            root: yaml.Node | None = yaml.compose(text, _LOADER)
        except (yaml.YAMLError, RecursionError) as error:
            mark, what = getattr(error, "problem_mark", None), getattr(error, "problem", None)
            raise self.refusal([f"{self._place(mark)}: it is not YAML: {what or error}"]) from None
        return root

    def fault(self, node: yaml.Node | None, message: str) -> None:
        """Remember something wrong at a place; a document without content has none."""
        self.problems.append(f"{self._place(node.start_mark if node is not None else None)}: {message}")

    def finish(self) -> None:
        """Refuse the document if anything was wrong with it."""
        if self.problems:
            raise self.refusal(self.problems)

    def refusal(self, problems: Sequence[str]) -> PolicyError:
        """Return the error that tells some problems."""
        shown = "\n".join(problems[:POLICY_PROBLEMS_SHOWN])
        more = len(problems) - POLICY_PROBLEMS_SHOWN
        return PolicyError(f"{shown}{f'{chr(10)}and {more} more' if more > 0 else ''}", problems=list(problems))

    def fields(self, node: yaml.Node | None, known: Sequence[str], required: Sequence[str]) -> dict[str, yaml.Node]:
        """Return the members of a mapping that may only have known ones, and must have some of them."""
        listed = ", ".join(f"`{one}`" for one in known)
        if not isinstance(node, yaml.MappingNode):
            self.fault(node, f"a mapping of {listed} belongs here")
            return {}
        members = self.entries(node)
        for key in node.value:
            if isinstance(key[0], yaml.ScalarNode) and key[0].value not in known:
                self.fault(key[0], f"there is no field `{key[0].value}`; there are {listed}")
        for name in required:
            if name not in members:
                self.fault(node, f"the field `{name}` is missing")
        return {name: value for name, value in members.items() if name in known}

    def entries(self, node: yaml.Node) -> dict[str, yaml.Node]:
        """Return the members of a mapping with free names; none may come twice."""
        if not isinstance(node, yaml.MappingNode):
            self.fault(node, "a mapping belongs here")
            return {}
        members: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = self.text(key)
            if name in members:
                self.fault(key, f"`{name}` comes twice")
            elif name is not None:
                members[name] = value
        return members

    def text(self, node: yaml.Node) -> str | None:
        """Return a text that is not blank."""
        if not isinstance(node, yaml.ScalarNode) or node.tag != _STRING:
            self.fault(node, "a text belongs here; put it in quotes if it looks like a number or a date")
            return None
        if not node.value.strip():
            self.fault(node, "a name cannot be blank")
            return None
        return str(node.value).strip()

    def word(self, node: yaml.Node, known: Sequence[str]) -> str | None:
        """Return one of the known words."""
        found = self.text(node)
        if found is None or found in known:
            return found
        self.fault(node, f"`{found}` is not one of {', '.join(f'`{one}`' for one in known)}")
        return None

    def texts(self, node: yaml.Node) -> tuple[str, ...]:
        """Return a list of texts that has at least one, and none of them twice."""
        found: list[str] = []
        for one in self.items(node):
            text = self.text(one)
            if text in found:
                self.fault(one, f"`{text}` comes twice")
            elif text is not None:
                found.append(text)
        if isinstance(node, yaml.SequenceNode) and not node.value:
            self.fault(node, "the list is empty; name at least one, or leave the field out")
        return tuple(found)

    def items(self, node: yaml.Node) -> list[yaml.Node]:
        """Return the members of a list."""
        if not isinstance(node, yaml.SequenceNode):
            self.fault(node, "a list belongs here")
            return []
        return list(node.value)

    def version(self, node: yaml.Node) -> None:
        """Check the version of a format, which is 1 so far."""
        is_one = isinstance(node, yaml.ScalarNode) and node.tag == _INTEGER and node.value == "1"
        if not is_one:
            self.fault(node, "the version that is read is 1")

    def _place(self, mark: Any) -> str:
        return self.name if mark is None else f"{self.name}:{mark.line + 1}:{mark.column + 1}"
