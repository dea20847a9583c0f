"""Row changes: the fast way equals the comparison of all rows, and reads no more than what changed."""

from __future__ import annotations

import math
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.changes import row_diff
from omnigraph.engine.changes.row_diff import RowChanges, equal_values, row_changes
from omnigraph.engine.write.staging import physical
from omnigraph.errors import StorageError
from omnigraph.store.index.index_build import IndexKind, IndexSpec, build
from omnigraph.store.lance_schema import physical_schema
from omnigraph.store.objects.backend import Meter
from omnigraph.store.read import lookup, version_diff
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.live_rows import deleted_offsets
from omnigraph.store.read.version_diff import moved_rows
from omnigraph.store.write.compaction import fold_tail
from omnigraph.store.write.schema_change import reshape
from omnigraph.store.write.transaction import Change, append, overwrite
from omnigraph.store.write.upsert import upsert
from tests.support.examples import examples
from tests.support.full_comparison import row_changes_by_comparing
from tests.support.staged_fixtures import commit, create, delete_ids, people, rewrite

pytestmark = pytest.mark.slow

FIELDS: list[pa.Field[Any]] = [
    pa.field("id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
    pa.field("n", pa.float64(), metadata={"omnigraph.stable_property_id": "7"}),
    pa.field("tags", pa.list_(pa.string()), metadata={"omnigraph.stable_property_id": "8"}),
    pa.field("image", pa.large_binary(), metadata={"omnigraph.stable_property_id": "9", "omnigraph.blob": "true"}),
]
VALUES = (None, math.nan, 0.0, -0.0, 1.0)
TAGS: tuple[list[str | None] | None, ...] = (None, [], [None], [""], ["a", "b"])
IMAGES = (None, b"", b"x", b"y", b"z" * 70_000)


def table(numbers: list[int], salt: int, like: Dataset) -> pa.Table:
    """Return rows k<number> whose values follow from number and salt, in the columns that a dataset has.

    Five more salt changes nothing but the image.
    """
    made: dict[str, list[object]] = {"id": [f"k{number}" for number in numbers]}
    for field in like.schema:
        of = {"7": VALUES, "8": TAGS, "9": IMAGES}.get(_property(field), (None, "x", "y"))
        if field.name != "id":
            own = salt + salt // 5 if of is IMAGES else salt % 5
            made[field.name] = [of[(number + own) % len(of)] for number in numbers]
    logical = row_diff.logical_schema(like)
    return physical(pa.table({name: pa.array(made[name], logical.field(name).type) for name in logical.names}), like)


def _property(field: pa.Field[Any]) -> str:
    return (field.metadata or {}).get(b"omnigraph.stable_property_id", b"").decode()


def content(dataset: Dataset) -> dict[str, dict[str, Any]]:
    """Return `{id: {property: value}}`, read in the plainest way."""
    names = {field.name: _property(field) or field.name for field in dataset.schema}
    found = dataset.lance.to_table(blob_handling="all_binary").to_pylist()
    return {row["id"]: {names[name]: _plain(value) for name, value in row.items()} for row in found}


def _plain(value: Any) -> Any:
    # NaN equals itself and zeros do not equal each other, which Python sees the other way round.
    return repr(value) if isinstance(value, float) else value


def expected(before: Dataset, after: Dataset) -> tuple[set[str], set[str], set[str]]:
    old, new = content(before), content(after)
    kept = {_property(field) or field.name for field in after.schema}
    changed = {key for key in old.keys() & new.keys() if any(old[key].get(name) != new[key].get(name) for name in kept)}
    return new.keys() - old.keys(), old.keys() - new.keys(), changed


def ids(one: pa.Table) -> list[str]:
    return [str(key) for key in one.column("id").to_pylist()]


def check(before: Dataset, after: Dataset) -> None:
    fast, full = row_changes(before, after), row_changes_by_comparing(before, after)
    inserted, deleted, changed = expected(before, after)
    assert (ids(full.inserted), ids(full.deleted)) == (sorted(inserted), sorted(deleted))
    assert ids(full.before) == ids(full.after) == sorted(changed)
    for name in ("inserted", "deleted", "before", "after"):
        one, two = getattr(fast, name), getattr(full, name)
        assert one.schema.equals(two.schema, check_metadata=True)
        # Text tells NaN from null and zeros apart, and takes NaN as equal to itself.
        assert str(one.to_pylist()) == str(two.to_pylist()), name
    assert str(_rows(full.after)) == str({key: content(after)[key] for key in sorted(changed)})


def _rows(one: pa.Table) -> dict[str, dict[str, Any]]:
    names = {field.name: _property(field) or field.name for field in one.schema}
    return {row["id"]: {names[key]: _plain(value) for key, value in row.items()} for row in one.to_pylist()}


# -- histories ---------------------------------------------------------------------------------------------------------


def staged(dataset: Dataset, step: str, numbers: list[int], salt: int) -> Change | None:
    known = {int(key[1:]) for key in content(dataset)}
    match step:
        case "append":
            fresh = [number for number in numbers if number not in known]
            return append(dataset, table(fresh, salt, dataset)) if fresh else None
        case "upsert":
            return upsert(dataset, table(numbers, salt, dataset))
        case "delete":
            return delete_ids(dataset, pa.array([f"k{number}" for number in numbers]))
        case "overwrite":
            return overwrite(dataset, table(numbers, salt, dataset))
        case "index":
            return build(dataset, (IndexSpec("id", IndexKind.BTREE, "id"),))
        case "rewrite":
            return rewrite(dataset)
        case "fold":
            return fold_tail(dataset, 2)
        case "rename":
            old = next(field.name for field in dataset.schema if _property(field) == "7")
            return reshape(dataset, rename={old: f"n{dataset.version}"})
        case "drop":
            extra = [field.name for field in dataset.schema if _property(field) == "" and field.name != "id"]
            return reshape(dataset, drop=extra) if extra else None
        case _:
            return reshape(dataset, add=[pa.field(f"extra{dataset.version}", pa.string())])


Step = tuple[str, list[int], int]


def grow(root: Path, steps: list[Step]) -> list[Dataset]:
    """Return every state that a history makes; `fork` leaves the line of work, `back` takes another one up again."""
    heads = [create(root, schema=physical_schema(pa.schema(FIELDS)))]
    states = list(heads)
    for place, (step, numbers, salt) in enumerate(steps):
        if step == "fork":
            heads.append(heads[-1].store.fork(heads[-1], f"fork{place}"))
        elif step == "back":
            heads.insert(0, heads.pop())
        else:
            change = staged(heads[-1], step, numbers, salt)
            heads[-1] = heads[-1] if change is None else commit(heads[-1], change)
        states.append(heads[-1])
    return states


NUMBERS = st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True)
WRITES = st.tuples(st.sampled_from(["append", "upsert", "upsert", "delete", "overwrite"]), NUMBERS, st.integers(0, 9))
OTHERS: st.SearchStrategy[tuple[str, list[int], int]] = st.tuples(
    st.sampled_from(["index", "rewrite", "fold", "rename", "add", "drop", "fork", "back"]), st.just([]), st.just(0)
)


