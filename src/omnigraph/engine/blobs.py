"""Find a blob of an entity, with its length and ETag, and read ranges of its bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from omnigraph.engine.past_names import NOW, Naming
from omnigraph.engine.revisions import AsOf
from omnigraph.engine.session import GraphSession
from omnigraph.errors import GraphError, LimitExceeded, UsageError
from omnigraph.ids import CommitId
from omnigraph.lang.catalog import Catalog, EdgeType, NodeType, Property, Scalar
from omnigraph.limits import BLOB_READ_BYTES_MAX
from omnigraph.manifest.model import MAIN
from omnigraph.part_protocols import BlobProtocol
from omnigraph.store.blobs.cells import BlobCell, locate, read_range
from omnigraph.store.read.dataset import Dataset

_TAG: Final = b"omnigraph/blob-etag/v1\0"


@dataclass(frozen=True, slots=True)
class Blob(BlobProtocol):
    """A blob in one snapshot; its bytes are read on demand."""

    snapshot_commit_id: CommitId | None
    length: int
    etag: str
    _dataset: Dataset
    _column: str
    _row_id: int

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        end = end_of_range(self.length, start, end)
        return read_range(self._dataset, self._column, self._row_id, start, end - start)


def end_of_range(length: int, start: int, end: int | None) -> int:
    """Return the end of a byte range; raises if it is outside the blob or too large for one read."""
    end = length if end is None else end
    if not 0 <= start <= end <= length:
        raise GraphError(
            f"the range {start} to {end} is outside the blob, which has {length} bytes",
            code="blob.range",
            start=start,
            end=end,
            length=length,
        )
    if end - start > BLOB_READ_BYTES_MAX:
        raise LimitExceeded(
            f"one read returns at most {BLOB_READ_BYTES_MAX} bytes, but {end - start} were requested; read the blob in"
            " smaller ranges",
            resource="Blob read range bytes",
            limit=BLOB_READ_BYTES_MAX,
            actual=end - start,
        )
    return end


def blob(
    session: GraphSession,
    type_name: str,
    entity_id: str,
    property_name: str,
    *,
    entity: str = "node",
    branch: str = MAIN,
    at: AsOf | None = None,
    names: Naming = NOW,
) -> Blob:
    """Find a blob on a branch or in a past state, without reading its bytes."""
    view = session.view(branch, at, names=names)
    if entity not in ("node", "edge"):
        raise UsageError(f"`entity` must be `node` or `edge`, got `{entity}`", value=entity)
    type_, property_ = _resolve(view.catalog, entity, type_name, property_name)
    dataset = view.dataset(type_.table_key)
    cell = locate(dataset, property_.name, entity_id)
    if cell is None:
        raise GraphError(
            f"`{type_name}` `{entity_id}` does not exist, or its `{property_name}` is null; look it up with a query",
            code="blob.not_found",
            entity_id=entity_id,
        )
    tag = _etag(type_, property_, cell)
    return Blob(view.snapshot.head, cell.length, tag, dataset, property_.name, cell.row_id)


def _resolve(catalog: Catalog, entity: str, type_name: str, property_name: str) -> tuple[NodeType | EdgeType, Property]:
    types: Mapping[str, NodeType | EdgeType] = catalog.nodes if entity == "node" else catalog.edges
    type_ = types.get(type_name)
    if type_ is None:
        raise _unknown(f"there is no {entity} type `{type_name}`", type_name)
    property_ = type_.properties.get(property_name)
    if property_ is None:
        raise _unknown(f"`{type_name}` has no property `{property_name}`", property_name)
    if property_.type.scalar is not Scalar.BLOB:
        raise _unknown(f"`{type_name}.{property_name}` is not a Blob; query it instead", property_name)
    return type_, property_


def _unknown(message: str, name: str) -> UsageError:
    return UsageError(f'{message}; check the name, or read an older state with `names="then"`', name=name)


def _etag(type_: NodeType | EdgeType, property_: Property, cell: BlobCell) -> str:
    """Return a strong ETag, derived from where the bytes are stored: it changes whenever they may have changed."""
    numbers = (type_.type_id, type_.incarnation_id, property_.property_id, cell.offset)
    location = b"".join(number.to_bytes(8, "big") for number in numbers) + "\0".join(cell.files).encode()
    return f'"{sha256(_TAG + location).digest()[:16].hex()}"'


def blob_properties(type_: NodeType | EdgeType) -> list[str]:
    """Return the names of the properties of a type that hold blobs."""
    return [name for name, item in type_.properties.items() if item.type.scalar is Scalar.BLOB]
