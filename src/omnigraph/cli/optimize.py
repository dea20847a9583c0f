"""`omnigraph optimize`: fewer fragments and whole indexes, as one commit."""

from __future__ import annotations

from omnigraph.cli.bind import WritesUri
from omnigraph.cli.formats import table
from omnigraph.cli.load import Engine, Master, Where
from omnigraph.cli.options import Branch, Json
from omnigraph.cli.output import print_json
from omnigraph.cli.progress import bar
from omnigraph.cli.terminal import echo


def optimize(
    target: WritesUri,
    branch: Branch = "main",
    engine: Where = Engine.AUTO,
    master: Master = None,
    as_json: Json = False,
) -> int:
    from omnigraph import pipeline

    target.announce()
    with target.store_to_write() as graph, bar():
        report = pipeline.optimize(graph, branch, engine=engine.value, master=master)
    if as_json:
        print_json({"uri": graph.uri, **report.to_json()})
        return 0
    columns = ["type", "fragments removed", "added", "indexes built", "skipped"]
    rows = (
        [one.type_key, one.fragments_removed, one.fragments_added, one.indexes_built, one.skipped or ""]
        for one in report.types
    )
    for line in table(columns, rows):
        echo(line)
    for one in report.types:
        for pending in one.pending:
            echo(f"pending: the index of {one.type_key}.{pending.spec.column}: {pending.reason}")
    echo(f"commit {report.commit.commit_id}" if report.commit else "nothing to do")
    return 0
