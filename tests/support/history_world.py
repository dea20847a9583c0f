"""A graph and its model, doing the same random things: writes, branches, merges also crosswise, decisions, reverts,
cherry-picks, schema changes, renames, deletes, tags, upkeep."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import omnigraph as og
from omnigraph.errors import GraphError, MergeConflict, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.schema import compile_schema
from omnigraph.public_values import Commit as Published
from omnigraph.public_values import MergeReceipt
from tests.support import history_model
from tests.support.history_model import Commit, Conflict, History, Rows, State
from tests.support.merge_base_model import Unknown
from tests.support.merge_model import merge_states
from tests.support.schema_merge_model import DOMAIN

# `{}` is where schema changes happen.
SCHEMA = """
node P {{
  k: String @key  u: String? @unique  a: I32?  b: I32?  hi: I32? @merge(max)  mine: I32? @merge(ours)
  tags: [I32]? @merge(union) {}
}}
node Q @merge(theirs) {{ k: String @key  a: I32? }}
edge E: P -> P {{ w: I32? }}
edge F: P -> Q {{ w: I32?  v: I32? @merge(min) }}
"""
START = b"""
{"type":"P","data":{"k":"p0","a":0,"b":0,"hi":0,"tags":[0]}}
{"type":"P","data":{"k":"p1","a":1,"u":"x"}}
{"type":"P","data":{"k":"p2"}}
{"type":"Q","data":{"k":"q0"}}
{"edge":"E","from":"p0","to":"p1","data":{"id":"e0","w":0}}
{"edge":"F","from":"p1","to":"q0","data":{"id":"f0","w":0}}
"""
NODES = {"P": [f"p{number}" for number in range(4)], "Q": [f"q{number}" for number in range(2)]}
EDGES = {"E": ("P", "P"), "F": ("P", "Q")}
NUMBERS = [None, 0, 1, 2]
VALUES: dict[str, list[Any]] = {
    "u": [None, None, "x", "y"],
    "hi": [None, 1, 2, 3],
    "tags": [None, [], [0], [0, 1], [2]],
}
ACTIONS = {
    "write": 10,
    "branch": 4,
    "merge": 8,
    "cross": 2,
    "orphan": 1,
    "revert": 1,
    "pick": 1,
    "upkeep": 1,
    "rename": 1,
    "delete": 2,
    "tag": 1,
    "schema": 3,
}
OUTCOMES = (
    *("already_up_to_date", "fast_forward", "merged", "conflicted", "decided", "overruled", "crossed", "replayed"),
    *("schema", "schema_conflict"),
)


def template(root: Path) -> Path:
    """Make the graph that every world starts as."""
    with og.init(root / "start.omni", SCHEMA.format("")) as graph:
        graph.ingest(START, mode="append")
    return root / "start.omni"


class World:
    """One graph beside its model; a seed says what happens to both."""

    def __init__(self, start: Path, root: Path, seed: int, *, verifies: bool = False) -> None:
        # A graph without branches holds no absolute paths, so a copy is as good as a new one.
        self.graph: Graph = og.open(shutil.copytree(start, root))
        self.random = Random(seed)
        self.verifies = verifies
        self.log = [f"seed {seed}"]
        self.names = iter(f"n{number}" for number in range(1_000))
        self.catalog = session_of(self.graph).view().catalog
        self.extras: list[str] = []
        self.model = History(births={"main": "main"}, origins={"main": ""})
        self.merges = Counter(dict.fromkeys(OUTCOMES, 0))
        for commit in reversed(self.graph.commits()):
            state = content(self.graph, at=commit.commit_id)
            self._publish("main", commit, state)

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

    def write(self, branch: str | None = None) -> None:
        branch = branch or self._branch()
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
        self._create(source, self.random.choice(ways))

    def _create(self, source: str, from_: str) -> str:
        name = next(self.names)
        self.log.append(f"branch {name} from {from_}")
        self.graph.branches.create(name, from_)
        commit_id = self.model.tags.get(from_, self.model.branches[source])
        self.model.branches[name] = commit_id
        # A commit or tag leads to the branch on which that commit was made.
        origin = self.model.births[source] if from_ == source else self.model.homes[commit_id]
        self.model.births[name], self.model.origins[name] = name, origin
        return name

    def cross(self) -> None:
        """Let two branches change, and merge each into the other as it was before its own merge."""
        if len(self.model.branches) < 2 or len(self.model.branches) > 5:
            return
        one, two = self.random.sample(sorted(self.model.branches), 2)
        for branch in (one, two, one, two):
            self.write(branch)
        before = self._create(one, one)
        self.merge(two, one)
        self.merge(before, two)
        self.delete(before)

    def orphan(self) -> None:
        """Let one branch delete a node, another one tie a bond to it, and merge them."""
        one, two = self._branch(), self._branch()
        common = sorted(self.model.state(one)["node:P"].keys() & self.model.state(two)["node:P"].keys())
        if one == two or not common:
            return
        name = self.random.choice(common)
        for branch, change in ((one, self._delete_node), (two, self._tie)):
            state = {key: dict(rows) for key, rows in self.model.state(branch).items()}
            published = change(branch, state, name)
            assert published is not None
            self._publish(branch, published, state)
        self.merge(two, one)

    def merge(self, source: str | None = None, into: str | None = None) -> None:
        source, into = source or self._branch(), into or self._branch()
        if source == into:
            return
        ours, theirs = self.model.branches[into], self.model.branches[source]
        self.log.append(f"merge {source} into {into}")
        if theirs in self.model.past(ours):
            self._expect_nothing(source, into)
            return
        bases = self.model.bases([ours], theirs)
        is_forward = bases == [ours]
        dry = self.graph.branches.merge(source, into, dry_run=True)
        assert list(dry.bases) == bases, f"bases {dry.bases} instead of {bases}"
        base = self.model.base(self.catalog, [ours], theirs)
        assert base is not None
        self.merges["crossed"] += len(bases) > 1
        states = (base, self.model.state(into), self.model.state(source))
        schema = self._merged_schema([ours], theirs)

        def run(**options: Any) -> MergeReceipt:
            return self.graph.branches.merge(source, into, **options)

        if schema is None:
            assert {one.kind.value for one in dry.conflicts} == _kinds(run) == {"DivergentSchema"}
            self.merges["schema_conflict"] += 1
            return
        self.merges["schema"] += schema != self.model.schema(into)
        if is_forward:
            receipt = run()
            # A fast forward does not look at what it takes over, so it counts less than its dry run.
            assert receipt.outcome == dry.outcome == "fast_forward"
            self.merges["fast_forward"] += 1
            self._applied(into, receipt.commit, (ours, theirs), states[2], schema)
            return
        merged = self._apply(into, states, (ours, theirs), run, schema)
        assert merged is None or merged.outcome == "merged"

    def revert(self) -> None:
        branch = self._branch()
        past = self.model.past(self.model.branches[branch])
        self._replay(branch, self.random.choice([one for one in self.model.commits if one in past]), "revert")

    def pick(self) -> None:
        self._replay(self._branch(), self.random.choice(list(self.model.commits)), "cherry_pick")

    def _replay(self, branch: str, commit_id: str, kind: str) -> None:
        commit = self.model.commits[commit_id]
        if not commit.parents:
            return
        parent = self.model.commits[commit.parents[0]]
        self.log.append(f"{kind} {commit_id} on {branch}")

        def run(**options: Any) -> MergeReceipt:
            found: MergeReceipt = getattr(self.graph, kind)(commit_id, branch, **options)
            return found

        if commit.schema != parent.schema:
            return
        before, after = (parent.state, commit.state) if kind == "cherry_pick" else (commit.state, parent.state)
        schema = self.model.schema(branch)
        missing = commit.schema.keys() - schema.keys()
        if kind == "cherry_pick" and history_model.sets_values(before["node:P"], after["node:P"], missing):
            assert _kinds(run) == {"DropVsUpdate"}
            return
        # What the branch does not have is not reverted.
        before, after = (history_model.without_values(state, missing) for state in (before, after))
        states = (before, self.model.state(branch), after)
        if self._apply(branch, states, (self.model.branches[branch],), run, schema) is not None:
            self.merges["replayed"] += 1

    def upkeep(self) -> None:
        """Rewrite what is stored; every state stays what it is."""
        branch = self._branch()
        self.log.append(f"optimize {branch}")
        self.graph.maintenance.optimize(branch)
        head = self.graph.commits(branch)[0]
        if head.commit_id != self.model.branches[branch]:
            self._publish(branch, head, self.model.state(branch))

    def schema(self) -> None:
        """Add a property to P on a branch, or rename one that was added."""
        branch = self._branch()
        schema = self.model.schema(branch)
        if not schema or self.random.random() < 0.5:
            self._change_schema(branch, None)
            return
        identity = self.random.choice(sorted(schema))
        self._change_schema(branch, identity)
        others = sorted(one for one in self.model.branches if identity in self.model.schema(one) and one != branch)
        if others and self.random.random() < 0.5:
            other = self.random.choice(others)
            self._change_schema(other, identity)
            self.merge(other, branch)

    def _change_schema(self, branch: str, identity: str | None) -> None:
        """Give a property of a branch another name; without one, add one."""
        schema, name = dict(self.model.schema(branch)), next(self.names)
        texts = {one: f"  {known}: I32?" for one, known in schema.items()}
        if identity is not None:
            texts[identity] = f'  {name}: I32? @rename_from("{schema[identity]}")'
        else:
            identity = name
            texts[identity] = f"  {name}: I32?"
            self.extras.append(identity)
            self.model.add_property(identity)
            text = SCHEMA.format("".join(f"  {one}: I32?" for one in self.extras))
            self.catalog = compile_schema(Source("model.pg", text), domain=DOMAIN).catalog
        self.log.append(f"schema of {branch}: {texts}")
        receipt = self.graph.schema.apply(SCHEMA.format("".join(texts.values())), branch=branch)
        assert receipt.commit is not None
        self._publish(branch, receipt.commit, self.model.state(branch), {**schema, identity: name})

    def _merged_schema(self, ours: list[str], theirs: str) -> Mapping[str, str] | None:
        """Return the schema that a merge makes; None if it must be refused."""
        sides = [
            self.model.base_schema(ours, theirs),
            self.model.commits[ours[0]].schema,
            self.model.commits[theirs].schema,
        ]
        merged = {one: history_model.merge_names(*(side.get(one) for side in sides)) for one in {*sides[1], *sides[2]}}
        names = {one: name for one, name in merged.items() if name is not None}
        return names if len(names) == len(merged) else None

    def rename(self) -> None:
        name, fresh = self._branch(), next(self.names)
        if name == "main":
            return
        self.log.append(f"rename {name} to {fresh}")
        self.graph.branches.rename(name, fresh)
        for named in (self.model.branches, self.model.births, self.model.origins):
            named[fresh] = named.pop(name)

    def delete(self, name: str | None = None) -> None:
        name = name or self._branch()
        self.log.append(f"delete {name}")
        refusal = _code(lambda: self.graph.branches.delete(name))
        in_the_way = "usage.invalid" if name == "main" else "branch.in_use"
        assert refusal == (None if self.model.may_delete(name) else in_the_way)
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
            assert content(self.graph, branch) == self._shown(branch), branch
            assert {one.commit_id for one in self.graph.commits(branch)} == self.model.past(commit_id)
        for name, commit_id in self.model.tags.items():
            # A past state is read with the names that main has now.
            held = self.model.commits[commit_id]
            state = history_model.without_values(held.state, self.model.schema("main").keys() - held.schema.keys())
            assert content(self.graph, at=name) == history_model.named_state(
                state, self.extras, self.model.schema("main")
            ), name
        self.verify()

    def verify(self) -> None:
        """No published state fails the verification of the graph, ever."""
        report = self.graph.maintenance.verify()
        assert report.is_sound, report.findings
        assert not [one for one in report.findings if "foreign" in one.message], report.findings

    def _expect_nothing(self, source: str, into: str) -> None:
        receipt = self.graph.branches.merge(source, into)
        assert (receipt.outcome, receipt.commit) == ("already_up_to_date", None)
        self.merges[receipt.outcome] += 1

    def _apply(
        self,
        into: str,
        states: tuple[State, State, State],
        parents_: tuple[str, ...],
        run: Callable[..., MergeReceipt],
        schema: Mapping[str, str],
    ) -> MergeReceipt | None:
        """Apply a change to a branch, dry and then really; what comes of it is what the model says."""
        self._schema = schema
        dry = run(dry_run=True)
        expected, conflicts = history_model.merge(self.catalog, *states)
        assert told(dry.conflicts) == shape(conflicts), (dry.conflicts, conflicts)
        if conflicts:
            self._refused(into, conflicts, run)
            if any(kind.endswith(("Edge", "Violation")) for kind, _, _ in conflicts):
                return self._overrule(into, states, parents_, dry, run)
            return self._decide(into, states, parents_, conflicts, run)
        receipt = run()
        assert receipt.types == dry.types
        if receipt.commit is None:
            assert (receipt.outcome, expected) == ("already_up_to_date", states[1])
            return None
        self.merges["merged"] += len(parents_) > 1
        self._applied(into, receipt.commit, parents_, expected)
        return receipt

    def _refused(self, into: str, conflicts: set[Conflict], run: Callable[..., MergeReceipt]) -> None:
        assert _kinds(run) == {kind for kind, _, _ in conflicts}
        assert self.graph.snapshot(into).head == self.model.branches[into]
        self.merges["conflicted"] += 1

    def _decide(
        self,
        into: str,
        states: tuple[State, State, State],
        parents_: tuple[str, ...],
        conflicts: set[Conflict],
        run: Callable[..., MergeReceipt],
    ) -> MergeReceipt | None:
        """Settle what both sides did; what breaks a rule then is left to writes that come later."""
        decisions = {
            (key, one): self.random.choice(["ours", "theirs", "base"][: 2 if kind == "DivergentInsert" else 3])
            for kind, key, one in sorted(conflicts)
        }
        self.log.append(f"decide {decisions}")
        if self._takes_unknown(states, decisions):
            assert _code(lambda: run(resolutions=_resolutions(decisions))) == "merge.resolution"
            return None
        expected, wrong = history_model.merge(self.catalog, *history_model.decide(self.catalog, states, decisions))
        return self._decided(into, parents_, "decided", decisions, expected, wrong, states[1], run)

    def _overrule(
        self,
        into: str,
        states: tuple[State, State, State],
        parents_: tuple[str, ...],
        dry: MergeReceipt,
        run: Callable[..., MergeReceipt],
    ) -> MergeReceipt | None:
        """Decide about the entities that break a rule; the result must obey all rules, or nothing happens."""
        named = sorted({(str(one.type_key), str(one.entity_id)) for one in dry.conflicts})
        decisions = {place: self.random.choice(["ours", "ours", "theirs", "base"]) for place in named}
        self.log.append(f"overrule {decisions}")
        merged, _ = history_model.merge(self.catalog, *states)
        expected = {key: dict(rows) for key, rows in merged.items()}
        for (key, entity), side in decisions.items():
            row = states[("base", "ours", "theirs").index(side)][key].get(entity)
            if any(isinstance(value, Unknown) for value in (row or {}).values()):
                assert _code(lambda: run(resolutions=_resolutions(decisions))) == "merge.resolution"
                return None
            history_model.put([expected], key, entity, row)
        wrong = history_model.violations(self.catalog, expected)
        return self._decided(into, parents_, "overruled", decisions, expected, wrong, states[1], run)

    def _decided(
        self,
        into: str,
        parents_: tuple[str, ...],
        outcome: str,
        decisions: dict[tuple[str, str], str],
        expected: State,
        wrong: set[Conflict],
        ours: State,
        run: Callable[..., MergeReceipt],
    ) -> MergeReceipt | None:
        given = _resolutions(decisions)
        dry = run(dry_run=True, resolutions=given)
        assert told(dry.conflicts) == shape(wrong), (dry.conflicts, wrong)
        if wrong:
            assert _kinds(lambda: run(resolutions=given)) == {kind for kind, _, _ in wrong}
            assert self.graph.snapshot(into).head == self.model.branches[into]
            return None
        receipt = run(resolutions=given)
        assert receipt.types == dry.types
        self.merges[outcome] += 1
        if receipt.commit is None:
            assert (receipt.outcome, expected) == ("already_up_to_date", ours)
            return None
        self._applied(into, receipt.commit, parents_, expected)
        return receipt

    def _takes_unknown(self, states: tuple[State, State, State], decisions: dict[tuple[str, str], str]) -> bool:
        """Tell whether a decision takes from the base what several ancestors disagree about."""
        for key, type_ in history_model.types(self.catalog):
            _, clashes = merge_states(type_, *(state[key] for state in states))
            for entity, _, columns in clashes:
                row = states[0][key].get(entity) or {}
                is_base = decisions[key, entity] == "base"
                if is_base and any(isinstance(row[name], Unknown) for name in columns or row):
                    return True
        return False

    def _applied(
        self,
        into: str,
        commit: Published | None,
        expected: tuple[str, ...],
        state: State,
        schema: Mapping[str, str] | None = None,
    ) -> None:
        assert commit is not None
        assert parents(commit) == expected
        self._publish(into, commit, state, self._schema if schema is None else schema)
        assert content(self.graph, into) == self._shown(into)
        if self.verifies:
            self.verify()

    # -- the pieces ---------------------------------------------------------------------------------------------

    def _branch(self) -> str:
        return self.random.choice(sorted(self.model.branches))

    def _shown(self, branch: str) -> State:
        """Return the state of a branch under the names that it has."""
        return history_model.named_state(self.model.state(branch), self.extras, self.model.schema(branch))

    def _publish(self, branch: str, commit: Published, state: State, schema: Mapping[str, str] | None = None) -> None:
        if schema is None:
            schema = self.model.schema(branch) if branch in self.model.branches else {}
        version = commit.manifest_version or 0
        self.model.add(branch, Commit(commit.commit_id, version, parents(commit), state, schema))

    def _put(self, branch: str, state: dict[str, Rows]) -> Published | None:
        """Insert or change a node or two, and perhaps a bond."""
        lines: list[dict[str, Any]] = []
        for name in self.random.sample([*NODES["P"], *NODES["Q"]], self.random.randint(1, 2)):
            type_ = self.catalog.nodes[name[0].upper()]
            schema = self.model.schema(branch)
            columns = [one for one in sorted(type_.properties) if one != "k"]
            row = state[type_.table_key].get(name) or {"k": name, **dict.fromkeys(columns)}
            columns = [one for one in columns if one in schema or one not in self.extras]
            for column in self.random.sample(columns, min(2, len(columns))):
                row = row | {column: self.random.choice(VALUES.get(column, NUMBERS))}
            state[type_.table_key][name] = row
            lines.append({"type": type_.name, "data": history_model.renamed_row(row, self.extras, schema)})
        if history_model.duplicates(self.catalog.nodes["P"], state["node:P"]):
            return None
        kind = self.random.choice([*EDGES, None])
        if kind is not None and all(state[f"node:{end}"] for end in EDGES[kind]):
            source, target = (self.random.choice(sorted(state[f"node:{end}"])) for end in EDGES[kind])
            lines.append(self._bond(state, kind, source, target))
        self.log.append(f"put on {branch}: {lines}")
        return self.graph.ingest(lines, mode="merge", branch=branch).commit

    def _bond(self, state: dict[str, Rows], kind: str, source: str, target: str) -> dict[str, Any]:
        values = {name: self.random.choice(NUMBERS) for name in sorted(self.catalog.edges[kind].properties)}
        bond = f"{kind.lower()}{self.random.randrange(3)}"
        state[f"edge:{kind}"][bond] = {"src": source, "dst": target, **values}
        return {"edge": kind, "from": source, "to": target, "data": {"id": bond, **values}}

    def _tie(self, branch: str, state: dict[str, Rows], name: str) -> Published | None:
        line = self._bond(state, "E", self.random.choice(sorted(state["node:P"])), name)
        self.log.append(f"put on {branch}: {line}")
        return self.graph.ingest([line], mode="merge", branch=branch).commit

    def _delete_node(self, branch: str, state: dict[str, Rows], name: str) -> Published | None:
        return self._remove(branch, state, "P", name)

    def _remove(
        self, branch: str, state: dict[str, Rows], kind: str | None = None, name: str | None = None
    ) -> Published | None:
        """Delete a node with all its bonds, or all bonds of one source."""
        kind = kind or self.random.choice(["P", "P", "Q", "E", "F"])
        if kind in NODES:
            name = name or self.random.choice(NODES[kind])
            body = f'delete {kind} where k = "{name}"'
            state[f"node:{kind}"].pop(name, None)
            sides = [
                (edge, end, own) for edge, ends in EDGES.items() for end, own in zip(("src", "dst"), ends, strict=True)
            ]
            places = [(edge, end) for edge, end, own in sides if own == kind]
        else:
            name = self.random.choice(NODES[EDGES[kind][0]])
            body = f'delete {kind} where from = "{name}"'
            places = [(kind, "src")]
        for edge, end in places:
            rows = state[f"edge:{edge}"]
            for one in [one for one, row in rows.items() if row[end] == name]:
                del rows[one]
        self.log.append(f"remove on {branch}: {body}")
        return self.graph.mutate(f"query q() {{ {body} }}", branch=branch).commit


def content(graph: Graph, branch: str = "main", at: str | None = None) -> State:
    """Return all that a reader sees of a state."""
    view = session_of(graph).view(branch, at)
    found: dict[str, history_model.Rows] = {}
    for key in view.snapshot.state.pins:
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


def _resolutions(decisions: dict[tuple[str, str], str]) -> list[dict[str, str]]:
    return [{"type_key": key, "entity_id": one, "take": side} for (key, one), side in decisions.items()]


def _code(run: Callable[..., object]) -> str | None:
    """Return the code that something is refused with; None: it is not."""
    try:
        run()
    except (GraphError, UsageError) as error:
        return error.code
    return None


def _kinds(run: Callable[..., object]) -> set[str]:
    """Return the kinds of conflicts that something is refused for."""
    try:
        run()
    except MergeConflict as error:
        found = error.context["conflicts"]
        assert isinstance(found, list)
        return {one["kind"] for one in found}
    raise AssertionError("merged in spite of conflicts")
