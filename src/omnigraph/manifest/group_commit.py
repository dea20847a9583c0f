"""Group commit: writes that wait for the same branch are prepared one after the other and published together.

Each is prepared on the published state and what the ones before it in the group have changed, fails by its own rules,
and gets a commit of its own. All of them become visible with one publish, or none does. Only then is any of them
answered, also one that failed or changed nothing: what it has seen might not have come to be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from omnigraph import clock
from omnigraph.errors import ConflictError, OmniGraphError, StorageError, StorageKind
from omnigraph.errors import Effect as Outcome
from omnigraph.ids import OperationId, new_operation_id, on_branch
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import GROUP_SECONDS_MAX
from omnigraph.manifest.group_queue import QueuedWriter, WriterQueue
from omnigraph.manifest.idempotency import REQUEST_ID, RequestKey, find_request
from omnigraph.manifest.model import Commit, GroupChange, GroupSlot, Snapshot, TypeIdentity, correct_date
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan, Receipt
from omnigraph.manifest.publish import Moved, Publication, unknown_outcome
from omnigraph.manifest.requirements import SchemaIs
from omnigraph.manifest.updates import AddCommit

T = TypeVar("T")


class NotGroupable(Exception):
    """A write that this group cannot take; it waits for the next one, or is published by itself."""


class GroupStage(Protocol):
    """What the writes of a group have changed so far, on top of one published state."""

    @property
    def reads(self) -> frozenset[TypeKey]:
        """The types that the writes have read or changed."""
        ...

    def finish(self, snapshot: Snapshot) -> tuple[tuple[Effect, ...], list[dict[TypeIdentity, GroupChange]]]:
        """Return what is staged for all writes, and for each of them what it did to which types, in their order."""
        ...


Prepare = Callable[[Snapshot], Plan | None]
PrepareInGroup = Callable[[Snapshot, GroupStage], Plan | None]


@dataclass(frozen=True, slots=True)
class Groupable:
    """How a write is prepared together with others.

    `prepare` adds what the write changes to the stage, and returns a plan without effects; None if it changes nothing.
    It raises `NotGroupable` before anything was added if the group cannot take the write. A write that `goes_alone`
    only waits in the same queue, so that it comes in its turn.
    """

    begin: Callable[[Snapshot], GroupStage]
    prepare: PrepareInGroup
    goes_alone: bool = False
    # Tells the stage what the write is going to look up, so that it can be fetched for all writes in one go.
    foresee: Callable[[Snapshot, GroupStage], None] = lambda snapshot, stage: None


@dataclass(frozen=True, slots=True)
class Write:
    """One write: how it is prepared by itself, and together with others."""

    prepare: Prepare
    policy: CommitPolicy
    groupable: Groupable


Writer = QueuedWriter[Write, Receipt]
Writers = WriterQueue[Write, Receipt]


@dataclass(slots=True)
class _Member:
    """A write of a group in preparation: its commit, its error, or neither if it changes nothing."""

    writer: Writer
    commit: Commit | None = None
    error: BaseException | None = None

    def run(self, step: Callable[[Snapshot, GroupStage], T], snapshot: Snapshot, stage: GroupStage) -> T | None:
        """Make a step of the write in the context of its caller; after one that failed, none."""
        if self.error is not None:
            return None
        try:
            return self.writer.context.run(step, snapshot, stage)
        except NotGroupable:
            raise
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the writer
            self.error = error
            return None


class GroupPreparation:
    """Prepares the writes of a group as one plan; again on another state after a lost race."""

    def __init__(self, writers: Sequence[Writer]) -> None:
        self.publication: Publication = _GroupPublication(self)
        self.members: list[_Member] = []
        self._writers = list(writers)
        self._left_over: list[Writer] = []
        # The last plan with the state that it was prepared on, if it may be kept on another one.
        self._kept: tuple[Snapshot, Plan] | None = None

    def prepare(self, snapshot: Snapshot) -> Plan | None:
        """Return the plan of all writes that can be published on a state; None if there is none."""
        if (plan := self._moved_to(snapshot)) is not None:
            return plan
        self.members, self._left_over, self._kept = [], [], None
        if not self._writers:
            return None
        stage = self._writers[0].work.groupable.begin(snapshot)
        prepared = self._prepare_all(stage, snapshot)
        if not prepared:
            return None
        effects, changes = stage.finish(snapshot)
        committed = [member for member in self.members if member.commit is not None]
        for slot, (member, types) in enumerate(zip(committed, changes, strict=True), 1):
            if member.commit is not None and len(committed) > 1:
                member.commit = replace(member.commit, group=GroupSlot(slot, len(committed), types))
        requirements = {requirement for plan in prepared for requirement in plan.requirements}
        # Conditions on the head were checked on what the writes before left; they do not hold for the published state.
        lasting = tuple(requirement for requirement in requirements if isinstance(requirement, SchemaIs))
        plan = Plan(None, effects, self._updates(), lasting, reads=stage.reads)
        if len(lasting) == len(requirements) and len(committed) == len(self.members):
            self._kept = snapshot, plan
        return plan

    def _prepare_all(self, stage: GroupStage, snapshot: Snapshot) -> list[Plan]:
        """Prepare the writes in their order, each on the state that the ones before it leave."""
        members = [_Member(writer) for writer in self._writers]
        for member in members:
            member.run(member.writer.work.groupable.foresee, snapshot, stage)
        state, prepared, begun = snapshot, list[Plan](), clock.elapsed()
        for number, member in enumerate(members):
            if prepared and clock.elapsed() - begun > GROUP_SECONDS_MAX:
                self._left_over = self._writers[number:]
                break
            try:
                plan = member.run(member.writer.work.groupable.prepare, state, stage)
            except NotGroupable:
                # What the first of a group cannot share, it cannot share in the next group either.
                member.writer.goes_alone = not prepared
                self._left_over = self._writers[number:]
                break
            if plan is not None:
                prepared.append(plan)
                member.commit = _commit_of(state, plan)
                state = _after(state, member.commit)
            self.members.append(member)
        return prepared

    def _moved_to(self, snapshot: Snapshot) -> Plan | None:
        """Return the last plan for a newer state, if nothing that its writes have read has changed.

        What is staged stays as it is; only the commits are others, because they follow another head. A write that
        failed, changed nothing or has a condition on the head may turn out otherwise, so its group is prepared again.
        """
        if self._kept is None or not self._kept[1].reads_same(self._kept[0], snapshot):
            return None
        before, plan = self._kept
        newer = [commit for commit in snapshot.state.commits if commit.manifest_version > before.version]
        is_known = len(newer) < len(snapshot.state.commits)
        if not is_known or any(_is_repeated(member, newer) for member in self.members):
            return None
        state = snapshot
        for member in self.members:
            assert member.commit is not None, "only a plan of which every write has a commit is kept"
            member.commit = replace(
                member.commit,
                manifest_version=snapshot.version + 1,
                parent=state.head,
                corrected_us=correct_date(member.commit.created_at_us, [state.head_commit]),
            )
            state = _after(state, member.commit)
        plan = replace(plan, updates=self._updates())
        self._kept = snapshot, plan
        return plan

    def _updates(self) -> tuple[AddCommit, ...]:
        return tuple(AddCommit(member.commit) for member in self.members if member.commit is not None)

    def drop(self, writer: Writer, error: OmniGraphError) -> None:
        """Answer a writer whose caller has stopped waiting, and leave it out of the group."""
        self._writers.remove(writer)
        self._kept = None
        writer.settle(error=error)

    def settle(self, receipt: Receipt | None) -> list[Writer]:
        """Answer all writers of a group that was published; return those that it could not take."""
        for member in self.members:
            commit = member.commit
            if commit is not None:
                assert receipt is not None, "a group with commits was published"
                member.writer.settle(Receipt(receipt.snapshot, commit, commit.operation_id))
            else:
                member.writer.settle(error=member.error)
        return self._left_over

    def fail(self, error: OmniGraphError) -> list[Writer]:
        """Answer the writers of a group that was not published; return those to try again.

        Where the failure may be due to one of them, each is tried by itself. So is a write that failed or changed
        nothing: it may have done so because of what others would have written.
        """
        if not isinstance(error, StorageError | ConflictError):
            for writer in self._writers:
                writer.goes_alone = True
            return self._writers
        again = [member.writer for member in self.members if member.commit is None]
        for member in self.members:
            if member.commit is not None:
                member.writer.settle(error=_error_of(error, member.commit.operation_id))
        return [writer for writer in self._writers if writer in again or writer in self._left_over]


class _GroupPublication(Publication):
    """The permission of a group to be published: that of each of its writers."""

    def __init__(self, group: GroupPreparation) -> None:
        super().__init__()
        self._group = group

    def begin(self, operation_id: OperationId) -> None:
        super().begin(operation_id)
        begun: list[Publication] = []
        for member in self._group.members:
            if member.commit is None:
                continue
            publication = member.writer.publication
            try:
                publication.begin(member.commit.operation_id)
            except ConflictError as error:
                for other in begun:
                    other.lose()
                self._group.drop(member.writer, error)
                # The others are staged again, without it.
                raise Moved from error
            begun.append(publication)

    def lose(self) -> None:
        super().lose()
        for member in self._group.members:
            member.writer.publication.lose()


def _error_of(error: OmniGraphError, operation_id: OperationId) -> OmniGraphError:
    """Return the error of a group as one of its writers gets it: an unknown outcome has the id of its own operation."""
    if error.effect is not Outcome.UNKNOWN:
        return error
    kind = error.storage_kind if isinstance(error, StorageError) else StorageKind.TRANSIENT
    return unknown_outcome(operation_id, error.message, kind)


def _is_repeated(member: _Member, commits: Sequence[Commit]) -> bool:
    """Return True if a write with an idempotency key is among some commits."""
    assert member.commit is not None, "only a plan of which every write has a commit is kept"
    request_id = member.commit.properties.get(REQUEST_ID)
    return request_id is not None and find_request(commits, RequestKey(request_id, member.commit.actor)) is not None


def _commit_of(state: Snapshot, plan: Plan) -> Commit:
    branch_id, created_at_us = state.state.branch_id, clock.now_us()
    assert plan.kind is not None, "a write of a group has a commit"
    return Commit(
        on_branch(plan.commit_id, branch_id),
        branch_id,
        state.version + 1,
        state.head,
        None,
        plan.actor,
        created_at_us,
        plan.kind,
        new_operation_id(branch_id),
        plan.properties,
        corrected_us=correct_date(created_at_us, [state.head_commit]),
    )


def _after(state: Snapshot, commit: Commit) -> Snapshot:
    """Return the state that the next write of a group sees: another head, and the commits that lead to it."""
    commits = (*state.state.commits, commit)
    return replace(state, state=replace(state.state, head=commit.commit_id, commits=commits))
