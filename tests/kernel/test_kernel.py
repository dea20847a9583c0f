"""The kernel in one process: commits, branches, tags, history and what other handles see of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import GraphError, UsageError
from omnigraph.limits import COMMIT_WINDOW_ROWS
from omnigraph.manifest import branches
from tests.support.kernel_fixtures import CITY, KNOWS, PERSON, check_invariants, create, ids_of, insert, open_graph
from tests.support.orphan_sweep import sweep


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "graph.omni")


def test_commit_over_three_types_is_one_version_and_one_commit(root: str) -> None:
    kernel = create(root)
    before = kernel.snapshot()
    receipt = insert(kernel, {PERSON: ["a"], CITY: ["x"], KNOWS: ["e"]}, actor="ann")
    after = kernel.snapshot()
    assert after.version == before.version + 1
    assert receipt.commit is not None
    assert (receipt.commit.commit_id, receipt.commit.parent, receipt.commit.actor) == (after.head, before.head, "ann")
    assert [ids_of(kernel, key) for key in (PERSON, CITY, KNOWS)] == [["a"], ["x"], ["e"]]
    check_invariants(kernel)


def test_snapshot_after_own_publish_equals_a_fresh_open(root: str) -> None:
    kernel = create(root)
    insert(kernel, {PERSON: ["a"]})
    branches.create_branch(kernel, "review/x", kernel.snapshot())
    insert(kernel, {PERSON: ["b"], CITY: ["x"]}, "review/x")
    other = open_graph(root)
    for branch in ("main", "review/x"):
        assert other.snapshot(branch).state == kernel.snapshot(branch).state
    check_invariants(other)


def test_other_handle_sees_a_commit_at_its_next_read(root: str) -> None:
    kernel, other = create(root), open_graph(root)
    assert ids_of(other, PERSON) == []
    insert(kernel, {PERSON: ["a"]})
    assert ids_of(other, PERSON) == ["a"]


@pytest.mark.slow
def test_branch_is_isolated_and_inherits_until_first_write(root: str) -> None:
    kernel = create(root)
    insert(kernel, {PERSON: ["a"], CITY: ["x"]})
    branches.create_branch(kernel, "review", kernel.snapshot())
    branches.create_branch(kernel, "review/a", kernel.snapshot("review"))
    insert(kernel, {PERSON: ["b"]}, "review")
    insert(kernel, {PERSON: ["c"]}, "review/a")
    insert(kernel, {PERSON: ["d"]})
    assert [ids_of(kernel, PERSON, name) for name in ("main", "review", "review/a")] == [
        ["a", "d"],
        ["a", "b"],
        ["a", "c"],
    ]
    pins = kernel.snapshot("review").state.pins
    assert pins[CITY].fork is None
    assert pins[PERSON].owner == kernel.snapshot("review").state.branch_id
    check_invariants(kernel)


def test_recreated_name_is_another_branch(root: str) -> None:
    kernel = create(root)
    branches.create_branch(kernel, "x", kernel.snapshot())
    insert(kernel, {PERSON: ["old"]}, "x")
    branches.delete_branch(kernel, "x")
    with pytest.raises(GraphError) as caught:
        kernel.snapshot("x")
    assert caught.value.code == "branch.not_found"
    branches.create_branch(kernel, "x", kernel.snapshot())
    assert ids_of(kernel, PERSON, "x") == []


def test_branch_with_descendants_or_dependents_cannot_be_deleted(root: str) -> None:
    kernel = create(root)
    branches.create_branch(kernel, "a", kernel.snapshot())
    insert(kernel, {PERSON: ["p"]}, "a")
    branches.create_branch(kernel, "b", kernel.snapshot("a"))
    with pytest.raises(GraphError) as caught:
        branches.delete_branch(kernel, "a")
    assert (caught.value.code, caught.value.context["dependents"]) == ("branch.in_use", ["b"])
    with pytest.raises(UsageError, match="main"):
        branches.delete_branch(kernel, "main")


@pytest.mark.parametrize("name", ["", "  ", "main", "a b", "a\x00b", "x" * 300])
def test_bad_branch_name_is_refused_before_anything_is_written(root: str, name: str) -> None:
    kernel = create(root)
    before = kernel.snapshot().version
    with pytest.raises(GraphError) as caught:
        branches.create_branch(kernel, name, kernel.snapshot())
    assert caught.value.code == "branch.invalid_name"
    assert kernel.snapshot().version == before


def test_renamed_branch_stays_the_same_branch(root: str) -> None:
    kernel = create(root)
    branches.create_branch(kernel, "old", kernel.snapshot())
    insert(kernel, {PERSON: ["p"]}, "old")
    branches.rename_branch(kernel, "old", "new")
    insert(kernel, {PERSON: ["q"]}, "new")
    assert ids_of(kernel, PERSON, "new") == ["p", "q"]
    assert [one.name for one in branches.list_branches(kernel)] == ["new"]


def test_tag_names_a_commit_and_time_travel_reads_it(root: str) -> None:
    kernel = create(root)
    first = insert(kernel, {PERSON: ["a"]}).commit
    insert(kernel, {PERSON: ["b"]})
    assert first is not None
    branches.create_tag(kernel, "v1", first.commit_id)
    (tag,) = branches.list_tags(open_graph(root))
    then = kernel.at_commit(tag.commit_id)
    assert kernel.dataset(then, PERSON).count() == 1
    assert kernel.at_version("main", then.version).state.pins == then.state.pins
    with pytest.raises(GraphError) as caught:
        branches.create_tag(kernel, "v1", first.commit_id)
    assert caught.value.code == "tag.exists"
    branches.delete_tag(kernel, "v1")
    assert branches.list_tags(kernel) == []


@pytest.mark.slow
def test_history_outgrows_the_window_and_stays_whole(root: str) -> None:
    kernel = create(root)
    commits = 2 * COMMIT_WINDOW_ROWS + 20
    for number in range(commits):
        insert(kernel, {PERSON: [f"p{number:04d}"]})
    assert len(kernel.snapshot().state.commits) < commits
    history = list(open_graph(root).history())
    assert len(history) == commits + 1
    assert [one.commit_id for one in history[1:]] == [one.parent for one in history[:-1]]
    oldest = history[-2]
    assert kernel.dataset(kernel.at_commit(oldest.commit_id), PERSON).count() == 1


def test_sweep_after_close_finds_nothing_and_keeps_everything(root: str) -> None:
    kernel = create(root)
    insert(kernel, {PERSON: ["a"]})
    branches.create_branch(kernel, "x", kernel.snapshot())
    insert(kernel, {PERSON: ["b"]}, "x")
    kernel.close()
    other = open_graph(root)
    assert sweep(other, 0.0).files_removed == 0
    assert ids_of(other, PERSON, "x") == ["a", "b"]
    check_invariants(other)


def test_sweep_removes_the_files_of_a_deleted_branch(root: str) -> None:
    kernel = create(root)
    insert(kernel, {PERSON: ["a"]})
    branches.create_branch(kernel, "x", kernel.snapshot())
    insert(kernel, {PERSON: ["b"]}, "x")
    branches.delete_branch(kernel, "x")
    kernel.close()
    swept = open_graph(root)
    assert sweep(swept, 0.0).files_removed > 0
    assert not list(Path(root).rglob("tree/*/**/*.manifest"))
    assert ids_of(swept, PERSON) == ["a"]
    check_invariants(swept)


def test_read_only_handle_refuses_to_write(root: str) -> None:
    create(root)
    with pytest.raises(GraphError) as caught:
        insert(open_graph(root, read_only=True), {PERSON: ["a"]})
    assert caught.value.code == "graph.read_only"


def test_sweep_beside_an_unreadable_intent_removes_nothing(root: str) -> None:
    kernel = create(root)
    residue = Path(root) / kernel.snapshot().state.pins[PERSON].path / "data" / "nobody.lance"
    residue.parent.mkdir(exist_ok=True)
    residue.write_bytes(b"x")
    kernel.store.objects.write("__recovery/future.json", b'{"format": 99}')
    assert sweep(kernel, 0.0).unreadable == ["__recovery/future.json"]
    assert residue.exists()
    kernel.store.objects.delete("__recovery/future.json")
    assert sweep(kernel, 0.0).files_removed == 1
    assert not residue.exists()
