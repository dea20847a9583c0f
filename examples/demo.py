"""A tour of what OmniGraph does today, on the supply chain graph beside this file.

Shows the product and adds nothing to it; `make demo` runs it.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

import omnigraph as og
from omnigraph.engine.read import Result
from omnigraph.files import read_source
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import Catalog
from omnigraph.lang.diagnostic import LanguageError
from omnigraph.lang.query import LintReport, compile_query, format_plan, lint_queries
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.source import Source

SUPPLY = Path(__file__).parent / "supply"
ADVISORY = "OG-2025-0006"
SEVERITIES = ("low", "medium", "high", "critical")
MISTAKE = """query mistake() {
  match {
    $p: Package
    $p dependsOn $q
    $q.donwloads > 1000
  }
  return { $q.name }
}"""

console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    schema = compile_schema(read_source(SUPPLY / "schema.pg", "S1"), domain=new_ulid())
    queries = read_source(SUPPLY / "queries.gq", "Q000")
    step("A schema becomes a catalog of types", "examples/supply/schema.pg")
    console.print(catalog_table(schema.catalog))

    step("Queries are checked against it before anything runs", "examples/supply/queries.gq")
    report = lint_queries([queries], schema.catalog)
    console.print(query_table(report))
    console.print(f"{len(report.queries)} queries, {len(report.findings)} findings, status {report.status}")

    step("Each compiles to a typed plan", "the query `blast_radius`")
    console.print(format_plan(compile_query(queries, schema.catalog, name="blast_radius").ir), markup=False)

    step("A mistake is explained where it stands", "a misspelt property")
    try:
        compile_query(Source("mistake.gq", MISTAKE), schema.catalog)
    except LanguageError as error:
        console.print(error.render(), markup=False, style="red")

    with TemporaryDirectory() as folder:
        work_on_a_graph(Path(folder) / "supply.omni", queries.text)
    console.print("\n[bold]Next:[/] make test, then docs/index.md")


def work_on_a_graph(place: Path, queries: str) -> None:
    step("A graph is created and filled, each as one commit", "examples/supply/data.ndjson")
    with og.init(place, SUPPLY / "schema.pg", actor="ada") as graph:
        loaded = graph.ingest(SUPPLY / "data.ndjson", mode="append")
        console.print(f"{loaded.total_entities} entities, commit {loaded.commit.commit_id}")

        step("Queries run on it", "`ecosystems`, then `dependencies` of one package")
        console.print(result_table(graph.query(queries, "ecosystems")))
        console.print(result_table(graph.query(queries, "dependencies", {"name": "wide-term", "most": 5})))

        step("A branch is a place to try things", "`withdraw` one advisory on review/ada")
        graph.branches.create("review/ada")
        graph.mutate(queries, "withdraw", {"code": ADVISORY}, branch="review/ada")
        for branch in graph.branches.list():
            open_ones = graph.query(queries, "open_advisories", {"severities": list(SEVERITIES)}, branch=branch)
            codes = {row["a.code"] for row in open_ones.rows()}
            found = "among" if ADVISORY in codes else "not among"
            console.print(f"{branch}: {len(codes)} open advisories, {ADVISORY} {found} them")

        step("A new schema is planned, then applied as one commit", "examples/supply/next.pg")
        graph.branches.delete("review/ada")
        console.print(graph.schema.plan(SUPPLY / "next.pg").render(), markup=False)
        graph.schema.apply(SUPPLY / "next.pg")

        step("History remembers all of it", "newest first, and the past can still be asked")
        for commit in graph.commits():
            console.print(f"{commit.commit_id}  {commit.kind:<12}  {commit.actor}")
        console.print(result_table(graph.query(queries, "ecosystems", at=loaded.commit.commit_id)))


def step(title: str, subject: str) -> None:
    console.print(f"\n[bold cyan]{title}[/] [dim]({subject})[/]")


def catalog_table(catalog: Catalog) -> Table:
    table = Table("type", "key", "properties", box=None, header_style="bold")
    for node in catalog.nodes.values():
        properties = ", ".join(f"{p.name}: {p.type}" for p in node.properties.values())
        table.add_row(node.name, ", ".join(node.key), properties)
    for edge in catalog.edges.values():
        properties = ", ".join(f"{p.name}: {p.type}" for p in edge.properties.values())
        table.add_row(f"{edge.source} -{edge.name}-> {edge.target}", "", properties)
    return table


def result_table(result: Result) -> Table:
    table = Table(*result.columns, box=None, header_style="bold")
    for row in result.rows():
        table.add_row(*(str(row[name]) for name in result.columns))
    return table


def query_table(report: LintReport) -> Table:
    table = Table("query", "kind", "what it answers or does", box=None, header_style="bold")
    for query in report.queries:
        if query.compiled is not None:
            table.add_row(query.name, query.compiled.kind, query.compiled.description or "")
    return table


if __name__ == "__main__":
    main()
