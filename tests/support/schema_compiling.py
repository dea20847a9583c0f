"""Short hands for tests that compile schemas."""

from __future__ import annotations

from pathlib import Path

from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Source
from omnigraph.lang.schema import CompiledSchema, SchemaIR, compile_schema

DOMAIN = "01JAZ5V9X0000000000000000A"
FIXTURE = (Path(__file__).parents[1] / "cases" / "fixtures" / "F.pg").read_text(encoding="utf-8")


def compiled(text: str, accepted: SchemaIR | None = None) -> CompiledSchema:
    return compile_schema(Source("s.pg", text), domain=DOMAIN, accepted=accepted)


def refused(text: str, accepted: SchemaIR | None = None) -> tuple[Diagnostic, ...]:
    """Return the diagnostics of a schema that must not compile."""
    try:
        compiled(text, accepted)
    except LanguageError as error:
        return error.diagnostics
    raise AssertionError("the schema compiled")
