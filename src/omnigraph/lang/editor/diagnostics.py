"""The diagnostics of a source, those of its compiler.

Pure.
"""

from __future__ import annotations

from typing import Final

from omnigraph.lang.catalog import Catalog
from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Source
from omnigraph.lang.format import LanguageName
from omnigraph.lang.query import lint_queries
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema import compile_schema

# An editor has no graph, so any identity domain does.
DOMAIN: Final = "00000000000000000000000000"


def check_source(source: Source, language: LanguageName, catalog: Catalog | None) -> tuple[Diagnostic, ...]:
    """Return the errors, warnings and notes of a source; without a catalog, only the syntax of queries is checked."""
    try:
        if language == "pg":
            return compile_schema(source, domain=DOMAIN).notes
        if catalog is not None:
            return tuple(lint_queries([source], catalog).findings)
        parse_queries(source)
    except LanguageError as error:
        return error.diagnostics
    return ()
