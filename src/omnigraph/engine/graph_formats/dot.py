"""DOT, for Graphviz."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from omnigraph.engine.graph_formats.text_columns import join_columns, type_batches
from omnigraph.engine.session import View
from omnigraph.lang.catalog import EdgeType, Type
from omnigraph.rules.arrow_typing import pc


def write_dot(view: View, types: Sequence[Type]) -> Iterator[bytes]:
    """Yield a digraph: a line per node and per edge."""
    yield b"digraph {\n"
    for type_ in types:
        for batch in type_batches(view, type_):
            yield join_columns(_parts(type_, batch))
    yield b"}\n"


def _parts(type_: Type, batch: pa.RecordBatch) -> Iterator[Any]:
    """Yield the parts of DOT lines. Properties are left out: Graphviz would take a `color` or a `size` for its own."""
    if isinstance(type_, EdgeType):
        yield f'  "{type_.source}:'
        yield _escape(batch.column("src"))
        yield f'" -> "{type_.target}:'
        yield _escape(batch.column("dst"))
        yield f'" [label="{type_.name}"];\n'
        return
    texts = _escape(batch.column("id"))
    yield f'  "{type_.name}:'
    yield texts
    yield f'" [label="{type_.name}\\n'
    yield texts
    yield '"];\n'


def _escape(texts: Any) -> Any:
    for character, escape in (("\\", "\\\\"), ('"', '\\"'), ("\r", ""), ("\n", "\\n"), ("\0", "")):
        texts = pc.replace_substring(texts, character, escape)
    return texts
