"""Histories of writes, deaths and changes of schema on graphs of any schema, against a model that knows the rules."""

from __future__ import annotations

import signal
import tempfile
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from hypothesis.strategies import DataObject

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.schema_data import DataCheck, TypeChange
from omnigraph.errors import OmniGraphError
from omnigraph.failpoints import Point
from omnigraph.graph import Graph
from omnigraph.lang.diagnostic import LanguageError
from tests.engine.write.write_crash_child import Killer
from tests.engine.write.write_model_actions import (
    FRESH,
    Step,
    draw_apply,
    draw_delete,
    draw_ingest,
    draw_write,
    perform,
)
from tests.engine.write.write_model_graph import Image, Model
from tests.engine.write.write_model_schema import Schema, schemas
from tests.support.examples import examples
from tests.support.failpoint_actions import fail_with
from tests.support.rule_seams import without_rule
from tests.support.write_fixtures import rows, state

pytestmark = pytest.mark.slow

HANDLES = st.integers(0, 1)
DRAWS = (draw_write, draw_delete, draw_ingest, draw_apply)
# Where a writer may die, and whether what it wrote has then happened.
DEATHS = {
    Point.COMMIT_PREPARED: False,
    Point.COMMIT_STAGED: False,
    Point.COMMIT_SYNCED: False,
    Point.PUBLISH_BEFORE: False,
    Point.PUBLISH_AFTER: True,
    Point.LINK_BEFORE: True,
}


class Death(Exception):
    """Whatever ends a writer half-way."""


class Histories(RuleBasedStateMachine):
    """One graph, two handles, and what it should hold."""

    @initialize(schema=schemas())
    def begin(self, schema: Schema) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.model = Model.empty(schema)
        self.writer = 0
        self.handles = [og.init(f"{self.folder.name}/g", schema=schema.render())]
        self.handles.append(og.open(f"{self.folder.name}/g"))

    def teardown(self) -> None:
        for handle in getattr(self, "handles", ()):
            handle.close()
        if hasattr(self, "folder"):
            self.folder.cleanup()

    @rule(handle=HANDLES, data=st.data())
    def write(self, handle: int, data: DataObject) -> None:
        self.expect(handle, draw_write(data.draw, self.model))

    @rule(handle=HANDLES, data=st.data())
    def delete(self, handle: int, data: DataObject) -> None:
        self.expect(handle, draw_delete(data.draw, self.model))

    @rule(handle=HANDLES, data=st.data())
    def ingest(self, handle: int, data: DataObject) -> None:
        self.expect(handle, draw_ingest(data.draw, self.model))

    @rule(handle=HANDLES, data=st.data())
    def change_schema(self, handle: int, data: DataObject) -> None:
        self.expect(handle, draw_apply(data.draw, self.model))

    @rule(handle=HANDLES)
    def maintain(self, handle: int) -> None:
        self.handles[handle].maintenance.ensure_indices()

    @rule(handle=HANDLES)
    def reopen(self, handle: int) -> None:
        self.handles[handle].close()
        self.handles[handle] = og.open(f"{self.folder.name}/g")

    @rule(point=st.sampled_from(list(DEATHS)), which=st.sampled_from(DRAWS), data=st.data())
    def die(self, point: Point, which: Any, data: DataObject) -> None:
        """A writer that ends half-way has done all of it or nothing."""
        step = which(data.draw, self.model)
        self.end(step, point)
        self.reopen(0)
        if step.outcome.code is None and DEATHS[point]:
            self.accept(step)

    def end(self, step: Step, point: Point) -> None:
        with failpoints.armed({point: fail_with(Death())}), suppress(Death, OmniGraphError):
            perform(self.handles[0], step.action)

    def expect(self, handle: int, step: Step) -> None:
        """Run a step that must fail with a code and change nothing, or succeed and leave its image."""
        self.writer = handle
        before = state(self.handles[handle])
        receipt, code = attempt(self.handles[handle], step)
        assert code == step.outcome.code, step.action
        if code is not None:
            assert state(self.handles[handle]) == before
            return
        self.accept(step)
        if step.action.do == "mutate":
            touched = step.outcome.nodes, step.outcome.edges
            assert (receipt.affected_nodes, receipt.affected_edges) == touched
            assert (receipt.commit is None) == (touched == (0, 0))

    def accept(self, step: Step) -> None:
        """Take what a step should leave as what there is; ids that the graph chose are learned from it."""
        schema = step.schema or self.model.schema
        self.model = Model(schema, step.outcome.image)
        for type_ in schema.types:
            held = self.model.image[type_.name]
            new = [one for one in held if one.startswith(FRESH)]
            if new:
                found = held_by(self.handles[0], schema)[type_.name]
                unknown = [one for one in found if one not in held]
                for one in new:
                    row = held.pop(one)
                    [entity, *_] = [other for other in unknown if found[other] == row]
                    unknown.remove(entity)
                    held[entity] = row

    @invariant()
    def holds_what_it_should(self) -> None:
        if hasattr(self, "handles"):
            # The handle that did not write has to find out by itself.
            other = self.handles[1 - self.writer]
            assert other.schema.source == other.snapshot().state.schema.source
            assert held_by(other, self.model.schema) == self.model.image


