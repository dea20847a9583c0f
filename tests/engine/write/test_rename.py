"""Renamed keys: the edges follow, in one commit, held against a model; rules, history, merges, blobs and rights."""

from __future__ import annotations

import random
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.write import pending_changes
from omnigraph.errors import DataError, KeyConflict, LimitExceeded, MergeConflict, OmniGraphError, PolicyDenied
from omnigraph.graph import Graph
from omnigraph.lang.schema.arrow_schema import key_ids
from omnigraph.policy import load_bundle
from omnigraph.rules.delta import translate

SCHEMA = """
node P { name: String @key  age: I32?  photo: Blob?  mail: String? @unique }
node Day { at: Date  no: I32  @key(at, no) }
edge K: P -> P { n: I32? }
edge L: P -> P { n: I32?  photo: Blob?  @key(src, dst) }
edge Met: P -> Day { n: I32  @key(src, dst, n) }
edge Home: P -> P @card(0..1)
"""
Edge = tuple[str, str, str, int | None, bytes | None]


def blob(raw: bytes | None) -> str | None:
    return None if raw is None else f"base64:{b64encode(raw).decode()}"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as opened:
        opened.load(
            [
                *({"type": "P", "data": {"name": name, "photo": blob(name.encode() * 3)}} for name in ("a", "b", "c")),
                {"type": "Day", "data": {"at": "2024-01-31", "no": 1}},
                {"edge": "K", "from": "a", "to": "b", "data": {"n": 1}},
                {"edge": "K", "from": "c", "to": "a"},
                {"edge": "K", "from": "a", "to": "a"},
                {"edge": "L", "from": "a", "to": "b", "data": {"n": 2, "photo": blob(b"ab")}},
                {"edge": "L", "from": "b", "to": "a"},
                {"edge": "Met", "from": "a", "to": '["19753","1"]', "data": {"n": 5}},
                {"edge": "Home", "from": "a", "to": "b"},
            ]
        )
        yield opened


def people(graph: Graph, branch: str = "main") -> list[str]:
    return sorted(row["p.name"] for row in graph.query("match { $p: P } return { $p.name }", branch=branch))


def ends(graph: Graph, edge: str, branch: str = "main") -> list[tuple[str, str]]:
    source = f"match {{ $p $e:{edge} $q }} return {{ $e.@src as s, $e.@dst as d }}"
    return sorted((row["s"], row["d"]) for row in graph.query(source, branch=branch))


def test_edges_follow_a_renamed_node_in_one_commit(graph: Graph) -> None:
    dry = graph.mutate('rename P set { name: "z", age: 7 } where name = "a"', dry_run=True)
    assert (dry.commit, people(graph)) == (None, ["a", "b", "c"])
    receipt = graph.mutate('rename P set { name: "z", age: 7 } where name = "a"')
    assert (receipt.affected_nodes, receipt.affected_edges) == (dry.affected_nodes, dry.affected_edges) == (1, 7)
    assert (people(graph), graph.get("P", "a"), graph.get("P", "z")["age"]) == (["b", "c", "z"], None, 7)  # type: ignore[index]
    assert ends(graph, "k") == [("c", "z"), ("z", "b"), ("z", "z")]
    assert ends(graph, "l") == [("b", "z"), ("z", "b")]
    assert ends(graph, "met") == [("z", '["19753","1"]')]
    assert graph.blob("P", "z", "photo").read() == b"aaa"
    assert graph.blob("L", '["z","b"]', "photo", entity="edge").read() == b"ab"
    # A diff and a feed know entities by their ids: a node and a keyed edge go and come, other edges are updated.
    changes: Any = graph.commit_changes(receipt.commit.commit_id).to_json()  # type: ignore[union-attr]
    told = Counter((change["op"], change["type"]["name"]) for change in changes["changes"])
    assert told == {
        **{(op, name): n for op in ("insert", "delete") for name, n in (("P", 1), ("L", 2), ("Met", 1))},
        ("update", "K"): 3,
        ("update", "Home"): 1,
    }
    assert graph.maintenance.verify(data=True).is_sound


