"""A YAML file of pipelines being read: names, integers, truth values and settings without secrets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import yaml

from omnigraph.errors import OmniGraphError, UsageError
from omnigraph.yaml_document import Document, Problem

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_BOOLEAN: Final = "tag:yaml.org,2002:bool"
_VARIABLES_ONLY: Final = re.compile(rf"(?:{VARIABLE.pattern})+")
SECRET_NAME: Final = re.compile(r"(?i)passw|pwd|secret|token|credential|(?:access|api|private|account|sas)[._-]?key")
_SECRET_IN_URL: Final = re.compile(
    r"(?i)(?:passw(?:or)?d|pwd|secret|token|sig|signature|api_?key)=(?!\$\{)"
    r"|://[^/@\s]+:(?!\$\{)[^/@\s]+@"
    # As in jdbc:oracle:thin:scott/tiger@//host
    r"|:[^/:@\s]+/(?!\$\{)[^/:@\s]+@"
)
_BROKEN_VARIABLE: Final = re.compile(r"\$\{|^\$[A-Za-z_][A-Za-z0-9_]*$")


class PipelineDocument(Document):
    """A file of pipelines being read."""

    def error(self, problems: Sequence[Problem]) -> OmniGraphError:
        lines = [problem.render(self.name) for problem in problems]
        return UsageError("\n".join(lines), problems=lines)

    def key(self, node: yaml.Node) -> str | None:
        # In YAML 1.1 a plain `on` is a truth value.
        if isinstance(node, yaml.ScalarNode) and node.tag == _BOOLEAN:
            return str(node.value)
        return super().key(node)

    def named(self, node: yaml.Node | None) -> dict[str, yaml.Node]:
        """Return the entries of a mapping whose keys are identifiers."""
        if node is None:
            return {}
        entries = self.entries(node)
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key.value, str) and not _NAME.fullmatch(key.value):
                self.fault(key, f"`{key.value}` is not a name; use letters, digits and `_`")
        return entries

    def scalar(self, node: yaml.Node | None) -> str | None:
        """Return a scalar of any type as text."""
        if node is None:
            return None
        if isinstance(node, yaml.ScalarNode):
            return str(node.value)
        self.fault(node, "expected a single value")
        return None

    def scalars(self, node: yaml.Node | None) -> dict[str, str]:
        """Return a mapping of scalars."""
        return {
            name: self.scalar(item) or "" for name, item in (self.entries(node) if node is not None else {}).items()
        }

    def settings(self, node: yaml.Node | None) -> dict[str, str]:
        """Return a mapping of scalars that may need secrets; these must be variables."""
        for name, item in self.entries(node).items() if node is not None else ():
            text = str(item.value) if isinstance(item, yaml.ScalarNode) else ""
            if (SECRET_NAME.search(name) and not _VARIABLES_ONLY.fullmatch(text.strip())) or _SECRET_IN_URL.search(
                text
            ):
                self.fault(item, "a secret must not be in the file; name the variable that holds it as `${NAME}`")
            elif _BROKEN_VARIABLE.search(VARIABLE.sub("", text).strip()):
                self.fault(item, "a variable is written as `${NAME}`; there are no defaults")
        return self.scalars(node)

    def statement(self, node: yaml.Node) -> str | None:
        """Return SQL, in which Spark would replace `${NAME}` by a setting of its own, or by nothing."""
        text = self.text(node)
        if text is not None and "${" in text:
            self.fault(node, "`${NAME}` is replaced in sources, `master` and `conf`, not in SQL; write the value")
        return text

    def boolean(self, node: yaml.Node | None) -> bool:
        """Return a truth value; false if it is missing."""
        if node is None:
            return False
        if isinstance(node, yaml.ScalarNode) and node.tag == _BOOLEAN:
            return str(node.value).lower() in ("true", "yes", "on")
        self.fault(node, "expected `true` or `false`")
        return False

    def integer(self, node: yaml.Node | None) -> int | None:
        """Return an integer that is not negative."""
        text = self.scalar(node)
        if node is None or text is None:
            return None
        if not (text.isascii() and text.isdigit()):
            self.fault(node, "expected an integer that is not negative")
            return None
        return int(text)
