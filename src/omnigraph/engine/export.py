"""Export one snapshot: as NDJSON records that a load accepts, as GraphML, GEXF, DOT or Cypher, or for networkx.

Deterministic: records list edges before nodes, documents nodes before edges, both types by name and entities by id, so
equal graphs give equal bytes. Ids are unique within a type, so documents call a node `Type:id`.

In Cypher, the id of an entity becomes its property `id`; a property of that name is the id. Edges find their
nodes by it, through an index that the first statements create.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias
from xml.sax.saxutils import quoteattr

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.engine.arguments import check_name_list, strip_name
from omnigraph.engine.entity_lookup import blob_properties, entity_columns, find_type, rename_ends
from omnigraph.engine.json_text import iso_json_text, join_lists, json_text, string_bytes, value_texts
from omnigraph.engine.past_schemas import NOW, Naming
from omnigraph.engine.query.result import python_rows
from omnigraph.engine.revisions import AsOf
from omnigraph.engine.session import GraphSession, View
from omnigraph.errors import LimitExceeded, UsageError
from omnigraph.lang.catalog import KINDS, TEXT, Catalog, EdgeType, NodeType, Property, PropertyType, Type
from omnigraph.lang.schema.arrow_schema import PHYSICAL, SCALARS
from omnigraph.limits import EXPORT_CHUNK_BYTES, LOAD_LINE_BYTES_MAX
from omnigraph.manifest.model import MAIN
from omnigraph.rules.arrow_typing import Column, arrays, pc
from omnigraph.rules.time_columns import time_texts
from omnigraph.store.blobs.cells import read_range
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.lookup import ROW_ID, blob_sizes, ordered_batches, read_blobs

# Returns the literal texts and columns of text that the entities of a batch are joined from.
Parts: TypeAlias = Callable[[Type, pa.RecordBatch], Sequence[Any]]


def write_entities(view: View, types: Sequence[Type], parts: Parts) -> Iterator[bytes]:
    """Yield the entities of types by id, with their ends and shown properties."""
    for type_ in types:
        columns = list(dict.fromkeys(["id", *type_.ends, *shown_properties(type_)]))
        for batch in ordered_batches(view.dataset(type_.table_key), columns):
            if batch.num_rows:
                yield join_columns(parts(type_, batch))


def shown_properties(type_: Type) -> dict[str, Property]:
    """Return the properties without blobs, which are no text."""
    return {name: item for name, item in sorted(type_.properties.items()) if not item.type.is_blob}


def join_columns(parts: Sequence[Any]) -> bytes:
    """Return the rows that literal texts and columns of text make up, one after the other."""
    return string_bytes(pc.binary_join_element_wise(*parts, ""))


def _where_present(prefix: str, texts: Any, suffix: str = "") -> Any:
    """Return texts between two others, and nothing where there is none."""
    return pc.fill_null(pc.binary_join_element_wise(prefix, texts, suffix, ""), "")


_I64_MAX: Final = 2**63 - 1
# JSON would escape them as \\u00XX, which some databases decode before they look for the end of a text.
_CONTROLS: Final = "[\\x00-\\x07\\x0b\\x0e-\\x1f]"
_NO_NUMBERS: Final = (('"NaN"', "(0.0/0.0)"), ('"Infinity"', "(1.0/0.0)"), ('"-Infinity"', "(-1.0/0.0)"))


def write_cypher(view: View, types: Sequence[Type]) -> Iterator[bytes]:
    """Yield an index per node type, then a statement per node, then one per edge."""
    for name in (type_.name for type_ in types if isinstance(type_, NodeType)):
        yield f"CREATE INDEX IF NOT EXISTS FOR (n:`{name}`) ON (n.`id`);\n".encode()
    yield from write_entities(view, types, _cypher_parts)


def _cypher_parts(type_: Type, batch: pa.RecordBatch) -> list[Any]:
    # A property that is null does not exist in such a database.
    values = [
        _where_present(f", `{name}`: ", _cypher_literals(batch.column(name)))
        for name in shown_properties(type_)
        if name != "id"
    ]
    ids = _cypher_literals(batch.column("id"))
    if not isinstance(type_, EdgeType):
        return [f"CREATE (:`{type_.name}` {{`id`: ", ids, *values, "});\n"]
    source = [f"MATCH (a:`{type_.source}` {{`id`: ", _cypher_literals(batch.column("src"))]
    target = [f"}}), (b:`{type_.target}` {{`id`: ", _cypher_literals(batch.column("dst"))]
    return [*source, *target, f"}}) CREATE (a)-[:`{type_.name}` {{`id`: ", ids, *values, "}]->(b);\n"]


def _cypher_literals(values: Any) -> Any:
    """Return the Cypher literal of each value, null where there is none."""
    return pc.if_else(pc.is_valid(values), _encode_cypher(values), pa.scalar(None, pa.string()))


def _encode_cypher(values: Any) -> Any:
    type_ = values.type
    if pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_):
        return join_lists(values, pc.fill_null(_cypher_literals(values.flatten()), "null"), ", ")
    if type_ in PHYSICAL:
        return pc.binary_join_element_wise(f'{SCALARS[type_].literal_call}("', time_texts(values), '")', "")
    if pa.types.is_string(type_):
        texts = json_text(pc.replace_substring_regex(values, _CONTROLS, "\ufffd"))
        # A backslash before a `u` would start a code point for such databases, so the text is put together.
        return pc.replace_substring(texts, "\\\\u", '\\\\" + "u')
    texts = json_text(values)
    if pa.types.is_floating(type_):
        for name, number in _NO_NUMBERS:
            texts = pc.replace_substring(texts, name, number)
    if pa.types.is_uint64(type_):
        # Integers have 64 bits with a sign; a text keeps all digits.
        quoted = pc.binary_join_element_wise('"', texts, '"', "")
        texts = pc.if_else(pc.greater(values, pa.scalar(_I64_MAX, pa.uint64())), quoted, texts)
    return texts


def write_dot(view: View, types: Sequence[Type]) -> Iterator[bytes]:
    """Yield a digraph: a line per node and per edge."""
    yield b"digraph {\n"
    yield from write_entities(view, types, _dot_parts)
    yield b"}\n"


def _dot_parts(type_: Type, batch: pa.RecordBatch) -> list[Any]:
    """Return the parts of DOT lines. Properties are left out: Graphviz would take a `color` or a `size` for its own."""
    if isinstance(type_, EdgeType):
        source, target = _escape_dot(batch.column("src")), _escape_dot(batch.column("dst"))
        return [f'  "{type_.source}:', source, f'" -> "{type_.target}:', target, f'" [label="{type_.name}"];\n']
    texts = _escape_dot(batch.column("id"))
    return [f'  "{type_.name}:', texts, f'" [label="{type_.name}\\n', texts, '"];\n']


def _escape_dot(texts: Any) -> Any:
    for character, escape in (("\\", "\\\\"), ('"', '\\"'), ("\r", ""), ("\n", "\\n"), ("\0", "")):
        texts = pc.replace_substring(texts, character, escape)
    return texts


_DECLARATION: Final = '<?xml version="1.0" encoding="UTF-8"?>\n'
_GRAPHML: Final = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
_GEXF: Final = '<gexf xmlns="http://www.gexf.net/1.2draft" version="1.2">\n<graph defaultedgetype="directed">\n'
# The types that a format calls by another name than GraphML does.
_GRAPHML_TYPES: Final[Mapping[str, str]] = {}
_GEXF_TYPES: Final = {"int": "integer"}
# The ampersand comes first. Line breaks and tabs would become spaces in attributes.
_ESCAPES: Final = (
    ("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\t", "&#9;"), ("\n", "&#10;"), ("\r", "&#13;"),
)  # fmt: skip
# Characters that XML 1.0 cannot hold, not even escaped.
_NOT_XML: Final = "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x{fffe}\\x{ffff}]"
# The ids of attributes by kind of entity, name and type.
_Attributes: TypeAlias = Mapping[tuple[str, str, str], str]


def write_graphml(view: View, types: Sequence[Type]) -> Iterator[bytes]:
    keys = _attribute_ids(types, _GRAPHML_TYPES)
    lines = [
        f'<key id="{key}" for="{kind}" attr.name={quoteattr(name)} attr.type="{attribute_type}"/>\n'
        for (kind, name, attribute_type), key in keys.items()
    ]
    yield (_DECLARATION + _GRAPHML + "".join(lines) + '<graph edgedefault="directed">\n').encode()
    yield from write_entities(view, types, partial(_graphml_parts, keys))
    yield b"</graph>\n</graphml>\n"


def _attribute_ids(types: Sequence[Type], type_names: Mapping[str, str]) -> _Attributes:
    """Return the id of each attribute; properties of one name and type share it, whatever type of entity has them."""
    ids: dict[tuple[str, str, str], str] = {}
    for type_ in types:
        ids.setdefault((type_.kind, "type", "string"), f"k{len(ids)}")
        for name, property_ in shown_properties(type_).items():
            ids.setdefault((type_.kind, name, _attribute_type(property_, type_names)), f"k{len(ids)}")
    return ids


def _graphml_parts(keys: _Attributes, type_: Type, batch: pa.RecordBatch) -> list[Any]:
    parts = [*_element_head(type_, batch), f'"><data key="{keys[type_.kind, "type", "string"]}">{type_.name}</data>']
    for name, property_ in shown_properties(type_).items():
        key = keys[type_.kind, name, _attribute_type(property_, _GRAPHML_TYPES)]
        # An element is left out where there is no value.
        parts.append(_where_present(f'<data key="{key}">', _escape_xml(_plain_text(batch.column(name))), "</data>"))
    return [*parts, f"</{type_.kind}>\n"]


def _element_head(type_: Type, batch: pa.RecordBatch) -> list[Any]:
    """Return the beginning of elements: the id, and the nodes of an edge."""
    head: list[Any] = [f'<{type_.kind} id="{type_.name}:', _escape_xml(batch.column("id"))]
    if isinstance(type_, EdgeType):
        head += [f'" source="{type_.source}:', _escape_xml(batch.column("src"))]
        head += [f'" target="{type_.target}:', _escape_xml(batch.column("dst"))]
    return head


def write_gexf(view: View, types: Sequence[Type]) -> Iterator[bytes]:
    by_kind = {kind: [type_ for type_ in types if type_.kind == kind] for kind in KINDS}
    attributes = {
        kind: {(kind, "type", "string"): "k0", **_attribute_ids(members, _GEXF_TYPES)}
        for kind, members in by_kind.items()
    }
    yield (_DECLARATION + _GEXF).encode()
    for kind, declared in attributes.items():
        lines = [
            f'<attribute id="{key}" title={quoteattr(name)} type="{attribute_type}"/>\n'
            for (_, name, attribute_type), key in declared.items()
        ]
        yield f'<attributes class="{kind}">\n{"".join(lines)}</attributes>\n'.encode()
    for kind, members in by_kind.items():
        yield f"<{kind}s>\n".encode()
        yield from write_entities(view, members, partial(_gexf_parts, attributes[kind]))
        yield f"</{kind}s>\n".encode()
    yield b"</graph>\n</gexf>\n"


def _gexf_parts(keys: _Attributes, type_: Type, batch: pa.RecordBatch) -> list[Any]:
    head = _element_head(type_, batch)
    label = type_.name if isinstance(type_, EdgeType) else head[1]
    parts = [*head, '" label="', label, f'"><attvalues><attvalue for="k0" value="{type_.name}"/>']
    for name, property_ in shown_properties(type_).items():
        key = keys[type_.kind, name, _attribute_type(property_, _GEXF_TYPES)]
        texts = _escape_xml(_plain_text(batch.column(name)))
        # An attribute is left out where there is no value.
        parts.append(_where_present(f'<attvalue for="{key}" value="', texts, '"/>'))
    return [*parts, f"</attvalues></{type_.kind}>\n"]


def _attribute_type(property_: Property, names: Mapping[str, str]) -> str:
    name = "string" if property_.type.is_list else property_.type.scalar.facts.document_type
    return names.get(name, name)


def _plain_text(values: pa.Array[Any]) -> Any:
    """Return values as text, null where there is none: dates in ISO 8601, lists and vectors as JSON."""
    if pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        return pc.if_else(pc.is_valid(values), iso_json_text(values), pa.scalar(None, pa.string()))
    return time_texts(values) if values.type in PHYSICAL else pc.cast(values, pa.string())


def _escape_xml(texts: Any) -> Any:
    """Return texts as they stand in XML, also between quotes."""
    for character, escape in _ESCAPES:
        texts = pc.replace_substring(texts, character, escape)
    return pc.replace_substring_regex(texts, _NOT_XML, "\ufffd")


GraphFormat: TypeAlias = Literal["graphml", "gexf", "dot", "cypher"]

_WRITERS: Final[Mapping[str, Callable[[View, Sequence[Type]], Iterator[bytes]]]] = {
    "graphml": write_graphml,
    "gexf": write_gexf,
    "dot": write_dot,
    "cypher": write_cypher,
}


def export_graph(view: View, types: Sequence[Type], format_: str) -> Iterator[bytes]:
    """Return a snapshot in a format of graph tools, in chunks; edges bring the types at their ends along."""
    if format_ not in _WRITERS:
        raise UsageError(f"unknown format `{format_}`; expected ndjson, {', '.join(_WRITERS)}", format=format_)
    ends = {name for type_ in types for name in type_.ends.values()}
    names = ends | {type_.name for type_ in types if isinstance(type_, NodeType)}
    # The type at an end may be hidden from the actor.
    nodes = [view.catalog.nodes[name] for name in sorted(names & view.catalog.nodes.keys())]
    edges = sorted((type_ for type_ in types if isinstance(type_, EdgeType)), key=lambda edge: edge.name)
    return _WRITERS[format_](view, [*nodes, *edges])


def to_networkx(view: View, types: Sequence[str] | None = None) -> Any:
    """Return the nodes and edges of a view, or of some types, as a `networkx.MultiDiGraph`."""
    try:
        import networkx  # type: ignore[import-untyped,unused-ignore]  # not a dependency
    except ImportError:
        raise UsageError("`to_networkx` needs networkx; install it with `pip install networkx`") from None
    check_name_list("types", types)
    selected = view.catalog.types if types is None else [find_type(view.catalog, name) for name in types]
    result = networkx.MultiDiGraph()
    for type_ in selected:
        rows = python_rows(rename_ends(type_, view.dataset(type_.table_key).read(entity_columns(type_))))
        if isinstance(type_, NodeType):
            result.add_nodes_from(((type_.name, row["id"]), {"type": type_.name, **row}) for row in rows)
        else:
            ends = type_.source, type_.target
            result.add_edges_from(
                ((ends[0], row["from"]), (ends[1], row["to"]), row["id"], {"type": type_.name, **row}) for row in rows
            )
    return result


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


def _select_types(catalog: Catalog, names: Sequence[str] | None) -> list[Type]:
    types = catalog.types
    unknown = sorted({*(names or ())} - {type_.name for type_ in types})
    if unknown:
        available = ", ".join(sorted({type_.name for type_ in types}))
        raise UsageError(f"there is no type `{unknown[0]}`; the graph has: {available}", type_name=unknown[0])
    selected = (type_ for type_ in types if not names or type_.name in names)
    return sorted(selected, key=lambda type_: type_.table_key)


def export_records(view: View, types: Sequence[Type]) -> Iterator[bytes]:
    """Yield the records of some types of a view as chunks of whole lines; a line with a large blob comes in several."""
    for type_ in types:
        dataset = view.dataset(type_.table_key)
        for batch in ordered_batches(dataset, column_names(type_)):
            for part in split_batch(batch, blob_properties(type_)):
                yield from record_chunks(dataset, type_, part)


def column_names(type_: Type) -> list[str]:
    return list(dict.fromkeys(["id", *type_.ends, *sorted(type_.properties)]))


def column_type(type_: Type, name: str) -> PropertyType:
    """Return the type of a column: of a property, or of ids and endpoints, which are strings."""
    return type_.properties[name].type if name in type_.properties else TEXT


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


def record_chunks(dataset: Dataset, type_: Type, batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield the lines of a batch that `split_batch` cut; large blobs are read and encoded piece by piece."""
    large = [name for name in blob_properties(type_) if blob_sizes(batch.column(name))[0].as_py() > EXPORT_CHUNK_BYTES]
    if batch.num_rows > 1 or not large:
        yield join_columns(_line_parts(dataset, type_, batch))
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
    text, names = b"", iter(sorted(large))
    for part in _line_parts(dataset, type_, batch, large):
        if part is not None:
            text += part.encode() if isinstance(part, str) else string_bytes(part)
            continue
        yield text + b'"base64:'
        yield from _encode_large_blob(dataset, next(names), batch)
        text = b'"'
    yield text


