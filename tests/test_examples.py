"""The example graph compiles, shows enough of the language, and the demo runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from runpy import run_path

import omnigraph as og
from omnigraph.files import read_source
from omnigraph.lang.migrate import plan_migration
from omnigraph.lang.query import lint_queries
from omnigraph.lang.schema import compile_schema
from tests.caserunner import DOMAIN

EXAMPLES = Path(__file__).parent.parent / "examples"
SUPPLY = EXAMPLES / "supply"


def test_supply_queries_have_no_errors() -> None:
    schema = compile_schema(read_source(SUPPLY / "schema.pg", "S1"), domain=DOMAIN)
    report = lint_queries([read_source(SUPPLY / "queries.gq", "Q000")], schema.catalog)
    assert [finding.render() for finding in report.findings if finding.severity == "error"] == []
    assert 8 <= len(report.queries) <= 12
    assert schema.notes == ()


def test_supply_data_is_what_its_script_makes() -> None:
    assert (SUPPLY / "data.ndjson").read_text(encoding="utf-8") == run_path(str(SUPPLY / "make_data.py"))["render"]()


def test_supply_data_obeys_the_schema(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "supply.omni", SUPPLY / "schema.pg")
    receipt = graph.ingest(SUPPLY / "data.ndjson", mode="append")
    assert receipt.total_entities == len((SUPPLY / "data.ndjson").read_text(encoding="utf-8").splitlines())
    copy = og.init(tmp_path / "copy.omni", SUPPLY / "schema.pg")
    exported = b"".join(graph.export())
    copy.ingest(exported, mode="append")
    assert b"".join(copy.export()) == exported


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


def test_demo_shows_each_part_and_its_deliberate_mistake() -> None:
    run = subprocess.run([sys.executable, str(EXAMPLES / "demo.py")], capture_output=True, text=True, check=True)
    for words in (
        "catalog",
        "status ok",
        "plan",
        "mistake.gq:5:8",
        "^^^^",
        "downloads",
        "Organisation",
        "569 entities",
        "not among",
        "schema_apply",
    ):
        assert words in run.stdout, words
