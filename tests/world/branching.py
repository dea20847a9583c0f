"""Random operations on branches: create, rename, delete, merge, cherry-pick, revert, tag.

Written from docs/branching.md and "Schemas of branches" in docs/schema.md.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.world.calls import Answer
from tests.world.merge_model import (
    Clash,
    Conflict,
    Merged,
    Unknown,
    UnknownRow,
    decide,
    find_base,
    find_violations,
    merge_states,
    only,
)
from tests.world.model import Commit, Model, State
from tests.world.schema_merge import is_rewritten, merge_schemas
from tests.world.schema_model import Property, Schema, Type, convert
from tests.world.steps import Step

# Few names, so that a name often comes back as another branch.
BRANCHES = ("b0", "b1", "b2", "b3", "b4", "review/x")
TAGS = ("t0", "t1", "t2")
BRANCHES_MAX = 5
# How often a merge follows a dry run of itself.
PREVIEW_SHARE = 0.3
GONE = {"graph.version_reclaimed", "branch.not_found", "commit.not_found"}
SCHEMA_CONFLICTS = {"DivergentSchema", "DropVsUpdate"}


def any_branch(model: Model, random: Random) -> str:
    return random.choice(sorted(model.branches))


def create_branch(model: Model, random: Random) -> Step | None:
    free = [one for one in BRANCHES if one not in model.branches and one not in model.tags]
    if len(model.branches) >= BRANCHES_MAX or not free:
        return None
    name, source = random.choice(free), any_branch(model, random)
    commit, from_, origin = model.head(source), source, model.branches[source].incarnation
    errors: set[str] = set()
    if random.random() < 0.3:
        commit = _any_commit(model, random)
        from_, origin = commit.id, commit.home
        errors = GONE if commit.number in model.doubtful else set()
    elif model.tags and random.random() < 0.3:
        from_ = random.choice(sorted(model.tags))
        commit = model.commits[model.tags[from_]]
        origin = commit.home

    def then(_: Answer) -> None:
        model.create_branch(name, commit, origin)
        model.doubtful.discard(commit.number)

    return Step("branch", {"call": "create_branch", "name": name, "from_": from_}, errors=errors, then=then)


def create_named(model: Model, random: Random, source: str) -> Step | None:
    """Create a branch from the head of another one."""
    free = [one for one in BRANCHES if one not in model.branches and one not in model.tags]
    if not free:
        return None
    name, commit, origin = random.choice(free), model.head(source), model.branches[source].incarnation
    call = {"call": "create_branch", "name": name, "from_": source}
    return Step("branch", call, then=lambda _: model.create_branch(name, commit, origin))


def _any_commit(model: Model, random: Random) -> Commit:
    """Choose a commit, mostly one of the last."""
    recent = model.commits[-15:] if random.random() < 0.6 else model.commits
    return random.choice(recent)


def delete_branch(model: Model, random: Random) -> Step | None:
    name = any_branch(model, random)
    return None if name == "main" else delete_named(model, name)


def delete_named(model: Model, name: str) -> Step:
    step = Step("delete", {"call": "delete_branch", "name": name}, then=lambda _: model.delete_branch(name))
    if not model.may_delete(name):
        step.errors, step.must_fail = {"branch.in_use"}, True
    return step


def rename_branch(model: Model, random: Random) -> Step | None:
    name = any_branch(model, random)
    free = [one for one in BRANCHES if one not in model.branches and one not in model.tags]
    if name == "main" or not free:
        return None
    new = random.choice(free)

    def then(_: Answer) -> None:
        model.branches[new] = model.branches.pop(name)

    return Step("rename", {"call": "rename_branch", "name": name, "new_name": new}, then=then)


def create_tag(model: Model, random: Random) -> Step | None:
    free = [one for one in TAGS if one not in model.tags]
    if not free:
        return None
    name, branch = random.choice(free), any_branch(model, random)
    commit = model.head(branch)
    at = commit.id if random.random() < 0.5 else branch
    alive = {one.incarnation for one in model.branches.values()}
    errors = set() if commit.home in alive else GONE

    def then(_: Answer) -> None:
        model.tags[name] = commit.number

    return Step("tag", {"call": "tag", "name": name, "at": at}, errors=errors, then=then)


def delete_tag(model: Model, random: Random) -> Step | None:
    if not model.tags:
        return None
    name = random.choice(sorted(model.tags))

    def then(_: Answer) -> None:
        del model.tags[name]

    return Step("untag", {"call": "untag", "name": name}, then=then)


# -- merges --------------------------------------------------------------------------------------------------------


def merge(model: Model, random: Random) -> Step | None:
    source, into = any_branch(model, random), any_branch(model, random)
    return None if source == into else merge_branches(model, random, source, into)


def merge_branches(model: Model, random: Random, source: str, into: str) -> Step:
    ours, theirs = model.head(into), model.head(source)
    call: dict[str, Any] = {"call": "merge", "source": source, "into": into}
    if random.random() < PREVIEW_SHARE:
        call["preview"] = True
    step = Step("merge", call, into, ours.state, ours.schema, merged=theirs.number)
    if theirs.number in model.past(ours.number):
        step.conflicts = set()
        return step
    best = model.bases([ours.number], theirs.number)
    if any(one in model.reclaimed for one in best):
        step.errors |= GONE
    if best == [ours.number]:
        step.state, step.schema, step.conflicts = theirs.state, theirs.schema, set()
        return step
    base = find_base(model, [ours.number], theirs.number)
    if base.schema is None:
        call.pop("preview", None)
        call["dry_run"] = True
        step.merged = None
        return step
    prepared = Sides(model, base.schema, (base.state, ours.state, theirs.state), (ours.schema, theirs.schema))
    return prepared.expect(step, random, is_certain=base.is_certain)


class Sides:
    """Three states that are merged, their schemas merged first."""

    def __init__(
        self,
        model: Model,
        base: Schema,
        states: tuple[State, State, State],
        schemas: tuple[Schema, Schema],
    ) -> None:
        merged = merge_schemas(base, *schemas)
        self.model, self.schema = model, merged.schema
        before, ours, theirs = (
            _read_under(model, state, own, merged.schema) for state, own in zip(states, (base, *schemas), strict=True)
        )
        self.states = (before, ours, theirs)
        self.schema_conflicts = set(merged.conflicts)
        self.may_conflict = False
        for mine, yours, rows, others in (
            (schemas[0], schemas[1], states[1], states[2]),
            (schemas[1], schemas[0], states[2], states[1]),
        ):
            self._find_dropped(base, mine, yours, others)
            del rows
        # What the other side rewrote is taken over only if our side left the type alone.
        for id_, type_ in schemas[1].items():
            if is_rewritten(base.get(id_), type_) and self._differs(base[id_], id_, 1, schemas[0]):
                self.may_conflict = True

    def _find_dropped(self, base: Schema, mine: Schema, yours: Schema, others: State) -> None:
        """Find what one side dropped, and the other side changed or set."""
        for id_, type_ in base.items():
            if id_ not in mine and id_ in yours:
                changes = _changes(type_, self.states[0].get(id_, {}), others.get(id_, {}))
                if changes - {"delete"}:
                    self.schema_conflicts.add("DropVsUpdate")
                elif changes:
                    self.may_conflict = True
            if id_ in mine and id_ in yours:
                for one in type_.properties:
                    if mine[id_].find(one.id) is None and yours[id_].find(one.id) is not None:
                        self._find_set(id_, one.id, others)

    def _find_set(self, id_: int, property_id: int, others: State) -> None:
        before = self.states[0].get(id_, {})
        for entity, row in others.get(id_, {}).items():
            former = before.get(entity)
            # A new entity has set what is not null, be it by a default.
            older = None if former is None else self.model.value(former, property_id)
            if isinstance(former, UnknownRow) or isinstance(older, Unknown):
                self.may_conflict = True
            elif self.model.value(row, property_id) != older:
                self.schema_conflicts.add("DropVsUpdate")

    def _differs(self, type_: Type, id_: int, side: int, schema: Schema) -> bool:
        rows = (self.states[0].get(id_, {}), self.states[side].get(id_, {}))
        return schema.get(id_) != type_ or bool(_changes(type_, *rows))

    def expect(self, step: Step, random: Random, *, is_certain: bool = True) -> Step:
        """Say what a merge, pick or revert makes; decide some of its conflicts."""
        if self.schema_conflicts:
            kinds = {*self.schema_conflicts, *(SCHEMA_CONFLICTS if self.may_conflict else ())}
            step.conflicts = {(kind, "", None) for kind in kinds}
            step.errors, step.must_fail = {"merge.conflict"}, True
            return step
        merged = merge_states(self.model, self.schema, *self.states)
        step.state, step.schema = merged.state, self.schema
        conflicts = self._conflicts(merged)
        if self.may_conflict or not is_certain:
            # Either nothing happens, or exactly this.
            step.errors |= {"merge.conflict"}
            step.must_fail = bool(conflicts)
            if not is_certain:
                step.call.pop("preview", None)
                step.call["dry_run"] = True
                step.state, step.schema, step.must_fail = self.states[1], step.schema, False
            return step
        step.conflicts = conflicts
        if conflicts:
            step.errors, step.must_fail = {"merge.conflict"}, True
            if merged.clashes and random.random() < 0.6:
                self._decide(step, random, merged)
        return step

    def _conflicts(self, merged: Merged) -> set[Conflict]:
        if merged.clashes:
            return {(one.kind, self.schema[one.type_id].table_key, one.entity) for one in merged.clashes}
        return rule_conflicts(self.model, self.schema, merged.state)

    def _decide(self, step: Step, random: Random, merged: Merged) -> None:
        decisions: dict[tuple[int, str], str] = {}
        for clash in merged.clashes:
            sides = ["ours", "theirs"] if clash.kind == "DivergentInsert" else ["ours", "theirs", "base"]
            decisions[clash.type_id, clash.entity] = random.choice(sides)
        step.call["resolutions"] = [self._resolution(clash, decisions) for clash in merged.clashes]
        state = decide(self.model, self.schema, self.states, merged, decisions)
        if state is None:
            step.errors, step.conflicts = {"merge.resolution"}, None
            return
        wrong = rule_conflicts(self.model, self.schema, state)
        step.state, step.conflicts = state, wrong
        step.errors, step.must_fail = {"merge.conflict"} if wrong else set(), bool(wrong)

    def _resolution(self, clash: Clash, decisions: dict[tuple[int, str], str]) -> dict[str, str]:
        side = decisions[clash.type_id, clash.entity]
        return {"type_key": self.schema[clash.type_id].table_key, "entity_id": clash.entity, "take": side}


def rule_conflicts(model: Model, schema: Schema, state: State) -> set[Conflict]:
    """Return the rules that a merged state breaks, by the names that conflicts have for them."""
    names = {"RequiredViolation": "ValueConstraintViolation"}
    return {(names.get(kind, kind), key, entity) for kind, key, entity in find_violations(model, schema, state)}


def _changes(type_: Type, before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Return the kinds of changes from one state of a type to another."""
    found = set[str]()
    for entity in {*before, *after}:
        former, later = only(before.get(entity), type_), only(after.get(entity), type_)
        if isinstance(former, UnknownRow) or former != later:
            found.add("delete" if later is None else "insert" if former is None else "update")
    return found


