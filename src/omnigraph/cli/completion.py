"""`omnigraph completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

from omnigraph import __version__
from omnigraph.cli.terminal import echo
from omnigraph.manifest.catalog_format import FORMAT_STAMP

# The variable through which a shell asks the command itself; its name follows from that of the command.
VARIABLE: Final = "_OMNIGRAPH_COMPLETE"


class Shell(StrEnum):
    """The shells that a script can be made for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


ShellName = Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh, fish or powershell.")]


def completion(shell: ShellName) -> int:
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    echo(get_completion_script(prog_name="omnigraph", complete_var=VARIABLE, shell=shell.value))
    return 0


def version() -> int:
    echo(f"omnigraph {__version__}\ninternal-schema {FORMAT_STAMP}")
    return 0
