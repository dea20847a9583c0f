"""The world of two actors: the model of its branches, the two graphs, and what `root` does, which is always allowed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import omnigraph as og
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph
from omnigraph.policy import Policy, load_bundle
from tests.support.visibility_oracle import edge, node, outcome

VISIBLE: Final = """node Person { name: String @key
  age: I32? }
edge Knows: Person -> Person
"""
HIDDEN: Final = """node Salary { slip: String @key
  amount: I32
  note: String? }
edge Paid: Salary -> Person
"""
# No answer to `ann` may hold this: every hidden value begins so.
CANARY: Final = "canary"
PROTECTED: Final = ("main", "secret", "vault")
OPEN: Final = ("open", "idea", "draft")
NOWHERE: Final = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
_RIGHTS: Final = "branch_create, branch_delete, branch_merge, tag_create, tag_delete"
_HEAD: Final = f"""
version: 1
groups: {{chiefs: [root], team: [ann]}}
protected_branches: [{", ".join(PROTECTED)}]
rules:
  - {{id: r1, allow: {{actors: {{group: chiefs}}, actions: [read, export, change]}}}}
  - {{id: r2, allow: {{actors: {{group: chiefs}}, actions: [{_RIGHTS}]}}}}
  - {{id: a0, allow: {{actors: {{group: team}}, actions: [{_RIGHTS}]}}}}
