"""Histories of mutations, ingests and deletes against a dictionary that knows the rules, step by step."""

from __future__ import annotations

import json
import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import omnigraph as og
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph
from omnigraph.lang.catalog import TypeKey
from tests.support.write_fixtures import create, rows, state

SCHEMA = """
node P { k: String @key  v: I32?  u: String?  @unique(u)  @range(v, 0..3) }
edge E: P -> P @card(0..2) { w: I32? }
"""
KEYS = st.sampled_from("abcde")
VALUES = st.one_of(st.none(), st.integers(-1, 4))
UNIQUE = st.one_of(st.none(), st.sampled_from(["x", "y"]))
NODES = st.fixed_dictionaries({"k": KEYS, "v": VALUES, "u": UNIQUE})
EDGES = st.fixed_dictionaries({"id": st.sampled_from(["e1", "e2", "e3"]), "from": KEYS, "to": KEYS, "w": VALUES})
MODES = st.sampled_from(["append", "merge", "overwrite"])

Nodes = dict[str, tuple[int | None, str | None]]
Edges = dict[str, tuple[str, str, int | None]]


def fault(nodes: Nodes, edges: Edges) -> str | None:
    """Return the code of the first rule that a whole graph breaks, or None. States, not steps, are judged."""
    if any(value is not None and not 0 <= value <= 3 for value, _ in nodes.values()):
        return "E8"
    held = [text for _, text in nodes.values() if text is not None]
    if len(set(held)) < len(held):
        return "E5"
    if any(end not in nodes for edge in edges.values() for end in edge[:2]):
        return "E9"
    sources = [edge[0] for edge in edges.values()]
    return "E10" if any(sources.count(one) > 2 for one in sources) else None


