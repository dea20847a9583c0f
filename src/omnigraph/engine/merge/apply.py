"""Apply the change of one side to a branch: the common part of merges, reverts and cherry-picks.

They differ only in which states are the base and the other side. Then: merge, resolve, validate, stage, publish once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property

from omnigraph.engine.authorization import ALLOW_ALL, on_branch
from omnigraph.engine.information_flow import types_out_of_reach
from omnigraph.engine.merge.ancestry import MergeBase
from omnigraph.engine.merge.apply_resolutions import Resolutions
from omnigraph.engine.merge.conflicts import Resolution, refusal, reject_without_conflict
from omnigraph.engine.merge.merge_tasks import ExecuteMerge, Settled, Task, forks_of, merge_in_memory
from omnigraph.engine.merge.three_way import Counted, ThreeWayState, merge_all
from omnigraph.engine.session import GraphSession, View
from omnigraph.engine.write.write_authorization import WritePermissions, hidden_data_error, write_permissions
from omnigraph.ids import BranchId, CommitId
from omnigraph.lang.catalog import Catalog
from omnigraph.limits import MERGE_ADOPT_ENTITIES_MIN
from omnigraph.manifest.intents import Declared, declared
from omnigraph.manifest.model import ADOPTED, Pin, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.manifest.requirements import BranchIs, HeadIs, SchemaIs
from omnigraph.manifest.updates import SetVersion
from omnigraph.public_values import Conflict, MergeOutcome, MergeReceipt, TypeCount


@dataclass(frozen=True, slots=True)
class Sides:
    """What is to be applied to a branch: the way from `base` to `theirs`. Without them there is nothing to do.

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
        if sides.outcome is MergeOutcome.FAST_FORWARD or not self.plan.reads_same(self.snapshot, snapshot):
            return False
        return _applied(sides) == _applied(self.sides)

    def moved_to(self, snapshot: Snapshot) -> tuple[Plan, MergeReceipt]:
        """Return the plan for a later state of the target; its requirements are checked there."""
        kept = tuple(requirement for requirement in self.plan.requirements if not isinstance(requirement, HeadIs))
        return replace(self.plan, requirements=(HeadIs(snapshot.head), *kept)), self.receipt


def _applied(sides: Sides) -> tuple[object, ...]:
    theirs = sides.theirs.snapshot.ref if sides.theirs is not None else None
    return sides.outcome, sides.base_ids, theirs, sides.merged_parent


def related_types(catalog: Catalog, changed: Collection[str]) -> frozenset[str]:
    """Return types, the edges that end at them, and the nodes at their ends: all that the rules on them read."""
    related = set(changed)
    for edge in catalog.edges.values():
        ends = {catalog.nodes[edge.source].table_key, catalog.nodes[edge.target].table_key}
        if edge.table_key in changed or ends & set(changed):
            related |= {edge.table_key, *ends}
    return frozenset(related)