"""


def _rule(rule_id: str, limits: str) -> str:
    allow = f"{{actors: {{group: team}}, actions: [read, export, change], {limits}}}"
    return f"  - {{id: {rule_id}, allow: {allow}}}\n"


_UNPROTECTED: Final = _rule("a2", "branch_scope: unprotected")
# The rules, and what they hide from `ann` on protected branches and on others: some types, all of them, or nothing.
POLICIES: Final = {
    "types": (_rule("a1", "types: [Person, Knows, Paid]"), "some", "some"),
    "protected types": (
        _rule("a1", "types: [Person, Knows], branch_scope: protected") + _UNPROTECTED,
        "some",
        "none",
    ),
    "unprotected": (_UNPROTECTED, "all", "none"),
}
RANK: Final = {"none": 0, "some": 1, "all": 2}
PEOPLE: Final = "query q() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"
KNOWN: Final = "query q() { match { $p: Person $p knows $q } return { $p.name, $q.name } order { $p.name, $q.name } }"
PAY: Final = "query q() { match { $s: Salary } return { $s.slip, $s.amount } order { $s.slip } }"


class Leak(AssertionError):
    """The actor was told what it must not know, or otherwise than it should be."""


@dataclass
class Life:
    """One incarnation of a branch, as the definition sees it."""

    name: str
    names: set[str]
    # Whether it may hold hidden rows: then `root` does not take it anywhere that is not protected.
    has_secrets: bool

    @property
    def is_protected(self) -> bool:
        return not self.names.isdisjoint(PROTECTED)


@dataclass
class World:
    """The two graphs, and what the definition knows of their history."""

    whole: Graph
    small: Graph
    policy: Policy
    hides: tuple[str, str]
    random: Random
    lives: dict[str, Life] = field(default_factory=dict)
    # Every commit in both graphs, and the life that it was made on.
    commits: list[tuple[str, str, Life]] = field(default_factory=list)
    serial: int = 0
    # Two branches that `root` let clash in hidden types.
    clashing: tuple[Life, Life] | None = None

    def hidden(self, is_protected: bool) -> str:
        return self.hides[0] if is_protected else self.hides[1]

    def reveals(self, source: Life, is_protected: bool) -> bool:
        """Whether `ann` would carry something hidden to where it is shown, or reads nothing at the source."""
        there, here = self.hidden(source.is_protected), self.hidden(is_protected)
        return there == "all" or RANK[there] > RANK[here]

    def fresh(self, prefix: str) -> str:
        self.serial += 1
        return f"{prefix}{self.serial}"

    def life(self) -> Life:
        return self.random.choice(sorted(self.lives.values(), key=lambda one: one.name))

    def side(self) -> Life | None:
        """Return a branch that is not main; None if there is none."""
        sides = sorted((one for one in self.lives.values() if one.name != "main"), key=lambda one: one.name)
        return self.random.choice(sides) if sides else None

    def commit(self) -> tuple[str, str, Life]:
        """Return any commit, of a branch that is gone as often as of the others."""
        gone = [one for one in self.commits if one[2] not in self.lives.values()]
        return self.random.choice(gone if gone and self.random.random() < 0.5 else self.commits)

    def free_name(self) -> str:
        taken = {one.name for one in self.lives.values()}
        return self.random.choice([one for one in (*PROTECTED, *OPEN) if one not in taken] or [self.fresh("more")])


def build(root: Path, policy: str, seed: int) -> World:
    """Begin a history: an empty graph, a branch of it that anybody reads, and people with salaries on main."""
    rules, protected, others = POLICIES[policy]
    bundle = load_bundle(_HEAD + rules)
    graphs: list[Graph] = []
    for name, schema in (("whole", VISIBLE + HIDDEN), ("small", VISIBLE)):
        path = root / f"{name}.omni"
        template = root.parent / f"template-{name}.omni"
        if not template.exists():
            og.init(template, schema, actor="root").close()
        shutil.copytree(template, path)
        graphs.append(og.open(path, actor="root", policy=bundle))
    whole, small = graphs
    world = World(whole, small, bundle, (protected, others), Random(seed))
    world.lives = {"main": Life("main", {"main"}, True), "open": Life("open", {"open"}, False)}
    for graph in graphs:
        graph.branches.create("open")
    write(world, world.lives["main"])
    write(world, world.lives["main"])
    return world


def both(world: World, actor: str, call: Callable[[Graph, int], Any]) -> Any:
    """Do one thing to both graphs; what is told must be the same."""
    told = [
        outcome(partial(call, graph.acting_as(actor), number))
        for number, graph in enumerate((world.whole, world.small))
    ]
    if actor == "ann":
        check_canary(told[0])
        told[1] = redacted(told[1])
    if told[0] != told[1]:
        raise Leak(f"{actor} is told {told[0]} instead of {told[1]}")
    return told[0]


def redacted(told: Any) -> Any:
    """Return what is told where nothing is hidden, but what is never told where something is; see docs/policy.md."""
    if isinstance(told, dict):
        return {name: redacted(one) for name, one in told.items() if name != "adopted_forks"}
    return [redacted(one) for one in told] if isinstance(told, list) else told


def check_canary(told: object) -> None:
    if CANARY in str(told):
        raise Leak(f"ann is told {told}")


# -- what root does, which the model allows always ---------------------------------------------------------------------


def note(world: World, life: Life, whole: Any, small: Any) -> None:
    """Remember a commit of both graphs."""
    if (whole is None) != (small is None):
        raise Leak(f"only one of the graphs has a commit: {whole}, {small}")
    if whole is not None:
        world.commits.append((whole.commit_id, small.commit_id, life))


def write(world: World, life: Life, *, is_clash: bool = False) -> None:
    """Add and change people, and on branches for secrets salaries: always something that everybody sees."""
    random = world.random
    names = [f"p{random.randrange(4)}" for _ in range(2)]
    people = [node("Person", name=name, age=random.randrange(90)) for name in sorted(set(names))]
    known = [edge("Knows", world.fresh("k"), names[0], names[1])]
    records, hidden = [*people, *known], []
    if life.has_secrets:
        slip = f"{CANARY}{'-same' if is_clash else world.fresh('-')}"
        hidden = [
            node("Salary", slip=slip, amount=random.randrange(10**6)),
            edge("Paid", world.fresh(CANARY), slip, names[0]),
        ]
    whole = world.whole.ingest([*records, *hidden], branch=life.name)
    small = world.small.ingest(records, branch=life.name)
    note(world, life, whole.commit, small.commit)


def root_writes(world: World) -> None:
    write(world, world.life(), is_clash=world.random.random() < 0.5)


def root_clashes(world: World) -> None:
    """Give one salary two values, on main and on a branch of it."""
    sides = sorted(
        (one for one in world.lives.values() if one.has_secrets and one.name != "main"), key=lambda one: one.name
    )
    if sides:
        side, main = world.random.choice(sides), world.lives["main"]
        for life in (side, main):
            write(world, life, is_clash=True)
        world.clashing = (side, main)


def root_branches(world: World) -> None:
    source, name = world.life(), world.free_name()
    if source.has_secrets and name not in PROTECTED:
        return
    for graph in (world.whole, world.small):
        graph.branches.create(name, source.name)
    world.lives[name] = Life(name, {name}, source.has_secrets)


def root_renames(world: World) -> None:
    life, name = world.side(), world.free_name()
    if life is None:
        return
    for graph in (world.whole, world.small):
        graph.branches.rename(life.name, name)
    rename_life(world, life, name)


def rename_life(world: World, life: Life, name: str) -> None:
    del world.lives[life.name]
    life.name = name
    life.names.add(name)
    world.lives[name] = life


def root_deletes(world: World) -> None:
    life = world.side()
    if life is None:
        return
    told = both(world, "root", lambda graph, _: graph.branches.delete(life.name))
    if told is None:
        del world.lives[life.name]


def root_merges(world: World) -> None:
    source, target = world.life(), world.life()
    if source is target or (source.has_secrets and not target.has_secrets):
        return
    receipts: list[Any] = []
    for graph in (world.whole, world.small):
        preview = graph.branches.merge(source.name, target.name, dry_run=True)
        picks = [{"type_key": one.type_key, "entity_id": one.entity_id, "take": "theirs"} for one in preview.conflicts]
        try:
            receipts.append(graph.branches.merge(source.name, target.name, resolutions=picks))
        except OmniGraphError:
            receipts.append(None)
    if (receipts[0] is None) != (receipts[1] is None):
        # The sides clash in what only one of the graphs has: the history ends here.
        raise StopIteration
    if receipts[0] is not None:
        note(world, target, receipts[0].commit, receipts[1].commit)
