"""What the crash suite interrupts: named pieces of work, each with the graph that it starts from.

A scenario runs in a process of its own, which may die at any moment; everything it needs it finds in storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import orjson
import pyarrow as pa

from omnigraph import clock, failpoints
from omnigraph.engine import schema
from omnigraph.engine.maintain import maintenance
from omnigraph.engine.maintain.cleanup import cleanup
from omnigraph.engine.maintain.optimize import optimize
from omnigraph.engine.maintain.repair import repair
from omnigraph.engine.merge import merge, revert
from omnigraph.engine.schema import apply
from omnigraph.engine.session import GraphSession
from omnigraph.errors import StorageError
from omnigraph.failpoints import Point
from omnigraph.ids import OperationId, new_ulid
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.schema import CompiledSchema, SchemaIR, compile_schema
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.limits import TAIL_FRAGMENTS_MAX
from omnigraph.manifest import branches, history, publish
from omnigraph.manifest.create import init
from omnigraph.manifest.intents import Intent, declared, this_process
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, AcceptedSchema, Pin, Snapshot, TypeIdentity
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan
from omnigraph.manifest.updates import Drop, Register, SetSchema
from omnigraph.store.index import index_build
from omnigraph.store.index.index_build import IndexKind, IndexSpec
from omnigraph.store.lance_schema import physical_schema
from omnigraph.store.objects.uri import Location
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.store import LostRace, Store
from omnigraph.store.write.transaction import Change, append, overwrite
from tests.support.failpoint_actions import fail_with
from tests.support.kernel_fixtures import CITY, KNOWS, PERSON, SCHEMA, create, insert, open_graph, rows_of
from tests.support.orphan_sweep import sweep
from tests.support.staged_fixtures import delete_ids, rewrite

REVIEW: Final = "review/a"
TARGET: Final = "target"
NEXT_SCHEMA: Final = """
node Person { name: String @key  age: I32? }
node Town { name: String @key }
edge Knows: Person -> Person
"""
BRANCH_SCHEMA: Final = """
node Person { name: String @key  years: I32? @rename_from("age")  mail: String? }
node City { name: String @key }
node Town { name: String @key }
edge Knows: Person -> Person
"""
# So small that a handful of commits fills it twice; the code that spills is the same at any width.
NARROW_WINDOW: Final = 2


@dataclass(frozen=True, slots=True)
class Scenario:
    """Work on a graph: `prepare` makes the graph, `run` does the work and returns when it is acknowledged.

    `forgets` marks work that may take older commits away.
    """

    name: str
    prepare: Callable[[str], None]
    run: Callable[[Kernel], None]
    forgets: bool = False


# -- graphs to start from ---------------------------------------------------------------------------------------


def _nothing(_: str) -> None:
    pass


def _small(root: str) -> None:
    kernel = create(root)
    insert(kernel, {PERSON: ["a", "b"], CITY: ["x"]})
    insert(kernel, {PERSON: ["c"], KNOWS: ["e"]})
    kernel.close()


def _branched(root: str) -> None:
    _small(root)
    kernel = open_graph(root)
    branches.create_branch(kernel, REVIEW, kernel.snapshot())
    kernel.close()


def _diverged(root: str) -> None:
    _branched(root)
    kernel = open_graph(root)
    insert(kernel, {PERSON: ["d"], CITY: ["y"]}, REVIEW)
    kernel.close()


def _apart(root: str) -> None:
    """Main and review have both moved on; merging them inserts, deletes, and touches two types."""
    _diverged(root)
    kernel = open_graph(root)
    _change(PERSON, lambda dataset: delete_ids(dataset, pa.array(["a"])), branch=REVIEW)(kernel)
    insert(kernel, {PERSON: ["m"]})
    kernel.close()


def _evolved(root: str) -> None:
    """Review has another schema, with data of a type and a property that main does not have; main has moved on."""
    _apart(root)
    kernel = open_graph(root)
    schema.apply(GraphSession(kernel), BRANCH_SCHEMA, branch=REVIEW)
    insert(kernel, {PERSON: ["t"], TypeKey("node:Town"): ["u"]}, REVIEW)
    kernel.close()


def _about_to_evolve(root: str) -> None:
    """The branch knows already how it numbers what it adds, which takes a publish of main."""
    _diverged(root)
    kernel = open_graph(root)
    branches.reserve_identity_space(kernel, REVIEW)
    kernel.close()


def _with_target(root: str) -> None:
    _diverged(root)
    kernel = open_graph(root)
    branches.create_branch(kernel, TARGET, kernel.snapshot())
    kernel.close()


def _tagged(root: str) -> None:
    _small(root)
    _create_tag(kernel := open_graph(root))
    kernel.close()


def _full_window(root: str) -> None:
    _narrow()
    _small(root)
    kernel = open_graph(root)
    while len(kernel.snapshot().state.commits) < 2 * NARROW_WINDOW:
        insert(kernel, {CITY: [new_ulid()]})
    kernel.close()


def _full_log(root: str) -> None:
    """A window that is full, and a log of so many small files that the next append folds them."""
    _full_window(root)
    kernel = open_graph(root)
    for _ in range(TAIL_FRAGMENTS_MAX + 1):
        history.spill(kernel.store, kernel.snapshot().state.commits[:1])
    kernel.close()


def _littered(root: str) -> None:
    """Leave everything that a sweep may meet: links to finish, dead intents of both kinds, files that nobody names."""
    _diverged(root)
    kernel = open_graph(root)
    branches.create_branch(kernel, "gone", kernel.snapshot())
    insert(kernel, {PERSON: ["g"]}, "gone")
    branches.delete_branch(kernel, "gone")
    dataset = kernel.writable(kernel.snapshot(), CITY)
    append(dataset, rows_of(dataset, ["never"]))
    kernel.writable(kernel.snapshot(REVIEW), KNOWS)
    receipt = insert(kernel, {PERSON: ["f"]})
    _leave_intent(kernel, receipt.operation_id, ())
    kernel.store.create("nodes/half-made", dataset.schema)
    _leave_intent(kernel, OperationId(new_ulid()), ("nodes/half-made/",))
    kernel.close()
    kernel = open_graph(root)
    with failpoints.armed({Point.LINK_BEFORE: fail_with(StorageError("cut off"))}):
        insert(kernel, {PERSON: ["unlinked"]}, REVIEW)
        kernel.close()
    assert not kernel.store.has_version(kernel.snapshot(REVIEW).state.pins[PERSON].ref), "the link was not cut off"


def _leave_intent(kernel: Kernel, operation_id: OperationId, paths: tuple[str, ...]) -> None:
    dead = replace(this_process(), started="0")
    intent = Intent(operation_id, "load", "ann", MAIN, None, 1, dead, 0, 0, paths)
    kernel.store.objects.write(intent.object_path, intent.to_bytes())


# -- work to interrupt ------------------------------------------------------------------------------------------


def _insert(rows: Mapping[str, Sequence[str]], branch: str = MAIN) -> Callable[[Kernel], None]:
    def run(kernel: Kernel) -> None:
        insert(kernel, rows, branch)

    return run


def _change(
    table_key: TypeKey,
    stage: Callable[[Dataset], Change | None],
    work: CommitPolicy = CommitPolicy.CHANGE,
    branch: str = MAIN,
) -> Callable[[Kernel], None]:
    def run(kernel: Kernel) -> None:
        def prepare(snapshot: Snapshot) -> Plan:
            dataset = kernel.writable(snapshot, table_key)
            change = stage(dataset)
            assert change is not None
            return Plan("change", (Effect(table_key, dataset, (change,)),))

        kernel.commit(branch, prepare, work)

    return run


def _compact(kernel: Kernel) -> None:
    """Two changes in one effect: the version between them is passed by and never linked."""

    def prepare(snapshot: Snapshot) -> Plan:
        dataset = kernel.writable(snapshot, PERSON)
        rewritten = rewrite(dataset)
        assert rewritten is not None
        between = kernel.store.commit(dataset, (rewritten,), {}).dataset
        built = index_build.build(between, [IndexSpec("name", IndexKind.BTREE, "name_btree")])
        assert built is not None
        return Plan("optimize", (Effect(PERSON, dataset, (rewritten, built)),))

    kernel.commit(MAIN, prepare, CommitPolicy.MAINTENANCE)


def _change_schema(kernel: Kernel) -> None:
    kernel.commit(
        MAIN, lambda snapshot: _schema_plan(kernel.store, snapshot, OperationId(new_ulid())), CommitPolicy.CHANGE
    )


# Converts a column, fills a new one, and gives edges other ids.
_REWRITING = """
node Person { name: String @key  age: I64?  open: Bool @default(true) }
node City { name: String @key }
edge Knows: Person -> Person { @key(src, dst) }
"""


def _rewrite_rows(kernel: Kernel) -> None:
    apply(GraphSession(kernel, "ann"), _REWRITING)


def _long_schema_change(kernel: Kernel) -> None:
    base = kernel.snapshot()
    with declared(kernel.store, "schema_apply", base, "ann") as held:
        _, pin = _next_schema(base)
        held.staging(f"{pin.path}/")
        kernel.commit(
            MAIN, lambda snapshot: _schema_plan(kernel.store, snapshot, held.operation_id), CommitPolicy.LONG_CHANGE
        )


def _schema_plan(store: Store, snapshot: Snapshot, operation_id: OperationId) -> Plan:
    compiled, pin = _next_schema(snapshot)
    columns = physical_schema(arrow_schema(compiled.catalog.nodes["Town"]))
    try:
        store.create(pin.path, columns)
    except LostRace:
        # Nothing registers this life of the type, so what stands here was left by an attempt that died.
        store.objects.delete_prefix(pin.path)
        store.create(pin.path, columns)
    updates = (SetSchema(AcceptedSchema.of(compiled.source.text, compiled.ir)), Register(pin), Drop(CITY))
    return Plan("schema_apply", updates=updates, operation_id=operation_id)


def _next_schema(snapshot: Snapshot) -> tuple[CompiledSchema, Pin]:
    before = SchemaIR.from_json(orjson.loads(snapshot.state.schema.ir))
    compiled = compile_schema(Source("schema.pg", NEXT_SCHEMA), domain=before.domain, accepted=before)
    town = compiled.catalog.nodes["Town"]
    identity = TypeIdentity(town.type_id, town.incarnation_id)
    return compiled, Pin(identity, town.table_key, identity.path(town.table_key), 1, None, 0)


def _merge(into: str) -> Callable[[Kernel], None]:
    def run(kernel: Kernel) -> None:
        merge(GraphSession(kernel), REVIEW, into)

    return run


def _apply_schema(branch: str) -> Callable[[Kernel], None]:
    def run(kernel: Kernel) -> None:
        schema.apply(GraphSession(kernel), BRANCH_SCHEMA, branch=branch)

    return run


def _revert(kernel: Kernel) -> None:
    # Counted from the beginning, so that it is the same commit however often this is done again.
    third = list(kernel.history())[-3]
    revert(GraphSession(kernel), third.commit_id)


def _create_branch(kernel: Kernel) -> None:
    branches.create_branch(kernel, REVIEW, kernel.snapshot())


def _create_tag(kernel: Kernel) -> None:
    commits = list(kernel.history())
    branches.create_tag(kernel, "v1", commits[1].commit_id)


def _spill(kernel: Kernel) -> None:
    _narrow()
    insert(kernel, {PERSON: ["p"]})


def _narrow() -> None:
    # This process does nothing else and ends soon, so nobody needs the true width back.
    vars(publish)["COMMIT_WINDOW_ROWS"] = NARROW_WINDOW


def _init(kernel: Kernel) -> None:
    init(kernel.store, compile_schema(Source("schema.pg", SCHEMA), domain=new_ulid()))


def _sweep(kernel: Kernel) -> None:
    sweep(kernel, 0.0)


def _sweep_beside_long_work(kernel: Kernel) -> None:
    """A sweep of age zero meets live work that has staged a dataset under its intent and has not published yet."""
    other = Kernel(Store(Location.parse(kernel.store.root.uri)))

    def meet(_: str) -> None:
        sweep(other, 0.0)

    with failpoints.armed({Point.COMMIT_PREPARED: meet}):
        _long_schema_change(kernel)


# -- maintenance ------------------------------------------------------------------------------------------------


def _old(root: str) -> None:
    """Many small commits, all of them long ago, so that there is much to compact and to remove."""
    _small(root)
    kernel = open_graph(root)
    branches.create_branch(kernel, REVIEW, kernel.snapshot())
    insert(kernel, {PERSON: ["r"]}, REVIEW)
    for name in "klm":
        insert(kernel, {PERSON: [name]})
    kernel.close()


def _drifted(root: str) -> None:
    """A foreign tool has compacted a type by path."""
    _small(root)
    kernel = open_graph(root)
    insert(kernel, {CITY: ["y"]})
    kernel.dataset(kernel.snapshot(), CITY).lance.optimize.compact_files()
    kernel.close()


def _optimize(kernel: Kernel) -> None:
    optimize(GraphSession(kernel))


def _cleanup(kernel: Kernel) -> None:
    later_us = 2 * 3_600_000_000
    with clock.replaced(storage=lambda modified_us: modified_us + later_us):
        cleanup(GraphSession(kernel), 1, None, dry_run=False, confirm=True)


def _repair(*, discard: bool) -> Callable[[Kernel], None]:
    def run(kernel: Kernel) -> None:
        repair(GraphSession(kernel), confirm=True, force=False, discard=discard)

    return run


def _reconcile(kernel: Kernel) -> None:
    # This process does nothing else and ends soon, so nobody needs the true threshold back.
    # Only one branch is past this one, so that there is one commit, and no state between before and after.
    vars(maintenance)["RECONCILE_FRAGMENTS_MAX"] = 3
    maintenance.Reconciliation(GraphSession(kernel)).run()


def _remaining(dataset: Dataset) -> pa.Table:
    return rows_of(dataset, ["a", "z"])


SCENARIOS: Final = {
    one.name: one
    for one in (
        Scenario("insert_one", _small, _insert({PERSON: ["p"]})),
        Scenario("insert_three", _small, _insert({PERSON: ["p"], CITY: ["q"], KNOWS: ["r"]})),
        Scenario("first_write_on_branch", _branched, _insert({PERSON: ["p"]}, REVIEW)),
        Scenario("first_write_of_two_types_on_branch", _branched, _insert({PERSON: ["p"], CITY: ["q"]}, REVIEW)),
        Scenario("second_write_on_branch", _diverged, _insert({PERSON: ["p"]}, REVIEW)),
        Scenario("overwrite", _small, _change(PERSON, lambda dataset: overwrite(dataset, _remaining(dataset)))),
        Scenario("delete", _small, _change(PERSON, lambda dataset: delete_ids(dataset, pa.array(["a", "c"])))),
        Scenario(
            "index",
            _small,
            _change(
                PERSON,
                lambda dataset: index_build.build(dataset, [IndexSpec("name", IndexKind.FULLTEXT, "name_text")]),
                CommitPolicy.MAINTENANCE,
            ),
        ),
        Scenario("compact", _small, _compact),
        Scenario("schema_change", _small, _change_schema),
        Scenario("schema_apply_beside_a_branch", _diverged, _apply_schema(MAIN)),
        Scenario("schema_apply_on_a_branch", _about_to_evolve, _apply_schema(REVIEW)),
        Scenario("schema_merge", _evolved, _merge(MAIN)),
        Scenario("schema_rewrite", _small, _rewrite_rows),
        Scenario("branch_create", _small, _create_branch),
        Scenario("branch_delete", _diverged, lambda kernel: branches.delete_branch(kernel, REVIEW)),
        Scenario("branch_rename", _diverged, lambda kernel: _rename(kernel)),
        Scenario("tag_create", _small, _create_tag),
        Scenario("tag_delete", _tagged, lambda kernel: branches.delete_tag(kernel, "v1")),
        Scenario("merge", _apart, _merge(MAIN)),
        Scenario("merge_adopting", _with_target, _merge(TARGET)),
        Scenario("revert", _small, _revert),
        Scenario("init", _nothing, _init),
        Scenario("spill", _full_window, _spill),
        Scenario("spill_folding", _full_log, _spill),
        Scenario("sweep", _littered, _sweep),
        Scenario("long_work", _small, _long_schema_change),
        Scenario("sweep_beside_long_work", _small, _sweep_beside_long_work),
        Scenario("optimize", _old, _optimize),
        Scenario("cleanup", _old, _cleanup, forgets=True),
        Scenario("repair", _drifted, _repair(discard=False)),
        Scenario("repair_discarding", _drifted, _repair(discard=True)),
        Scenario("reconcile", _littered, _reconcile),
    )
}
# What these do is part of `insert_three`, `first_write_of_two_types_on_branch`, `sweep_beside_long_work`,
# `spill_folding`, `merge` and `schema_apply_on_a_branch`; by themselves they are for the long campaign, which goes
# through all.
PARTS: Final = (
    "insert_one",
    "first_write_on_branch",
    "long_work",
    "spill",
    "revert",
    "schema_apply_beside_a_branch",
)


def _rename(kernel: Kernel) -> None:
    branches.rename_branch(kernel, REVIEW, "accepted")