@dataclass
class Application:
    """One merge, revert or cherry-pick in the making; `choose` says for a state of the target what is applied to it."""

    session: GraphSession
    kind: str
    source: str
    target: str
    choose: Callable[[View], Sides]
    resolutions: Sequence[Resolution]
    properties: Mapping[str, str] = field(default_factory=dict)
    may_adopt: bool = False
    execute: ExecuteMerge = merge_in_memory
    # The incarnation of the target that the actor was allowed to change; None is main, or no such branch.
    expected: BranchId | None = None
    _hidden: frozenset[str] = frozenset()
    _held: Declared | None = None
    _earlier: _Prepared | None = None

    def preview(self) -> MergeReceipt:
        """Return the receipt of a dry run; writes nothing."""
        ours = self.session.full_view(self.target)
        BranchIs(self.expected).check(ours.snapshot)
        sides = self.choose(ours)
        if sides.base is None or sides.theirs is None:
            return self._receipt(sides, {}, {}, dry_run=True)
        three = self._three_way_state(sides.base, ours, sides.theirs)
        merged = merge_all(three, Resolutions(self.resolutions))
        receipt = self._receipt(sides, merged.counts, merged.adopted(self._adoptable(three)), dry_run=True)
        if not merged.conflicts:
            return receipt
        visible = self._visible_conflicts(merged.conflicts)
        if not visible:
            # Raise here what the real merge would raise.
            raise hidden_data_error(self.session.actor)
        return MergeReceipt(
            self.source,
            self.target,
            MergeOutcome.CONFLICTED,
            receipt.bases,
            types=receipt.types,
            conflicts=tuple(visible),
            dry_run=True,
            actor=self.session.actor,
        )

    def run(self) -> MergeReceipt:
        """Apply and publish; a conflict is an error that lists them all."""
        self.session.kernel.resolve(self.target)
        made: list[MergeReceipt] = []
        with ExitStack() as stack:

            def prepare(snapshot: Snapshot) -> Plan | None:
                BranchIs(self.expected).check(snapshot)
                plan, receipt = self._prepare(snapshot, stack)
                made[:] = [receipt]
                return plan

            published = self.session.kernel.commit(self.target, prepare, CommitPolicy.MERGE)
        [receipt] = made
        if published is None or published.commit is None:
            return receipt
        return replace(receipt, commit=self.session.redact_receipt(published.commit, self.target))

    def _prepare(self, snapshot: Snapshot, stack: ExitStack) -> tuple[Plan | None, MergeReceipt]:
        kernel = self.session.kernel
        ours = self.session.full_view_of(snapshot)
        sides = self.choose(ours)
        if sides.base is None or sides.theirs is None:
            return None, self._receipt(sides, {}, {})
        if self._earlier is not None and self._earlier.still_holds(sides, snapshot):
            return self._earlier.moved_to(snapshot)
        three = self._three_way_state(sides.base, ours, sides.theirs)

        def hold() -> Declared:
            # One intent covers all attempts, so that a sweep removes the staged files of all of them after a crash.
            if self._held is None:
                self._held = stack.enter_context(declared(kernel.store, self.kind, snapshot, self.session.actor))
            return self._held

        is_forward = sides.outcome is MergeOutcome.FAST_FORWARD
        settled = self.execute(Task(three, self.resolutions, self._adoptable(three), is_forward, hold))
        self._raise_conflicts(settled)
        adopted = settled.adopted
        if self.kind != "merge" and not settled.counts:
            nothing = Sides(MergeOutcome.ALREADY_UP_TO_DATE, sides.base_ids)
            return None, self._receipt(nothing, {}, {})
        properties = dict(self.properties)
        if adopted:
            # Readers of an adopted version open it by path, so its links must be finished.
            kernel.finish_links(sides.theirs.snapshot)
            forks = {fork for pin in adopted.values() for fork in forks_of(sides.theirs, pin, ours)}
            if forks:
                properties[ADOPTED] = ",".join(sorted(forks))
        if sides.merged_parent is not None:
            # The source may be deleted concurrently, by a process that has not seen its newest commits.
            kernel.keep_history(sides.theirs.snapshot, after=sides.base_ids)
        changed = [*settled.counts, *adopted, *(type_.table_key for type_ in three.types())]
        plan = Plan(
            self.kind,
            settled.effects,
            tuple(
                SetVersion(pin.table_key, pin.version, pin.fork, pin.row_count, snapshot.version)
                for pin in adopted.values()
            ),
            (HeadIs(snapshot.head), SchemaIs(ours.catalog.ir_hash)),
            self.session.actor,
            None if sides.merged_parent is None else sides.theirs.snapshot.head_commit,
            properties,
            hold().operation_id,
            reads=related_types(ours.catalog, changed),
        )
        receipt = self._receipt(sides, settled.counts, adopted)
        self._earlier = _Prepared(snapshot, sides, plan, receipt)
        return plan, receipt

    def _three_way_state(self, base: MergeBase[View], ours: View, theirs: View) -> ThreeWayState:
        """Return the three states after checking that the actor may change what differs; a merge covers all types.

        Where values of our side decide about conflicts, the answer reveals them, so that needs `read`.
        """
        three = ThreeWayState(base, ours, theirs)
        self._hidden = self.session.hidden(ours.snapshot) | self.session.hidden(theirs.snapshot)
        may = write_permissions(self.session, ours.snapshot)
        if self.kind != "merge":
            touched = [type_.name for type_ in three.touched_types()]
            may.check_replay(touched)
            may.check(touched)
        self._check_resolutions(three, may)
        if self.kind == "merge":
            self._check_compared(three)
        return three

    def _check_compared(self, three: ThreeWayState) -> None:
        """Raise `PolicyDenied` if both sides changed a type that the actor may not read on the target.

        Whether they conflict would tell what the target holds. Types that the actor may neither read nor change on any
        branch go along: it knows and controls neither side.
        """
        guessed = self.session.hidden(three.ours.snapshot) - types_out_of_reach(self.session, three.ours.catalog)
        if guessed and not guessed.isdisjoint(three.compared_types()):
            raise hidden_data_error(self.session.actor)

    def _check_resolutions(self, three: ThreeWayState, may: WritePermissions) -> None:
        """Raise for resolutions of hidden or unknown types, which look the same, and of types without permission.

        A resolution with values writes them, which needs `change` of the type. In a revert or cherry-pick, so does one
        that picks a side, because it may name an entity that the commit did not touch.
        """
        seen = {key: type_ for key, type_ in three.by_key.items() if type_.name not in self._hidden}
        reject_without_conflict(
            [
                (resolution.type_key, resolution.entity_id)
                for resolution in self.resolutions
                if resolution.type_key not in seen
            ]
        )
        writing = [resolution for resolution in self.resolutions if resolution.take is None or self.kind != "merge"]
        may.check(seen[resolution.type_key].name for resolution in writing)

    def _visible_conflicts(self, conflicts: Sequence[Conflict]) -> list[Conflict]:
        """Return the conflicts that are not about types which the actor may not read."""
        return [conflict for conflict in conflicts if conflict.type_key.partition(":")[2] not in self._hidden]

    def _raise_conflicts(self, settled: Settled) -> None:
        if not settled.conflicts:
            return
        visible = self._visible_conflicts(settled.conflicts)
        if not visible:
            raise hidden_data_error(self.session.actor)
        what = f"the {self.kind.replace('_', '-')} of `{self.source}` into `{self.target}`"
        raise refusal(visible, what, is_cut=settled.is_cut)

    @cached_property
    def _may_read_target(self) -> bool:
        return self.session.policy is ALLOW_ALL or self.session.would_allow("read", on_branch(self.target))

    def _adoptable(self, three: ThreeWayState) -> dict[str, Pin]:
        """Return the types whose datasets are taken over as they are, unless a resolution decides otherwise.

        Main copies small changes instead: as long as its datasets are no forks, the graph can be moved.
        """
        owner = three.ours.snapshot.state.branch_id
        pins = {}
        for type_ in three.types() if self.may_adopt else ():
            pin = three.pin(type_)
            grown = abs(pin.row_count - three.ours.snapshot.state.pins[type_.table_key].row_count)
            is_wanted = owner is not None or grown >= MERGE_ADOPT_ENTITIES_MIN
            if three.is_ours_unchanged(type_) and pin.owner != owner and is_wanted:
                pins[type_.table_key] = pin
        return pins

    def _receipt(
        self, sides: Sides, counts_by_key: Mapping[str, Counted], adopted: Mapping[str, Pin], *, dry_run: bool = False
    ) -> MergeReceipt:
        counts = [
            TypeCount(key, counted.inserted, counted.updated, counted.deleted, key in adopted)
            for key, counted in sorted(counts_by_key.items())
            if key.partition(":")[2] not in self._hidden
        ]
        outcome, bases = sides.outcome, sides.base_ids
        if not self._may_read_target:
            # What was needed, and since when, tells what the target holds.
            outcome, bases = MergeOutcome.MERGED, ()
        return MergeReceipt(
            self.source,
            self.target,
            outcome,
            bases,
            types=tuple(counts),
            dry_run=dry_run,
            actor=self.session.actor,
        )
