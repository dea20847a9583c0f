"""Apply the change of one side to a branch: the common part of merges, reverts and cherry-picks.

They differ only in which states are the base and the other side. Then: merge, resolve, validate, stage, publish once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final

from omnigraph.engine.authorization import ALLOW_ALL, on_branch, on_target
from omnigraph.engine.information_flow import types_out_of_reach
from omnigraph.engine.merge.adoption import forks_of, rewrites_needed, taken_over
from omnigraph.engine.merge.ancestry import MergeBase
from omnigraph.engine.merge.conflicts import Decisions, Resolution, conflict_error, reject_without_conflict
from omnigraph.engine.merge.dropped_data import lost_changes
from omnigraph.engine.merge.graph_merge import GraphMerge, MergeExecutor
from omnigraph.engine.merge.placement import Placement
from omnigraph.engine.merge.range_merge import Counted
from omnigraph.engine.merge.schema_merge import (
    MergedSchema,
    OpenConflict,
    SchemaDecisions,
    merge_view_schemas,
    reject_unused,
)
from omnigraph.engine.merge.three_way import ThreeWayState
from omnigraph.engine.session import GraphSession, View
from omnigraph.engine.write.hidden_type_errors import hidden_data_error
from omnigraph.engine.write.staging import LazyIntent
from omnigraph.engine.write.write_authorization import WritePermissions, write_permissions
from omnigraph.errors import Effect, OmniGraphError
from omnigraph.ids import BranchId, CommitId
from omnigraph.lang.catalog import Catalog, TypeKey
from omnigraph.limits import MERGE_ADOPT_ENTITIES_MIN
from omnigraph.manifest.forks import fork_names
from omnigraph.manifest.model import ADOPTED, Pin, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.manifest.requirements import BranchIs, HeadIs, SchemaIs
from omnigraph.manifest.updates import Drop, Register, Rename, SetSchema, SetVersion, Update
from omnigraph.public_values import Conflict, MergeOutcome, MergeReceipt, TypeCount
from omnigraph.store.read.dataset import AS_STORED


@dataclass(frozen=True, slots=True)
class Sides:
    """The change to apply to a branch: the difference from `base` to `theirs`. Without them the merge is empty.

    `base_ids` are the commits that the base is, newest first: several where histories cross.
    """

    outcome: MergeOutcome
    base_ids: tuple[CommitId, ...]
    base: MergeBase[View] | None = None
    theirs: View | None = None
    merged_parent: CommitId | None = None


@dataclass(frozen=True)
class _Prepared:
    """The result of an earlier attempt, reusable while the types it depends on are unchanged."""

    snapshot: Snapshot
    sides: Sides
    plan: Plan
    receipt: MergeReceipt

    def still_holds(self, sides: Sides, snapshot: Snapshot) -> bool:
        """Return True if the same change is applied and the target is unchanged where it matters."""
        # A fast-forward has our head as its base, so it is another merge as soon as the head moves.
        if sides.outcome is MergeOutcome.FAST_FORWARD or not self.plan.reads_same(self.snapshot, snapshot):
            return False
        return _applied(sides) == _applied(self.sides)

    def moved_to(self, snapshot: Snapshot) -> tuple[Plan, MergeReceipt]:
        """Return the plan for a later state of the target; its requirements are checked there."""
        requirements = tuple(
            requirement for requirement in self.plan.requirements if not isinstance(requirement, HeadIs)
        )
        return replace(self.plan, requirements=(HeadIs(snapshot.head), *requirements)), self.receipt


def _applied(sides: Sides) -> tuple[object, ...]:
    theirs = sides.theirs.snapshot.ref if sides.theirs is not None else None
    return sides.outcome, sides.base_ids, theirs, sides.merged_parent


def related_types(catalog: Catalog, changed: Collection[TypeKey]) -> frozenset[TypeKey]:
    """Return types, the edges that end at them, and the nodes at their ends: all that the rules on them read."""
    related = set(changed)
    for edge in catalog.edges.values():
        ends = {TypeKey.of("node", end) for end in edge.ends.values()}
        if edge.table_key in changed or ends & set(changed):
            related |= {edge.table_key, *ends}
    return frozenset(related)


class _SchemaConflicts(Exception):
    """The sides of a merge have schemas that cannot be merged."""

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        super().__init__()
        self.conflicts = conflicts


_CHANGE_SCHEMA: Final = "Resolve them with `resolutions`, or change the schema of one of the sides with `schema apply`"


def _updates(three: ThreeWayState, adopted: Mapping[TypeKey, Pin]) -> Iterator[Update]:
    """Yield the changes of the catalog: first of the schema, then of adopted datasets, under their new names."""
    version = three.target.snapshot.version
    new = {type_.table_key for type_ in three.new_types()}
    if three.merged is not None and three.changes_schema:
        reshaping = three.merged.reshaping
        # Drop, rename, register: names that are freed first can be used by what follows.
        yield from (Drop(type_.table_key) for type_ in reshaping.dropped)
        renamed = {old.table_key: type_.table_key for old, type_ in reshaping.kept if old.name != type_.name}
        if renamed:
            yield Rename(renamed)
        yield from (Register(_registered(three.target, adopted[key])) for key in sorted(new))
        yield SetSchema(three.merged.schema)
    for key, pin in adopted.items():
        if key not in new:
            yield SetVersion(pin.table_key, pin.version, pin.fork, pin.row_count, version)


def _registered(target: View, pin: Pin) -> Pin:
    """Return the pin under which a type comes, or comes back, to the target."""
    owner, store = target.snapshot.state.branch_id, target.kernel.store
    pin = replace(pin, adopted_at=target.snapshot.version)
    if pin.owner != owner or not store.has_version(pin.ref.at(pin.version + 1)):
        return pin
    # The target wrote later versions before it dropped the type, so the restored type continues in a fork.
    fork = store.fork(store.open(pin.ref), *fork_names(owner, pin))
    return replace(pin, fork=fork.ref.branch, checksum=fork.checksum)


@dataclass
class Application:
    """A running merge, revert or cherry-pick; `choose` returns the change to apply to a state of the target."""

    session: GraphSession
    kind: str
    source: str
    target: str
    choose: Callable[[View], Sides]
    decisions: Decisions
    properties: Mapping[str, str] = field(default_factory=dict)
    may_adopt: bool = False
    placement: Placement | None = None
    # The incarnation of the target that the actor was allowed to change; None is main, or no such branch.
    expected: BranchId | None = None
    _hidden: frozenset[str] = frozenset()
    _earlier: _Prepared | None = None

    @cached_property
    def _executor(self) -> MergeExecutor:
        return MergeExecutor(self.session, self.placement)

    @property
    def resolutions(self) -> Sequence[Resolution]:
        return self.decisions.entities

    def preview(self) -> MergeReceipt:
        ours = self.session.full_view(self.target)
        BranchIs(self.expected).check(ours.snapshot)
        sides = self.choose(ours)
        if sides.base is None or sides.theirs is None:
            return self._receipt(sides, {}, {}, dry_run=True)
        try:
            three = self._three_way_state(sides.base, ours, sides.theirs)
        except _SchemaConflicts as error:
            return self._conflicted(self._receipt(sides, {}, {}, dry_run=True), error.conflicts)
        # As a whole: what a fast-forward takes over as it is counts as well.
        settled = self._executor.execute(GraphMerge(three, self.resolutions, self._adoptable(three), False, None))
        receipt = self._receipt(sides, settled.counts, settled.adopted, three, dry_run=True)
        if settled.conflicts:
            return self._conflicted(receipt, settled.conflicts)
        nothing = self._nothing(sides, settled.counts, three)
        return receipt if nothing is None else self._receipt(nothing, {}, {}, dry_run=True)

    def _nothing(self, sides: Sides, counts: Mapping[TypeKey, Counted], three: ThreeWayState) -> Sides | None:
        """Return the sides of a replay that changes nothing, of which there is no commit; None for any other."""
        if self.kind == "merge" or counts or three.changes_schema:
            return None
        return Sides(MergeOutcome.ALREADY_UP_TO_DATE, sides.base_ids)

    def _conflicted(self, receipt: MergeReceipt, conflicts: Sequence[Conflict]) -> MergeReceipt:
        visible = self._visible_conflicts(conflicts)
        if not visible:
            # Raise the errors of the real merge.
            raise hidden_data_error(self.session.actor)
        return replace(receipt, outcome=MergeOutcome.CONFLICTED, conflicts=tuple(visible), schema_changes=None)

    def run(self) -> MergeReceipt:
        """Apply and publish; a conflict is an error that lists them all."""
        self.session.kernel.resolve(self.target)
        receipts: list[MergeReceipt] = []
        with ExitStack() as stack:
            # One intent covers all attempts, so that a sweep removes the staged files of all of them after a crash.
            intent = LazyIntent(self.session, self.kind, stack)

            def prepare(snapshot: Snapshot) -> Plan | None:
                BranchIs(self.expected).check(snapshot)
                plan, receipt = self._prepare(snapshot, intent)
                receipts[:] = [receipt]
                return plan

            is_published = True
            try:
                published = self.session.kernel.commit(self.target, prepare, CommitPolicy.MERGE)
            except OmniGraphError as error:
                is_published = error.effect is not Effect.NONE
                raise
            finally:
                self._executor.clean(is_published=is_published)
        [receipt] = receipts
        if published is None or published.commit is None:
            return receipt
        return replace(receipt, commit=self.session.redact_receipt(published.commit, self.target))

    def _prepare(self, snapshot: Snapshot, intent: LazyIntent) -> tuple[Plan | None, MergeReceipt]:
        kernel = self.session.kernel
        ours = self.session.full_view_of(snapshot)
        sides = self.choose(ours)
        if sides.base is None or sides.theirs is None:
            return None, self._receipt(sides, {}, {})
        # Optimistic retry: staged files of the last attempt stay valid if the race was lost to a commit on other types.
        if self._earlier is not None and self._earlier.still_holds(sides, snapshot):
            return self._earlier.moved_to(snapshot)
        try:
            three = self._three_way_state(sides.base, ours, sides.theirs)
        except _SchemaConflicts as error:
            raise self._conflict_error(error.conflicts, advice=_CHANGE_SCHEMA) from None

        hold = partial(intent.declare, snapshot)
        is_forward = sides.outcome is MergeOutcome.FAST_FORWARD
        settled = self._executor.execute(GraphMerge(three, self.resolutions, self._adoptable(three), is_forward, hold))
        if settled.conflicts:
            raise self._conflict_error(settled.conflicts, is_cut=settled.is_cut)
        adopted = settled.adopted
        nothing = self._nothing(sides, settled.counts, three)
        if nothing is not None:
            return None, self._receipt(nothing, {}, {})
        properties = dict(self.properties)
        if adopted:
            # Readers of an adopted version open it by path, so its links must be finished.
            kernel.finish_links(sides.theirs.snapshot)
            forks = {fork for pin in adopted.values() for fork in forks_of(three.theirs, pin, ours)}
            if forks:
                properties[ADOPTED] = ",".join(sorted(forks))
        if sides.merged_parent is not None:
            # The source may be deleted concurrently, by a process that has not seen its newest commits.
            kernel.keep_history(sides.theirs.snapshot, after=sides.base_ids)
        changed = [*settled.counts, *adopted, *(type_.table_key for type_ in three.types())]
        plan = Plan(
            self.kind,
            settled.effects,
            tuple(_updates(three, adopted)),
            (HeadIs(snapshot.head), SchemaIs(ours.catalog.ir_hash)),
            self.session.actor,
            None if sides.merged_parent is None else sides.theirs.snapshot.head_commit,
            properties,
            hold().operation_id,
            # Names may change with a schema, so nothing of such a plan is reused.
            reads=None if three.merged is not None else related_types(ours.catalog, changed),
        )
        receipt = self._receipt(sides, settled.counts, adopted, three)
        self._earlier = _Prepared(snapshot, sides, plan, receipt)
        return plan, receipt

    def _three_way_state(self, base: MergeBase[View], ours: View, theirs: View) -> ThreeWayState:
        """Return the three states after checking that the actor may change what differs; a merge covers all types.

        Where values of our side decide about conflicts, the answer reveals them, so that needs `read`.
        """
        self._hidden = self.session.hidden(ours.snapshot) | self.session.hidden(theirs.snapshot)
        three = self._under_one_schema(base, ours, theirs)
        may = write_permissions(self.session, three.ours.snapshot)
        if self.kind != "merge":
            touched = [type_.name for type_ in three.touched_types()]
            may.check_replay(touched)
            may.check(touched)
        self._check_resolutions(three, may)
        if self.kind == "merge":
            self._check_compared(three)
        return three

    def _under_one_schema(self, base: MergeBase[View], ours: View, theirs: View) -> ThreeWayState:
        """Return the three states under the schema of the merge; `_SchemaConflicts` if there is none."""
        if len({view.catalog.ir_hash for view in (*base.states(), ours, theirs)}) == 1:
            reject_unused(self.decisions.schema)
            return ThreeWayState(base, ours, theirs)
        settled = SchemaDecisions(self.decisions.schema, self._hidden)
        # A fixed point: a decision can bring other conflicts to light. Each round decides one more or ends, and the
        # resolutions are finite.
        while True:
            merged = merge_view_schemas(base, ours, theirs, settled.takes)
            if isinstance(merged, MergedSchema):
                self._check_target_schema(ours, merged)
                # A revert only takes a change back, so nothing is lost with a property that is not there any more.
                lost = lost_changes(merged, settled.takes, is_revert=self.kind == "revert")
                conflicts = [*map(OpenConflict, rewrites_needed(merged)), *lost]
                if not conflicts:
                    break
            else:
                conflicts = merged
            if not settled.decide(conflicts):
                raise _SchemaConflicts([item.conflict for item in conflicts])
        settled.reject_unused()
        self._hidden = self._hidden.union(*(merged.new_names(view, self._hidden) for view in (ours, theirs)))
        return ThreeWayState.under(merged)

    def _check_target_schema(self, ours: View, merged: MergedSchema) -> None:
        """Raise if the actor may not change the schema of the target, or stored queries would break."""
        if merged.changes_target:
            self.session.require("schema_apply", on_target(self.session.names_of(ours.snapshot)))
            if self.session.schema_check is not None and ours.snapshot.state.branch_id is None:
                self.session.schema_check(ours.catalog, merged.catalog)

    def _check_compared(self, three: ThreeWayState) -> None:
        """Raise `PolicyDenied` if both sides changed a type that the actor may not read on the target.

        Whether they conflict would reveal what the target holds. Types that the actor may neither read nor change on
        any branch go along: it knows and controls neither side.
        """
        guessed = self.session.hidden(three.ours.snapshot) - types_out_of_reach(self.session, three.ours.catalog)
        if guessed and not guessed.isdisjoint(three.compared_types()):
            raise hidden_data_error(self.session.actor)

    def _check_resolutions(self, three: ThreeWayState, may: WritePermissions) -> None:
        """Raise for resolutions of hidden or unknown types, which look the same, and of types without permission.

        A resolution with values writes them, which needs `change` of the type. In a revert or cherry-pick, so does one
        that picks a side, because it may name an entity that the commit did not touch.
        """
        visible = {key: type_ for key, type_ in three.by_key.items() if type_.name not in self._hidden}
        reject_without_conflict(
            [
                (resolution.type_key, resolution.entity_id)
                for resolution in self.resolutions
                if resolution.type_key not in visible
            ]
        )
        writing = [resolution for resolution in self.resolutions if resolution.take is None or self.kind != "merge"]
        may.check(visible[resolution.type_key].name for resolution in writing)

    def _visible_conflicts(self, conflicts: Sequence[Conflict]) -> list[Conflict]:
        return [conflict for conflict in conflicts if conflict.type_key.name not in self._hidden]

    def _conflict_error(self, conflicts: Sequence[Conflict], **options: Any) -> OmniGraphError:
        visible = self._visible_conflicts(conflicts)
        if not visible:
            return hidden_data_error(self.session.actor)
        subject = f"the {self.kind.replace('_', '-')} of `{self.source}` into `{self.target}`"
        return conflict_error(visible, subject, **options)

    @cached_property
    def _may_read_target(self) -> bool:
        return self.session.policy is ALLOW_ALL or self.session.would_allow("read", on_branch(self.target))

    def _adoptable(self, three: ThreeWayState) -> dict[TypeKey, Pin]:
        """Return the types whose datasets are taken over as they are, unless a resolution decides otherwise.

        Main copies small changes instead: as long as its datasets are not forks, the graph can be moved.
        """
        owner = three.ours.snapshot.state.branch_id
        pins = {}
        for type_ in three.types() if self.may_adopt else ():
            pin = three.pin(type_)
            grown = abs(pin.row_count - three.ours.snapshot.state.pins[type_.table_key].row_count)
            is_wanted = owner is not None or grown >= MERGE_ADOPT_ENTITIES_MIN
            is_stored_so = pin.shape == AS_STORED
            # Copy on write: versions are immutable, so a type that only they changed is taken over by its pin, without
            # its rows.
            if three.is_ours_unchanged(type_) and pin.owner != owner and is_wanted and is_stored_so:
                pins[type_.table_key] = pin
        # Regardless of its size, a dataset that the target does not have, or would have to rewrite, is taken over.
        types = three.by_key
        return pins | {key: three.pin(types[key]) for key in taken_over(three)}

    def _receipt(
        self,
        sides: Sides,
        counts_by_key: Mapping[TypeKey, Counted],
        adopted: Mapping[TypeKey, Pin],
        three: ThreeWayState | None = None,
        *,
        dry_run: bool = False,
    ) -> MergeReceipt:
        counts = [
            TypeCount(key, counted.inserted, counted.updated, counted.deleted, key in adopted)
            for key, counted in sorted(counts_by_key.items())
            if key.name not in self._hidden
        ]
        outcome, bases = sides.outcome, sides.base_ids
        if not self._may_read_target:
            # What was needed, and since when, would reveal what the target holds.
            outcome, bases = MergeOutcome.MERGED, ()
        return MergeReceipt(
            self.source,
            self.target,
            outcome,
            bases,
            types=tuple(counts),
            dry_run=dry_run,
            actor=self.session.actor,
            schema_changes=None if three is None or three.merged is None else three.merged.describe_changes(),
        )
