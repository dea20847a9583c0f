"""Every step of a migration, on types with and without indexes, on main and on branches, and after a kill."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args

import pytest

import omnigraph as og
from omnigraph.failpoints import Point
from omnigraph.lang.migrate.step import StepKind
from tests.support.forked_python import run_forked
from tests.support.graph_template import copy_built
from tests.support.merge_fixtures import change, content
from tests.support.write_fixtures import rows

pytestmark = pytest.mark.slow

SCHEMA = """
interface Tagged { tag: String? }
node Part {
  code: String @key
  size: I32? @index
  grade: enum(a, b)?
  stock: I32
  label: String? @index
  maker: String?
  @range(stock, 0..1000)
}
edge Needs: Part -> Part { count: I32? @index }
"""
Row = Mapping[str, Any]
State = dict[str, dict[str, Any]]


def edited(old: str, new: str) -> str:
    assert old in SCHEMA
    return SCHEMA.replace(old, new)


@dataclass(frozen=True)
class Migration:
    """A new schema, the kinds of its steps, and what it does to a part and to an edge."""

    schema: str
    kinds: set[str]
    part: Callable[[Row], Row] = dict
    need: Callable[[Row], Row] = dict


def with_default(name: str, value: object, row: Row) -> Row:
    return {**row, name: value}


def renamed(old: str, new: str, row: Row) -> Row:
    return {new if name == old else name: value for name, value in row.items()}


def without(name: str, row: Row) -> Row:
    return {known: value for known, value in row.items() if known != name}


def keyed(row: Row) -> Row:
    return {**row, "id": f'["{row["src"]}","{row["dst"]}"]'}


SHORT: Final = "size: I32? @index"
MIGRATIONS: Final[Mapping[str, Migration]] = {
    "add_type": Migration(SCHEMA + "node Box { code: String @key }", {"add_type"}),
    "rename_type": Migration(
        SCHEMA.replace("node Part {", 'node Item @rename_from("Part") {').replace("Part -> Part", "Item -> Item"),
        {"rename_type"},
    ),
    "describe_type": Migration(edited("node Part {", 'node Part @description("a part") {'), {"update_type_metadata"}),
    "drop_type": Migration(SCHEMA.partition("edge Needs")[0], {"drop_type"}),
    "add_optional": Migration(
        edited(SHORT, f"{SHORT} mass: F64?"), {"add_property"}, partial(with_default, "mass", None)
    ),
    "add_required": Migration(
        edited(SHORT, f"{SHORT} mass: F64 @default(2.5)"), {"add_property"}, partial(with_default, "mass", 2.5)
    ),
    "add_required_to_edge": Migration(
        edited("count: I32? @index", 'count: I32? @index unit: String @default("each")'),
        {"add_property"},
        need=partial(with_default, "unit", "each"),
    ),
    "rename_property": Migration(
        edited(SHORT, 'length: I32? @index @rename_from("size")'),
        {"rename_property"},
        partial(renamed, "size", "length"),
    ),
    "extend_enum": Migration(edited("enum(a, b)", "enum(a, b, c)"), {"extend_enum"}),
    "describe_property": Migration(
        edited("stock: I32", 'stock: I32 @description("on hand")'), {"update_property_metadata"}
    ),
    "widen": Migration(edited("size: I32?", "size: I64?"), {"widen_property"}),
    "widen_edge": Migration(edited("count: I32?", "count: I64?"), {"widen_property"}),
    "make_optional": Migration(edited("stock: I32", "stock: I32?"), {"make_optional"}),
    "make_required": Migration(edited("size: I32?", "size: I32"), {"make_required"}),
    "drop_property": Migration(edited("label: String? @index", ""), {"drop_property"}, partial(without, "label")),
    "implement": Migration(
        edited("node Part {", "node Part implements Tagged {"),
        {"change_interfaces", "add_property"},
        partial(with_default, "tag", None),
    ),
    "add_unique": Migration(edited("maker: String?", "maker: String? @unique"), {"add_constraint"}),
    "add_range": Migration(edited("0..1000)", "0..1000) @range(size, 0..99)"), {"add_constraint"}),
    "add_index": Migration(edited("maker: String?", "maker: String? @index"), {"add_constraint"}),
    "drop_index": Migration(edited("label: String? @index", "label: String?"), {"drop_constraint"}),
    "add_edge_key": Migration(
        edited("count: I32? @index", "count: I32? @index @key(src, dst)"), {"add_constraint"}, need=keyed
    ),
    "everything": Migration(
        edited(SHORT, 'length: I64? @index @rename_from("size") mass: F64 @default(2.5)').replace(
            "label: String? @index", ""
        ),
        {"rename_property", "widen_property", "add_property", "drop_property"},
        lambda row: without("label", with_default("mass", 2.5, renamed("size", "length", row))),
    ),
}
STATES: Final = ("no index", "index", "optimized", "partly covered")
PLACES: Final = ("main", "fresh branch", "forked branch")
# Killed when everything is staged and nothing published, and when only links are missing.
MOMENTS: Final = (Point.PUBLISH_BEFORE, Point.PUBLISH_AFTER)


def insert_parts(graph: og.Graph, first: int, last: int) -> None:
    for number in range(first, last):
        label = f'code: "p{number}", size: {number}, grade: "a", stock: {number}, label: "part {number}"'
        change(graph, f'insert Part {{ {label}, maker: "m{number}" }}')


def build(state: str, root: Path) -> og.Graph:
    graph = og.init(root, SCHEMA)
    insert_parts(graph, 0, 4)
    change(graph, 'insert Needs { from: "p0", to: "p1", count: 2 }')
    change(graph, 'delete Part where code = "p3"')
    if state in ("index", "partly covered"):
        graph.maintenance.ensure_indices()
    if state == "optimized":
        graph.maintenance.optimize()
    if state == "partly covered":
        insert_parts(graph, 5, 7)
        change(graph, 'update Part set { stock: 9 } where code = "p1"')
    return graph


BUILDERS: Final = {state: partial(build, state) for state in STATES}


def expected(before: State, migration: Migration) -> State:
    parts = [migration.part(row) for row in before["node:Part"].values()]
    needs = [migration.need(row) for row in before["edge:Needs"].values()]
    by_type = {"Part": {row["id"]: dict(row) for row in parts}, "Needs": {row["id"]: dict(row) for row in needs}}
    if "drop_type" in migration.kinds:
        del by_type["Needs"]
    if "add_type" in migration.kinds:
        by_type["Box"] = {}
    return {"Item" if "rename_type" in migration.kinds and name == "Part" else name: by_type[name] for name in by_type}


def read_content(graph: og.Graph, branch: str) -> State:
    return {key.partition(":")[2]: found for key, found in content(graph, branch).items()}


def name_type(after: State) -> str:
    return "Item" if "Item" in after else "Part"


def name_size(migration: Migration) -> str:
    return "length" if "rename_property" in migration.kinds else "size"


def check_reads(graph: og.Graph, branch: str, before: State, migration: Migration) -> None:
    """Compare all rows with the model, then the answers of filters that an index may give."""
    after = expected(before, migration)
    assert read_content(graph, branch) == after
    name, size = name_type(after), name_size(migration)
    for column, value in ((size, 2), ("stock", 9), ("code", "p5"), ("maker", "m0")):
        source = f"match {{ $p: {name} $p.{column} = {json.dumps(value)} }} return {{ $p.code }}"
        found = sorted(row["p.code"] for row in graph.query(source, branch=branch).rows())
        assert found == sorted(row["code"] for row in after[name].values() if row[column] == value), column


def check(graph: og.Graph, branch: str, before: State, migration: Migration) -> None:
    """Check the rows and what is stored, then write once more."""
    check_reads(graph, branch, before, migration)
    assert [item for item in graph.maintenance.verify(data=True).findings if item.severity == "error"] == []
    after = expected(before, migration)
    name, size = name_type(after), name_size(migration)
    change(graph, f'insert {name} {{ code: "last", stock: 1, {size}: 1 }}', branch)
    assert rows(graph, f"node:{name}", branch).keys() == {*after[name], "last"}


def test_every_kind_of_step_is_in_the_matrix() -> None:
    covered = set[str]().union(*(migration.kinds for migration in MIGRATIONS.values()))
    assert covered == {*get_args(StepKind)} - {"unsupported_change"}


def make_place(graph: og.Graph, place: str) -> str:
    """Return the branch on which a migration runs, made as the place says."""
    if place == "main":
        return "main"
    branch = graph.branches.create("review").name
    if place == "forked branch":
        change(graph, 'insert Part { code: "forked", size: 2, stock: 9 }', branch)
        change(graph, 'insert Needs { from: "forked", to: "p2" }', branch)
    return branch


@pytest.mark.sampled(14)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", MIGRATIONS)
def test_migration_gives_every_row_what_the_new_schema_says(tmp_path: Path, name: str, state: str, place: str) -> None:
    migration = MIGRATIONS[name]
    graph = copy_built(BUILDERS[state], tmp_path / "g.omni")
    branch = make_place(graph, place)
    before, main = content(graph, branch), content(graph)
    receipt = graph.schema.apply(migration.schema, branch=branch)
    assert {step.kind for step in receipt.steps} == migration.kinds
    check(graph, branch, before, migration)
    if branch != "main":
        assert content(graph) == main


@pytest.mark.sampled(3)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", MIGRATIONS)
def test_migration_after_a_kill(tmp_path: Path, name: str, place: str) -> None:
    migration = MIGRATIONS[name]
    # What is new on a branch first has its number reserved on main, by a publish of its own.
    number = "2" if place != "main" and migration.kinds & {"add_property", "add_type"} else "1"
    jobs: list[str] = []
    before: dict[str, tuple[State, State]] = {}
    for state in STATES:
        for point in MOMENTS:
            root = str(tmp_path / f"{state}-{point.value}.omni")
            graph = copy_built(BUILDERS[state], root)
            branch = make_place(graph, place)
            before[root] = content(graph, branch), content(graph)
            graph.close()
            jobs += [root, branch, point.value, number]
    command = [sys.executable, "-m", "tests.support.schema_crash_child", migration.schema, *jobs]
    run = run_forked(command)
    assert run.returncode == 0, run.stderr
    assert {*run.stdout.split()} <= {str(-signal.SIGKILL), "0"}
    for root, moment in zip(jobs[::4], jobs[2::4], strict=True):
        of_branch, of_main = before[root]
        if moment == Point.PUBLISH_AFTER:
            # Nobody has linked the new versions yet, and this reader may not.
            check_reads(og.open(root, read_only=True), branch, of_branch, migration)
        graph = og.open(root)
        graph.schema.apply(migration.schema, branch=branch)
        check(graph, branch, of_branch, migration)
        if branch != "main":
            assert content(graph) == of_main
