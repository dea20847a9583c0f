"""Look up an entity by its type and key, and a blob of it: its length, its ETag and ranges of its bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import pyarrow as pa

from omnigraph.engine.arguments import check_type
from omnigraph.engine.query.result import Result
from omnigraph.engine.session import View
from omnigraph.errors import GraphError, LimitExceeded, UsageError
from omnigraph.ids import CommitId
from omnigraph.lang.catalog import INTEGERS, Catalog, EdgeType, Property, PropertyType, Type
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.lang.schema.arrow_schema import key_id, key_member_type
from omnigraph.limits import BLOB_READ_BYTES_MAX
from omnigraph.part_protocols import BlobProtocol
from omnigraph.rules.coerce import Misfit, fit, shown
from omnigraph.store.blobs.cells import BlobCell, locate, read_range
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.lookup import find_rows

# The columns of the ends of an edge, and what they are called everywhere but in storage.
ENDS: Final = {"src": "from", "dst": "to"}
_DIGITS_MAX: Final = 20


def find_entity(view: View, type_name: str, key: object) -> Result:
    """Return an entity of a view by its key or id, as a result of at most one row; blobs are left out."""
    check_type("type_name", type_name, str)
    type_ = find_type(view.catalog, type_name)
    ids: Any = pa.array([entity_id(type_, key)], pa.string())
    table = find_rows(view.dataset(type_.table_key), entity_columns(type_), {"id": ids}).select(entity_columns(type_))
    return Result(rename_ends(type_, table), type_.name, view.snapshot.branch, view.snapshot.head)


def find_type(catalog: Catalog, name: str) -> Type:
    """Return a node type by name, or else an edge type."""
    type_ = catalog.nodes.get(name) or catalog.edges.get(name)
    if type_ is None:
        known = sorted({*catalog.nodes, *catalog.edges})
        hint = did_you_mean(str(name), known, otherwise=f"the graph has: {', '.join(known)}")
        raise UsageError(f"there is no type `{name}`; {hint}", type=str(name))
    return type_


def find_qualified_type(catalog: Catalog, name: str) -> Type:
    """Return the type of a name such as `Person`, or `node:Person`."""
    kind, _, bare = name.strip().rpartition(":")
    matches: list[Type] = []
    if kind in ("", "node") and bare in catalog.nodes:
        matches.append(catalog.nodes[bare])
    if kind in ("", "edge") and (edge := catalog.edge_by_word(bare)) is not None:
        matches.append(edge)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"`{name}` is a node type and an edge type; write `node:{name}` or `edge:{name}`", type=name)
    type_names = [*catalog.nodes, *catalog.edges]
    hint = did_you_mean(bare, type_names) or f"the graph has {', '.join(sorted(type_names)) or 'none'}"
    raise UsageError(f"there is no type `{name}`; {hint}", type=name)


def entity_id(type_: Type, key: object) -> str:
    """Return the id of the entity that has a key; numbers of a key may be written as text."""
    if not type_.key or (isinstance(type_, EdgeType) and isinstance(key, str)):
        if not isinstance(key, str):
            raise UsageError(
                f"`{type_.name}` has no key; pass the `id` of the entity, not {shown(key)}", type=type_.name
            )
        return key
    values = key if isinstance(key, Mapping) else {type_.key[0]: key} if len(type_.key) == 1 else {}
    if isinstance(type_, EdgeType):
        columns = {end: column for column, end in ENDS.items()}
        values = {columns.get(str(name), str(name)): value for name, value in values.items()}
    if set(values) != set(type_.key):
        names = ENDS if isinstance(type_, EdgeType) else {}
        needed = ", ".join(f"`{names.get(name, name)}`" for name in type_.key)
        raise UsageError(f"the key of `{type_.name}` is {needed}; pass a mapping with these names", type=type_.name)
    try:
        return key_id(type_, {name: _key_value(values[name], key_member_type(type_, name)) for name in type_.key})
    except Misfit as misfit:
        raise UsageError(f"{shown(key)} is not a key of `{type_.name}`: {misfit.reason}", type=type_.name) from None


def _key_value(value: object, type_: PropertyType) -> Any:
    is_integer = isinstance(value, str) and type_.scalar in INTEGERS and value.removeprefix("-").isdecimal()
    return fit(int(str(value)) if is_integer and len(str(value)) <= _DIGITS_MAX else value, type_)


def entity_columns(type_: Type) -> list[str]:
    """Return the columns that describe an entity: all but blobs."""
    return [
        "id",
        *type_.ends,
        *(name for name, item in type_.properties.items() if not item.type.is_blob and name != "id"),
    ]


def rename_ends(type_: Type, table: pa.Table) -> pa.Table:
    """Return a table of edges with the ends called `from` and `to`."""
    names = ENDS if isinstance(type_, EdgeType) else {}
    return table.rename_columns([names.get(name, name) for name in table.column_names])


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


def find_blob(view: View, entity: str, type_name: str, entity_id: str, property_name: str) -> Blob:
    """Find a blob in a view, without reading its bytes."""
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


def _resolve(catalog: Catalog, entity: str, type_name: str, property_name: str) -> tuple[Type, Property]:
    types: Mapping[str, Type] = catalog.nodes if entity == "node" else catalog.edges
    type_ = types.get(type_name)
    if type_ is None:
        raise _unknown(f"there is no {entity} type `{type_name}`", type_name)
    property_ = type_.properties.get(property_name)
    if property_ is None:
        raise _unknown(f"`{type_name}` has no property `{property_name}`", property_name)
    if not property_.type.is_blob:
        raise _unknown(f"`{type_name}.{property_name}` is not a Blob; query it instead", property_name)
    return type_, property_


def _unknown(message: str, name: str) -> UsageError:
    return UsageError(f'{message}; check the name, or read an older state with `names="then"`', name=name)


def _etag(type_: Type, property_: Property, cell: BlobCell) -> str:
    """Return a strong ETag, derived from where the bytes are stored: it changes whenever they may have changed."""
    numbers = (type_.type_id, type_.incarnation_id, property_.property_id, cell.offset)
    location = b"".join(number.to_bytes(8, "big") for number in numbers) + "\0".join(cell.files).encode()
    return f'"{sha256(_TAG + location).digest()[:16].hex()}"'


def blob_properties(type_: Type) -> list[str]:
    return [name for name, item in type_.properties.items() if item.type.is_blob]
