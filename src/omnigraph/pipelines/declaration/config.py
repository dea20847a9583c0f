"""The declaration of pipelines in YAML: validated, with lines and columns in every error, and no secrets in them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from omnigraph.errors import UsageError
from omnigraph.lang.catalog import Kind, TypeKey
from omnigraph.limits import PIPELINE_CONFIG_BYTES_MAX
from omnigraph.manifest.model import MAIN
from omnigraph.pipelines.declaration.cron import Schedule, read_schedule
from omnigraph.pipelines.declaration.document import (
    VARIABLE,
    PipelineDocument,
    check_branches,
    check_members,
    check_place,
    check_unused,
    check_views,
    find_positions,
    read_branch_name,
)
from omnigraph.pipelines.declaration.format_options import check_options
from omnigraph.public_values import Mode
from omnigraph.source_files import read_regular_file

_PERCENT: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")
MODES: Final = ("merge", "append", "overwrite", "snapshot", "patch")
# Spark takes these in any case; other names may be those of classes.
_FORMATS: Final = ("avro", "csv", "jdbc", "json", "omnigraph", "orc", "parquet", "text", "xml")
# How far below a watermark a source is read: of a number, or of a time.
LOOKBACK: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)|([0-9]{1,9}) (second|minute|hour|day|week)s?")
OUTCOMES: Final = ("stop", "quarantine", "warn")
_OPERATIONS: Final = ("upsert_when", "ignore_when", "otherwise")
# Members of a source that are not options of its format.
_SOURCE_MEMBERS: Final = ("format", "path", "incremental", "renamed_from", "moved_from", "lookback")


@dataclass(frozen=True, slots=True)
class SourceDeclaration:
    """An input of Spark; `incremental` names the column by which later runs read only what is new.

    `lookback` is how far below the watermark they read once more. `renamed_from` is the name that it had, and
    `moved_from` the path or table that it had, in earlier runs.
    """

    name: str
    format: str
    path: str | None
    options: Mapping[str, str]
    incremental: str | None
    renamed_from: str | None = None
    moved_from: str | None = None
    lookback: str | None = None

    @property
    def location(self) -> str:
        """The path or table, as declared: with the names of variables, not with their values."""
        tables = (self.options.get(name) for name in ("url", "table", "dbtable", "query"))
        return " ".join(filter(None, (self.path, *tables)))


@dataclass(frozen=True, slots=True)
class TypeMapping:
    """A type that rows become. `columns` maps properties to columns; without it, columns have the property names.

    Attributes:
        delete_when: The column that marks rows whose entity is deleted.
        delete_values: The values of this column that mark a row; without any, it is a boolean.
        upsert_values: The values of rows that are loaded; None for the well-known ones.
        ignore_values: The values of rows that do nothing.
        is_pending: Whether an edge whose end is missing waits for it, and is tried again by the next run.
        otherwise: What other rows do: `stop`, `quarantine`, `upsert` or `ignore`; None as `on_error` says.
        order_by: The column by which the newest row of an entity is known; without it, the last one in the input wins.
        is_snapshot: Whether entities that the rows no longer have are deleted.
        is_patch: Whether properties that the rows have no column for stay as they are.
    """

    type_name: str
    from_view: str
    columns: Mapping[str, str]
    mode: Mode
    source: str | None = None
    target: str | None = None
    delete_when: str | None = None
    delete_values: tuple[str, ...] = ()
    order_by: str | None = None
    is_snapshot: bool = False
    is_patch: bool = False
    upsert_values: tuple[str, ...] | None = None
    ignore_values: tuple[str, ...] = ()
    otherwise: str | None = None
    is_pending: bool = False

    @property
    def kind(self) -> Kind:
        return "node" if self.source is None else "edge"

    @property
    def table_key(self) -> TypeKey:
        return TypeKey.of(self.kind, self.type_name)

    @property
    def is_deleting(self) -> bool:
        return self.is_snapshot or self.delete_when is not None


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must hold: of the rows of a view, or of the answer of a stored query on the loaded branch.

    `at_most` is the share of rows that may fail; with the outcome `quarantine`, they are left out.
    """

    label: str
    view: str | None = None
    not_null: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    condition: str | None = None
    rows_min: int | None = None
    at_most: Fraction = Fraction(0)
    query: str | None = None
    rows: int | None = None
    outcome: str = "stop"
    part: str = ""


