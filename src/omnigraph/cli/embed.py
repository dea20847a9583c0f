"""`omnigraph embed`: vectors for what is stored, as one commit."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.app import WritesUri
from omnigraph.cli.load import Engine, Master, Where
from omnigraph.cli.options import Branch, Json, Types
from omnigraph.cli.output import print_json, table
from omnigraph.cli.terminal import echo
from omnigraph.errors import UsageError

All = Annotated[bool, typer.Option("--reembed-all", help="Replace vectors of other models and of other hands, too.")]
Clean = Annotated[bool, typer.Option("--clean", help="Take the vectors away.")]
Select = Annotated[
    list[str] | None,
    typer.Option("--select", metavar="[TYPE:]FIELD=VALUE", help="Only entities with this value; again to narrow more."),
]


def embed(
    target: WritesUri,
    branch: Branch = "main",
    types: Types = None,
    reembed_all: All = False,
    clean: Clean = False,
    select: Select = None,
    engine: Where = Engine.AUTO,
    master: Master = None,
    as_json: Json = False,
) -> int:
    from omnigraph import pipeline
    from omnigraph.engine.embed.plan import Mode
    from omnigraph.pipeline.spark.progress import progress_bar

    if reembed_all and clean:
        raise UsageError("`--reembed-all` and `--clean` contradict each other; give one of them")
    mode: Mode = "clean" if clean else "reembed_all" if reembed_all else "fill_missing"
    target.announce()
    with target.store_to_write() as graph, progress_bar() as watcher:
        receipt = pipeline.embed(
            graph,
            branch,
            types,
            mode,
            select or (),
            engine=engine.value,
            master=master,
            watcher=watcher,
        )
    if as_json:
        print_json({"uri": graph.uri, **receipt.to_json()})
        return 0
    columns = ["property", "filled", "cleared", "texts asked", "texts cached"]
    rows = (
        [f"{one.type_name}.{one.property_name}", one.tally.filled, one.tally.cleared, one.tally.asked, one.tally.cached]
        for one in receipt.properties
    )
    for line in table(columns, rows):
        echo(line)
    echo(f"commit {receipt.commit.commit_id}" if receipt.commit else "nothing to do")
    return 0
