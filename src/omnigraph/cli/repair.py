"""`omnigraph repair`: what foreign tools wrote to a graph by path."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.bind import WritesUri
from omnigraph.cli.formats import table
from omnigraph.cli.options import Branch, Json
from omnigraph.cli.output import print_json
from omnigraph.cli.terminal import echo

Confirm = Annotated[bool, typer.Option("--confirm", help="Take verified maintenance over; without it, only look.")]
Force = Annotated[bool, typer.Option("--force", help="With --confirm: take all other changes over as well.")]
Discard = Annotated[bool, typer.Option("--discard", help="With --confirm: throw away what was written by path.")]


def repair(
    target: WritesUri,
    branch: Branch = "main",
    confirm: Confirm = False,
    force: Force = False,
    discard: Discard = False,
    as_json: Json = False,
) -> int:
    if confirm:
        target.announce()
    with target.store_to_write() if confirm else target.store_to_read() as graph:
        report = graph.repair(branch, confirm=confirm, force=force, discard=discard)
    if as_json:
        options = {"confirm": confirm, "force": force, "discard": discard}
        print_json({"uri": graph.uri, **options, **report.to_json()})
    else:
        columns = ["type", "published", "by path", "classification", "action", "operations"]
        rows = (
            [one.type_key, one.published_version, one.head_version, one.classification, one.action, *_told(one)]
            for one in report.types
        )
        for line in table(columns, rows):
            echo(line)
    return 1 if report.is_refused else 0


def _told(one: object) -> list[str]:
    operations = ", ".join(getattr(one, "operations", ()))
    error = getattr(one, "error", None)
    return [f"{operations} ({error})" if error else operations]
