"""`omnigraph lsp`: the language server for editors."""

from __future__ import annotations

from omnigraph.errors import UsageError


def lsp() -> int:
    try:
        from omnigraph.lsp.server import start
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise UsageError(
            'the language server needs pygls, which is not installed; run `pip install "omnigraph[lsp]"`',
            missing="pygls",
        ) from None
    start()
    return 0
