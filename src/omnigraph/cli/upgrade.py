"""`omnigraph upgrade`: a graph of an older format becomes one of this release."""

from __future__ import annotations

from omnigraph.cli.bind import WritesUri
from omnigraph.cli.options import Json
from omnigraph.cli.output import print_json
from omnigraph.cli.terminal import echo


def upgrade(target: WritesUri, as_json: Json = False) -> int:
    from omnigraph.graph import upgrade as upgrade_graph

    target.announce()
    report = upgrade_graph(target.address, actor=target.actor)
    if as_json:
        print_json({"uri": target.address, **report.to_json()})
    elif report.branches:
        echo(f"format {report.before} → {report.after}: {', '.join(report.branches)}")
    elif report.named:
        echo(f"format {report.after} already; recorded the earlier names of {', '.join(report.named)}")
    else:
        echo(f"format {report.after} already; nothing to do")
    return 0