@settings(max_examples=examples(60))
@given(st.lists(st.one_of(WRITES, WRITES, OTHERS), min_size=3, max_size=12), st.randoms(use_true_random=False))
def test_row_changes_over_random_histories_equal_the_full_comparison(steps: list[Step], random: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        states = grow(Path(directory), steps)
        for _ in range(6):
            check(random.choice(states), random.choice(states))


def test_property_restored_by_going_back_changes_the_rows_that_had_it(tmp_path: Path) -> None:
    steps: list[Step] = [("add", [], 0), ("append", [0, 1, 2], 0), ("fork", [], 0), ("drop", [], 0)]
    states = grow(tmp_path, steps)
    _, _, with_extra, forked, dropped = states
    for older in (with_extra, forked):
        check(dropped, older)
        assert ids(row_changes(dropped, older).after) == ["k1", "k2"]
        assert row_changes(older, dropped).count == 0


FORKED: list[Step] = [
    ("append", [0, 1, 2, 3, 4], 0),
    ("fork", [], 0),
    ("append", [5], 1),
    ("rewrite", [], 0),
    ("back", [], 0),
    ("append", [6], 2),
    ("rewrite", [], 0),
]
STRAIGHT: list[Step] = [
    ("append", [0, 1, 2], 0),
    ("append", [3, 4], 0),
    ("upsert", [1, 3], 1),
    ("rewrite", [], 0),
    ("delete", [0], 0),
    ("add", [], 0),
    ("rename", [], 0),
    ("upsert", [2, 9], 3),
    ("overwrite", [2, 7, 9], 3),
    ("upsert", [2, 7, 9], 3),
    ("upsert", [9], 8),
]


def every_pair(root: Path, steps: list[Step]) -> None:
    states = grow(root, steps)
    for before, after in pairwise(states):
        check(before, after)
        check(after, before)
    check(states[0], states[-1])
    check(states[-4], states[-1])


@pytest.mark.parametrize("steps", [FORKED, STRAIGHT], ids=["forked", "straight"])
def test_row_changes_between_any_two_states_equal_the_full_comparison(tmp_path: Path, steps: list[Step]) -> None:
    every_pair(tmp_path, steps)


@pytest.mark.parametrize("steps", [FORKED, STRAIGHT], ids=["forked", "straight"])
@pytest.mark.parametrize("name", ["deleted_offsets", "first_row_id"])
def test_row_changes_over_small_files_equal_the_full_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, steps: list[Step]
) -> None:
    monkeypatch.setattr(version_diff, name, lambda *_: None)
    every_pair(tmp_path, steps)


