"""Requirements, typed conflicts, re-preparation by kind of work, deadlines and drift."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph import clock, failpoints
from omnigraph.errors import (
    ConflictError,
    DriftDetected,
    OmniGraphError,
    PreconditionFailed,
    ReadSetChanged,
    VersionMismatch,
)
from omnigraph.failpoints import Point
from omnigraph.ids import BranchId, CommitId
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import REPREPARE_MAX
from omnigraph.manifest import branches
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan
from omnigraph.manifest.requirements import BranchIs, HeadIs, IfCommit, PinIs, Requirement, SchemaIs
from omnigraph.store.objects.backend import Meter
from omnigraph.store.write.transaction import Change, append, overwrite
from tests.support.fleet_operations import (
    MovableClock,
    ParkFirst,
    appending,
    ignore_claims,
    in_thread,
    manifest_file,
    stranger,
)
from tests.support.kernel_fixtures import CITY, PERSON, check_invariants, create, ids_of, insert, open_graph, rows_of
from tests.support.staged_fixtures import rewrite

pytestmark = pytest.mark.slow

OTHER = CommitId("01ARZ3NDEKTSV4RRFFQ69G5FAV")


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "graph.omni")


def once(*work: Callable[[], object]) -> Callable[[int], None]:
    """Return an interference that happens during the first call alone."""

    def interfere(call: int) -> None:
        for one in work if call == 1 else ():
            one()

    return interfere


def discard(_: object) -> None:
    """Make an expression a statement."""


# -- requirements ----------------------------------------------------------------------------------------------

BROKEN: dict[str, tuple[Requirement, type[OmniGraphError], str, dict[str, object]]] = {
    "head": (
        HeadIs(None),
        ReadSetChanged,
        "conflict.read_set_changed",
        {"member": "graph_head:main", "expected": None},
    ),
    "schema": (
        SchemaIs("sha256:x"),
        ReadSetChanged,
        "conflict.read_set_changed",
        {"member": "schema_ir_hash", "expected": "sha256:x"},
    ),
    "branch": (
        BranchIs(BranchId(OTHER)),
        ReadSetChanged,
        "conflict.read_set_changed",
        {"member": "branch_identifier:main", "expected": OTHER, "actual": None},
    ),
    "pin": (
        PinIs(PERSON, 7),
        VersionMismatch,
        "conflict.version_mismatch",
        {"type_key": PERSON, "expected": 7, "actual": 1},
    ),
    "pin of an unknown type": (
        PinIs(TypeKey("node:Gone"), 1),
        VersionMismatch,
        "conflict.version_mismatch",
        {"type_key": "node:Gone", "expected": 1, "actual": 0},
    ),
    "if commit": (IfCommit(OTHER), PreconditionFailed, "precondition.failed", {"branch": "main", "expected": OTHER}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_requirement_broken_is_a_typed_refusal_before_any_effect(root: str, name: str) -> None:
    requirement, error, code, context = BROKEN[name]
    meter = Meter()
    kernel = create(root, meter=meter)
    before = kernel.snapshot()
    counted = meter.snapshot()
    with pytest.raises(error) as caught:
        kernel.commit("main", appending(kernel, PERSON, ["a"], requirement))
    assert caught.value.code == code
    assert caught.value.effect.value == "none"
    assert context.items() <= caught.value.context.items()
    if name in ("head", "if commit"):
        assert caught.value.context["actual"] == before.head
    assert "commit nodes" not in meter.since(counted)
    assert open_graph(root).snapshot() == before


def test_requirement_that_holds_is_no_obstacle(root: str) -> None:
    kernel = create(root)
    branches.create_branch(kernel, "x", kernel.snapshot())
    for branch in ("main", "x"):
        now = kernel.snapshot(branch)
        assert now.head is not None
        requirements: tuple[Requirement, ...] = (
            HeadIs(now.head),
            IfCommit(now.head),
            PinIs(PERSON, 1),
            SchemaIs(now.state.schema.ir_hash),
            BranchIs(now.state.branch_id),
        )
        assert kernel.commit(branch, appending(kernel, PERSON, ["a"], *requirements)) is not None


def test_requirement_lost_while_preparing_is_found_on_the_new_state(root: str) -> None:
    kernel, other = create(root), stranger(root)
    head = kernel.snapshot().head
    assert head is not None
    prepare = appending(kernel, PERSON, ["a"], IfCommit(head))
    prepare.interfere = once(lambda: insert(other, {CITY: ["x"]}))
    with pytest.raises(PreconditionFailed) as caught:
        kernel.commit("main", prepare)
    assert (caught.value.context["expected"], caught.value.context["actual"]) == (head, other.snapshot().head)
    assert ids_of(other, PERSON) == []


def test_requirement_of_an_old_incarnation_refuses_the_recreated_branch(root: str) -> None:
    kernel = create(root)
    old = branches.create_branch(kernel, "x", kernel.snapshot())
    branches.delete_branch(kernel, "x")
    new = branches.create_branch(kernel, "x", kernel.snapshot())
    with pytest.raises(ReadSetChanged) as caught:
        kernel.commit("x", appending(kernel, PERSON, ["a"], BranchIs(old.branch_id)))
    assert caught.value.context["member"] == "branch_identifier:x"
    assert (caught.value.context["expected"], caught.value.context["actual"]) == (old.branch_id, new.branch_id)


def test_commit_in_flight_never_reaches_another_incarnation_of_its_branch(root: str) -> None:
    kernel, other = create(root), open_graph(root)
    branches.create_branch(kernel, "x", kernel.snapshot())
    park = ParkFirst()
    with failpoints.armed({Point.PUBLISH_BEFORE: park}):
        late = in_thread(lambda: insert(kernel, {PERSON: ["late"]}, "x"))
        assert park.park.arrived.wait(30)
        branches.delete_branch(other, "x")
        branches.create_branch(other, "x", other.snapshot())
        park.park.release()
        late.exception(30)
    assert ids_of(open_graph(root), PERSON, "x") == []
    check_invariants(open_graph(root))


# -- re-preparation --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("touched", [PERSON, CITY])
def test_insert_that_lost_is_prepared_again_and_lands(root: str, touched: str) -> None:
    kernel, other = create(root), open_graph(root)
    prepare = appending(kernel, PERSON, ["mine"])
    prepare.interfere = once(lambda: insert(other, {touched: ["theirs"]}))
    receipt = kernel.commit("main", prepare, CommitPolicy.INSERT)
    assert receipt is not None
    assert prepare.calls == 2
    assert set(ids_of(kernel, PERSON)) | set(ids_of(kernel, CITY)) == {"mine", "theirs"}
    check_invariants(open_graph(root))


def test_insert_that_lost_to_another_branch_does_not_lose(root: str) -> None:
    kernel, other = create(root), open_graph(root)
    branches.create_branch(kernel, "x", kernel.snapshot())
    prepare = appending(kernel, PERSON, ["mine"])
    prepare.interfere = once(lambda: insert(other, {PERSON: ["theirs"]}, "x"))
    kernel.commit("main", prepare, CommitPolicy.INSERT)
    assert prepare.calls == 1


def test_insert_reuses_its_staged_rows_when_it_is_rebased(root: str) -> None:
    meter = Meter()
    kernel, other = create(root, meter=meter), open_graph(root)
    kept: list[Change] = []

    def prepare(snapshot: Snapshot) -> Plan:
        dataset = kernel.writable(snapshot, PERSON)
        if kept:
            change = kept[0].rebased(dataset)
        else:
            change = append(dataset, rows_of(dataset, ["mine"]))
            kept.append(change)
            insert(other, {PERSON: ["theirs"]})
        return Plan("insert", (Effect(PERSON, dataset, (change,)),))

    before = meter.snapshot()
    assert kernel.commit("main", prepare) is not None
    assert meter.since(before)["stage nodes"] == 1
    assert len(list(Path(root, kernel.snapshot().state.pins[PERSON].path, "data").iterdir())) == 2
    assert ids_of(open_graph(root), PERSON) == ["mine", "theirs"]
    check_invariants(open_graph(root))


def overwriting(kernel: Kernel, ids: list[str], interfere: Callable[[], object] = lambda: None) -> list[int]:
    """Replace all persons as a strict change; return how often it was prepared."""
    calls = [0]

    def prepare(snapshot: Snapshot) -> Plan:
        calls[0] += 1
        dataset = kernel.writable(snapshot, PERSON)
        change = overwrite(dataset, rows_of(dataset, ids))
        if calls[0] == 1:
            interfere()
        return Plan("overwrite", (Effect(PERSON, dataset, (change,)),))

    kernel.commit("main", prepare, CommitPolicy.CHANGE)
    return calls


@pytest.mark.parametrize("touched", [PERSON, CITY])
def test_change_that_lost_to_another_process_is_refused_with_both_heads(root: str, touched: str) -> None:
    kernel, other = create(root), stranger(root)
    before = kernel.snapshot()
    with pytest.raises(ReadSetChanged) as caught:
        overwriting(kernel, ["mine"], lambda: insert(other, {touched: ["theirs"]}))
    after = other.snapshot()
    assert caught.value.context == {"member": "graph_head:main", "expected": before.head, "actual": after.head}
    assert caught.value.effect.value == "none"
    assert after.version == before.version + 1
    assert ids_of(open_graph(root), touched) == ["theirs"]
    overwriting(kernel, ["again"])
    assert ids_of(other, PERSON) == ["again"]


def test_changes_of_one_process_wait_for_each_other_and_never_lose(root: str) -> None:
    handles = [create(root), open_graph(root)]
    barrier = threading.Barrier(8)

    def work(number: int) -> list[int]:
        barrier.wait()
        return overwriting(handles[number % 2], [f"p{number}"])

    futures = [in_thread(lambda number=number: work(number)) for number in range(8)]  # type: ignore[misc]
    assert [future.result(60) for future in futures] == [[1]] * 8
    assert len(list(open_graph(root).history())) == 9
    check_invariants(open_graph(root))


def test_long_change_that_lost_is_refused(root: str) -> None:
    kernel, other = create(root), open_graph(root)
    before = kernel.snapshot()
    prepare = appending(kernel, PERSON, ["mine"])
    prepare.interfere = once(lambda: insert(other, {CITY: ["theirs"]}))
    with pytest.raises(ReadSetChanged) as caught:
        kernel.commit("main", prepare, CommitPolicy.LONG_CHANGE)
    assert caught.value.context == {
        "member": "graph_head:main",
        "expected": before.head,
        "actual": other.snapshot().head,
    }
    assert (prepare.calls, ids_of(open_graph(root), PERSON)) == (1, [])


def test_maintenance_that_lost_plans_anew_and_may_find_nothing_left_to_do(root: str) -> None:
    kernel, other = create(root), open_graph(root)
    seen: list[int] = []

    def prepare(snapshot: Snapshot) -> Plan | None:
        seen.append(snapshot.version)
        dataset = kernel.writable(snapshot, PERSON)
        if dataset.count():
            return None
        change = append(dataset, rows_of(dataset, ["mine"]))
        insert(other, {PERSON: ["theirs"]})
        return Plan("optimize", (Effect(PERSON, dataset, (change,)),))

    assert kernel.commit("main", prepare, CommitPolicy.MAINTENANCE) is None
    assert seen == [1, 2]
    assert ids_of(open_graph(root), PERSON) == ["theirs"]


def test_rewrite_that_lost_to_an_insert_of_the_same_type_plans_anew(root: str) -> None:
    kernel, other = create(root), open_graph(root)
    for number in range(3):
        insert(kernel, {PERSON: [f"p{number}"]})
    calls: list[int] = []

    def prepare(snapshot: Snapshot) -> Plan:
        dataset = kernel.writable(snapshot, PERSON)
        change = rewrite(dataset)
        assert change is not None
        if not calls:
            insert(other, {PERSON: ["late"]})
        calls.append(snapshot.version)
        return Plan("optimize", (Effect(PERSON, dataset, (change,)),))

    assert kernel.commit("main", prepare, CommitPolicy.MAINTENANCE) is not None
    assert len(calls) == 2
    fresh = open_graph(root)
    assert fresh.dataset(fresh.snapshot(), PERSON).fragment_rows == [4]
    check_invariants(fresh)


def test_control_work_that_lost_is_done_again(root: str) -> None:
    kernel, other = create(root), stranger(root)
    park = ParkFirst()
    with failpoints.armed({Point.PUBLISH_BEFORE: park}):
        created = in_thread(lambda: branches.create_branch(kernel, "x", kernel.snapshot()))
        assert park.park.arrived.wait(30)
        branches.create_tag(other, "t", other.snapshot().state.commits[0].commit_id)
        park.park.release()
        created.result(30)
    main = open_graph(root).snapshot()
    assert (list(main.state.branches), list(main.state.tags)) == (["x"], ["t"])


def test_two_creators_of_one_branch_name_leave_one_branch(root: str) -> None:
    kernel, other = create(root), stranger(root)
    park = ParkFirst()
    with failpoints.armed({Point.PUBLISH_BEFORE: park}):
        loser = in_thread(lambda: branches.create_branch(kernel, "x", kernel.snapshot()))
        assert park.park.arrived.wait(30)
        winner = branches.create_branch(other, "x", other.snapshot())
        park.park.release()
        error = loser.exception(30)
    assert isinstance(error, OmniGraphError)
    assert error.code == "branch.exists"
    assert open_graph(root).snapshot().state.branches["x"].branch_id == winner.branch_id


def test_insert_that_always_loses_gives_up_after_its_bounded_retries(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "pause", lambda _: None)
    kernel, other = create(root), ignore_claims(stranger(root))
    prepare = appending(kernel, PERSON, ["mine"])
    numbers = iter(range(100))
    prepare.interfere = lambda _: discard(insert(other, {CITY: [f"c{next(numbers):02d}"]}))
    with pytest.raises(ConflictError) as caught:
        kernel.commit("main", prepare, CommitPolicy.INSERT)
    assert (caught.value.code, caught.value.effect.value, caught.value.retryable) == ("conflict.busy", "none", True)
    assert prepare.calls == 1 + REPREPARE_MAX
    fresh = open_graph(root)
    assert (ids_of(fresh, PERSON), len(ids_of(fresh, CITY))) == ([], 1 + REPREPARE_MAX)
    check_invariants(fresh)


# -- deadlines and the live chain ------------------------------------------------------------------------------


def test_attempt_in_time_asks_storage_nothing_more(root: str) -> None:
    log: list[tuple[str, str]] = []
    kernel = create(root, meter=Meter(log))
    kernel.snapshot()
    log.clear()
    kernel.commit("main", appending(kernel, PERSON, ["a"]))
    assert [entry for entry in log if entry[0] in ("probe", "head")] == [
        ("probe", "__manifest@2"),
        ("head", "__manifest/_versions/18446744073709551613.manifest"),
    ]
    assert ("open", "__manifest (latest)") not in log


def test_attempt_past_its_deadline_looks_before_and_after_publishing(root: str) -> None:
    log: list[tuple[str, str]] = []
    kernel = create(root, meter=Meter(log))
    with MovableClock().installed() as time:
        prepare = appending(kernel, PERSON, ["a"])
        prepare.interfere = once(time.pass_deadline, log.clear)
        assert kernel.commit("main", prepare) is not None
    published = log.index(("publish", "__manifest@2"))
    assert ("probe", "__manifest@2") in log[:published]
    assert ("open", "__manifest (latest)") in log[published:]
    assert prepare.calls == 1


def test_attempt_past_its_deadline_that_was_overtaken_is_prepared_again(root: str) -> None:
    log: list[tuple[str, str]] = []
    kernel, other = create(root, meter=Meter(log)), open_graph(root)
    with MovableClock().installed() as time:
        prepare = appending(kernel, PERSON, ["a"])
        prepare.interfere = once(lambda: insert(other, {CITY: ["x"]}), time.pass_deadline)
        assert kernel.commit("main", prepare) is not None
    assert prepare.calls == 2
    assert [target for operation, target in log if operation == "publish"] == ["__manifest@3"]
    check_invariants(open_graph(root))


def publish_beside_the_chain(
    root: str, kernel: Kernel, work: CommitPolicy, removed: Callable[[int, int], range]
) -> object:
    """Hold a publish, let three others pass, remove versions as cleanup would, make it late, let it go.

    Returns what became of it: a receipt, or the error.
    """
    other = stranger(root)
    before = kernel.snapshot()
    park = ParkFirst()
    with MovableClock().installed() as time, failpoints.armed({Point.PUBLISH_BEFORE: park}):
        late = in_thread(lambda: kernel.commit("main", appending(kernel, PERSON, ["late"]), work))
        assert park.park.arrived.wait(30)
        for number in range(3):
            insert(other, {CITY: [f"c{number}"]})
        for version in removed(before.version, other.snapshot().version):
            manifest_file(root, before, version).unlink()
        time.pass_deadline()
        park.park.release()
        return late.exception(30) or late.result()


REMOVALS: dict[str, Callable[[int, int], range]] = {
    "only the next one": lambda base, _: range(base + 1, base + 2),
    "all in between": lambda base, newest: range(base + 1, newest),
    "all but the newest": lambda base, newest: range(base, newest),
}


@pytest.mark.parametrize("removal", REMOVALS)
def test_insert_published_beside_the_live_chain_is_done_again(root: str, removal: str) -> None:
    kernel = create(root)
    insert(kernel, {CITY: ["first"]})
    outcome = publish_beside_the_chain(root, kernel, CommitPolicy.INSERT, REMOVALS[removal])
    assert not isinstance(outcome, BaseException), outcome
    fresh = open_graph(root)
    assert ids_of(fresh, PERSON) == ["late"]
    assert ids_of(fresh, CITY) == ["c0", "c1", "c2", "first"]
    check_invariants(fresh)


@pytest.mark.parametrize("removal", REMOVALS)
def test_change_published_beside_the_live_chain_is_a_conflict(root: str, removal: str) -> None:
    kernel = create(root)
    insert(kernel, {CITY: ["first"]})
    outcome = publish_beside_the_chain(root, kernel, CommitPolicy.LONG_CHANGE, REMOVALS[removal])
    assert isinstance(outcome, ReadSetChanged), outcome
    assert outcome.effect.value == "none"
    fresh = open_graph(root)
    assert (ids_of(fresh, PERSON), len(ids_of(fresh, CITY))) == ([], 4)
    check_invariants(fresh)


# -- drift -----------------------------------------------------------------------------------------------------


def write_by_path(root: str, snapshot: Snapshot, ids: list[str]) -> None:
    """Append to a type's dataset as a foreign tool would: by path, past the graph."""
    uri = str(Path(root, snapshot.state.pins[PERSON].path))
    schema = lance.dataset(uri).schema
    columns = [pa.array(ids if one.name in ("id", "name") else [None] * len(ids), one.type) for one in schema]
    lance.write_dataset(pa.Table.from_arrays(columns, schema=schema), uri, mode="append")