class Histories(RuleBasedStateMachine):
    """One graph, two handles, and what it should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.nodes: Nodes = {}
        self.edges: Edges = {}

    @initialize()
    def begin(self) -> None:
        self.handles: list[Graph] = [create(f"{self.folder.name}/g", SCHEMA)]
        self.handles.append(og.open(f"{self.folder.name}/g"))

    def teardown(self) -> None:
        for handle in getattr(self, "handles", ()):
            handle.close()
        self.folder.cleanup()

    def expect(self, code: str | None, nodes: Nodes, edges: Edges, action: Any) -> Any:
        """Run an action that must fail with a code and change nothing, or succeed and leave this graph."""
        before = state(self.handles[0])
        result, failure = None, None
        try:
            result = action()
        except OmniGraphError as error:
            failure = error
        assert (failure.context.get("rule") if failure else None) == code, failure
        if failure is None:
            self.nodes, self.edges = nodes, edges
        else:
            assert state(self.handles[0]) == before
        return result

    @rule(handle=st.integers(0, 1), inserted=st.lists(NODES, min_size=1, max_size=3))
    def insert_nodes(self, handle: int, inserted: list[dict[str, Any]]) -> None:
        nodes = self.nodes | {one["k"]: (one["v"], one["u"]) for one in inserted}
        params = ", ".join(f"$k{i}: String, $v{i}: I32?, $u{i}: String?" for i in range(len(inserted)))
        body = " ".join(f"insert P {{k: $k{i} v: $v{i} u: $u{i}}}" for i in range(len(inserted)))
        values = {f"{name}{i}": value for i, one in enumerate(inserted) for name, value in one.items()}
        receipt = self.expect(
            fault(nodes, self.edges), nodes, self.edges, lambda: self.mutate(handle, body, params, values)
        )
        assert receipt is None or receipt.affected_nodes == len(inserted)

    @rule(handle=st.integers(0, 1), source=KEYS, end=KEYS)
    def insert_edge(self, handle: int, source: str, end: str) -> None:
        edges = self.edges | {"new": (source, end, None)}
        body = f'insert E {{from: "{source}" to: "{end}"}}'
        known = set(self.edges)
        receipt = self.expect(fault(self.nodes, edges), self.nodes, edges, lambda: self.mutate(handle, body))
        if receipt is not None:
            [made] = set(rows(self.handles[0], TypeKey("edge:E"))) - known
            self.edges = {**{one: edge for one, edge in edges.items() if one != "new"}, made: edges["new"]}

    @rule(handle=st.integers(0, 1), limit=st.integers(-1, 4), text=UNIQUE, value=VALUES)
    def update_twice(self, handle: int, limit: int, text: str | None, value: int | None) -> None:
        """The second statement sees what the first one did."""
        first = {
            key: (value, held[1]) if held[0] is not None and held[0] >= limit else held
            for key, held in self.nodes.items()
        }
        matched = [key for key, held in first.items() if held[0] is not None and held[0] == value]
        nodes = {key: (held[0], text) if key in matched else held for key, held in first.items()}
        body = "update P set {v: $v} where v >= $l update P set {u: $u} where v = $v"
        params = {"v": value, "l": limit, "u": text}
        count = sum(held[0] is not None and held[0] >= limit for held in self.nodes.values()) + len(matched)
        action = lambda: self.mutate(handle, body, "$v: I32?, $l: I32, $u: String?", params)  # noqa: E731 - passed on
        # A value out of range that is overwritten by nothing else fails even if uniqueness would fail as well.
        receipt = self.expect(fault(nodes, self.edges), nodes, self.edges, action)
        assert receipt is None or receipt.affected_nodes == count

    @rule(handle=st.integers(0, 1), key=KEYS)
    def delete_node(self, handle: int, key: str) -> None:
        nodes = {one: held for one, held in self.nodes.items() if one != key}
        edges = {one: edge for one, edge in self.edges.items() if key not in edge[:2]}
        lost = len(self.nodes) - len(nodes), len(self.edges) - len(edges)
        receipt = self.expect(None, nodes, edges, lambda: self.mutate(handle, f'delete P where k = "{key}"'))
        assert (receipt.affected_nodes, receipt.affected_edges) == lost
        assert (receipt.commit is None) == (lost == (0, 0))

    @rule(handle=st.integers(0, 1), end=st.sampled_from(["from", "to"]), key=KEYS)
    def delete_edges(self, handle: int, end: str, key: str) -> None:
        edges = {one: edge for one, edge in self.edges.items() if edge[end == "to"] != key}
        receipt = self.expect(None, self.nodes, edges, lambda: self.mutate(handle, f'delete E where {end} = "{key}"'))
        assert receipt.affected_edges == 0 or receipt.commit is not None

    @rule(
        handle=st.integers(0, 1),
        mode=MODES,
        new_nodes=st.lists(NODES, max_size=4),
        new_edges=st.lists(EDGES, max_size=3),
    )
    def ingest(self, handle: int, mode: Any, new_nodes: list[dict[str, Any]], new_edges: list[dict[str, Any]]) -> None:
        ours: Nodes = {one["k"]: (one["v"], one["u"]) for one in new_nodes}
        links: Edges = {one["id"]: (one["from"], one["to"], one["w"]) for one in new_edges}
        nodes = ours if mode == "overwrite" and new_nodes else self.nodes | ours
        edges = links if mode == "overwrite" and new_edges else self.edges | links
        code = self.ingest_fault(mode, new_nodes, new_edges, nodes, edges)
        records = [{"type": "P", "data": one} for one in new_nodes]
        records += [
            {"edge": "E", "from": one["from"], "to": one["to"], "data": {"id": one["id"], "w": one["w"]}}
            for one in new_edges
        ]
        data = "\n".join(json.dumps(record) for record in records).encode()
        self.expect(code, nodes, edges, lambda: self.handles[handle].ingest(data, mode=mode))

    def ingest_fault(
        self, mode: str, new_nodes: list[dict[str, Any]], new_edges: list[dict[str, Any]], nodes: Nodes, edges: Edges
    ) -> str | None:
        """Return the first code of an ingest: values, then ids within it, then taken ids, then the whole graph."""
        if any(one["v"] is not None and not 0 <= one["v"] <= 3 for one in new_nodes):
            return "E8"
        names, ids = [one["k"] for one in new_nodes], [one["id"] for one in new_edges]
        twice_id = mode != "merge" and len(set(ids)) < len(ids)
        twice_key = len(set(names)) < len(names)
        if twice_id or twice_key:
            # Types come in the order of their keys, edges before nodes.
            return "E11" if twice_id else "E5"
        if mode == "append" and (set(names) & set(self.nodes) or set(ids) & set(self.edges)):
            return "E11"
        return fault(nodes, edges)

    def mutate(self, handle: int, body: str, params: str = "", values: dict[str, Any] | None = None) -> Any:
        return self.handles[handle].mutate(f"query q({params}) {{ {body} }}", params=values or {})

    @invariant()
    def holds_what_it_should(self) -> None:
        if not hasattr(self, "handles"):
            return
        for handle in self.handles:
            found = {key: (row["v"], row["u"]) for key, row in rows(handle, "node:P").items()}
            assert found == self.nodes
            links = {key: (row["src"], row["dst"], row["w"]) for key, row in rows(handle, "edge:E").items()}
            assert links == self.edges


def run_histories(count: int, steps: int) -> None:
    checks = (HealthCheck.too_slow, HealthCheck.data_too_large)
    options = settings(max_examples=count, stateful_step_count=steps, deadline=None, suppress_health_check=checks)
    run_state_machine_as_test(Histories, settings=options)


@pytest.mark.slow
def test_short_histories_agree_with_a_dictionary() -> None:
    run_histories(5, 8)


@pytest.mark.slow
def test_more_histories_agree_with_a_dictionary() -> None:
    run_histories(12, 12)


@pytest.mark.long
def test_many_histories_agree_with_a_dictionary() -> None:
    run_histories(200, 12)