def test_row_changes_of_many_deletes_in_one_fragment_are_found(tmp_path: Path) -> None:
    base = create(tmp_path, people(range(30_000)))
    before = commit(base, delete_ids(base, pa.array([f"k{number}" for number in range(0, 30_000, 2)])))
    after = commit(before, delete_ids(before, pa.array(["k1", "k29999"])))
    (fragment,) = before.lance.get_fragments()
    # So many are kept as a bitmap, which only Lance reads.
    assert deleted_offsets(before, fragment) is None
    assert ids(row_changes(before, after).deleted) == ids(row_changes(after, before).inserted) == ["k1", "k29999"]


@pytest.mark.parametrize(
    ("module", "name", "mutant", "steps"),
    [
        (version_diff, "deletion_path", lambda fragment: None, STRAIGHT),
        (version_diff, "deleted_offsets", lambda dataset, fragment: np.array([], np.uint64), STRAIGHT),
        (version_diff, "first_row_id", lambda fragment: 0, STRAIGHT),
        (version_diff, "_shared_version", lambda before, after: 1 << 40, FORKED),
        (version_diff, "_narrowed", lambda before, old, after, new: (old.keep(old.versions < 0), new), STRAIGHT),
        (row_diff, "_equal_rows", lambda old, new: np.zeros(len(old.row_ids), np.bool_), STRAIGHT),
        (row_diff, "_equal_blobs", lambda *_: np.True_, STRAIGHT),
        (row_diff, "_equal_floats", lambda one, two: one == two, STRAIGHT),
        (row_diff, "_property", lambda field: field.name.encode(), STRAIGHT),
    ],
)
@pytest.mark.sampled(2)
def test_row_changes_of_a_broken_comparison_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, mutant: Any, steps: list[Step]
) -> None:
    monkeypatch.setattr(module, name, mutant)
    with pytest.raises((AssertionError, KeyError, StorageError)):
        every_pair(tmp_path, steps)


def test_row_changes_of_a_type_that_appears_or_goes_are_all_its_rows(tmp_path: Path) -> None:
    dataset = create(tmp_path, people(range(5)))
    assert (
        ids(row_changes(None, dataset).inserted)
        == ids(row_changes(dataset, None).deleted)
        == ["k0", "k1", "k2", "k3", "k4"]
    )
    assert row_changes(dataset, dataset).count == 0
    assert row_changes(None, dataset).deleted.schema.names == dataset.schema.names


# -- cost --------------------------------------------------------------------------------------------------------------


def read_bytes(before: Dataset, after: Dataset) -> tuple[int, RowChanges]:
    stores = [before.store.open(before.ref), before.store.open(after.ref)]
    for one in stores:
        one.lance.io_stats_incremental()
    changes = row_changes(stores[0], stores[1])
    return sum(int(one.lance.io_stats_incremental().read_bytes) for one in stores), changes