def test_keys_of_several_members_and_of_edges_are_renamed(graph: Graph) -> None:
    assert graph.mutate("rename Day set { no: no + 1 } where no = 1").affected_edges == 1
    assert ends(graph, "met") == [("a", '["19753","2"]')]
    receipt = graph.mutate("rename Met set { n: 6 } where n = 5")
    assert (receipt.affected_nodes, receipt.affected_edges) == (0, 1)
    assert [row["e.@id"] for row in graph.query("match { $p $e:met $q } return { $e.@id }")] == [
        '["a","[\\"19753\\",\\"2\\"]","6"]'
    ]


def test_keys_are_swapped_by_pattern(graph: Graph) -> None:
    graph.mutate(
        'query q() { match { $p: P  $p.name in ["a", "b"] }'
        ' rename $p set { name: case when $p.name = "a" then "b" else "a" end } }'
    )
    assert ends(graph, "k") == [("b", "a"), ("b", "b"), ("c", "b")]
    assert (graph.blob("P", "a", "photo").read(), graph.blob("P", "b", "photo").read()) == (b"bbb", b"aaa")
    assert graph.maintenance.verify(data=True).is_sound


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ('rename P set { name: "b" } where name = "a"', "E11"),
        ('rename P set { name: "x" } where name != "a"', "E5"),
        ('query q() { insert P { name: "x" } rename P set { name: "x" } where name = "a" }', "E11"),
        (
            'query q() { rename P set { name: "x", mail: "m" } where name = "a"  insert P { name: "y" mail: "m" } }',
            "E5",
        ),
        ('query q() { rename P set { name: "x" } where name = "a"  insert Home { from: "x" to: "c" } }', "E10"),
        ('query q() { rename P set { name: "x" } where name = "a"  insert K { from: "a" to: "c" } }', "E9"),
    ],
)
def test_rules_hold_for_renamed_entities(graph: Graph, source: str, rule: str) -> None:
    with pytest.raises(OmniGraphError) as caught:
        graph.mutate(source)
    assert (caught.value.context["rule"], isinstance(caught.value, KeyConflict)) == (rule, rule == "E11")
    assert people(graph) == ["a", "b", "c"]


def test_history_knows_a_renamed_entity_by_its_ids(graph: Graph) -> None:
    graph.mutate('rename P set { name: "z" } where name = "a"')
    assert [change.op for change in graph.log("P", "z")] == ["insert"]
    assert next(change.op for change in graph.log("P", "a")) == "delete"
    graph.revert("HEAD")
    assert people(graph) == ["a", "b", "c"]
    assert ends(graph, "l") == [("a", "b"), ("b", "a")]
    assert graph.blob("P", "a", "photo").read() == b"aaa"


def test_merge_sees_a_rename_as_a_delete_and_an_insert(graph: Graph) -> None:
    graph.branches.create("side")
    graph.mutate('rename P set { name: "z" } where name = "a"', branch="side")
    graph.mutate('update P set { age: 1 } where name = "b"')
    graph.mutate('insert K { from: "b" to: "c" }')
    graph.branches.merge("side")
    assert people(graph) == ["b", "c", "z"]
    assert ends(graph, "k") == [("b", "c"), ("c", "z"), ("z", "b"), ("z", "z")]


@pytest.mark.parametrize("meanwhile", ['update P set { age: 1 } where name = "a"', 'insert K { from: "c" to: "a" }'])
def test_merge_of_a_rename_conflicts_with_what_uses_the_old_key(graph: Graph, meanwhile: str) -> None:
    graph.branches.create("side")
    graph.mutate('rename P set { name: "z" } where name = "a"', branch="side")
    graph.mutate(meanwhile)
    with pytest.raises((MergeConflict, DataError)):
        graph.branches.merge("side")


