"""Finds mistakes in the declaration of a pipeline that no single value shows, and where its parts are in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import yaml

from omnigraph.errors import GraphError
from omnigraph.pipeline.declared.document import PipelineDocument

_TABLES: Final = ("table", "dbtable", "query")


def check_place(document: PipelineDocument, name: str, node: yaml.Node, values: Mapping[str, str]) -> None:
    """Report a source that does not say which file or table it is, before Spark looks for it."""
    for key, value in document.entries(node).items() if isinstance(node, yaml.MappingNode) else ():
        is_flag = isinstance(value, yaml.ScalarNode) and value.tag == "tag:yaml.org,2002:bool"
        if key in ("format", "path", "incremental", "url", *_TABLES) and (not values.get(key, "").strip() or is_flag):
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

    `branches` has the graph and the branch of each pipeline that merges.
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


def check_branch_name(document: PipelineDocument, node: yaml.Node, name: str | None) -> None:
    """Report a name that no branch can have."""
    from omnigraph.manifest.branches import checked_name
    from omnigraph.manifest.model import MAIN

    if name in (None, MAIN):
        return
    try:
        checked_name(str(name), "branch")
    except GraphError as error:
        document.fault(node, f"{error.message}; use another name")


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
