"""A tour of what OmniGraph does, on the packages of Debian: load, ask, follow, branch, compare, merge, look back.

Shows the product and adds nothing to it; `make demo` runs it.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import omnigraph as og
from omnigraph import pipeline
from omnigraph.cli.output import progress_bar
from omnigraph.engine.query.result import Result
from omnigraph.graph import Graph
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import Catalog
from omnigraph.lang.diagnostic import LanguageError, Source
from omnigraph.lang.query import compile_query, format_plan, lint_queries
from omnigraph.lang.schema import compile_schema
from omnigraph.source_files import read_source
from omnigraph.spark.session import session

DEBIAN = Path(__file__).parent / "debian"
JOB = "debian-12"
LIBRARY = "libgtk2.0-0"
TRANSITION = "transition/gtk2"
MISTAKE = """query mistake() {
  match {
    $p: Package
    $p needs $q
    $q.instaled_kib > 1000
  }
  return { $q.name }
}"""

console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    started = time.perf_counter()
    queries = read_source(DEBIAN / "queries.gq", "Q000")
    show_languages(queries)
    with TemporaryDirectory() as folder, og.init(Path(folder) / "g.omni", DEBIAN / "schema.pg", actor="ada") as graph:
        load(graph)
        ask(graph, queries.text)
        follow(graph, queries.text, Path(folder))
        change(graph, queries.text)
    console.print(f"\nAll of it took {time.perf_counter() - started:.0f} s.")
    console.print("[bold]Next:[/] the quickstart in README.md, docs/pipeline.md, docs/index.md")


def show_languages(queries: Source) -> None:
    schema = compile_schema(read_source(DEBIAN / "schema.pg", "S1"), domain=new_ulid())
    step("A schema becomes a catalog of types", "examples/debian/schema.pg")
    console.print(catalog_table(schema.catalog))

    step("Queries are checked against it before anything runs", "examples/debian/queries.gq")
    report = lint_queries([queries], schema.catalog)
    console.print(f"{len(report.queries)} queries, {len(report.findings)} findings, status {report.status}")
    console.print(format_plan(compile_query(queries, schema.catalog, name="breaks").ir), markup=False)

    step("A mistake is explained where it stands", "a misspelt property")
    try:
        compile_query(Source("mistake.gq", MISTAKE), schema.catalog)
    except LanguageError as error:
        console.print(error.render(), markup=False, style="red")


def load(graph: Graph) -> None:
    step("Spark starts by itself", "on this machine; any other master is one option away")
    with timed("session"):
        session()

    step("Debian's packages are loaded on it, as one commit", "examples/debian/*.ndjson.zst")
    files = [DEBIAN / "nodes.ndjson.zst", DEBIAN / "edges.ndjson.zst"]
    with progress_bar():
        report = pipeline.load(graph, files, mode="append", job_id=JOB, engine="spark")
    for kind, counts in (("nodes", report.nodes), ("edges", report.edges)):
        named = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        console.print(f"{sum(counts.values()):,} {kind}: {named}")
    console.print(f"commit {report.commit_id} in {report.seconds:.1f} s, every rule of the schema checked")

    step("The same job again does nothing", f"job {JOB}")
    again = pipeline.load(graph, files, mode="append", job_id=JOB, engine="spark")
    console.print(f"already applied: {again.already_applied}, as commit {again.commit_id}")


def ask(graph: Graph, queries: str) -> None:
    step("Indexes are built, as one commit", "what the schema asks for")
    with timed("indexes"):
        console.print(f"{len(graph.maintenance.ensure_indices().built)} indexes")

    step("Queries join and aggregate", "`sections`, the five largest")
    show(graph, queries, "sections", most=5)

    step("What breaks if a library goes away?", f"`breaks` and `broken`: everything that needs {LIBRARY}")
    show(graph, queries, "breaks", name=LIBRARY)
    show(graph, queries, "broken", name=LIBRARY, most=5)

    step("Texts are searched in the same language", "`find` ranks, `misspelt` forgives")
    show(graph, queries, "find", words="terminal music player", most=4)
    show(graph, queries, "misspelt", words="spredsheet", most=3)


def follow(graph: Graph, queries: str, folder: Path) -> None:
    step("A pipeline follows the archive", "examples/debian/pipelines.yaml: the next day's snapshot against the graph")
    before = graph.commits()[0].commit_id
    os.environ |= {"DEBIAN_GRAPH": graph.uri, "DEBIAN_SNAPSHOT": str(write_next_day(folder / "next_day"))}
    with timed("pipeline"), progress_bar():
        report = pipeline.run(graph, DEBIAN / "pipelines.yaml", "archive")
    for verdict in report.expectations:
        console.print(f"{'holds' if verdict.passed else 'fails'}: {verdict.expectation}, {verdict.message}")
    console.print(f"{report.status}: {report.message}, commit {report.commit_id}")

    step("What changed over night", f"{before} against main")
    changed = graph.diff(before, "main").changes.column("id").to_pylist()
    was, now = (
        {
            row["package"]: row["version"]
            for row in graph.query(queries, {"names": changed}, name="versions", at=at).rows()
        }
        for at in (before, None)
    )
    table = Table("package", "before", "after", box=None, header_style="bold")
    for name in sorted(was | now):
        table.add_row(name, was.get(name, "[dim]new[/]"), now.get(name, "[dim]removed[/]"))
    console.print(table)


def write_next_day(folder: Path) -> Path:
    """Write a snapshot of all packages, with the changes of `next_day.ndjson`; no version means that one is gone."""
    changes = {row["name"]: row for row in map(json.loads, (DEBIAN / "next_day.ndjson").open())}
    with pa.input_stream(str(DEBIAN / "nodes.ndjson.zst"), compression="zstd") as stream:
        records = [json.loads(line) for line in stream.read().splitlines()]
    packages = (one["data"] | changes.get(one["data"]["name"], {}) for one in records if one["type"] == "Package")
    folder.mkdir()
    with (folder / "packages.json").open("w") as file:
        file.writelines(f"{json.dumps(package)}\n" for package in packages if package["version"])
    return folder


def change(graph: Graph, queries: str) -> None:
    step("A branch is a place to try things", f"take {LIBRARY} out on {TRANSITION}; main goes on meanwhile")
    before = graph.commits()[0].commit_id
    graph.branches.create(TRANSITION)
    graph.mutate(queries, {"name": LIBRARY}, name="retire", branch=TRANSITION)
    graph.mutate(queries, {"name": "ardour", "text": "moves to GTK 3"}, name="note")
    for branch in graph.branches.list():
        users = graph.query(queries, {"name": LIBRARY}, name="breaks", branch=branch).rows()
        console.print(f"{branch}: {sum(row['packages'] for row in users)} packages stand on {LIBRARY}")

    step("A diff tells what was done there", f"{before} against {TRANSITION}")
    with timed("diff"):
        changes = graph.diff(before, TRANSITION).changes
    counted = Counter(zip(*(changes.column(name).to_pylist() for name in ("op", "kind", "type_name")), strict=True))
    for (op, kind, name), count in sorted(counted.items()):
        console.print(f"{op} {count} {kind} {name}")

    step("A merge brings both together", f"{TRANSITION} into main")
    with timed("merge"):
        receipt = graph.branches.merge(TRANSITION, into="main", delete_branch=True)
    console.print(f"{receipt.outcome.value}, {len(receipt.conflicts)} conflicts, branch deleted")
    show(graph, queries, "reviewed")

    step("History remembers all of it", "newest first, and the past can still be asked")
    for commit in graph.commits():
        console.print(f"{commit.commit_id}  {commit.kind:<15}  {commit.actor or ''}")
    now, then = (graph.query(queries, {"name": LIBRARY}, name="breaks", at=at).rows() for at in (None, before))
    packages = sum(row["packages"] for row in then)
    console.print(f"{LIBRARY}: {len(now)} rows today, {packages} packages stood on it at {before}")


@contextmanager
def timed(what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    console.print(f"[dim]{what}: {time.perf_counter() - start:.2f} s[/]")


def step(title: str, subject: str) -> None:
    console.print(f"\n[bold cyan]{title}[/] [dim]({subject})[/]")


def show(graph: Graph, queries: str, query: str, **params: object) -> None:
    start = time.perf_counter()
    result = graph.query(queries, params, name=query)
    took = time.perf_counter() - start
    console.print(result_table(result))
    console.print(f"[dim]{query}: {took * 1_000:.0f} ms[/]")


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
        table.add_row(*(_cell(row[name]) for name in result.columns))
    return table


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    main()
