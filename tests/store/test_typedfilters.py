"""Filters on one column of a dataset whose other columns Substrait cannot name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph import graph as og
from omnigraph.store.read import dataset as projections

LISTS = (pa.uint32(), pa.uint64(), pa.date64(), pa.int64(), pa.string())


def with_list(path: Path, item: pa.DataType) -> Any:
    rows = pa.table({"id": ["a", "b"], "items": pa.nulls(2, pa.list_(item)), "after": [1, 2]})
    return lance.write_dataset(rows, str(path))


@pytest.mark.parametrize("item", LISTS, ids=str)
def test_filter_beside_a_list_finds_its_rows(tmp_path: Path, item: pa.DataType) -> None:
    dataset = with_list(tmp_path / "d", item)
    assert dataset.to_table(filter=pc.field("id") == "b").column("after").to_pylist() == [2]
    assert dataset.to_table(filter=pc.field("after") == 1).column("id").to_pylist() == ["a"]


def test_filter_without_our_placeholders_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # When this fails, Lance has learned it, and `typedfilters` can go.
    monkeypatch.setattr(projections.lance_dataset, "_needs_substrait_placeholder", projections._known_to_lance)
    with pytest.raises(ValueError, match="Substrait"):
        with_list(tmp_path / "d", pa.uint32()).to_table(filter=pc.field("id") == "b")


def test_edge_to_a_node_with_such_lists_is_written(tmp_path: Path) -> None:
    schema = "node Box { name: String @key  sizes: [U32]?  marks: [U64]?  seen: [DateTime]? }\nedge Holds: Box -> Box"
    graph = og.init(tmp_path / "g", schema=schema)
    graph.ingest([{"type": "Box", "data": {"name": name, "sizes": [1], "marks": [2]}} for name in ("a", "b")])
    with og.open(tmp_path / "g") as again:
        again.ingest([{"edge": "Holds", "from": "a", "to": "b"}])
        found = again.query('query q() { match { $a: Box { name: "a" } $a holds $b } return { $b.name } }')
    assert found.rows() == [{"b.name": "b"}]
    graph.close()