@dataclass(frozen=True, slots=True)
class Publication:
    """Where a run loads to; with `merge_into`, a branch that is merged after its expectations hold."""

    branch: str
    merge_into: str | None
    needs_review: bool


@dataclass(frozen=True, slots=True)
class PipelineDeclaration:
    """A pipeline. Its `digest` covers everything that decides what a run loads.

    `is_rejecting` if entities that break a rule of the schema are left out and reported, instead of failing the run.
    Relative paths start at `folder`, that of the file. `text` is a file with this pipeline alone. `positions` has the
    file, line and column of its parts, such as `transforms.people`. `renamed_from` has the names that it had in earlier
    runs; None if the declaration does not say. `siblings` are the other pipelines of the file.
    """

    name: str
    graph: str | None
    publication: Publication
    schedule: Schedule | None
    sources: Mapping[str, SourceDeclaration]
    transforms: Mapping[str, str]
    nodes: Mapping[str, TypeMapping]
    edges: Mapping[str, TypeMapping]
    expectations: tuple[Expectation, ...]
    queries: str | None
    embed: bool
    is_rejecting: bool
    master: str | None
    spark_options: Mapping[str, str]
    renamed_from: tuple[str, ...] | None = None
    folder: Path | None = None
    digest: str = field(default="", compare=False)
    text: str = field(default="", compare=False, repr=False)
    positions: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    siblings: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The name, and those that it had before."""
        return (self.name, *(self.renamed_from or ()))

    @property
    def target_branch(self) -> str:
        """The branch that has what was published."""
        return self.publication.merge_into or self.publication.branch

    @property
    def mappings(self) -> tuple[TypeMapping, ...]:
        """The types that it loads, nodes first."""
        return (*self.nodes.values(), *self.edges.values())

    @property
    def mode(self) -> Mode:
        """The mode of all types; they are the same, because a run is one commit."""
        return self.mappings[0].mode


def read_pipelines(path: str | Path) -> dict[str, PipelineDeclaration]:
    """Read a YAML file with the member `pipelines`.

    Args:
        path: The file; relative paths in it start at its folder.

    Returns:
        The declarations by name.

    Raises:
        UsageError: The file cannot be read or is not valid; `problems` lists every mistake with its position.

    Example:
        >>> from omnigraph import pipeline
        >>> list(pipeline.read_pipelines("pipelines.yaml"))  # doctest: +SKIP
        ['crm']
    """
    file = Path(path)
    data, _ = read_regular_file(file, PIPELINE_CONFIG_BYTES_MAX)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: byte {error.start} is not UTF-8; save the file as UTF-8", path=str(file)) from None
    return parse_pipelines(text, str(file), file.absolute().parent)


def parse_pipelines(
    text: str, name: str = "pipelines.yaml", folder: Path | None = None
) -> dict[str, PipelineDeclaration]:
    """Parse the text of a YAML file with the member `pipelines`; relative paths in it start at `folder`."""
    document = PipelineDocument(name, PIPELINE_CONFIG_BYTES_MAX)
    members = document.fields(document.open(text), ("version", "pipelines"), ("pipelines",))
    if "version" in members:
        document.version(members["version"])
    pipelines = read_declarations(document, members["pipelines"], folder) if "pipelines" in members else {}
    document.finish()
    return pipelines


def read_declarations(
    document: PipelineDocument, node: yaml.Node, folder: Path | None = None
) -> dict[str, PipelineDeclaration]:
    declared = {}
    for name, entry in document.named(node).items():
        pipeline = _pipeline(document, name, entry, folder)
        if pipeline is not None:
            declared[name] = pipeline
    # A branch that one of them merges is its own: rows of another one would be published with its review.
    merged = {(item.graph, item.publication.branch) for item in declared.values() if item.publication.merge_into}
    branches = {name: (item.graph, item.publication.branch) for name, item in declared.items()}
    check_branches(document, node, {name: branch for name, branch in branches.items() if branch in merged})
    return {name: replace(item, siblings=frozenset(declared) - {name}) for name, item in declared.items()}


_MEMBERS: Final = (
    "graph", "publish", "schedule", "sources", "transforms", "nodes", "edges", "expect", "queries", "embed",
    "on_error", "spark", "renamed_from",
)  # fmt: skip


def _pipeline(
    document: PipelineDocument, name: str, node: yaml.Node, folder: Path | None
) -> PipelineDeclaration | None:
    known = len(document.problems)
    members = document.fields(node, _MEMBERS, ("sources",))
    sources = {
        source: _source(document, source, entry) for source, entry in document.named(members.get("sources")).items()
    }
    transforms = {
        view: document.statement(item) or "" for view, item in document.named(members.get("transforms")).items()
    }
    views = {*sources, *transforms}
    check_views(document, members)
    nodes = _mappings(document, members.get("nodes"), views, is_edge=False)
    edges = _mappings(document, members.get("edges"), views, is_edge=True)
    mappings = (*nodes.values(), *edges.values())
    if not mappings:
        document.fault(node, "the pipeline loads nothing; add `nodes` or `edges`")
    _check_modes(document, node, sources, mappings)
    publication = _publication(document, name, members.get("publish"))
    is_merging = publication.merge_into is not None
    if not is_merging and any(item.is_deleting for item in mappings):
        document.fault(node, "deletes and loads are published together by a merge; add `publish.merge_into`")
    if not is_merging and any(item.is_patch for item in mappings):
        document.fault(node, "`mode: patch` relies on a merge to keep concurrent changes; add `publish.merge_into`")
    expectations = _expectations(document, members.get("expect"), views)
    used = (*(item.from_view for item in mappings), *(item.view or "" for item in expectations))
    check_unused(document, members, tuple(transforms.values()), used)
    if not is_merging and any(item.query for item in expectations):
        document.fault(members["expect"], "a query is asked on a branch before it is merged; add `publish.merge_into`")
    spark = document.fields(members["spark"], ("master", "conf", "ui"), ()) if "spark" in members else {}
    ui = {"spark.ui.enabled": "true"} if document.boolean(spark.get("ui")) else {}
    on_error = document.word(members.get("on_error"), ("fail", "quarantine"))
    schedule = read_schedule(document, members.get("schedule"))
    if len(document.problems) > known:
        return None
    return PipelineDeclaration(
        name,
        document.scalar(members.get("graph")),
        publication,
        schedule,
        sources,
        transforms,
        nodes,
        edges,
        expectations,
        document.scalar(members.get("queries")),
        document.boolean(members.get("embed")),
        on_error == "quarantine",
        document.scalar(spark.get("master")),
        ui | document.settings(spark.get("conf")),
        _former_names(document, members.get("renamed_from")),
        folder,
        _digest(node, ("sources", "transforms", "nodes", "edges", "expect", "embed")),
        _serialize(name, node),
        dict(find_positions(document.name, members)),
    )


def _check_modes(
    document: PipelineDocument,
    node: yaml.Node,
    sources: Mapping[str, SourceDeclaration],
    mappings: Sequence[TypeMapping],
) -> None:
    modes = {item.mode for item in mappings}
    is_incremental = any(source.incremental for source in sources.values())
    if any((item.delete_when or item.order_by) and item.mode != "merge" for item in mappings):
        document.fault(node, "`delete_when` and `order_by` need `mode: merge`")
    if is_incremental and any(item.is_snapshot for item in mappings):
        message = "`snapshot` deletes what its rows no longer have, and an `incremental` source has only the new ones"
        document.fault(node, f"{message}; leave out `incremental`, or mark deleted rows with `delete_when`")
    if "append" in modes and any(source.lookback not in (None, "0") for source in sources.values()):
        document.fault(node, "`lookback` reads rows twice, and `append` would load them twice; use `mode: merge`")
    if len(modes) > 1:
        document.fault(node, "a run is one commit, so all its types need the same `mode`; make two pipelines")
    elif is_incremental and "overwrite" in modes:
        message = "`overwrite` replaces all entities of a type, and an `incremental` source has only the new ones"
        document.fault(node, f"{message}; use `mode: merge`, or leave out `incremental`")


def _source(document: PipelineDocument, name: str, node: yaml.Node) -> SourceDeclaration:
    values = document.settings(node)
    if values.get("format", "").lower() in _FORMATS:
        values["format"] = values["format"].lower()
    if "format" not in values:
        document.fault(node, f"source `{name}` needs a `format`: csv, json, parquet, jdbc, or any that Spark reads")
    check_place(document, name, node, values)
    check_options(document, node, values.get("format", ""), _SOURCE_MEMBERS)
    options = {key: value for key, value in values.items() if key not in _SOURCE_MEMBERS}
    if "lookback" in values and not LOOKBACK.fullmatch(values["lookback"]):
        document.fault(node, "`lookback` is a number, or a time such as `2 hours`, `1 day` or `1 week`; 0 is none")
    elif "lookback" in values and "incremental" not in values:
        document.fault(node, "`lookback` is about the `incremental` column; name it")
    progress = (values.get(key) for key in ("incremental", "renamed_from", "moved_from", "lookback"))
    return SourceDeclaration(name, values.get("format", ""), values.get("path"), options, *progress)


def _former_names(document: PipelineDocument, node: yaml.Node | None) -> tuple[str, ...] | None:
    """Return the names that a pipeline had: one, or a list, which is empty if it had none."""
    if isinstance(node, yaml.SequenceNode):
        return tuple(document.text(item) or "" for item in node.value)
    name = document.text(node)
    return None if name is None else (name,)


def _mappings(
    document: PipelineDocument, node: yaml.Node | None, views: set[str], *, is_edge: bool
) -> dict[str, TypeMapping]:
    ends = ("src", "dst") if is_edge else ()
    only_edges = ("missing_end",) if is_edge else ()
    mappings = {}
    for type_name, entry in document.named(node).items():
        fields = ("from", "columns", "mode", "delete_when", "order_by", *_OPERATIONS, *ends, *only_edges)
        members = document.fields(entry, fields, ("from", *ends))
        view = document.text(members.get("from"))
        _check_view(document, members.get("from"), view, views)
        mode: Any = document.word(members.get("mode"), MODES)
        delete_when, deleted = _delete_rule(document, members.get("delete_when"))
        upserts, ignored, otherwise = _operations(document, entry, members, deleted)
        columns = document.scalars(members.get("columns"))
        for name in (name for name, column in columns.items() if not column.strip() or column == "null"):
            document.fault(members["columns"], f"expected the column of `{name}`")
        mappings[type_name] = TypeMapping(
            type_name,
            view or "",
            columns,
            "merge" if mode in (None, "snapshot", "patch") else mode,
            document.text(members.get("src")),
            document.text(members.get("dst")),
            delete_when,
            deleted,
            document.text(members.get("order_by")),
            mode == "snapshot",
            mode == "patch",
            upserts,
            ignored,
            otherwise,
            document.word(members.get("missing_end"), ("pending", "reject")) == "pending",
        )
    return mappings


def _operations(
    document: PipelineDocument, node: yaml.Node, members: Mapping[str, yaml.Node], deleted: tuple[str, ...]
) -> tuple[tuple[str, ...] | None, tuple[str, ...], str | None]:
    """Return the values of `upsert_when` and `ignore_when`, and what is `otherwise`."""
    is_named = isinstance(members.get("delete_when"), yaml.MappingNode)
    for name in (name for name in _OPERATIONS if name in members):
        if name == "otherwise" and "delete_when" not in members:
            document.fault(members[name], "`otherwise` is about rows that `delete_when` does not know; add it")
        elif name != "otherwise" and not is_named:
            document.fault(
                members[name], f"`{name}` has values of the column of `delete_when`; write that as `{{ op: [d] }}`"
            )
    upserts = document.texts(members["upsert_when"]) if "upsert_when" in members else None
    ignored = document.texts(members["ignore_when"]) if "ignore_when" in members else ()
    groups = (deleted, upserts or (), ignored)
    twice = {value for group in groups for value in group if sum(value in other for other in groups) > 1}
    if twice:
        document.fault(node, f"the value `{min(twice)}` is in two of the lists of operations; leave it in one")
    return upserts, ignored, document.word(members.get("otherwise"), ("stop", "quarantine", "upsert", "ignore"))


def _check_view(document: PipelineDocument, node: yaml.Node | None, view: str | None, views: set[str]) -> None:
    if view is not None and view not in views:
        known = ", ".join(f"`{name}`" for name in sorted(views)) or "none"
        document.fault(node, f"there is no source or transform `{view}`; there are {known}")


def _delete_rule(document: PipelineDocument, node: yaml.Node | None) -> tuple[str | None, tuple[str, ...]]:
    """Return the column that marks deleted rows, and the values that do; without values, it is a boolean."""
    if not isinstance(node, yaml.MappingNode):
        return document.text(node), ()
    rules = document.entries(node)
    if len(rules) != 1:
        document.fault(node, "name one column and its values, as in `delete_when: { op: [d, delete] }`")
        return None, ()
    [(column, values)] = rules.items()
    if isinstance(values, yaml.ScalarNode):
        return column, (document.scalar(values) or "",)
    return column, tuple(document.scalar(item) or "" for item in document.items(values))


def _publication(document: PipelineDocument, name: str, node: yaml.Node | None) -> Publication:
    members = document.fields(node, ("branch", "merge_into", "review"), ()) if node is not None else {}
    merge_into = read_branch_name(document, members.get("merge_into"))
    branch = read_branch_name(document, members.get("branch"))
    if merge_into is not None and branch == merge_into:
        document.fault(node, "a branch cannot be merged into itself; name another `branch`")
    elif merge_into is not None and branch == MAIN:
        document.fault(
            node, f"`{MAIN}` would have the load before its checks, and is not deleted; name another `branch`"
        )
    needs_review = document.boolean(members.get("review"))
    if needs_review and merge_into is None:
        document.fault(node, "`review` needs `merge_into`: what is reviewed is a branch")
    if branch is None:
        branch = MAIN if merge_into is None else f"load/{name}"
    return Publication(branch, merge_into, needs_review)


def _expectations(document: PipelineDocument, node: yaml.Node | None, views: set[str]) -> tuple[Expectation, ...]:
    expectations = []
    for index, item in enumerate(document.items(node) if node is not None else ()):
        fields = ("on", "not_null", "unique", "condition", "min_rows", "at_most", "query", "rows", "else")
        members = document.fields(item, fields, ())
        view = document.text(members.get("on"))
        query = document.text(members.get("query"))
        if (view is None) == (query is None):
            document.fault(item, "an expectation is about the rows of a view (`on`) or the answer of a `query`")
        _check_view(document, members.get("on"), view, views)
        checks = {"not_null", "unique", "condition", "min_rows"} & members.keys()
        if view is not None and not checks:
            document.fault(item, "nothing is expected; add `not_null`, `unique`, `condition` or `min_rows`")
        check_members(document, members, query)
        outcome = document.word(members.get("else"), OUTCOMES)
        if outcome == "quarantine" and (query is not None or {"unique", "min_rows"} & checks):
            document.fault(item, "only rows that fail `not_null` or `condition` can be left out; use `stop` or `warn`")
        label = f"{view or query} ({', '.join(sorted(checks)) or 'query'})"
        expectations.append(
            Expectation(
                label,
                view,
                document.texts(members["not_null"]) if "not_null" in members else (),
                document.texts(members["unique"]) if "unique" in members else (),
                document.statement(members.get("condition")),
                document.integer(members.get("min_rows")),
                _share(document, members.get("at_most"), 1 if outcome == "quarantine" else 0),
                query,
                document.integer(members["rows"]) if "rows" in members else (0 if query is not None else None),
                outcome or "stop",
                f"expect.{index}",
            )
        )
    return tuple(expectations)


def _share(document: PipelineDocument, node: yaml.Node | None, default: int) -> Fraction:
    text = document.scalar(node)
    if node is None or text is None:
        return Fraction(default)
    match = _PERCENT.fullmatch(text)
    if match is None or Fraction(match[1]) > 100:
        document.fault(node, 'expected a share of at most 100 percent, such as `"0.1 %"`')
        return Fraction(default)
    return Fraction(match[1]) / 100


def resolve_variables(text: str, environment: Mapping[str, str]) -> str:
    """Replace every `${NAME}` by the environment variable; a missing one is an error.

    >>> resolve_variables("jdbc:${HOST}/crm", {"HOST": "db"})
    'jdbc:db/crm'
    """

    def value_of(match: re.Match[str]) -> str:
        if match[1] not in environment:
            raise UsageError(f"the environment variable `{match[1]}` is not set; set it and retry", name=match[1])
        return environment[match[1]]

    return VARIABLE.sub(value_of, text)


def _serialize(name: str, node: yaml.Node) -> str:
    """Return the text of a file that declares this pipeline alone."""

    def mapping(key: str, value: yaml.Node) -> yaml.Node:
        return yaml.MappingNode("tag:yaml.org,2002:map", [(yaml.ScalarNode("tag:yaml.org,2002:str", key), value)])

    return str(yaml.serialize(mapping("pipelines", mapping(name, node)), Dumper=yaml.SafeDumper, allow_unicode=True))


def _digest(node: yaml.Node, members: Sequence[str]) -> str:
    content = {key.value: _plain(value) for key, value in node.value if key.value in members}
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _plain(node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {key.value: _plain(value) for key, value in node.value}
    return [_plain(item) for item in node.value] if isinstance(node, yaml.SequenceNode) else node.value
