"""All staged operations in any order, held against a plain dictionary."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.store.index.index_build import IndexKind, IndexSpec, build
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.write.compaction import fold_tail
from omnigraph.store.write.transaction import Change
from omnigraph.store.write.upsert import upsert
from tests.support.examples import examples
from tests.support.s3_server import S3Server, s3_server
from tests.support.staged_fixtures import commit, create, delete_ids, fold, people, rewrite, rows

__all__ = ["s3_server"]

SPECS = (
    IndexSpec("id", IndexKind.BTREE, "id"),
    IndexSpec("n", IndexKind.BTREE, "n"),
    IndexSpec("text", IndexKind.FULLTEXT, "text"),
    IndexSpec("vector", IndexKind.VECTOR, "vector"),
)
FRAGMENTS_MAX = 2
NUMBERS = st.lists(st.integers(0, 12), min_size=1, max_size=5, unique=True)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), NUMBERS),
        st.tuples(st.just("delete"), NUMBERS),
        st.tuples(st.sampled_from(["build", "fold", "rewrite", "fold_tail", "fork"]), st.just([])),
    ),
    min_size=4,
    max_size=14,
)


class Model:
    """What the rows should be: `{number: (n, version created, version last updated)}`."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, int, int]] = {}
        self.row_ids: dict[int, int] = {}

    def upsert(self, numbers: list[int], version: int) -> None:
        for number in numbers:
            # A row that is replaced is a new one to Lance.
            self.rows[number] = (version, version, version)
            self.row_ids.pop(number, None)

    def delete(self, numbers: list[int]) -> None:
        for number in numbers:
            self.rows.pop(number, None)
            self.row_ids.pop(number, None)


def staged(dataset: Dataset, step: str, numbers: list[int]) -> Change | None:
    match step:
        case "upsert":
            return upsert(dataset, people(numbers, n=dataset.version + 1))
        case "delete":
            return delete_ids(dataset, pa.array([f"k{number}" for number in numbers]))
        case "build":
            return build(dataset, SPECS)
        case "fold":
            return fold(dataset)
        case "rewrite":
            return rewrite(dataset)
        case _:
            return fold_tail(dataset, FRAGMENTS_MAX)


def check(dataset: Dataset, model: Model) -> None:
    found = {
        int(key[1:]): (row["n"], row["_row_created_at_version"], row["_row_last_updated_at_version"])
        for key, row in rows(dataset).items()
    }
    assert found == model.rows
    row_ids = {int(key[1:]): row["_rowid"] for key, row in rows(dataset).items()}
    assert row_ids | model.row_ids == row_ids
    assert len(set(row_ids.values())) == len(row_ids)
    model.row_ids = row_ids
    assert dataset.lance.to_table(columns=["id"]).num_rows == len(model.rows)
    for n in {row[0] for row in model.rows.values()} | {0}:
        assert dataset.count(f"n = {n}") == sum(row[0] == n for row in model.rows.values())
    for number in range(13):
        assert dataset.read(["id"], f"id = 'k{number}'").num_rows == (number in model.rows)
    if any(index.name == "text" for index in dataset.lance.describe_indices()):
        hits = dataset.lance.to_table(full_text_query="fox", columns=["id", "_score"])["id"].to_pylist()
        assert sorted(map(str, hits)) == sorted(f"k{number}" for number in model.rows)


def run(root: Path | str, steps: list[tuple[str, list[int]]]) -> Dataset:
    dataset, model = create(root), Model()
    for place, (step, numbers) in enumerate(steps):
        if step == "fork":
            dataset = dataset.store.fork(dataset, f"branch{place}")
            continue
        change = staged(dataset, step, numbers)
        if change is None:
            continue
        dataset = commit(dataset, change)
        if step == "upsert":
            model.upsert(numbers, dataset.version)
        elif step == "delete":
            model.delete(numbers)
        check(dataset, model)
    return dataset


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(STEPS)
def test_staged_operations_in_any_order_agree_with_a_dictionary(steps: list[tuple[str, list[int]]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run(Path(directory), steps)


@pytest.mark.s3
def test_staged_operations_on_s3_agree_with_a_dictionary(s3_server: S3Server) -> None:
    steps: list[tuple[str, list[int]]] = [
        ("upsert", [1, 2, 3, 4]),
        ("build", []),
        ("upsert", [2, 5]),
        ("delete", [1, 5]),
        ("upsert", [6]),
        ("upsert", [7]),
        ("fold_tail", []),
        ("fold", []),
        ("fork", []),
        ("upsert", [3, 8]),
        ("rewrite", []),
        ("fold", []),
        ("delete", [2, 3, 4, 6, 7, 8]),
    ]
    dataset = run(s3_server.uri("graph"), steps)
    assert (dataset.ref.branch, dataset.version, dataset.count()) == ("branch8", 13, 0)
