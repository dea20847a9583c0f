"""`omnigraph version`."""

from __future__ import annotations

import typer

from omnigraph import FORMAT_STAMP, __version__


def version() -> int:
    typer.echo(f"omnigraph {__version__}\ninternal-schema {FORMAT_STAMP}")
    return 0