RULES = """
version: 1
groups: {all: [ann, bob], ann: [ann]}
rules:
  - {id: r, allow: {actors: {group: all}, actions: [read], types: [P, Day, K, L, Met]}}
  - {id: c, allow: {actors: {group: all}, actions: [change], types: [P, K, L, Day]}}
  - {id: a, allow: {actors: {group: ann}, actions: [change], types: [Met]}}
"""


def test_rename_needs_change_of_visible_edges_and_takes_hidden_ones_along(graph: Graph, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    source = 'rename P set { name: "z" } where name = "a"'
    refusal = pytest.raises(PolicyDenied, match="`change` of `Met`")
    with og.open(graph.uri, actor="bob", policy=load_bundle(rules)) as restricted, refusal:
        restricted.mutate(source)
    with og.open(graph.uri, actor="ann", policy=load_bundle(rules)) as restricted:
        # The edge of `Home`, which ann may not see, follows as well, and is not counted.
        assert restricted.mutate(source).affected_edges == 6
    assert ends(graph, "home") == [("z", "b")]


def test_more_edges_than_a_write_holds_follow_up_to_a_limit(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_changes, "RENAMED_EDGES_MAX", 9_000)
    others = [{"type": "P", "data": {"name": str(n)}} for n in range(8_300)]
    graph.load([*others, *({"edge": "K", "from": "a", "to": str(n)} for n in range(8_300))])
    assert graph.mutate('rename P set { name: "z" } where name = "a"').affected_edges == 8_307
    monkeypatch.setattr(pending_changes, "RENAMED_EDGES_MAX", 8_000)
    with pytest.raises(LimitExceeded):
        graph.mutate('rename P set { name: "y" } where name = "z"')


# -- against a model --------------------------------------------------------------------------------------------------


class Model:
    """Nodes by key, and edges by their ends and values: a rename maps all of them at once."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.nodes: dict[str, bytes | None] = {name: rng.choice([None, name.encode() * 2]) for name in "abcdef"}
        keyed = {(rng.choice("abcdef"), rng.choice("abcdef")) for _ in range(8)}
        self.edges: list[Edge] = [
            ("L", *pair, n, rng.choice([None, b"e%d" % n])) for n, pair in enumerate(sorted(keyed))
        ]
        self.edges += [("K", rng.choice("abcdef"), rng.choice("abcdef"), n, None) for n in range(8)]

    def lines(self) -> list[dict[str, object]]:
        lines: list[dict[str, object]] = []
        for name, raw in self.nodes.items():
            lines.append({"type": "P", "data": {"name": name, "photo": blob(raw)}})
        for edge in self.edges:
            lines.append({"edge": edge[0], "from": edge[1], "to": edge[2], "data": self._data(edge)})
        return lines

    @staticmethod
    def _data(edge: Edge) -> dict[str, object]:
        return {"n": edge[3]} | ({"photo": blob(edge[4])} if edge[0] == "L" else {})

    def _rename(self, new: dict[str, str]) -> None:
        self.nodes = {new.get(name, name): raw for name, raw in self.nodes.items()}
        self.edges = [(one[0], new.get(one[1], one[1]), new.get(one[2], one[2]), *one[3:]) for one in self.edges]

    def statement(self) -> str | None:
        """Return a rename, done to the model as well; None stands for one that is refused."""
        chosen = self.rng.sample(sorted(self.nodes), self.rng.randint(1, 3))
        shift = self.rng.randint(0, len(chosen) - 1)
        fresh = self.rng.random() < 0.5
        new = {old: chosen[(i + shift) % len(chosen)] + ("x" if fresh else "") for i, old in enumerate(chosen)}
        if len({new.get(name, name) for name in self.nodes}) < len(self.nodes):
            return None
        self._rename(new)
        cases = " ".join(f'when name = "{old}" then "{name}"' for old, name in new.items())
        names = ", ".join(f'"{name}"' for name in new)
        if len(new) == 1:
            [(old, name)] = new.items()
            return f'rename P set {{ name: "{name}" }} where name = "{old}"'
        return f"rename P set {{ name: case {cases} else name end }} where name in [{names}]"

    def mutation(self) -> str:
        """Return a mutation of one statement, or of several that rename one entity each."""
        statement = None
        while statement is None:
            statement = self.statement()
        if "case" in statement:
            return statement
        for _ in range(self.rng.randint(0, 2)):
            old, name = self.rng.choice(sorted(self.nodes)), f"y{self.rng.randint(0, 99)}"
            if name not in self.nodes:
                self._rename({old: name})
                statement += f'\n rename P set {{ name: "{name}" }} where name = "{old}"'
        return f"query q() {{ {statement} }}"


def stored(graph: Graph) -> tuple[dict[str, bytes | None], list[Edge]]:
    """Return nodes and edges as the model has them, read through queries and blobs."""
    nodes: dict[str, bytes | None] = {}
    for row in graph.query("match { $p: P } return { $p.@id as id, $p.name as name, ($p.photo is not null) as has }"):
        assert row["id"] == row["name"]
        nodes[row["name"]] = graph.blob("P", row["name"], "photo").read() if row["has"] else None
    edges: list[Edge] = []
    for row in graph.query("match { $p $e:k $q } return { $p.name as s, $q.name as d, $e.n as n }"):
        edges.append(("K", row["s"], row["d"], row["n"], None))
    columns = "$e.@id as i, $p.name as s, $q.name as d, $e.n as n, ($e.photo is not null) as h"
    for row in graph.query(f"match {{ $p $e:l $q }} return {{ {columns} }}"):
        assert row["i"] == f'["{row["s"]}","{row["d"]}"]'
        edges.append(
            (
                "L",
                row["s"],
                row["d"],
                row["n"],
                graph.blob("L", row["i"], "photo", entity="edge").read() if row["h"] else None,
            )
        )
    return nodes, edges


def run_model(root: Path, seed: int) -> None:
    rng = random.Random(seed)
    model = Model(rng)
    with og.init(root, schema=SCHEMA) as graph:
        graph.load(model.lines())
        for _ in range(4):
            source = model.mutation()
            graph.mutate(source)
            nodes, edges = stored(graph)
            assert nodes == model.nodes, source
            assert Counter(edges) == Counter(model.edges), source
        assert graph.maintenance.verify(data=True).is_sound


def run_models(root: Path, count: int) -> None:
    for seed in range(count):
        run_model(root / f"{seed}.omni", seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sampled(3)
def test_engine_and_model_agree_on_renames(tmp_path: Path, seed: int) -> None:
    run_model(tmp_path / "g.omni", seed)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", ["targets stay", "edge keys stay", "blobs by new id", "one after the other"])
def test_faults_of_renames_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    if mutant == "targets stay":
        incident = pending_changes.PendingType.incident
        monkeypatch.setattr(pending_changes.PendingType, "incident", lambda self, _, ids: incident(self, ["src"], ids))
    elif mutant == "edge keys stay":
        monkeypatch.setattr(
            "omnigraph.engine.write.rename.key_ids",
            lambda type_, rows: key_ids(type_, rows) if type_.kind == "node" else rows["id"],
        )
    elif mutant == "blobs by new id":
        monkeypatch.setattr("omnigraph.rules.delta.Delta.committed_ids", lambda self: self.ids)
    else:

        def in_turn(values: Any, old: Any, new: Any) -> Any:
            for index in range(len(old)):
                values = translate(values, old[index : index + 1], new[index : index + 1])
            return values

        monkeypatch.setattr("omnigraph.engine.write.rename.translate", in_turn)
    with pytest.raises((AssertionError, OmniGraphError)):
        run_models(tmp_path, 12)
