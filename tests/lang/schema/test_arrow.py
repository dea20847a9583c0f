"""Types become Arrow columns in a fixed order, with their identities as metadata."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph.lang.schema.arrow_schema import arrow_schema
from tests.support.schema_compiling import FIXTURE, compiled

CATALOG = compiled(FIXTURE).catalog


def test_arrow_schema_node_has_id_then_properties_by_name() -> None:
    schema = arrow_schema(CATALOG.nodes["Vessel"])
    assert schema.names == ["id", "built", "draft", "imo", "kind", "label", "manual", "seen", "tags", "teu", "vec"]
    assert schema.field("id").metadata == {b"lance-schema:unenforced-primary-key": b"true"}
    assert not schema.field("id").nullable
    assert not schema.field("imo").nullable
    assert schema.field("teu").nullable


def test_arrow_schema_edge_has_endpoints_after_id() -> None:
    schema = arrow_schema(CATALOG.edges["CallsAt"])
    assert schema.names == ["id", "src", "dst", "day", "fee"]
    assert [schema.field(name).type for name in ("id", "src", "dst")] == [pa.string()] * 3
    assert not schema.field("src").nullable


def test_arrow_schema_columns_carry_property_ids() -> None:
    node = CATALOG.nodes["Vessel"]
    schema = arrow_schema(node)
    for name, property_ in node.properties.items():
        metadata = schema.field(name).metadata
        assert metadata is not None
        assert metadata[b"omnigraph.stable_property_id"] == str(property_.property_id).encode()
        assert (metadata.get(b"omnigraph.blob") == b"true") == (name == "manual")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("String", pa.string()),
        ("Bool", pa.bool_()),
        ("I32", pa.int32()),
        ("I64", pa.int64()),
        ("U32", pa.uint32()),
        ("U64", pa.uint64()),
        ("F32", pa.float32()),
        ("F64", pa.float64()),
        ("Date", pa.date32()),
        ("DateTime", pa.date64()),
        ("Blob", pa.large_binary()),
        ("enum(a, b)", pa.string()),
        ("Vector(3)", pa.list_(pa.field("item", pa.float32()), 3)),
        ("[I64]", pa.list_(pa.field("item", pa.int64()))),
    ],
)
def test_arrow_schema_maps_every_type(written: str, expected: pa.DataType) -> None:
    field = arrow_schema(compiled(f"node A {{ a: {written} }}").catalog.nodes["A"]).field("a")
    assert field.type == expected
    assert not field.nullable
