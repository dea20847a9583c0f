"""Histories of two actors, done to a graph and to one from which the hidden types were really removed.

`root` may do everything, `ann` not. What `ann` is told, over the whole sequence, must be the same in both graphs. The
model here knows the definition alone: a branch is protected if any name that it ever had is, and nothing goes from
where a type is hidden to where it could be read. Where it says that `ann` is refused, the other graph is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from omnigraph.engine.history import public_commits
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph, session_of
from tests.policy.two_actor_world import (
    CANARY,
    KNOWN,
    NOWHERE,
    PAY,
    PEOPLE,
    PROTECTED,
    RANK,
    Leak,
    Life,
    World,
    both,
    build,
    check_canary,
    note,
    redacted,
    rename_life,
    root_branches,
    root_clashes,
    root_deletes,
    root_merges,
    root_renames,
    root_writes,
)
from tests.support.visibility_oracle import node, outcome, plain, text

# -- what ann does -----------------------------------------------------------------------------------------------------


def refused(world: World, call: Callable[[Graph], Any]) -> None:
    """Do what the model says is refused; only the whole graph is asked, since the other hides nothing."""
    try:
        told = call(world.whole.acting_as("ann"))
    except OmniGraphError as error:
        check_canary(error.to_json())
        if error.code in ("policy.denied", "commit.not_found", "branch.in_use", "branch.exists"):
            return
        raise Leak(f"refused with {error.code}: {error.message}") from error
    raise Leak(f"not refused: {plain(told)}")


def excused(world: World, is_hidden: Callable[[], bool], call: Callable[[Graph, int], Any]) -> Any:
    """Do what may be refused without a word if hidden data stands in its way; `root` says whether it can."""
    may_refuse = is_hidden()
    told = outcome(lambda: call(world.whole.acting_as("ann"), 0))
    check_canary(told)
    if may_refuse and isinstance(told, dict) and told.get("refused") == "policy.denied":
        return None
    expected = redacted(outcome(lambda: call(world.small.acting_as("ann"), 1)))
    if told != expected:
        raise Leak(f"ann is told {told} instead of {expected}")
    return told


def ann_branches(world: World) -> None:
    source, name = world.life(), world.free_name()
    commit = world.commit() if world.random.random() < 0.4 else None
    origin = source if commit is None else commit[2]
    how = world.random.choice(["create", "load"]) if commit is None else "create"
    record = node("Person", name=world.fresh("n"), age=1)
    made: list[Any] = []

    def call(graph: Graph, n: int) -> Any:
        if how == "load":
            receipt = graph.ingest([record], branch=name, from_branch=source.name)
            made.append(receipt.commit)
            # A job id is random, and a duration differs from run to run.
            varying = ("job_id", "seconds", "entities_per_second")
            return {key: value for key, value in receipt.to_json().items() if key not in varying}
        return graph.branches.create(name, source.name, at=commit[n] if commit else None).name  # type: ignore[arg-type]

    if world.reveals(origin, name in PROTECTED) or (how == "load" and world.hidden(name in PROTECTED) == "all"):
        refused(world, lambda graph: call(graph, 0))
        return
    told = both(world, "ann", call)
    if "refused" not in told:
        world.lives[name] = Life(name, {name}, origin.has_secrets)
        if made:
            note(world, world.lives[name], *made)


def ann_renames(world: World) -> None:
    life, name = world.side(), world.free_name()
    if life is None:
        return
    crosses = life.is_protected != (name in PROTECTED)
    if crosses and world.hidden(life.is_protected) != "none":
        refused(world, lambda graph: graph.branches.rename(life.name, name))
        return
    both(world, "ann", lambda graph, n: graph.branches.rename(life.name, name).name)
    rename_life(world, life, name)


def ann_deletes(world: World) -> None:
    life = world.life()
    if both(world, "ann", lambda graph, n: graph.branches.delete(life.name)) is None:
        del world.lives[life.name]


def ann_writes(world: World) -> None:
    life, name = world.life(), f"p{world.random.randrange(5)}"
    source = world.random.choice(
        [
            f'query q() {{ update Person set {{ age: {world.random.randrange(90)} }} where name = "{name}" }}',
            f'query q() {{ delete Person where name = "{name}" }}',
            f'query q() {{ insert Person {{ name: "{world.fresh("a")}" }} }}',
        ]
    )
    made: list[Any] = []

    def call(graph: Graph, n: int) -> Any:
        receipt = graph.mutate(source, branch=life.name)
        made.append(receipt.commit)
        return receipt.to_json()

    both(world, "ann", call)
    if made:
        note(world, life, *made)


def ann_merges(world: World) -> None:
    source, target = world.life(), world.life()
    if world.clashing is not None and all(one in world.lives.values() for one in world.clashing):
        (source, target), world.clashing = world.clashing, None
    if source is target:
        return
    is_dry = world.random.random() < 0.3
    made: list[Any] = []

    def call(graph: Graph, n: int) -> Any:
        found = graph.branches.merge(source.name, target.name, dry_run=True).conflicts
        picks = [{"type_key": one.type_key, "entity_id": one.entity_id, "take": "theirs"} for one in found]
        receipt = graph.branches.merge(source.name, target.name, dry_run=is_dry, resolutions=picks)
        made.append(receipt.commit)
        return receipt.to_json()

    if world.reveals(source, target.is_protected):
        refused(world, lambda graph: call(graph, 0))
        return
    if world.random.random() < 0.5:
        _name_hidden(world, source, target, is_dry)
    excused(world, lambda: _clashes(world, source, target) or _starts_hidden(world, source, target), call)
    if len(made) == 2 and not is_dry:
        note(world, target, *made)
        target.has_secrets |= source.has_secrets


def _starts_hidden(world: World, source: Life, target: Life) -> bool:
    """Whether a merge may start from a commit of a branch where more is hidden than on the target."""
    bases = world.whole.branches.merge(source.name, target.name, dry_run=True).bases
    lives = {whole: life for whole, _, life in world.commits}
    main = next(one for one in world.lives.values() if one.name == "main")
    hidden = [world.hidden(lives.get(one, main).is_protected) for one in bases]
    return len(bases) > 1 or any(RANK[one] > RANK[world.hidden(target.is_protected)] for one in hidden)


def ann_meets(world: World) -> None:
    """Merge two open branches whose common commit is a protected one, of which both kept nothing hidden.

    Refused in every policy: the hidden type is in conflict. The branches are taken away again.
    """
    free = [one for one in PROTECTED if one not in world.lives]
    sources = [one for one in world.lives.values() if not one.has_secrets and not one.is_protected]
    if not free or not sources:
        return
    source = min(sources, key=lambda one: one.name).name
    sides = [world.fresh("left"), world.fresh("right")]
    secret, middle = free[0], world.fresh("middle") if world.random.random() < 0.5 else None
    for name, from_ in [*((one, source) for one in (*sides, secret)), *([(middle, sides[0])] if middle else [])]:
        world.whole.branches.create(name, from_)
        value = CANARY if name == secret else name
        people = [node("Person", name=f"p-{name}")]
        world.whole.ingest([*people, node("Salary", slip="met", amount=1, note=value)], branch=name)
    for side in sides:
        for other in (one for one in (secret, middle) if one):
            _merge_taking(world, other, side, "ours")
    met = {"type_key": "node:Salary", "entity_id": "met"}
    guess = {"base": {"id": "met", "slip": "met", "amount": 1, "note": CANARY}}
    options: list[list[dict[str, Any]]] = [[], [{**met, "take": "base"}], [{**met, "take": "ours", **guess}]]
    left, right = world.random.sample(sides, 2)
    for is_dry in (True, False):
        _refuse_met(world, left, right, is_dry, world.random.choice(options))
    for name in (one for one in (middle, *sides, secret) if one):
        world.whole.branches.delete(name)


def _refuse_met(world: World, source: str, target: str, is_dry: bool, picks: list[dict[str, Any]]) -> None:
    if picks and world.hidden(False) != "none":
        # The type that the resolution names is hidden on both sides: as if it were not there.
        told = outcome(
            lambda: world.whole.acting_as("ann").branches.merge(source, target, dry_run=is_dry, resolutions=picks)
        )
        if not isinstance(told, dict) or told.get("refused") != "merge.resolution":
            raise Leak(f"a resolution of a hidden type is taken: {told}")
        return
    refused(world, lambda graph: graph.branches.merge(source, target, dry_run=is_dry, resolutions=picks))


def _merge_taking(world: World, source: str, target: str, side: str) -> None:
    preview = world.whole.branches.merge(source, target, dry_run=True)
    picks = [{"type_key": one.type_key, "entity_id": one.entity_id, "take": side} for one in preview.conflicts]
    world.whole.branches.merge(source, target, resolutions=picks)


def _clashes(world: World, source: Life, target: Life) -> bool:
    """Whether the sides differ in hidden types in a way that stands in the way of a merge."""
    preview = world.whole.branches.merge(source.name, target.name, dry_run=True)
    return any(one.type_key in ("node:Salary", "edge:Paid") for one in preview.conflicts)


def _name_hidden(world: World, source: Life, target: Life, is_dry: bool) -> None:
    """Name a hidden type in a resolution: as if it were one that does not exist, and nothing is written."""
    slip = f"{CANARY}-same"
    picked: dict[str, Any] = world.random.choice(
        [{"take": "theirs"}, {"row": {"slip": slip, "amount": 1}}, {"row": {"x": 1}}]
    )
    ann, told = world.whole.acting_as("ann"), []
    before = world.whole.snapshot(target.name).head
    preview = world.whole.branches.merge(source.name, target.name, dry_run=True).conflicts
    seen = [one for one in preview if one.type_key in ("node:Person", "edge:Knows")]
    others = [{"type_key": one.type_key, "entity_id": one.entity_id, "take": "theirs"} for one in seen]
    for name in ("Salary", "Nothing"):
        given = [{"type_key": f"node:{name}", "entity_id": slip, **picked}, *others]
        merge = partial(ann.branches.merge, source.name, target.name, dry_run=is_dry, resolutions=given)
        answer = outcome(lambda merge=merge: merge().to_json())  # type: ignore[misc]
        told.append(str(answer).replace(name, "X"))
    if told[0] != told[1] or world.whole.snapshot(target.name).head != before:
        raise Leak(f"a resolution of a hidden type is taken, or told apart: {told}")


def ann_replays(world: World) -> None:
    whole, small, life = world.commit()
    target = world.life()
    method = world.random.choice(["revert", "cherry_pick"])
    made: list[Any] = []

    def call(graph: Graph, n: int) -> Any:
        receipt = getattr(graph, method)((whole, small)[n], target.name)
        made.append(receipt.commit)
        return receipt.to_json()

    if world.reveals(life, target.is_protected) or world.hidden(target.is_protected) == "all":
        refused(world, lambda graph: call(graph, 0))
        return

    def touches_hidden() -> bool:
        touched = CANARY in str(world.whole.commit_changes(whole).to_json())
        return touched or _replay_clashes(world, method, whole, target)

    excused(world, touches_hidden, call)
    if len(made) == 2:
        note(world, target, *made)
        target.has_secrets |= life.has_secrets


def _replay_clashes(world: World, method: str, commit: str, target: Life) -> bool:
    try:
        preview = getattr(world.whole, method)(commit, target.name, dry_run=True)
    except OmniGraphError:
        return False
    return any(one.type_key in ("node:Salary", "edge:Paid") for one in preview.conflicts)


def ann_tags(world: World) -> None:
    name, (whole, small, _) = world.fresh("v"), world.commit()
    branch = world.life().name
    both(world, "ann", lambda graph, n: graph.tags.create(name, (whole, small)[n]).name)
    both(world, "ann", lambda graph, n: graph.query(PEOPLE, at=name, branch=branch).rows())
    both(world, "root", lambda graph, n: graph.tags.delete(name))


# -- what ann sees -----------------------------------------------------------------------------------------------------


def look(world: World, count: int) -> None:
    """Compare some of the ways to read, on a branch and at a commit of any branch, deleted ones included."""
    life, (whole, small, origin) = world.life(), world.commit()
    ids = (whole, small)
    ways: dict[str, Callable[[Graph, int], Any]] = {
        "people": lambda graph, n: graph.query(PEOPLE, branch=life.name).rows(),
        "known": lambda graph, n: graph.query(KNOWN, branch=life.name).rows(),
        "past": lambda graph, n: graph.query(PEOPLE, branch=life.name, at=ids[n]).rows(),
        "commits": lambda graph, n: [commit.to_json() for commit in graph.commits(life.name)],
        "commit": lambda graph, n: graph.commit(ids[n]).to_json(),
        "branches": lambda graph, n: graph.branches.list(),
        "tags": lambda graph, n: [one.name for one in graph.tags.list()],
        "diff": lambda graph, n: graph.diff(ids[n], life.name, types=["Person"], branch=life.name).to_json(),
        "export": lambda graph, n: text(graph.export(life.name, types=["Person", "Knows"])),
        "baseline": lambda graph, n: text(graph.baseline(life.name, types=["Person"])),
        "operation": lambda graph, n: graph.operation(ids[n]).outcome,
    }
    # Where nothing is hidden from ann, the whole graph shows it types that the other does not have.
    if world.hidden(life.is_protected) != "none":
        ways |= {
            "snapshot": lambda graph, n: graph.snapshot(life.name).to_json(),
            "whole export": lambda graph, n: text(graph.export(life.name)),
            "pay": lambda graph, n: graph.query(PAY, branch=life.name).rows(),
            "feed": lambda graph, n: graph.changes(life.name, start="beginning").to_json(),
            "window": lambda graph, n: [
                commit.to_json()
                for commit in public_commits(session_of(graph), graph.snapshot(life.name).state.commits)
            ],
        }
    else:
        pay = outcome(lambda: world.whole.acting_as("ann").query(PAY, branch=life.name).rows())
        if pay != []:
            raise Leak(f"ann reads {pay} on {life}")
    told = outcome(lambda: world.whole.acting_as("ann").commit_changes(whole).to_json())
    if isinstance(told, dict) and "schema" in told:
        raise Leak(f"types seem to come or go with a commit of {origin}: {told}")
    if world.hidden(origin.is_protected) != "none":
        ways["changes"] = lambda graph, n: graph.commit_changes(ids[n]).to_json()
        ways["pay past"] = lambda graph, n: graph.query(PAY, branch=life.name, at=ids[n], names="then").rows()
    if world.hidden(origin.is_protected) == "all":
        _compare_absent(world, life, whole)
    if world.hidden(life.is_protected) == "all":
        refused(world, lambda graph: graph.query(PEOPLE, branch=life.name).rows())
    for name in world.random.sample(sorted(ways), min(count, len(ways))):
        both(world, "ann", ways[name])


def _compare_absent(world: World, life: Life, commit: str) -> None:
    """Hold a commit that may not be read against one that is not there."""
    ann = world.whole.acting_as("ann")
    for call in (
        lambda one: ann.query(PEOPLE, branch=life.name, at=one).rows(),
        lambda one: ann.commit(one).commit_id,
        lambda one: ann.commit_changes(one).to_json(),
        lambda one: ann.branches.create("x", at=one).name,
        lambda one: ann.cherry_pick(one, "open").to_json(),
    ):
        told = [str(outcome(lambda one=one: call(one))).replace(one, "ID") for one in (commit, NOWHERE)]  # type: ignore[misc] # noqa: B023
        if told[0] != told[1]:
            raise Leak(f"a commit that may not be read is told apart: {told}")


STEPS: Final[dict[str, Callable[[World], None]]] = {
    "root writes": root_writes,
    "root clashes": root_clashes,
    "root branches": root_branches,
    "root renames": root_renames,
    "root deletes": root_deletes,
    "root merges": root_merges,
    "ann branches": ann_branches,
    "ann renames": ann_renames,
    "ann deletes": ann_deletes,
    "ann writes": ann_writes,
    "ann merges": ann_merges,
    "ann meets": ann_meets,
    "ann replays": ann_replays,
    "ann tags": ann_tags,
}


def run(
    root: Path, policy: str, seed: int, length: int = 12, script: tuple[str, ...] = (), looks: int = 4
) -> list[str]:
    """Run a history that begins with a script, and return its steps; `Leak` if it shows what it should not."""
    world = build(root, policy, seed)
    done: list[str] = []
    try:
        for number in range(max(length, len(script))):
            done.append(script[number] if number < len(script) else world.random.choice(sorted(STEPS)))
            STEPS[done[-1]](world)
            look(world, looks)
    except StopIteration:
        pass
    except Leak as leak:
        raise Leak(f"policy `{policy}`, seed {seed}, after {done}: {leak}") from leak
    finally:
        world.whole.close()
        world.small.close()
    return done