# -- picks and reverts ---------------------------------------------------------------------------------------------


def replay(model: Model, random: Random) -> Step | None:
    """Cherry-pick or revert a commit."""
    branch = any_branch(model, random)
    kind = random.choice(["revert", "cherry_pick", "cherry_pick"])
    past = model.past(model.head(branch).number)
    among = [one for one in model.commits if one.parents and (kind != "revert" or one.number in past)]
    if not among:
        return None
    return replay_commit(model, random, kind, random.choice(among[-25:]), branch)


def replay_commit(model: Model, random: Random, kind: str, commit: Commit, branch: str) -> Step:
    parent = model.commits[commit.parents[0]]
    ours = model.head(branch)
    call: dict[str, Any] = {"call": "replay", "kind": kind, "commit_id": commit.id, "branch": branch}
    if random.random() < PREVIEW_SHARE:
        call["preview"] = True
    step = Step(kind, call, branch, ours.state, ours.schema)
    if {commit.number, parent.number} & model.doubtful:
        step.errors |= GONE
    if commit.schema != parent.schema:
        call.pop("preview", None)
        call["dry_run"] = True
        step.errors |= {"merge.conflict"}
        return step
    before, after = (commit, parent) if kind == "revert" else (parent, commit)
    return _expect_replay(model, random, step, (before.state, ours.state, after.state), commit.schema, ours.schema)


