"""Guards of the Lance surface, continued: staged operations, indexes, compaction, branches and files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.optimize import Compaction
from lance.schema import LanceSchema

from omnigraph.store.lance_schema import field_ids
from tests.support.lance_double import SCHEMA, Registrar, commit, create, managed, stage, table


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "dataset")


def test_staged_update_takes_rows_out_and_adds_others_in_one_version(uri: str) -> None:
    """`upsert`: rows without row ids of their own get new ones, and the rows they replace are gone."""
    handle = managed(create(uri), stage(lance.dataset(uri), table("a", "b")), Registrar())
    first = handle.get_fragment(0)
    assert first is not None
    left = first.delete_rows([1])
    assert left is not None
    added = stage(handle, table("b", "c", n=5)).operation.fragments  # type: ignore[attr-defined]  # it is an append
    update = LanceOperation.Update([], [left], added, [], list(field_ids(handle.lance_schema).values()), "rewrite_rows")
    handle = managed(handle, Transaction(handle.version, update), Registrar())
    columns = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    found = {row["id"]: tuple(row.values())[1:] for row in handle.to_table(columns=columns).to_pylist()}
    assert found == {"a": (0, 2, 2), "b": (2, 3, 3), "c": (3, 3, 3)}


def test_take_rows_that_are_gone_leaves_them_out_and_tells_addresses(uri: str) -> None:
    """`lookup.find_rows`: candidates may have been deleted since, and those that stay are staged by address."""
    handle = commit(create(uri), stage(lance.dataset(uri), table("a", "b", "c")))
    handle.delete("id = 'b'")
    found = handle._take_rows([2, 1, 0, 99], columns=["id", "_rowid", "_rowaddr"])
    assert found.to_pydict() == {"id": ["c", "a"], "_rowid": [2, 0], "_rowaddr": [2, 0]}


def test_staged_inverted_segment_unmerged_cannot_be_queried(uri: str) -> None:
    """`index.build`: why a text segment is merged with nothing before it is committed."""
    schema = pa.schema({"id": pa.string(), "text": pa.string()})
    rows = pa.table({"id": ["a"], "text": ["quick fox"]}, schema=schema)
    handle = lance.write_dataset(rows, uri, enable_stable_row_ids=True)
    raw = handle.create_index_uncommitted("text", "INVERTED", name="text", fragment_ids=[0])
    broken = commit(handle, Transaction(1, LanceOperation.CreateIndex([raw], [])))
    with pytest.raises((OSError, ValueError)):
        broken.to_table(full_text_query="fox", columns=["id", "_score"])
    merged = handle.merge_existing_index_segments([raw])
    whole = commit(broken, Transaction(2, LanceOperation.CreateIndex([merged], [raw])))
    assert whole.to_table(full_text_query="fox", columns=["id", "_score"])["id"].to_pylist() == ["a"]


def test_vector_index_with_given_centroid_needs_no_training(uri: str) -> None:
    """`index.build`: one partition, exact distances, and a fragment without vectors is no failure."""
    vectors = pa.array([[0.0, 1.0], [3.0, 1.0], None], pa.list_(pa.float32(), 2))
    handle = lance.write_dataset(pa.table({"id": ["a", "b", "c"], "v": vectors}), uri, enable_stable_row_ids=True)
    segment = handle.create_index_uncommitted(
        "v",
        "IVF_FLAT",
        name="v",
        metric="L2",
        num_partitions=1,
        ivf_centroids=np.zeros((1, 2), np.float32),
        fragment_ids=[0],
    )
    handle = commit(handle, Transaction(1, LanceOperation.CreateIndex([segment], [])))
    near = {"column": "v", "q": np.array([3.0, 1.0], np.float32), "k": 2}
    found = handle.to_table(nearest=near, columns=["id", "_distance"]).to_pylist()
    assert found == [{"id": "b", "_distance": 0.0}, {"id": "a", "_distance": 9.0}]


def rewritten(handle: LanceDataset, first_id: int | None) -> Transaction:
    (task,) = Compaction.plan(handle, {"target_rows_per_fragment": 100}).tasks
    result = task.execute(handle)
    fragments = result.new_fragments
    if first_id is not None:
        fragments[0].id = first_id
    old = result.original_fragments  # type: ignore[attr-defined]  # the stub knows it by another name
    group = LanceOperation.RewriteGroup(old, fragments)
    return Transaction(handle.version, LanceOperation.Rewrite([group], []))


def test_rewrite_with_given_fragment_id_moves_coverage_but_of_btrees(uri: str) -> None:
    """`compact.rewritten`: fragments are numbered by us, and b-trees are built again after it."""
    handle = create(uri)
    for key in "ab":
        handle = commit(handle, stage(handle, table(key)))
    handle.create_scalar_index("id", "BTREE", name="btree")
    handle.create_scalar_index("n", "BITMAP", name="bitmap")
    handle = lance.dataset(uri)
    handle = commit(handle, rewritten(handle, 7))
    assert [fragment.fragment_id for fragment in handle.get_fragments()] == [7]
    covered = {
        one.name: {place for part in one.segments for place in part.fragment_ids} for one in handle.describe_indices()
    }
    assert covered == {"btree": set(), "bitmap": {7}}
    assert handle.to_table(filter="id = 'b'", columns=["id"], with_row_id=True)["_rowid"].to_pylist() == [1]


def test_compaction_plan_leaves_excluded_fragments_out(uri: str) -> None:
    """`compact.fold_tail`: the planner can be told exactly which fragments to fold."""
    handle = create(uri)
    for key in "abcd":
        handle = commit(handle, stage(handle, table(key)))
    options = {"target_rows_per_fragment": 100, "excluded_fragment_ids": [0, 1]}
    (task,) = Compaction.plan(handle, options).tasks  # type: ignore[arg-type]
    assert [fragment.id for fragment in task.fragments] == [2, 3]


def test_project_adds_a_column_that_no_file_has(uri: str) -> None:
    """`reshape`: one `Project` adds, drops and renames, and a column without files reads as null."""
    handle = commit(create(uri), stage(lance.dataset(uri), table("a")))
    handle.create_scalar_index("n", "BTREE", name="n")
    handle = lance.dataset(uri)
    wider = handle.schema.append(pa.field("extra", pa.string()))
    # The columns stand in the order of their ids, so the numbers that Arrow gets happen to be right here.
    handle = commit(handle, Transaction(handle.version, LanceOperation.Project(LanceSchema.from_pyarrow(wider))))
    assert handle.to_table().to_pylist() == [{"id": "a", "n": 0, "extra": None}]
    assert [index.name for index in handle.describe_indices()] == ["n"]
    handle.validate()  # type: ignore[no-untyped-call]
    narrow = pa.schema([wider.field("id")])
    handle = commit(handle, Transaction(handle.version, LanceOperation.Project(LanceSchema.from_pyarrow(narrow))))
    assert handle.describe_indices() == []


def test_schema_from_arrow_numbers_fields_afresh(uri: str) -> None:
    """`fields.edit`: why we edit Lance's own field messages instead of converting from Arrow."""
    handle = commit(create(uri), stage(lance.dataset(uri), table("a")))
    handle.drop_columns(["n"])
    handle.add_columns(pa.field("m", pa.int32()))
    handle = lance.dataset(uri)
    assert field_ids(handle.lance_schema)["m"] != field_ids(LanceSchema.from_pyarrow(handle.schema))["m"]


