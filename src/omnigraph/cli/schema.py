"""`omnigraph schema …`: schemas and their changes, offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.lint import Json
from omnigraph.cli.output import print_diagnostics, print_json

New = Annotated[Path, typer.Option("--schema", metavar="FILE", help="The schema to go to.")]
Old = Annotated[Path, typer.Option("--against", metavar="FILE", help="The schema to come from.")]
Loss = Annotated[bool, typer.Option("--allow-data-loss", help="Plan drops that also purge old versions.")]


def plan(schema: New, against: Old, allow_data_loss: Loss = False, as_json: Json = False) -> int:
    from omnigraph.files import read_source
    from omnigraph.ids import new_ulid
    from omnigraph.lang.migrate import plan_migration
    from omnigraph.lang.schema import compile_schema

    accepted = compile_schema(read_source(against, "S1"), domain=new_ulid()).ir
    migration = plan_migration(accepted, read_source(schema, "S1"), allow_data_loss=allow_data_loss)
    if as_json:
        print_json(migration.to_json())
    else:
        typer.echo(migration.render())
        print_diagnostics(migration.refusals)
    return 0 if migration.supported else 1