def _expect_replay(
    model: Model, random: Random, step: Step, states: tuple[State, State, State], own: Schema, schema: Schema
) -> Step:
    """Say what a change of data makes of a branch that may have another schema."""
    gone = set(step.errors)
    is_pick = step.kind == "cherry_pick"
    before, after = ({key: dict(rows) for key, rows in states[side].items()} for side in (0, 2))
    misfits = False
    for id_, type_ in own.items():
        changed = [
            entity
            for entity in {*before.get(id_, {}), *after.get(id_, {})}
            if before.get(id_, {}).get(entity) != after.get(id_, {}).get(entity)
        ]
        here = schema.get(id_)
        if here is None:
            if changed and is_pick:
                return _refused(step, {"DropVsUpdate"})
            continue
        for entity in changed:
            former, later = before.get(id_, {}).get(entity), after.get(id_, {}).get(entity)
            if later is None:
                continue
            # Where our side deleted it and their side wins, the whole entity comes back, its unchanged values too.
            is_whole = here.merge == "theirs" and entity not in states[1].get(id_, {})
            for one in type_.properties:
                value, there = model.value(later, one.id), here.find(one.id)
                is_same = former is not None and value == model.value(former, one.id)
                if is_same and not (is_whole and there is not None):
                    continue
                if there is None:
                    # To set it to null is to set it; of a new entity null says nothing.
                    if is_pick and (former is not None or value is not None):
                        return _refused(step, {"DropVsUpdate"})
                    continue
                try:
                    convert(value, there.base)
                except ValueError:
                    misfits = True
        for one in here.properties:
            if changed and type_.find(one.id) is None:
                # Where states are compared, a required property that one of them lacks has its default.
                if one.is_required and one.default is None:
                    step.errors |= {"merge.conflict"}
                for rows in (before.get(id_, {}), after.get(id_, {})):
                    rows |= {entity: _filled(model, row, one) for entity, row in rows.items()}
    if misfits:
        step.errors |= {"merge.conflict"}
        step.must_fail, step.state = True, states[1]
        return step
    sides = Sides(model, schema, (before, states[1], after), (schema, schema))
    if step.errors - gone:
        sides.may_conflict = True
    expected = sides.expect(step, random)
    expected.errors |= gone
    return expected


def _filled(model: Model, row: Any, new: Property) -> Any:
    """Return a row with what it holds of a property that it lacks: the default if it is required, or else null."""
    value = new.default if new.is_required else None
    if isinstance(row, UnknownRow) or new.id in row or (new.is_required and value is None):
        return row
    filled = dict(row)
    model.set_value(filled, new.id, value)
    return filled


def _read_under(model: Model, state: State, own: Schema, schema: Schema) -> State:
    """Return a state with null for the optional properties that its own schema does not have."""
    shown = dict(state)
    for id_, type_ in schema.items():
        for one in type_.properties:
            if id_ in own and own[id_].find(one.id) is None and not one.is_required:
                shown[id_] = {entity: _filled(model, row, one) for entity, row in shown.get(id_, {}).items()}
    return shown


def _refused(step: Step, kinds: set[str]) -> Step:
    step.conflicts = {(kind, "", None) for kind in kinds}
    step.errors |= {"merge.conflict"}
    step.must_fail = True
    return step
