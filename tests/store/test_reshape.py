"""Schema changes that keep field ids."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.store.index.index_build import IndexKind, IndexSpec, build, coverage
from omnigraph.store.lance_schema import edit_schema, field_ids
from omnigraph.store.write.schema_change import reshape
from omnigraph.store.write.transaction import append, overwrite
from omnigraph.store.write.upsert import upsert
from tests.support.staged_fixtures import SCHEMA, commit, create, people, rows

BY_N = IndexSpec("n", IndexKind.BTREE, "n")
BY_TEXT = IndexSpec("text", IndexKind.FULLTEXT, "text")


def test_add_columns_nullable_ones_are_null_and_writable(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(3)))
    before = rows(dataset)
    fields = [
        pa.field("age", pa.int64(), metadata={"omnigraph.stable_property_id": "9"}),
        pa.field("aliases", pa.list_(pa.string())),
        pa.field("embedding", pa.list_(pa.float32(), 3)),
    ]
    change = reshape(dataset, add=fields)
    assert change is not None
    assert change.files == ()
    dataset = commit(dataset, change)
    assert dataset.schema.names == [*SCHEMA.names, "age", "aliases", "embedding"]
    assert dataset.schema.field("age").metadata == {b"omnigraph.stable_property_id": b"9"}
    assert rows(dataset) == before
    assert dataset.count("age IS NULL AND aliases IS NULL AND embedding IS NULL") == 3
    row = {"id": "k1", "age": 4, "aliases": ["x"], "embedding": [1.0, 2.0, 3.0]}
    dataset = commit(dataset, upsert(dataset, pa.Table.from_pylist([row], schema=dataset.schema)))
    assert rows(dataset, "age", "aliases", "embedding")["k1"] == row
    assert rows(dataset, "age")["k2"]["age"] is None


def test_drop_columns_takes_values_and_index_away(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(3)))
    dataset = commit(dataset, build(dataset, [BY_N, BY_TEXT]))
    after = commit(dataset, reshape(dataset, drop=["tags", "n"]))
    assert after.schema.names == ["id", "text", "vector"]
    assert coverage(after).keys() == {"text"}
    assert rows(after, "text")["k2"]["text"] == rows(dataset, "text")["k2"]["text"]
    assert dataset.schema.names == SCHEMA.names


def test_drop_then_add_same_name_shows_nothing_of_the_old(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(1, 3)))
    dataset = commit(dataset, build(dataset, [BY_N]))
    dataset = commit(dataset, reshape(dataset, drop=["n"], add=[pa.field("n", pa.int32())]))
    assert dataset.count("n IS NULL") == 2
    assert coverage(dataset) == {}


def test_rename_columns_keeps_values_ids_metadata_and_index(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(9)), people(range(9, 12)))
    dataset = commit(dataset, build(dataset, [BY_N, BY_TEXT]))
    before, ids = rows(dataset, "n"), field_ids(dataset.lance.lance_schema)
    dataset = commit(dataset, reshape(dataset, rename={"n": "number"}))
    assert {key: row["number"] for key, row in rows(dataset, "number").items()} == {
        key: row["n"] for key, row in before.items()
    }
    assert field_ids(dataset.lance.lance_schema)["number"] == ids["n"]
    assert dataset.schema.field("number").metadata == {b"omnigraph.stable_property_id": b"7"}
    assert "ScalarIndexQuery" in dataset.lance.scanner(filter="number = 4").explain_plan()
    assert build(dataset, [IndexSpec("number", IndexKind.BTREE, "other")]) is None


def test_rename_columns_swap_exchanges_the_values(tmp_path: Path) -> None:
    schema = pa.schema([SCHEMA.field("id"), pa.field("a", pa.string()), pa.field("b", pa.string())])
    dataset = create(tmp_path, pa.table({"id": ["x"], "a": ["1"], "b": ["2"]}, schema=schema), schema=schema)
    dataset = commit(dataset, reshape(dataset, rename={"a": "b", "b": "a"}))
    assert rows(dataset, "a", "b") == {"x": {"id": "x", "a": "2", "b": "1"}}


def test_reshape_everything_at_once_is_one_version(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(4)), people(range(4, 6)))
    ids = field_ids(dataset.lance.lance_schema)
    change = reshape(
        dataset, add=[pa.field("tags", pa.int64())], drop=["tags", "vector"], rename={"n": "number", "text": "n"}
    )
    after = commit(dataset, change)
    assert after.version == dataset.version + 1
    assert after.schema.names == ["id", "number", "n", "tags"]
    assert rows(after, "number", "n", "tags")["k5"] == {
        "id": "k5",
        "number": 5,
        "n": "quick fox number 5",
        "tags": None,
    }
    assert field_ids(after.lance.lance_schema)["tags"] > max(ids.values())
    assert after.schema.field("id").metadata == SCHEMA.field("id").metadata
    assert not after.schema.field("id").nullable
    more = pa.Table.from_pylist([{"id": "z", "number": 1, "n": "m", "tags": 3}], schema=after.schema)
    assert commit(after, append(after, more)).count("tags = 3") == 1


def test_reshape_empty_dataset_changes_the_schema(tmp_path: Path) -> None:
    dataset = create(tmp_path)
    dataset = commit(dataset, reshape(dataset, add=[pa.field("x", pa.bool_())], drop=["tags"]))
    assert dataset.schema.names == ["id", "n", "text", "vector", "x"]
    assert commit(dataset, overwrite(dataset, people([]).select(["id", "n"]))).count() == 0


def test_reshape_on_branch_leaves_source_alone(tmp_path: Path) -> None:
    main = create(tmp_path, people(range(3)))
    branch = main.store.fork(main, "01HZX")
    branch = commit(branch, reshape(branch, rename={"n": "number"}))
    assert ("number" in branch.schema.names, "number" in main.schema.names) == (True, False)


def test_reshape_nothing_asked_is_nothing(tmp_path: Path) -> None:
    dataset = create(tmp_path)
    assert reshape(dataset) is None
    assert reshape(dataset, rename={}) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"drop": ["nope"]},
        {"rename": {"nope": "x"}},
        {"rename": {"n": "text"}},
        {"drop": ["n"], "rename": {"n": "m"}},
        {"add": [pa.field("n", pa.int32())]},
        {"add": [pa.field("m", pa.int32(), nullable=False)]},
    ],
)
def test_reshape_impossible_change_is_refused_as_our_bug(tmp_path: Path, wrong: dict[str, object]) -> None:
    dataset = create(tmp_path)
    with pytest.raises(AssertionError):
        reshape(dataset, **wrong)  # type: ignore[arg-type]


def test_edit_nothing_gives_back_the_same_schema(tmp_path: Path) -> None:
    schema = create(tmp_path, people(range(2))).lance.lance_schema
    assert edit_schema(schema, next_id=99).__reduce__() == schema.__reduce__()
