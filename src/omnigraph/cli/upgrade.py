"""`omnigraph upgrade`: a graph of an older format becomes one of this release."""

from __future__ import annotations

import typer

from omnigraph.cli.bind import WritesUri
from omnigraph.cli.options import Json
from omnigraph.cli.output import print_json


def upgrade(target: WritesUri, as_json: Json = False) -> int:
    from omnigraph.graph import upgrade as upgrade_graph

    target.announce()
    report = upgrade_graph(target.address, actor=target.actor)
    if as_json:
        print_json({"uri": target.address, **report.to_json()})
    elif report.branches:
        typer.echo(f"format {report.before} → {report.after}: {', '.join(report.branches)}")
    elif report.named:
        typer.echo(f"format {report.after} already; recorded the earlier names of {', '.join(report.named)}")
    else:
        typer.echo(f"format {report.after} already; nothing to do")
    return 0