def attempt(graph: Graph, step: Step) -> tuple[Any, str | None]:
    """Return the receipt of a step, or the code by which it was refused before anything happened."""
    try:
        return perform(graph, step.action), None
    except LanguageError as error:
        [code] = {one.code for one in error.diagnostics}
        return None, code
    except OmniGraphError as error:
        return None, str(error.context.get("rule", error)) if error.effect == "none" else f"{error.effect}: {error}"


def held_by(graph: Graph, schema: Schema) -> Image:
    """Return what a graph holds, as the model spells it."""
    image: Image = {}
    assert set(graph.snapshot().state.pins) == {one.table_key for one in schema.types}
    for type_ in schema.types:
        names = [one.name for one in type_.properties] + (["src", "dst"] if type_.ends else [])
        found = rows(graph, type_.table_key)
        assert all(row.keys() == {"id", *names} for row in found.values())
        image[type_.name] = {entity: {name: row[name] for name in names} for entity, row in found.items()}
    return image


def run_histories(count: int, steps: int, machine: type[Histories] = Histories, **more: Any) -> None:
    checks = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
    options = settings(
        max_examples=count, stateful_step_count=steps, deadline=None, suppress_health_check=checks, **more
    )
    run_state_machine_as_test(machine, settings=options)


def test_histories_on_any_schema_agree_with_the_model() -> None:
    run_histories(30, 10)


# The rules that random histories break soonest; the table of constraints holds a mutant of every rule in every cell.
MUTANTS = (pytest.param("enum_values", marks=pytest.mark.long), "distinct_ids", "unique", "endpoints")


@pytest.mark.parametrize("name", MUTANTS)
def test_histories_without_a_rule_disagree_with_the_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_rule(monkeypatch, name)
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_histories(400, 10, phases=(Phase.generate,), derandomize=True, report_multiple_bugs=False, database=None)


# What a schema change does to stored rows, left out; `tests/engine/schema/test_evolution.py` has more of these.
EVOLUTION_MUTANTS = {"unchecked": (DataCheck, "run", lambda *_: None), "unfilled": (TypeChange, "filled", ())}


class Evolving(Histories):
    """Histories with more changes of schema."""

    @rule(handle=HANDLES, data=st.data())
    def change_schema_again(self, handle: int, data: DataObject) -> None:
        self.expect(handle, draw_apply(data.draw, self.model))

    @rule(handle=HANDLES, data=st.data())
    def change_schema_once_more(self, handle: int, data: DataObject) -> None:
        self.expect(handle, draw_apply(data.draw, self.model))


@pytest.mark.long
@pytest.mark.parametrize("name", EVOLUTION_MUTANTS)
def test_histories_without_a_part_of_evolution_disagree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*EVOLUTION_MUTANTS[name])
    with pytest.raises((AssertionError, ExceptionGroup, OmniGraphError)):
        run_histories(
            400, 12, Evolving, phases=(Phase.generate,), derandomize=True, report_multiple_bugs=False, database=None
        )


def test_histories_with_writers_that_are_killed_agree_with_the_model() -> None:
    died: list[int] = []

    class Killed(Histories):
        def end(self, step: Step, point: Point) -> None:
            died.append(killer.run(f"{self.folder.name}/g", step.action, point))

    with Killer() as killer:
        run_histories(examples(60), 8, Killed)
    assert died.count(-signal.SIGKILL) > 0
    assert set(died) <= {0, -signal.SIGKILL}, "a child failed otherwise than it should"


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_many_histories_on_any_schema_agree_with_the_model(part: int) -> None:
    run_histories(500, 20, Evolving if part % 2 else Histories)
