"""`omnigraph verify`: a look at the health of a graph that changes nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.bind import ReadsUri
from omnigraph.cli.formats import table
from omnigraph.cli.load import Engine, Master, Where
from omnigraph.cli.options import Json
from omnigraph.cli.output import plural, print_json
from omnigraph.cli.progress import bar
from omnigraph.cli.terminal import echo

Data = Annotated[bool, typer.Option("--data", help="Also compare the bytes of all files with their checksums.")]


def verify(
    target: ReadsUri,
    engine: Where = Engine.AUTO,
    master: Master = None,
    data: Data = False,
    as_json: Json = False,
) -> int:
    from omnigraph import pipeline

    with target.store_to_read() as graph, bar():
        report = pipeline.verify(graph, engine=engine.value, master=master, data=data)
    if as_json:
        print_json({"uri": graph.uri, **report.to_json()})
    else:
        columns = ["severity", "branch", "type", "finding"]
        for line in table(columns, ([one.severity, one.branch, one.type_key, one.message] for one in report.findings)):
            echo(line)
        left = f"{plural(report.unreferenced_files, 'file')} of {report.unreferenced_bytes} bytes that nothing names"
        if report.checked_files is not None:
            compared = plural(report.checked_files, "file")
            echo(f"{compared} compared with their checksums, {report.unchecked_files} without one")
        echo(f"{'sound' if report.is_sound else 'not sound'}; {left}")
    return 0 if report.is_sound else 1