def _line_parts(dataset: Dataset, type_: Type, batch: pa.RecordBatch, large: Sequence[str] = ()) -> list[Any]:
    """Return literal texts and columns of text that make up lines, an entity each; None in place of a large blob."""
    kind = "edge" if isinstance(type_, EdgeType) else "type"
    parts: list[Any] = [f'{{"{kind}":{_quote(type_.name)}']
    if isinstance(type_, EdgeType):
        parts += [',"from":', json_text(batch.column("src")), ',"to":', json_text(batch.column("dst"))]
    parts += [',"data":{"id":', json_text(batch.column("id"))]
    for name in sorted(type_.properties.keys() - {"id"}):
        parts.append(f",{_quote(name)}:")
        if name in large:
            parts.append(None)
        elif type_.properties[name].type.is_blob:
            parts.append(value_texts(read_blob_column(dataset, name, batch)))
        else:
            parts.append(iso_json_text(batch.column(name)))
    return [*parts, "}}\n"]


def _encode_large_blob(dataset: Dataset, name: str, batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield the blob of a batch of one row in base64, in pieces that can be joined."""
    row_id, size = batch.column(ROW_ID)[0].as_py(), blob_sizes(batch.column(name))[0].as_py()
    # Three bytes are four characters, so only the last piece may end in signs that fill it up.
    step = EXPORT_CHUNK_BYTES // 3 * 3
    for start in range(0, size, step):
        yield b64encode(read_range(dataset, name, row_id, start, min(step, size - start)))


def read_blob_column(dataset: Dataset, name: str, batch: pa.RecordBatch) -> Column:
    descriptors = batch.column(name)
    valid = pc.is_valid(descriptors).to_numpy(zero_copy_only=False)
    blobs = [blob or b"" for blob in read_blobs(dataset, name, batch.column(ROW_ID).filter(pa.array(valid)))]
    # A blob may be large, so a single one is not copied.
    sizes = np.zeros(batch.num_rows, np.int64)
    sizes[valid] = [len(blob) for blob in blobs]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    data = blobs[0] if len(blobs) == 1 else b"".join(blobs)
    bits = None if valid.all() else arrays.py_buffer(np.packbits(valid, bitorder="little"))
    return arrays.Array.from_buffers(
        pa.large_binary(), batch.num_rows, [bits, arrays.py_buffer(offsets), arrays.py_buffer(data)]
    )


def _quote(name: str) -> str:
    return orjson.dumps(name).decode()
