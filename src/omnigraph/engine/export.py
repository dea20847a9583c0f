"""Export one snapshot as NDJSON records that a load accepts.

Deterministic: edges before nodes, types by name, entities by id, so equal graphs give equal bytes.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.engine.arguments import check_name_list, strip_name
from omnigraph.engine.entity_lookup import blob_properties
from omnigraph.engine.graph_formats import GraphFormat, export_graph
from omnigraph.engine.json_text import json_text, string_bytes
from omnigraph.engine.revisions import NOW, AsOf, Naming
from omnigraph.engine.session import GraphSession, View
from omnigraph.errors import LimitExceeded, UsageError
from omnigraph.lang.catalog import Catalog, EdgeType, NodeType, Scalar
from omnigraph.limits import EXPORT_CHUNK_BYTES, LOAD_LINE_BYTES_MAX
from omnigraph.manifest.model import MAIN
from omnigraph.rules.arrow_typing import pc
from omnigraph.store.blobs.cells import read_range
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.lookup import ROW_ID, blob_sizes, ordered_batches, read_blobs

ExportFormat: TypeAlias = Literal["ndjson"] | GraphFormat


def export(
    session: GraphSession,
    branch: str = MAIN,
    at: AsOf | None = None,
    types: Sequence[str] | None = None,
    names: Naming = NOW,
    format_: ExportFormat = "ndjson",
) -> Iterator[bytes]:
    """Return the records of a snapshot as chunks of whole lines; a line with a large blob comes in several.

    `types` are names: of node types, of edge types, or of both. An unknown one raises `UsageError` before any output.
    """
    check_name_list("types", types)
    view = session.view(strip_name(branch), at, "export", names)
    selected = _select_types(view.catalog, types)
    return export_records(view, selected) if format_ == "ndjson" else export_graph(view, selected, format_)


def _select_types(catalog: Catalog, names: Sequence[str] | None) -> list[NodeType | EdgeType]:
    types: list[NodeType | EdgeType] = [*catalog.edges.values(), *catalog.nodes.values()]
    unknown = sorted({*(names or ())} - {type_.name for type_ in types})
    if unknown:
        available = ", ".join(sorted({type_.name for type_ in types}))
        raise UsageError(f"there is no type `{unknown[0]}`; the graph has: {available}", type_name=unknown[0])
    selected = [type_ for type_ in types if type_.name in names] if names else types
    return sorted(selected, key=lambda type_: type_.table_key)


def export_records(view: View, types: Sequence[NodeType | EdgeType]) -> Iterator[bytes]:
    """Yield the records of some types of a view as chunks of whole lines; a line with a large blob comes in several."""
    for type_ in types:
        dataset = view.dataset(type_.table_key)
        for batch in ordered_batches(dataset, column_names(type_)):
            for part in split_batch(batch, blob_properties(type_)):
                yield from record_chunks(dataset, type_, part)


def column_names(type_: NodeType | EdgeType) -> list[str]:
    """Return the columns of a type in order."""
    return ["id", *type_.ends, *sorted(type_.properties)]


def split_batch(batch: pa.RecordBatch, blobs: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Cut a batch where its values, blobs included, would outgrow a chunk."""
    if batch.num_rows == 0:
        return
    weights = np.full(batch.num_rows, batch.nbytes / batch.num_rows)
    for name in blobs:
        weights += blob_sizes(batch.column(name)).to_numpy(zero_copy_only=False)
    chunks = np.cumsum(weights) // EXPORT_CHUNK_BYTES
    # A row that fills a chunk gets its own chunk, so that its blobs can be streamed.
    is_cut = (np.diff(chunks) != 0) | (weights[:-1] > EXPORT_CHUNK_BYTES)
    starts = [0, *(np.flatnonzero(is_cut) + 1).tolist(), batch.num_rows]
    for start, end in pairwise(starts):
        yield batch.slice(start, end - start)


def record_chunks(dataset: Dataset, type_: NodeType | EdgeType, batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield the lines of a batch that `slices` cut; large blobs are read and encoded piece by piece."""
    large = [name for name in blob_properties(type_) if blob_sizes(batch.column(name))[0].as_py() > EXPORT_CHUNK_BYTES]
    if batch.num_rows > 1 or not large:
        yield record_lines(dataset, type_, batch)
        return
    total = sum(blob_sizes(batch.column(name))[0].as_py() for name in large)
    if total // 3 * 4 > LOAD_LINE_BYTES_MAX - EXPORT_CHUNK_BYTES:
        raise LimitExceeded(
            f"`{type_.name}` {batch.column('id')[0].as_py()} has blobs of {total} bytes, more than a line of NDJSON may"
            " hold that a load takes back; export the type as Parquet",
            resource="bytes of a line",
            limit=LOAD_LINE_BYTES_MAX,
            actual=total // 3 * 4,
            type_name=type_.name,
        )
    text = b""
    for name, part in _line_parts(dataset, type_, batch, large):
        if name is None:
            text += part.encode() if isinstance(part, str) else string_bytes(part)
            continue
        yield text + b'"base64:'
        yield from _encode_large_blob(dataset, name, batch)
        text = b'"'
    yield text


def record_lines(dataset: Dataset, type_: NodeType | EdgeType, batch: pa.RecordBatch) -> bytes:
    """Join literal text and columns of text into one line an entity."""
    return string_bytes(pc.binary_join_element_wise(*(part for _, part in _line_parts(dataset, type_, batch)), ""))


def _line_parts(
    dataset: Dataset, type_: NodeType | EdgeType, batch: pa.RecordBatch, large: Sequence[str] = ()
) -> Iterator[tuple[str | None, Any]]:
    """Yield literal texts and columns of text that make up lines; of a large blob only its name."""
    kind = "edge" if isinstance(type_, EdgeType) else "type"
    yield None, f'{{"{kind}":{_quote(type_.name)}'
    if isinstance(type_, EdgeType):
        yield None, ',"from":'
        yield None, json_text(batch.column("src"))
        yield None, ',"to":'
        yield None, json_text(batch.column("dst"))
    yield None, ',"data":{"id":'
    yield None, json_text(batch.column("id"))
    for name in sorted(type_.properties):
        yield None, f",{_quote(name)}:"
        if name in large:
            yield name, None
        elif type_.properties[name].type.scalar is Scalar.BLOB:
            yield None, _encode_blobs(dataset, name, batch)
        else:
            yield None, json_text(batch.column(name))
    yield None, "}}\n"


def _encode_large_blob(dataset: Dataset, name: str, batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield the blob of a batch of one row in base64, in pieces that can be joined."""
    row_id, size = batch.column(ROW_ID)[0].as_py(), blob_sizes(batch.column(name))[0].as_py()
    # Three bytes are four characters, so only the last piece may end in signs that fill it up.
    step = EXPORT_CHUNK_BYTES // 3 * 3
    for start in range(0, size, step):
        yield b64encode(read_range(dataset, name, row_id, start, min(step, size - start)))


def _encode_blobs(dataset: Dataset, name: str, batch: pa.RecordBatch) -> pa.Array[Any]:
    descriptors = batch.column(name)
    is_present = pc.is_valid(descriptors)
    payloads = read_blobs(dataset, name, batch.column(ROW_ID).filter(is_present))
    texts = pa.array([f"base64:{b64encode(payload or b'').decode()}" for payload in payloads], pa.string())
    return json_text(pc.replace_with_mask(pa.nulls(batch.num_rows, pa.string()), is_present, texts))


def _quote(name: str) -> str:
    return orjson.dumps(name).decode()
