"""`omnigraph clone`: copy a graph whole, or bring such a copy up to date."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.options import Json
from omnigraph.cli.output import plural, print_json
from omnigraph.cli.progress import bar
from omnigraph.cli.terminal import echo

Source = Annotated[str, typer.Argument(metavar="SOURCE", help="The graph: a path, `file://…` or `s3://…`.")]
Destination = Annotated[
    str, typer.Argument(metavar="TARGET", help="Where the copy goes: a path, `file://…` or `s3://…`.")
]
Update = Annotated[bool, typer.Option("--update", help="Bring an earlier clone up to date; copies only what is new.")]


def clone(source: Source, destination: Destination, update: Update = False, as_json: Json = False) -> int:
    from omnigraph.graph import open as open_graph

    with open_graph(source, read_only=True) as graph, bar():
        report = graph.clone(destination, update=update)
    if as_json:
        print_json(report.to_json())
    else:
        copied = f"{plural(report.copied_files, 'file')} of {report.copied_bytes} bytes copied"
        echo(f"{report.target} is at commit {report.commit}, verified; {copied}")
    return 0
