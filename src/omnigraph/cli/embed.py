"""`omnigraph embed`: compute vectors of stored entities, as one commit."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.app import WritesUri
from omnigraph.cli.load import Engine, Master, Where
from omnigraph.cli.options import Branch, Json, Types
from omnigraph.cli.output import print_json, progress_bar, table
from omnigraph.cli.terminal import echo
from omnigraph.errors import UsageError

All = Annotated[bool, typer.Option("--reembed-all", help="Also replace vectors of other models and manually set ones.")]
Clean = Annotated[bool, typer.Option("--clean", help="Delete the vectors.")]
Select = Annotated[
    list[str] | None,
    typer.Option("--select", metavar="[TYPE:]FIELD=VALUE", help="Only entities with this value; repeatable."),
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
    from omnigraph.engine.embed.plan import Mode as EmbedMode

    if reembed_all and clean:
        raise UsageError("`--reembed-all` and `--clean` contradict each other; give one of them")
    mode: EmbedMode = "clean" if clean else "reembed_all" if reembed_all else "fill_missing"
    target.announce()
    with target.store_to_write() as graph, progress_bar():
        receipt = pipeline.embed(
            graph,
            branch,
            types,
            mode,
            select or (),
            engine=engine.value,
            master=master,
        )
    if as_json:
        print_json({"uri": graph.uri, **receipt.to_json()})
        return 0
    columns = ["property", "filled", "cleared", "texts asked", "texts cached"]
    rows = (
        [
            f"{embedded.type_name}.{embedded.property_name}",
            embedded.tally.filled,
            embedded.tally.cleared,
            embedded.tally.asked,
            embedded.tally.cached,
        ]
        for embedded in receipt.properties
    )
    for line in table(columns, rows):
        echo(line)
    echo(f"commit {receipt.commit.commit_id}" if receipt.commit else "nothing to do")
    return 0