def test_row_changes_in_a_large_type_read_only_what_changed(tmp_path: Path) -> None:
    large = create(tmp_path, people(range(60_000)), people(range(60_000, 120_000)))
    changed = commit(large, upsert(large, people([*range(500, 590), *range(200_000, 200_010)], n=-1)))
    old, new = moved_rows(large, changed)
    assert (old.num_rows, new.num_rows) == (90, 100)
    stored = sum(file.file_size_bytes or 0 for one in large.lance.get_fragments() for file in one.metadata.files)
    taken, changes = read_bytes(large, changed)
    assert (changes.inserted.num_rows, changes.after.num_rows, changes.deleted.num_rows) == (10, 90, 0)
    assert taken < stored / 10
    compacted = commit(changed, rewrite(changed))
    old, new = moved_rows(large, compacted)
    assert (old.num_rows, new.num_rows) == (90, 100)
    assert [one.num_rows for one in moved_rows(changed, compacted)] == [0, 0]
    assert read_bytes(changed, compacted)[0] == 0


def test_differing_rows_with_blobs_hold_only_so_many_bytes_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 150_000
    sizes: list[int] = []

    def read_blobs(*given: Any) -> list[bytes | None]:
        found = lookup.read_blobs(*given)
        sizes.append(sum(len(one or b"") for one in found))
        return found

    monkeypatch.setattr(row_diff, "BLOB_READ_BYTES_MAX", limit)
    monkeypatch.setattr(row_diff, "read_blobs", read_blobs)
    everyone = list(range(50))
    _, before, after = grow(tmp_path, [("append", everyone, 0), ("upsert", everyone, 0)])
    assert row_diff.differing(before, after, row_diff.candidates(before, after)).num_rows == 0
    assert 70_000 < max(sizes) <= limit + 70_000


def test_row_changes_between_compacted_forks_leave_out_inherited_rows(tmp_path: Path) -> None:
    base = create(tmp_path, people(range(1_000)))
    fork = base.store.fork(base, "one")
    fork = commit(fork, upsert(fork, people([3, 4], n=-1)))
    fork = commit(fork, rewrite(fork))
    nested = fork.store.fork(fork, "two")
    nested = commit(nested, append(nested, people([2_000])))
    main = commit(base, append(base, people([3_000])))
    main = commit(main, rewrite(main))
    assert [one.num_rows for one in moved_rows(main, nested)] == [3, 3]
    assert [one.num_rows for one in moved_rows(fork, nested)] == [0, 1]


# -- equality ----------------------------------------------------------------------------------------------------------

ITEMS = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, math.nan]))
LISTS = st.one_of(st.none(), st.lists(ITEMS, max_size=3))


@given(st.lists(st.tuples(LISTS, LISTS), max_size=8))
def test_equal_values_of_lists_agree_with_their_text(pairs: list[tuple[Any, Any]]) -> None:
    type_ = pa.list_(pa.float64())
    one, two = (pa.array([pair[side] for pair in pairs], type_) for side in (0, 1))
    assert equal_values(one, two).tolist() == [repr(left) == repr(right) for left, right in pairs]


def test_equal_values_of_sliced_and_fixed_lists_look_at_their_own_items() -> None:
    type_ = pa.list_(pa.float32(), 2)
    one = pa.array([[9, 9], [1, 2], None, [3, 4], [5, None]], type_).slice(1)
    two = pa.array([[1, 2], [3, 4], [3, 5], [5, None]], type_)
    assert equal_values(one, two).tolist() == [True, False, False, True]


# -- wide types --------------------------------------------------------------------------------------------------------


def test_row_changes_read_each_version_once(tmp_path: Path) -> None:
    """Each read of a wide type costs Lance time that is quadratic in its columns."""
    before = create(tmp_path, people(range(20)))
    after = commit(before, upsert(before, people([3, 30], n=-1)))
    after = commit(after, delete_ids(after, pa.array(["k4"])))
    found = row_diff.candidates(before, after)
    log: list[tuple[str, str]] = []
    before.store.meter = Meter(log)
    changes = row_diff.compare_candidates(before, after, found)
    assert (ids(changes.inserted), ids(changes.deleted), ids(changes.after)) == (["k30"], ["k4"], ["k3"])
    assert sorted(log) == [("take", str(before.ref)), ("take", str(after.ref))]
