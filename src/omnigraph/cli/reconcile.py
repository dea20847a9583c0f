"""`omnigraph reconcile`: one round of what keeps a graph in order, or one after the other until it is stopped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.bind import WritesUri
from omnigraph.cli.cleanup import duration
from omnigraph.cli.lean import stay
from omnigraph.cli.options import Json
from omnigraph.cli.output import plural
from omnigraph.cli.terminal import echo

if TYPE_CHECKING:
    from omnigraph.engine.maintain.reconcile import ReconcileReport

Every = Annotated[
    str | None, typer.Option("--every", metavar="TIME", help="Go on until stopped, with this pause: 30s, 5m, 1h.")
]


def reconcile(target: WritesUri, every: Every = None, as_json: Json = False) -> int:
    pause = None if every is None else duration(every)
    target.announce()
    with target.store_to_write() as graph:
        if pause is None:
            _tell(graph.uri, graph.reconcile(), as_json)
            return 0
        reconciler = graph.reconciler(pause)
        stay()
        while True:
            reconciler.tick()
            if (error := reconciler.last_error) is not None:
                echo(f"this round failed: {str(error) or repr(error)}", err=True)
            elif reconciler.last is not None:
                _tell(graph.uri, reconciler.last, as_json)
            reconciler.pause()


def _tell(uri: str, report: ReconcileReport, as_json: bool) -> None:
    if as_json:
        # One line for each round, so that whoever follows can read them one by one.
        echo(json.dumps({"uri": uri, **report.to_json()}))
        return
    if report.is_claimed:
        echo("another process is reconciling this graph; nothing was done")
        return
    settled = f"{report.rolled_forward} rolled forward, {report.rolled_back} rolled back"
    echo(f"{plural(report.links_finished, 'link')} finished; dead operations: {settled}")
    for verb, types in (("compacted", report.compacted), ("indexed", report.folded)):
        for one in types:
            echo(f"{verb} {one}")
    for one in report.left:
        echo(f"too large for this: {one}; run `omnigraph optimize`")
    for one in report.drifted:
        echo(f"written by path: {one}; run `omnigraph repair`")
    if report.deferred:
        echo(f"{plural(report.deferred, 'type')} left for the next round")