def test_blob_bytes_lie_in_a_directory_beside_the_data_file(uri: str) -> None:
    """`Change.files`: a data file with blobs has a directory of its name without the suffix."""
    schema = pa.schema([SCHEMA.field("id"), lance.blob_field("image")])
    rows = pa.table({"id": ["a"], "image": lance.blob_array([b"x" * 100_000])}, schema=schema)
    handle = lance.write_dataset(rows, uri, enable_stable_row_ids=True, data_storage_version="2.2")
    (file,) = handle.get_fragments()[0].metadata.files
    (blob,) = Path(f"{uri}/data/{file.path.removesuffix('.lance')}").iterdir()
    assert blob.suffix == ".blob"


# -- branches and files ------------------------------------------------------------------------------------------


def test_branch_layout_is_tree_and_ref_file(uri: str) -> None:
    """`DatasetRef.directory` and the sweep: where the files of a branch lie, and that a ULID may name it."""
    handle = commit(create(uri), stage(lance.dataset(uri), table("a")))
    name = "01JCXV3Q8E5W7R2T9Y4U6I0P1A"
    branch = handle.create_branch(name)
    assert os.listdir(f"{uri}/tree") == [name]
    assert os.listdir(f"{uri}/_refs/branches") == [f"{name}.json"]
    branch = commit(branch, stage(branch, table("b")))
    opened = lance.dataset(f"{uri}/tree/{name}", version=3)
    assert (opened.version, opened.count_rows(), lance.dataset(uri).count_rows()) == (3, 2, 1)


def test_branch_of_a_branch_of_a_branch_reads_all_generations(uri: str) -> None:
    """`Store.fork`: branches of review branches."""
    handle = commit(create(uri), stage(lance.dataset(uri), table("k0")))
    for generation in (1, 2, 3):
        handle = handle.create_branch(f"g{generation}")
        handle = commit(handle, stage(handle, table(f"k{generation}")))
    opened = lance.dataset(f"{uri}/tree/g3")
    assert opened.to_table()["id"].to_pylist() == ["k0", "k1", "k2", "k3"]


def test_moved_root_breaks_branches_and_spares_main(tmp_path: Path) -> None:
    """`base_paths`: a branch names the place of its inherited files in full, so we rebase it."""
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    handle = commit(create(old), stage(lance.dataset(old), table("a")))
    handle.create_branch("b")
    shutil.move(old, new)
    assert lance.dataset(new).to_table().num_rows == 1
    with pytest.raises((OSError, ValueError)):
        lance.dataset(f"{new}/tree/b").to_table()


def test_tracked_and_all_files_differ_by_the_residue(uri: str) -> None:
    """The sweep: what no version names is residue."""
    handle = commit(create(uri), stage(lance.dataset(uri), table("a")))
    (left,) = stage(handle, table("b")).operation.fragments  # type: ignore[attr-defined]
    tracked, everything = handle.tracked_files().read_all(), handle.all_files().read_all()
    assert tracked.schema.names[:2] == ["version", "base_uri"]
    residue = set(everything["path"].to_pylist()) - set(tracked["path"].to_pylist())
    assert f"data/{left.files[0].path}" in residue
