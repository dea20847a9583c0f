"""Fixture F compiled, and short ways to compile against it.

Test support only.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from omnigraph.lang.catalog import Catalog
from omnigraph.lang.diagnostic import LanguageError, Source
from omnigraph.lang.query import CompiledQuery, compile_query
from omnigraph.lang.schema import compile_schema

FIXTURES = Path(__file__).parents[1] / "cases" / "fixtures"
DOMAIN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@cache
def catalog_f() -> Catalog:
    return catalog_from((FIXTURES / "F.pg").read_text("utf-8"))


def catalog_from(text: str) -> Catalog:
    return compile_schema(Source("schema.pg", text), domain=DOMAIN).catalog


def read_text(match: str, returned: str = "$v.imo", *, params: str = "", tail: str = "") -> str:
    return f"query q({params}) {{ match {{ {match} }} return {{ {returned} }} {tail} }}"


def compiled(text: str, *, name: str | None = None) -> CompiledQuery:
    return compile_query(Source("query.gq", text), catalog_f(), name=name)


def codes_of(text: str) -> list[str]:
    """Return the codes a text is refused with, none when it compiles."""
    try:
        compiled(text)
    except LanguageError as error:
        return [diagnostic.code for diagnostic in error.diagnostics]
    return []
