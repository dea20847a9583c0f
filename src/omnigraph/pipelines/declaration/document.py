"""A YAML file of pipelines being read: names, numbers and settings, and mistakes that no single value shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import yaml

from omnigraph.errors import GraphError, OmniGraphError, UsageError
from omnigraph.pipelines.declaration.sql_text import find_forbidden, find_views
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

    def text(self, node: yaml.Node | None) -> str | None:
        """Return a string that is not blank; None if it is missing."""
        return None if node is None else super().text(node)

    def word(self, node: yaml.Node | None, allowed: Sequence[str]) -> str | None:
        """Return a string that must be one of the known words; None if it is missing."""
        return None if node is None else super().word(node, allowed)

    def entries(self, node: yaml.Node | None) -> dict[str, yaml.Node]:
        """Return the entries of a mapping; none if it is missing."""
        return {} if node is None else super().entries(node)

    def named(self, node: yaml.Node | None) -> dict[str, yaml.Node]:
        """Return the entries of a mapping whose keys are identifiers."""
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
        return {name: self.scalar(item) or "" for name, item in self.entries(node).items()}

    def settings(self, node: yaml.Node | None) -> dict[str, str]:
        """Return a mapping of scalars that may need secrets; these must be variables."""
        for name, item in self.entries(node).items():
            text = str(item.value) if isinstance(item, yaml.ScalarNode) else ""
            is_plain = SECRET_NAME.search(name) and not _VARIABLES_ONLY.fullmatch(text.strip())
            if is_plain or _SECRET_IN_URL.search(text):
                self.fault(item, "a secret must not be in the file; name the variable that holds it as `${NAME}`")
            elif _BROKEN_VARIABLE.search(VARIABLE.sub("", text).strip()):
                self.fault(item, "a variable is written as `${NAME}`; there are no defaults")
        return self.scalars(node)

    def statement(self, node: yaml.Node | None) -> str | None:
        """Return SQL, in which Spark would replace `${NAME}` by a setting of its own, or by nothing."""
        text = self.text(node)
        if text is not None and "${" in text:
            self.fault(node, "`${NAME}` is replaced in sources, `master` and `conf`, not in SQL; write the value")
        forbidden = None if text is None else find_forbidden(text)
        if forbidden is not None:
            self.fault(node, f"{forbidden}, which SQL of a pipeline may not; prepare such rows outside of it")
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


_TABLES: Final = ("table", "dbtable", "query")


def check_place(document: PipelineDocument, name: str, node: yaml.Node, values: Mapping[str, str]) -> None:
    """Report a source that does not say which file or table it is, before Spark looks for it."""
    for key, value in document.entries(node).items() if isinstance(node, yaml.MappingNode) else ():
        is_flag = isinstance(value, yaml.ScalarNode) and value.tag == _BOOLEAN
        if key in ("format", "path", "incremental", "renamed_from", "moved_from", "lookback", "url", *_TABLES) and (
            not values.get(key, "").strip() or is_flag
        ):
            document.fault(value, f"expected a value for `{key}`")
    if values.get("format") == "jdbc":
        if "path" in values:
            document.fault(
                node, f"source `{name}` is a table of a database; it has a `url` and a `table`, and no `path`"
            )
        elif "url" not in values:
            document.fault(node, f"source `{name}` needs a `url`, the address of the database")
        elif sum(key in values for key in _TABLES) != 1:
            document.fault(node, f"source `{name}` needs a `table` or a `query`, and only one of them")
    elif "path" not in values and not {*_TABLES, "url"} & values.keys():
        document.fault(node, f"source `{name}` needs a `path`, or a `table`")


def check_branches(document: PipelineDocument, node: yaml.Node, branches: Mapping[str, tuple[str | None, str]]) -> None:
    """Report a branch to which two pipelines load: neither would publish what the other one left there.

    `branches` has the graph and the branch of each pipeline that loads to a branch which one of them merges.
    """
    loaders: dict[tuple[str | None, str], str] = {}
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        branch = branches.get(str(key.value))
        if branch is None:
            continue
        other = loaders.setdefault(branch, str(key.value))
        if other != key.value:
            message = f"pipeline `{other}` loads to the branch `{branch[1]}`, too; name another `publish.branch`"
            document.fault(key, message)


def read_branch_name(document: PipelineDocument, node: yaml.Node | None) -> str | None:
    """Return the name of a branch; reports one that no branch can have."""
    from omnigraph.manifest.branches import checked_name
    from omnigraph.manifest.model import MAIN

    name = document.text(node)
    try:
        if name not in (None, MAIN):
            checked_name(str(name), "branch")
    except GraphError as error:
        document.fault(node, f"{error.message}; use another name")
    return name


def check_views(document: PipelineDocument, members: Mapping[str, yaml.Node]) -> None:
    """Report names that are one name for Spark, which ignores the case."""
    known: dict[str, str] = {}
    for kind in ("sources", "transforms"):
        entries = members.get(kind)
        for key, _ in entries.value if isinstance(entries, yaml.MappingNode) else ():
            first = known.setdefault(str(key.value).lower(), f"`{key.value}` is a {kind.removesuffix('s')}")
            if kind == "transforms" and first.endswith("source"):
                document.fault(key, f"{first}, too; give the transform another name")
            elif not first.startswith(f"`{key.value}`"):
                document.fault(key, f"{first}, and Spark does not tell the two names apart; use another one")


def check_members(document: PipelineDocument, members: Mapping[str, yaml.Node], query: str | None) -> None:
    """Report members that say nothing about a view, or nothing about a query."""
    if query is not None:
        for name in ("not_null", "unique", "condition", "min_rows", "at_most"):
            if name in members:
                document.fault(members[name], f"`{name}` is about the rows of a view; a `query` has `rows`")
    elif "rows" in members:
        document.fault(members["rows"], "`rows` is about the answer of a `query`; a view has `min_rows`")
    elif "at_most" in members and not {"not_null", "unique", "condition"} & members.keys():
        document.fault(members["at_most"], "a share of rows may fail `not_null`, `unique` or `condition`; add one")


def find_positions(file: str, members: Mapping[str, yaml.Node]) -> Iterator[tuple[str, str]]:
    """Yield the parts of a pipeline, such as `sources.accounts` or `expect.0`, and where they are."""
    for name, node in members.items():
        entries: list[tuple[str, yaml.Node]] = [(name, node)]
        if isinstance(node, yaml.MappingNode):
            entries += [(f"{name}.{key.value}", value) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            entries += [(f"{name}.{index}", value) for index, value in enumerate(node.value)]
        for part, entry in entries:
            yield part, f"{file}:{entry.start_mark.line + 1}:{entry.start_mark.column + 1}"


def check_unused(
    document: PipelineDocument, members: Mapping[str, yaml.Node], statements: Sequence[str], used: Iterable[str]
) -> None:
    """Report sources that nothing reads: a name in another place is probably misspelt."""
    named, entries = {view.lower() for view in used}, members.get("sources")
    for key, _ in entries.value if isinstance(entries, yaml.MappingNode) else ():
        name = str(key.value)
        if name.lower() not in named and not any(find_views(statement, [name]) for statement in statements):
            document.fault(key, f"nothing reads the source `{name}`; remove it, or use it")
