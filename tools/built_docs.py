"""Hook of MkDocs: completes the pages of the site with the references that follow from the code.

The pages in `docs/` hold what people write, and a line `<!-- built: NAME -->` for each reference. Nothing that is built
is committed. `python -m tools.built_docs PAGE` prints a page as the site shows it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tests.support.language_codes import MIGRATION_CODES, QUERY_CODES, SCHEMA_CODES
from tools import architecture, cli_reference, functions, tables

DOCS: Final = Path(__file__).parent.parent / "docs"
MARKER: Final = re.compile(r"^<!-- built: (\w+) -->$", re.MULTILINE)
REFERENCES: Final[Mapping[str, Callable[[], str]]] = MappingProxyType(
    {
        "aggregates": functions.render_aggregates,
        "commands": cli_reference.render_commands,
        "errors": tables.render_errors,
        "figures": architecture.render_figures,
        "functions": functions.render_functions,
        "layers": architecture.render_layers,
        "limits": tables.render_limits,
        "query_codes": partial(tables.render_codes, QUERY_CODES),
        "routes": tables.render_routes,
        "schema_codes": partial(tables.render_codes, {**SCHEMA_CODES, **MIGRATION_CODES}),
        "server_routes": tables.render_server_routes,
        "settings": tables.render_settings,
        "stop_words": tables.render_stop_words,
        "tree": architecture.render_tree,
    }
)


def on_files(files: Any, *, config: Any) -> Any:
    """Add the OpenAPI document, which pages link to, to the files of the site."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "openapi.json", content=openapi_text()))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the text of a page with its references."""
    return build_page(page.file.src_uri, markdown)


def build_page(name: str, text: str) -> str:
    """Return a page, by its path below `docs/`, with its references in place of their markers."""
    if name == "cli.md":
        text = cli_reference.add_sections(text)
    return MARKER.sub(lambda match: render_reference(match[1]), text)


@cache
def render_reference(name: str) -> str:
    return REFERENCES[name]()


@cache
def read_page(name: str) -> str:
    """Return a page as the site shows it."""
    return build_page(name, (DOCS / name).read_text(encoding="utf-8"))


def openapi_text() -> str:
    """Return the OpenAPI document of the HTTP API."""
    from omnigraph.server.handlers.admin import SERVER_ROUTES
    from omnigraph.server.openapi import describe

    return json.dumps(describe(SERVER_ROUTES), indent=1, ensure_ascii=False)


if __name__ == "__main__":
    print(read_page(sys.argv[1]), end="")
