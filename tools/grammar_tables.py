"""Computes the parse tables of the query language, so that no process has to.

`python tools/grammar_tables.py` after every change of the grammar, with the package on the path. Tables of another
grammar or another Lark are ignored, so stale ones cost time and nothing else; a test notices them.
"""

from __future__ import annotations

import io
import zlib
from importlib import resources
from pathlib import Path

from omnigraph.lang.parsing import Language, build_parser, tables_key
from omnigraph.lang.query.parser import LANGUAGE


def tables_of(language: Language) -> bytes:
    """Return the tables of a grammar behind their key."""
    file = io.BytesIO()
    build_parser(language).save(file, exclude_options=("transformer",))
    return tables_key(language) + zlib.compress(file.getvalue(), 9)


if __name__ == "__main__":
    Path(str(resources.files(LANGUAGE.package) / "grammar.tables")).write_bytes(tables_of(LANGUAGE))