WRITES: dict[str, Callable[[Kernel], object]] = {
    "append": lambda kernel: insert(kernel, {PERSON: ["more"], CITY: ["x"]}),
    "overwrite": lambda kernel: overwriting(kernel, ["all"]),
}


@pytest.mark.parametrize("write", WRITES)
def test_write_over_a_foreign_commit_is_refused_as_drift(root: str, write: str) -> None:
    kernel = create(root)
    insert(kernel, {PERSON: ["ours"]})
    before = kernel.snapshot()
    write_by_path(root, before, ["foreign"])
    for handle in (kernel, open_graph(root)):
        with pytest.raises(DriftDetected) as caught:
            WRITES[write](handle)
        assert (caught.value.code, caught.value.effect.value) == ("storage.drift", "none")
        assert caught.value.context["object"] == before.state.pins[PERSON].path
        assert "omnigraph repair" in caught.value.message
    fresh = open_graph(root)
    assert fresh.snapshot() == before
    assert (ids_of(fresh, PERSON), ids_of(fresh, CITY)) == (["ours"], [])
    insert(fresh, {CITY: ["elsewhere"]})
    check_invariants(fresh)


def publish_unlinked(kernel: Kernel) -> None:
    """Publish a person and stop right before its link, as a crash there would."""

    class Stopped(BaseException):
        pass

    def stop(_: str) -> None:
        raise Stopped

    with failpoints.armed({Point.LINK_BEFORE: stop}), pytest.raises(Stopped):
        insert(kernel, {PERSON: ["ours"]})


def test_foreign_commit_in_place_of_an_unlinked_version_is_not_adopted(root: str) -> None:
    kernel = create(root)
    before = kernel.snapshot()
    publish_unlinked(kernel)
    write_by_path(root, before, ["foreign"])
    for read_only in (False, True):
        with suppress(DriftDetected):
            assert ids_of(open_graph(root, read_only=read_only), PERSON) == ["ours"]
    with pytest.raises(DriftDetected):
        insert(open_graph(root), {PERSON: ["more"]})
