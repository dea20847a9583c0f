"""Export: a graph as NDJSON, the records that an ingest takes back.

Reads one snapshot; edges come before nodes, types by name, entities by id, so equal graphs give equal bytes.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute

from omnigraph.engine.core import Core, Moment, View
from omnigraph.engine.jsontext import json_text
from omnigraph.engine.names import NOW, Naming
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.types import Scalar
from omnigraph.limits import EXPORT_CHUNK_BYTES
from omnigraph.manifest.model import MAIN
from omnigraph.store.dataset import Dataset
from omnigraph.store.ordered import ROW_ID, blob_sizes, external_uris, ordered_batches, read_blobs

# The stubs know fewer argument types than the kernels take.
pc: Any = pyarrow.compute


def export(
    core: Core,
    branch: str = MAIN,
    at: Moment | None = None,
    types: Sequence[str] | None = None,
    actor: str | None = None,
    names: Naming = NOW,
) -> Iterator[bytes]:
    """Return the records of a snapshot as chunks of whole lines.

    `types` are names: of node types, of edge types, or of both. An unknown one is refused here, before any output.
    """
    view = core.acting_as(actor).view(branch.strip(), at, "export", names)
    return records(view, _selected(view.catalog, types))


def _selected(catalog: Catalog, names: Sequence[str] | None) -> list[NodeType | EdgeType]:
    known: list[NodeType | EdgeType] = [*catalog.edges.values(), *catalog.nodes.values()]
    unknown = sorted({*(names or ())} - {one.name for one in known})
    if unknown:
        listed = ", ".join(sorted({one.name for one in known}))
        raise UsageError(f"there is no type `{unknown[0]}`; the graph has: {listed}", type_name=unknown[0])
    wanted = known if names is None else [one for one in known if one.name in names]
    return sorted(wanted, key=lambda one: one.table_key)


def records(view: View, types: Sequence[NodeType | EdgeType]) -> Iterator[bytes]:
    """Yield the records of some types of a view as chunks of whole lines."""
    for one in types:
        dataset = view.dataset(one.table_key)
        for batch in ordered_batches(dataset, _columns(one)):
            for part in slices(batch, _blobs(one)):
                yield record_lines(dataset, one, part)


def _columns(one: NodeType | EdgeType) -> list[str]:
    ends = ["src", "dst"] if isinstance(one, EdgeType) else []
    return ["id", *ends, *sorted(one.properties)]


def _blobs(one: NodeType | EdgeType) -> list[str]:
    return [name for name, property_ in one.properties.items() if property_.type.scalar is Scalar.BLOB]


def slices(batch: pa.RecordBatch, blobs: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Cut a batch where its values, blobs included, would outgrow a chunk."""
    if batch.num_rows == 0:
        return
    weights = np.full(batch.num_rows, batch.nbytes / batch.num_rows)
    for name in blobs:
        weights += blob_sizes(batch.column(name)).to_numpy(zero_copy_only=False)
    chunks = np.cumsum(weights) // EXPORT_CHUNK_BYTES
    starts = [0, *(np.flatnonzero(np.diff(chunks)) + 1).tolist(), batch.num_rows]
    for start, end in pairwise(starts):
        yield batch.slice(start, end - start)


def record_lines(dataset: Dataset, one: NodeType | EdgeType, batch: pa.RecordBatch) -> bytes:
    """Join literal text and columns of text into one line an entity."""
    word = "edge" if isinstance(one, EdgeType) else "type"
    parts: list[Any] = [f'{{"{word}":{_quoted(one.name)}']
    if isinstance(one, EdgeType):
        parts += [',"from":', json_text(batch.column("src")), ',"to":', json_text(batch.column("dst"))]
    parts += [',"data":{"id":', json_text(batch.column("id"))]
    for name in sorted(one.properties):
        is_blob = one.properties[name].type.scalar is Scalar.BLOB
        column = _blob_text(dataset, name, batch) if is_blob else json_text(batch.column(name))
        parts += [f",{_quoted(name)}:", column]
    return _text_of(pc.binary_join_element_wise(*parts, "}}\n", ""))


def _text_of(lines: pa.Array[Any]) -> bytes:
    """Return the text of a string array as it lies in memory: one value right after the other."""
    _, offsets, data = lines.buffers()
    bounds = pa.Array.from_buffers(pa.int32(), len(lines) + 1, [None, offsets], offset=lines.offset)
    start, end = bounds[0].as_py(), bounds[-1].as_py()
    return bytes(memoryview(data)[start:end]) if data is not None else b""


def _blob_text(dataset: Dataset, name: str, batch: pa.RecordBatch) -> pa.Array[Any]:
    descriptors = batch.column(name)
    uris = external_uris(descriptors)
    is_managed = pc.and_(pc.is_valid(descriptors), pc.is_null(uris))
    payloads = read_blobs(dataset, name, batch.column(ROW_ID).filter(is_managed))
    texts = pa.array([f"base64:{b64encode(one or b'').decode()}" for one in payloads], pa.string())
    return json_text(pc.replace_with_mask(uris, is_managed, texts))


def _quoted(name: str) -> str:
    return orjson.dumps(name).decode()
