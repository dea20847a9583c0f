"""A graph and its model, doing the same random things: writes, branches, merges, decisions, renames, deletes, tags."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import omnigraph as og
from omnigraph.errors import GraphError, MergeConflict
from omnigraph.graph import Graph
from omnigraph.manifest.model import Commit as Published
from tests.engine import dagmodel
from tests.engine.dagmodel import EDGE, NODE, Commit, Conflict, History, Rows, State

SCHEMA = """
node P { k: String @key  u: String? @unique  a: I32?  b: I32?  hi: I32? @merge(max)  tags: [I32]? @merge(union) }
edge E: P -> P { w: I32? }
"""
START = b"""
{"type":"P","data":{"k":"p0","a":0,"b":0,"hi":0,"tags":[0]}}
{"type":"P","data":{"k":"p1","a":1,"u":"x"}}
{"type":"P","data":{"k":"p2"}}
{"edge":"E","from":"p0","to":"p1","data":{"id":"e0","w":0}}
"""
PEOPLE, BONDS = [f"p{number}" for number in range(4)], [f"e{number}" for number in range(4)]
VALUES: dict[str, list[Any]] = {
    "u": [None, None, "x", "y"],
    "a": [None, 0, 1, 2],
    "b": [None, 0, 1, 2],
    "hi": [None, 1, 2, 3],
    "tags": [None, [], [0], [0, 1], [2]],
}
ACTIONS = {"write": 10, "branch": 4, "merge": 9, "rename": 1, "delete": 2, "tag": 1}


def template(root: Path) -> Path:
    """Make the graph that every world starts as."""
    with og.init(root / "start.omni", SCHEMA) as graph:
        graph.ingest(START, mode="append")
    return root / "start.omni"


class World:
    """One graph beside its model; a seed says what happens to both."""

    def __init__(self, start: Path, root: Path, seed: int) -> None:
        # A graph without branches holds no absolute paths, so a copy is as good as a new one.
        self.graph: Graph = og.open(shutil.copytree(start, root))
        self.random = Random(seed)
        self.log = [f"seed {seed}"]
        self.names = iter(f"n{number}" for number in range(1_000))
        self.catalog = self.graph.core.view().catalog
        self.model = History(births={"main": "main"}, origins={"main": ""})
        self.merges = {"already_up_to_date": 0, "fast_forward": 0, "merged": 0, "conflicted": 0, "decided": 0}
        for commit in reversed(self.graph.commits()):
            state = content(self.graph, at=commit.commit_id)
            self.model.add("main", Commit(commit.commit_id, commit.manifest_version, parents(commit), state))

    def run(self, steps: int) -> None:
        """Do some random things; then every branch, tag and commit must be what the model says."""
        # Two branches that both change are what makes merges worth the name.
        for action in ("branch", "write", "write"):
            getattr(self, action)()
        for _ in range(steps):
            [action] = self.random.choices(list(ACTIONS), list(ACTIONS.values()))
            getattr(self, action)()
        self.check()

    # -- what happens -------------------------------------------------------------------------------------------

    def write(self) -> None:
        branch = self._branch()
        state = {key: dict(rows) for key, rows in self.model.state(branch).items()}
        change = self.random.choice([self._put, self._put, self._put, self._remove])
        published = change(branch, state)
        if published is not None:
            self._publish(branch, published, state)

    def branch(self) -> None:
        if len(self.model.branches) > 4:
            return
        source = self._branch()
        ways = [source, self.model.branches[source], *self.model.tags]
        from_ = self.random.choice(ways)
        name = next(self.names)
        self.log.append(f"branch {name} from {from_}")
        self.graph.branches.create(name, from_)
        commit_id = self.model.tags.get(from_, self.model.branches[source])
        self.model.branches[name] = commit_id
        # A commit or tag leads to the branch on which that commit was made.
        origin = self.model.births[source] if from_ == source else self.model.homes[commit_id]
        self.model.births[name], self.model.origins[name] = name, origin

    def merge(self) -> None:
        source, into = self._branch(), self._branch()
        if source == into:
            return
        ours, theirs = self.model.branches[into], self.model.branches[source]
        self.log.append(f"merge {source} into {into}")
        if theirs in self.model.distances(ours):
            self._expect_nothing(source, into)
            return
        is_forward = ours in self.model.distances(theirs)
        bases = {ours} if is_forward else self.model.bases(ours, theirs)
        dry = self.graph.branches.merge(source, into, dry_run=True)
        assert dry.base in bases, f"base {dry.base} is none of {bases}"
        states = (self.model.commits[str(dry.base)].state, self.model.state(into), self.model.state(source))
        expected, conflicts = dagmodel.merge(self.catalog, *states)
        if is_forward:
            expected, conflicts = states[2], set()
        assert told(dry.conflicts) == shape(conflicts), (dry.conflicts, conflicts)
        if conflicts:
            self._refused(source, into, conflicts)
            self._decide(source, into, states, conflicts)
            return
        receipt = self.graph.branches.merge(source, into)
        # A fast forward does not look at what it takes over, so it counts less than its dry run.
        assert is_forward or receipt.types == dry.types
        assert receipt.outcome == dry.outcome == ("fast_forward" if is_forward else "merged")
        self.merges[receipt.outcome] += 1
        self._merged(into, receipt.commit, (ours, theirs), expected)

    def rename(self) -> None:
        name, fresh = self._branch(), next(self.names)
        if name == "main":
            return
        self.log.append(f"rename {name} to {fresh}")
        self.graph.branches.rename(name, fresh)
        for named in (self.model.branches, self.model.births, self.model.origins):
            named[fresh] = named.pop(name)

    def delete(self) -> None:
        name = self._branch()
        self.log.append(f"delete {name}")
        refusal = None
        try:
            self.graph.branches.delete(name)
        except GraphError as error:
            refusal = error.code
        assert refusal == (None if self.model.may_delete(name) else "branch.in_use")
        if refusal is None:
            del self.model.branches[name], self.model.origins[name]

    def tag(self) -> None:
        branch, name = self._branch(), next(self.names)
        self.log.append(f"tag {name} on {branch}")
        self.graph.tags.create(name, branch=branch)
        self.model.tags[name] = self.model.branches[branch]

    # -- what must hold -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Hold every name, and the state of every commit that one of them leads to, against the model."""
        assert self.graph.branches.list() == sorted(self.model.branches)
        assert {tag.name: tag.commit_id for tag in self.graph.tags.list()} == self.model.tags
        for branch, commit_id in self.model.branches.items():
            assert self.graph.snapshot(branch).head == commit_id, branch
            assert content(self.graph, branch) == self.model.state(branch), branch
            assert {one.commit_id for one in self.graph.commits(branch)} == self.model.distances(commit_id).keys()
        for name, commit_id in self.model.tags.items():
            assert content(self.graph, at=name) == self.model.commits[commit_id].state, name

    def _expect_nothing(self, source: str, into: str) -> None:
        receipt = self.graph.branches.merge(source, into)
        assert (receipt.outcome, receipt.commit) == ("already_up_to_date", None)
        self.merges[receipt.outcome] += 1

    def _refused(self, source: str, into: str, conflicts: set[Conflict]) -> None:
        try:
            self.graph.branches.merge(source, into)
        except MergeConflict as error:
            found = error.context["conflicts"]
            assert isinstance(found, list)
            assert {one["kind"] for one in found} == {kind for kind, _, _ in conflicts}
        else:
            raise AssertionError(f"merged in spite of {conflicts}")
        assert self.graph.snapshot(into).head == self.model.branches[into]
        self.merges["conflicted"] += 1

    def _decide(self, source: str, into: str, states: tuple[State, State, State], conflicts: set[Conflict]) -> None:
        """Settle what both sides did; what breaks a rule is left to writes that come later."""
        if any(kind.endswith(("Edge", "Violation")) for kind, _, _ in conflicts):
            return
        decisions = {(key, entity): self.random.choice(["ours", "theirs"]) for _, key, entity in sorted(conflicts)}
        given = [{"type_key": key, "entity_id": one, "take": side} for (key, one), side in decisions.items()]
        expected, wrong = dagmodel.merge(self.catalog, *dagmodel.decide(self.catalog, states, decisions))
        self.log.append(f"decide {decisions}")
        parents_ = (self.model.branches[into], self.model.branches[source])
        try:
            receipt = self.graph.branches.merge(source, into, resolutions=given)
        except MergeConflict as error:
            found = error.context["conflicts"]
            assert isinstance(found, list)
            assert {one["kind"] for one in found} == {kind for kind, _, _ in wrong}
            return
        assert not wrong
        self.merges["decided"] += 1
        self._merged(into, receipt.commit, parents_, expected)

    def _merged(self, into: str, commit: Published | None, expected: tuple[str, str], state: State) -> None:
        assert commit is not None
        assert parents(commit) == expected
        self._publish(into, commit, state)
        assert content(self.graph, into) == state

    # -- the pieces ---------------------------------------------------------------------------------------------

    def _branch(self) -> str:
        return self.random.choice(sorted(self.model.branches))

    def _publish(self, branch: str, commit: Published, state: State) -> None:
        self.model.add(branch, Commit(commit.commit_id, commit.manifest_version, parents(commit), state))

    def _put(self, branch: str, state: dict[str, Rows]) -> Published | None:
        """Insert or change a person or two, and perhaps a bond."""
        lines: list[dict[str, Any]] = []
        for name in self.random.sample(PEOPLE, self.random.randint(1, 2)):
            row = state[NODE].get(name) or {"k": name, **dict.fromkeys(VALUES)}
            for column in self.random.sample(sorted(VALUES), 2):
                row = row | {column: self.random.choice(VALUES[column])}
            state[NODE][name] = row
            lines.append({"type": "P", "data": row})
        if dagmodel.duplicates(state[NODE]):
            return None
        if self.random.random() < 0.6:
            ends = {end: self.random.choice(sorted(state[NODE])) for end in ("src", "dst")}
            bond, row = self.random.choice(BONDS), {**ends, "w": self.random.choice(VALUES["a"])}
            state[EDGE][bond] = row
            lines.append({"edge": "E", "from": row["src"], "to": row["dst"], "data": {"id": bond, "w": row["w"]}})
        self.log.append(f"put on {branch}: {lines}")
        return self.graph.ingest(lines, mode="merge", branch=branch).commit

    def _remove(self, branch: str, state: dict[str, Rows]) -> Published | None:
        """Delete a person with all bonds, or all bonds of a weight."""
        if self.random.random() < 0.6 and state[NODE]:
            name = self.random.choice(sorted(state[NODE]))
            body = f'delete P where k = "{name}"'
            del state[NODE][name]
            gone = [one for one, row in state[EDGE].items() if name in (row["src"], row["dst"])]
        else:
            source = self.random.choice(PEOPLE)
            body = f'delete E where from = "{source}"'
            gone = [one for one, row in state[EDGE].items() if row["src"] == source]
        for one in gone:
            del state[EDGE][one]
        self.log.append(f"remove on {branch}: {body}")
        return self.graph.mutate(f"query q() {{ {body} }}", branch=branch).commit


def content(graph: Graph, branch: str = "main", at: str | None = None) -> State:
    """Return all that a reader sees of a state."""
    view = graph.core.view(branch, at)
    found = {}
    for key in (NODE, EDGE):
        rows = view.dataset(key).lance.to_table().to_pylist()
        found[key] = {row.pop("id"): row for row in rows}
        assert len(found[key]) == len(rows), "one id twice"
    return found


def parents(commit: Published) -> tuple[str, ...]:
    return tuple(one for one in (commit.parent, commit.merged_parent) if one is not None)


def told(conflicts: Any) -> set[tuple[str, str, str | None]]:
    """Return conflicts of a receipt. Of values that are not unique only the type, since any holder may be named."""
    return shape({(one.kind.value, one.type_key, one.entity_id) for one in conflicts})


def shape(conflicts: set[Conflict]) -> set[tuple[str, str, str | None]]:
    return {(kind, key, None if kind == "UniqueViolation" else entity) for kind, key, entity in conflicts}
