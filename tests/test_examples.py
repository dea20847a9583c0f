"""The example graphs compile, show enough of the language, and the demo runs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from runpy import run_path
from typing import Any

import orjson
import pytest

import omnigraph as og
from omnigraph.lang.migrate import plan_migration
from omnigraph.lang.query import lint_queries
from omnigraph.lang.schema import compile_schema
from omnigraph.source_files import read_source
from tests.support.case_runner import DOMAIN
from tests.support.examples import IS_LONG
from tests.support.spark_environment import environment_of_a_user

EXAMPLES = Path(__file__).parent.parent / "examples"
SUPPLY = EXAMPLES / "supply"
DEBIAN = EXAMPLES / "debian"


def test_supply_queries_have_no_errors() -> None:
    schema = compile_schema(read_source(SUPPLY / "schema.pg", "S1"), domain=DOMAIN)
    report = lint_queries([read_source(SUPPLY / "queries.gq", "Q000")], schema.catalog)
    assert [finding.render() for finding in report.findings if finding.severity == "error"] == []
    assert 8 <= len(report.queries) <= 12
    assert schema.notes == ()


def test_supply_data_is_what_its_script_makes() -> None:
    assert (SUPPLY / "data.ndjson").read_text(encoding="utf-8") == run_path(str(SUPPLY / "make_data.py"))["render"]()


@pytest.mark.slow
def test_supply_data_obeys_the_schema(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "supply.omni", SUPPLY / "schema.pg")
    receipt = graph.ingest(SUPPLY / "data.ndjson", mode="append")
    assert receipt.total_entities == len((SUPPLY / "data.ndjson").read_text(encoding="utf-8").splitlines())
    copy = og.init(tmp_path / "copy.omni", SUPPLY / "schema.pg")
    exported = b"".join(graph.export())
    copy.ingest(exported, mode="append")
    assert b"".join(copy.export()) == exported


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell of a notebook; returns the value of its last expression."""
    *body, last = ast.parse(source).body
    statements = [*body] if isinstance(last, ast.Expr) else [*body, last]
    exec(compile(ast.Module(statements, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


@pytest.mark.slow
def test_notebook_runs_twice_and_shows_what_it_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    cells = orjson.loads((SUPPLY / "tour.ipynb").read_bytes())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    for _ in range(2):
        names: dict[str, Any] = {}
        shown = [run_cell(source, names) for source in sources]
        assert all(value is not None for value in shown)
        assert sum(hasattr(value, "_repr_html_") or hasattr(value, "_repr_svg_") for value in shown) >= 6
        names["graph"].close()


def test_supply_queries_show_every_extension() -> None:
    text = (SUPPLY / "queries.gq").read_text(encoding="utf-8")
    shown = [
        "optional {",
        "is null",
        " or ",
        " in $",
        "distinct",
        "skip",
        "limit $",
        "count(*)",
        "as score",
        "as $hops",
    ]
    assert [words for words in shown if words not in text] == []


def test_supply_next_schema_is_a_supported_change_of_many_kinds() -> None:
    accepted = compile_schema(read_source(SUPPLY / "schema.pg", "S1"), domain=DOMAIN).ir
    plan = plan_migration(accepted, read_source(SUPPLY / "next.pg", "S1"))
    assert plan.supported, plan.render()
    assert len({step.kind for step in plan.steps}) >= 5


def test_debian_queries_have_no_errors() -> None:
    schema = compile_schema(read_source(DEBIAN / "schema.pg", "S1"), domain=DOMAIN)
    report = lint_queries([read_source(DEBIAN / "queries.gq", "Q000")], schema.catalog)
    assert [finding.render() for finding in report.findings if finding.severity == "error"] == []
    assert schema.notes == ()


ARCHIVE = """
Package: app
Version: 1.0
Installed-Size: 10
Maintainer: "Ada L." <ada@example.org>
Architecture: all
Depends: lib (>= 1), lib (<< 2), editor | viewer, app, nowhere,
 mail-agent, shape-api (= 3)
Recommends: viewer
Suggests: viewer, lib
Description: an application
Tag: role::{program,plugin}, use::viewing
Section: misc
Priority: optional
Filename: pool/app.deb
Size: 1

Package: local
Version: 1
Maintainer: nobody
Description: in no archive
"""
OTHERS = {"lib": "shape-api (= 3)", "other": "shape-api", "editor": "mail-agent", "viewer": "mail-agent, unasked"}


def debian_records(kind: str) -> list[dict[str, Any]]:
    made = run_path(str(DEBIAN / "take_snapshot.py"))
    text = ARCHIVE
    for name, provides in OTHERS.items():
        text += f"\nPackage: {name}\nVersion: 1\nMaintainer: Ada L. <x>\nArchitecture: amd64\nProvides: {provides}\n"
        text += "Description: d\nSection: libs\nPriority: extra\nFilename: f\nSize: 2\n"
    records = list(made[kind](made["read_archive"](text.splitlines())))
    assert made["render"](records).count(b"\n") == len(records)
    return records


def test_debian_dependency_one_package_can_meet_is_a_need() -> None:
    edges = [(one["to"], one["data"]) for one in debian_records("edges") if one["edge"] == "Needs"]
    # Only `lib` offers `shape-api` in a version.
    assert edges == [("lib", {"strength": "depends", "versions": ">= 1, << 2, = 3"})]


def test_debian_dependency_several_can_meet_is_a_choice() -> None:
    edges = debian_records("edges")
    choices = [(one["to"], one["data"]) for one in edges if one["edge"] == "Accepts"]
    assert choices == [
        ("editor", {"clause": 1}),
        ("viewer", {"clause": 1}),
        ("editor", {"clause": 2, "via": "mail-agent"}),
        ("viewer", {"clause": 2, "via": "mail-agent"}),
    ]
    provided = {(one["from"], one["to"]) for one in edges if one["edge"] == "Provides"}
    assert ("viewer", "mail-agent") in provided
    assert "unasked" not in {target for _, target in provided}
    wishes = {one["to"]: one["data"]["strength"] for one in edges if one["edge"] == "Wishes"}
    assert wishes == {"lib": "suggests", "viewer": "recommends"}


@pytest.mark.slow
def test_debian_excerpt_obeys_the_schema(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", DEBIAN / "schema.pg")
    nodes, edges = debian_records("nodes"), debian_records("edges")
    assert graph.ingest([*nodes, *edges], mode="append").total_entities == len(nodes) + len(edges)
    [app] = [one["data"] for one in nodes if one["data"]["name"] == "app"]
    assert app["tags"] == ["role::plugin", "role::program", "use::viewing"]
    assert [one["data"]["name"] for one in nodes if one["type"] == "Maintainer"] == ["Ada L."]


@pytest.mark.spark
@pytest.mark.slow
def test_demo_shows_each_part_and_its_deliberate_mistake() -> None:
    command = [sys.executable, str(EXAMPLES / "demo.py")]
    environment = environment_of_a_user() if IS_LONG else None
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    for words in (
        "catalog",
        "status ok",
        "mistake.gq:5:8",
        "^^^^",
        "did you mean `installed_kib`",
        "63,431 Package",
        "255,103 Needs",
        "already applied: True",
        "holds: snapshot",
        "published: merged into `main`",
        "3.0.20-1~deb12u3",
        "removed",
        "main: 616 packages stand on",
        "transition/gtk2: 0 packages stand on",
        "calligrasheets",
        "delete 1 node Package",
        "merged, 0 conflicts",
        "moves to GTK 3",
        "0 rows today, 616 packages stood on it",
    ):
        assert words in run.stdout, words
