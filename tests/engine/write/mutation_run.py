"""One world: a random schema, and mutations that the engine and the model both run, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, cast

import omnigraph as og
from omnigraph.errors import OmniGraphError
from omnigraph.lang.diagnostic import LanguageError
from tests.engine.write.mutation_model import Model, Outcome, Refused, State
from tests.engine.write.mutation_worlds import Programs, load_text, query_text, random_types, schema_text
from tests.support.write_fixtures import rows

STEPS = 16


def run_world(
    folder: Path | str, seed: int, *, mutant: str = "", steps: int = STEPS, is_mixed: bool = False
) -> Counter[str]:
    """Run a world and return how its steps ended; an AssertionError says where engine and model differ."""
    rng = Random(seed)
    types = random_types(rng)
    schema = schema_text(types)
    world = _World(og.init(f"{folder}/g", schema=schema), Model(types, mutant), rng, schema, is_mixed)
    for step in range(steps):
        if step == steps // 2 and rng.random() < 0.4:
            world.graph.branches.create("side")
            world.states["side"] = world.states["main"]
        world.step(step)
    for branch in world.states:
        world.adopt(world.states[branch], branch, f"{schema}\n\nat the end on {branch}")
    world.graph.close()
    return world.tally


class _World:
    def __init__(self, graph: og.Graph, model: Model, rng: Random, schema: str, is_mixed: bool) -> None:
        self.is_mixed = is_mixed
        self.graph = graph
        self.model = model
        self.rng = rng
        self.schema = schema
        self.states: dict[str, State] = {"main": {name: {} for name in model.types}}
        self.tally: Counter[str] = Counter()

    def step(self, step: int) -> None:
        """Draw a write, run it on both, and compare."""
        branch = self.rng.choice(list(self.states))
        state, programs = self.states[branch], Programs(self.rng, self.model)
        expect: Callable[[], Outcome]
        if step >= 4 and self.rng.random() < 0.2:
            load = programs.load(state)
            text, params, mode = load_text(self.model, load), {}, load.mode
            expect = partial(self.model.load, state, load)
        else:
            draw = programs.draw_mixed if self.is_mixed else programs.draw
            program = programs.seed(state) if step < 4 else draw(state)
            text, mode = query_text(programs, program, is_mixed=self.is_mixed), ""
            params = {name: value for name, (_, value) in programs.params.items()}
            expect = partial(self.model.run, state, program, params, is_mixed=self.is_mixed)
        place = f"{self.schema}\n\nstep {step} on {branch}, params {params} {mode}\n{text}\nstate {state}"
        head = self.graph.snapshot(branch).head
        if not mode and self.rng.random() < 0.3:
            dry = self._observe(text, params, branch, dry_run=True)
            assert self.graph.snapshot(branch).head == head, f"a dry run made a commit\n{place}"
        else:
            dry = None
        observed = self._observe(text, params, branch, mode)
        assert dry in (None, observed), f"dry run {dry}, then {observed}\n{place}"
        is_same_head = self.graph.snapshot(branch).head == head
        outcome = _outcome(expect)
        if isinstance(outcome, set):
            assert observed in outcome, f"{observed}, expected {outcome}\n{place}"
            assert is_same_head, f"a refused mutation made a commit\n{place}"
            self.tally[f"refused {observed}"] += 1
            return
        counts = (outcome.nodes, outcome.edges)
        assert observed == counts, f"{observed}, expected {counts}\n{place}"
        is_nothing = counts == (0, 0) or not outcome.is_change
        assert is_same_head == is_nothing, f"a commit if and only if something changes\n{place}"
        self.states[branch] = self.adopt(outcome.state, branch, place)
        self.tally["written" if any(counts) else "nothing"] += 1

    def _observe(self, text: str, params: dict[str, Any], branch: str, mode: str = "", *, dry_run: bool = False) -> Any:
        try:
            if mode:
                load = self.graph.ingest(text.encode(), mode=cast(Any, mode), branch=branch)
                return sum(load.nodes.values()), sum(load.edges.values())
            receipt = self.graph.mutate(text, params=params, branch=branch, dry_run=dry_run)
        except LanguageError as error:
            return error.diagnostics[0].code
        except OmniGraphError as error:
            return error.context.get("rule") or {"query.overflow": "overflow"}.get(error.code, repr(error))
        return receipt.affected_nodes, receipt.affected_edges

    def adopt(self, state: State, branch: str, place: str) -> State:
        """Compare a state with the stored one; return it with the ids that entities without a key got."""
        adopted: State = {}
        ids: dict[str, str] = {}
        for type_ in self.model.types.values():  # nodes come first, so that the ends of edges are known
            stored = rows(self.graph, f"{'edge' if type_.ends else 'node'}:{type_.name}", branch)
            adopted[type_.name] = _pair(state[type_.name], stored, ids, f"{type_.name} {place}")
        return adopted


def _outcome(expect: Callable[[], Outcome]) -> Outcome | set[str]:
    try:
        return expect()
    except Refused as refused:
        return refused.codes


def _pair(
    expected: dict[str, dict[str, Any]], stored: dict[str, dict[str, Any]], ids: dict[str, str], place: str
) -> dict[str, Any]:
    left, paired = dict(stored), {}
    for row in expected.values():
        mine = row | {end: ids.get(row[end], row[end]) for end in ("src", "dst") if end in row}
        if row["id"].startswith("~"):
            twins = (one for one in left.values() if one["id"] not in expected and _values(one) == _values(mine))
            twin = next(twins, None)
            assert twin is not None, f"nothing stored is {mine}, but {left}\n{place}"
            ids[row["id"]] = twin["id"]
        else:
            twin = left.get(row["id"])
            assert twin is not None, f"nothing is stored, expected {mine}\n{place}"
            assert _values(twin) == _values(mine), f"{twin} is stored, expected {mine}\n{place}"
        del left[twin["id"]]
        paired[twin["id"]] = mine | {"id": twin["id"]}
    assert not left, f"{left} is stored, but not expected\n{place}"
    return paired


def _values(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "id"}
