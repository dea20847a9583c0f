"""From an answer that refuses to the very error that an opened graph raises.

Pure: class, code, message, effect and context are those of the other end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from omnigraph import errors
from omnigraph.client.call import Reply
from omnigraph.errors import ERRORS, Effect, GraphError, OmniGraphError, StorageError, StorageKind

_CLASSES: Mapping[str, type[OmniGraphError]] = {
    one.code: one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, OmniGraphError) and "code" in vars(one) and one is not OmniGraphError
}


def refusal(reply: Reply, source: str | None = None, *, is_write: bool = False) -> OmniGraphError:
    """Return the error that a reply tells; `source` is the text that was sent, for diagnostics to point into."""
    try:
        told = orjson.loads(reply.body)
        code, message = told["omnigraph_code"], told["error"]
        effect, context = Effect(told["effect"]), dict(told["context"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return foreign(reply, is_write=is_write)
    if code == "language.rejected":
        return _language_error(message, effect, context, source)
    if code == StorageError.code:
        kind = StorageKind(context.pop("kind", StorageKind.UNKNOWN))
        return StorageError(message, effect=effect, kind=kind, **context)
    if code in _CLASSES:
        return _CLASSES[code](message, effect=effect, **context)
    if code in ERRORS:
        return GraphError(message, code=code, effect=effect, **context)
    return OmniGraphError(f"{message} (the server calls it `{code}`)", effect=effect, **context)


def foreign(reply: Reply, *, is_write: bool) -> OmniGraphError:
    """Return the error for an answer that none of our servers gives."""
    return GraphError(
        f"the answer, with status {reply.status}, is not one of an OmniGraph server; check the address",
        code="server.unreachable",
        effect=Effect.UNKNOWN if is_write and reply.status >= 500 else Effect.NONE,
        status=reply.status,
    )


def _language_error(message: str, effect: Effect, context: dict[str, Any], source: str | None) -> OmniGraphError:
    from omnigraph.lang.diagnostic import LanguageError

    found = tuple(_diagnostic(one, source) for one in context.pop("diagnostics", ()))
    return LanguageError(message, effect=effect, diagnostics=found, **context)


def _diagnostic(told: Mapping[str, Any], source: str | None) -> Any:
    from omnigraph.lang.diagnostic import Diagnostic, Severity
    from omnigraph.lang.source import Source, Span

    # Of a text that is on the server alone, the line that was found wrong is known.
    text = source if source is not None else "\n" * (told["line"] - 1) + told["source_line"]
    lines = text.split("\n")

    def offset(line: int, column: int) -> int:
        return min(sum(len(one) + 1 for one in lines[: line - 1]) + column - 1, len(text))

    span = Span(offset(told["line"], told["column"]), offset(told["end_line"], told["end_column"]))
    return Diagnostic(
        told["code"], told["message"], Source(told["file"], text), span, told["hint"], Severity(told["severity"])
    )
