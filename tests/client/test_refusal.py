"""An error that travelled is the error that was raised: class, code, message, effect and context."""

from __future__ import annotations

import orjson
import pytest

from omnigraph import errors
from omnigraph.client.messages import Response, parse_error
from omnigraph.errors import ERRORS, Effect, GraphError, OmniGraphError, StorageError, StorageKind
from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Source, Span
from omnigraph.server.errors import error_body

CLASSES = [
    one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, OmniGraphError) and one not in (GraphError, OmniGraphError)
]


def travelled(error: OmniGraphError, source: str | None = None) -> OmniGraphError:
    return parse_error(Response(error.kind.http_status, {}, orjson.dumps(error_body(error), default=str)), source)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("effect", Effect)
def test_refusal_every_class_comes_back(kind: type[OmniGraphError], effect: Effect) -> None:
    sent = kind(
        "what happened", effect=effect, member="head", expected=None, conflicts=[{"kind": "Orphan", "message": "m"}]
    )
    came = travelled(sent)
    assert type(came) is kind
    assert (came.message, came.effect, came.context) == (sent.message, sent.effect, sent.context)


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_refusal_every_code_comes_back(code: str) -> None:
    came = travelled(GraphError("what happened", code=code, name="x"))
    assert (came.code, came.context["name"]) == (code, "x")


def test_refusal_sort_of_a_storage_failure_comes_back() -> None:
    came = travelled(StorageError("slow", kind=StorageKind.TRANSIENT))
    assert isinstance(came, StorageError)
    assert (came.storage_kind, came.retryable) == (StorageKind.TRANSIENT, True)


@pytest.mark.parametrize("is_at_hand", [True, False])
def test_refusal_diagnostics_point_into_the_source(is_at_hand: bool) -> None:
    text = "query q() {\n\n  match { $p: Prot }\n}"
    found = Diagnostic(
        "T1", "no type `Prot`", Source("query.gq", text), Span(text.index("Prot"), text.index("Prot") + 4)
    )
    sent = LanguageError(diagnostics=(found,))
    came = travelled(sent, text if is_at_hand else None)
    assert isinstance(came, LanguageError)
    assert came.to_json() == sent.to_json()
    assert came.render() == sent.render()


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": "x"}', b""])
def test_refusal_answer_of_something_else_says_so(body: bytes) -> None:
    came = parse_error(Response(404, {}, body))
    assert (came.code, came.effect) == ("server.unreachable", Effect.NONE)
    assert "not from an OmniGraph server" in came.message
