"""Runs a parsed case against the product and says, with file and line, where they differ.

A case that loads, runs or exports gets a graph of its own; the others only compile. Pending cases compile, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from omnigraph.errors import OmniGraphError
from omnigraph.lang.diagnostic import LanguageError, Source
from omnigraph.lang.schema import CompiledSchema, compile_schema
from tests.support.case_expectations import CaseFailure, Outcome, check
from tests.support.case_file import CASES, EXPECTATIONS, Case, Step

if TYPE_CHECKING:
    from tests.support.case_engine import Engine

DOMAIN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
ENGINE_VERBS = frozenset(
    {"load", "export", "rows", "ordered", "columns", "types", "affected", "commits", "export-lines"}
    | {"params", "index", "embedder", "branch"}
)
GRAPH_ACTIONS = frozenset({"query", "mutate", "load", "export", "migrate", "params", "index", "embedder", "branch"})


@dataclass(slots=True)
class State:
    """The schema that the steps of one case share, and its graph if it has one."""

    schema: CompiledSchema | None = None
    engine: Engine | None = None

    def accepted(self) -> CompiledSchema:
        if self.schema is None:
            raise CaseFailure("the step needs `-- fixture` or `-- schema` before it")
        return self.schema


def run_case(case: Case) -> None:
    """Run every step that can run today, and raise `CaseFailure` at the first difference."""
    if case.pending or not needs_graph(case):
        _run_steps(case, State())
        return
    from tests.support.case_engine import Engine

    with Engine.running() as engine:
        _run_steps(case, State(engine=engine))


def _run_steps(case: Case, state: State) -> None:
    for step, expectations in _groups(case):
        try:
            _run_step(case, state, step, expectations)
        except CaseFailure as failure:
            place = f"cases/{case.file}:{failure.line or step.line}"
            raise CaseFailure(f"{place}: case {case.id} ({case.title}): {failure}") from None


def needs_graph(case: Case) -> bool:
    """Tell whether a case is about data: it says so, or it expects an error that only running gives."""
    codes = [step.arguments for step in case.steps if step.verb == "error"]
    fails_when_run = any(code.startswith(("E", "N")) or "." in code for code in codes)
    return fails_when_run or any(step.verb in ENGINE_VERBS for step in case.steps)


def _groups(case: Case) -> list[tuple[Step, list[Step]]]:
    groups: list[tuple[Step, list[Step]]] = []
    for step in case.steps:
        if step.verb in EXPECTATIONS:
            groups[-1][1].append(step)
        else:
            groups.append((step, []))
    return groups


def _run_step(case: Case, state: State, step: Step, expectations: list[Step]) -> None:
    if not case.pending:
        check(_outcome(state, step), expectations)
        return
    static = [e for e in expectations if e.verb not in ENGINE_VERBS]
    codes = [e.arguments.split()[0] for e in static if e.verb == "error" and e.arguments]
    # A pending step that fails when it runs may or may not compile: only the engine can tell.
    fails_when_run = bool(codes) and all(code.startswith(("E", "N")) or "." in code for code in codes)
    if step.verb not in ENGINE_VERBS and not fails_when_run:
        check(_outcome(state, step), static)


def _outcome(state: State, step: Step) -> Outcome:
    try:
        compiled = _STEPS[step.verb](state, step) if step.verb in _STEPS else None
        if state.engine is None:
            return Outcome(compiled)
        if step.verb in GRAPH_ACTIONS:
            return Outcome(compiled, ran=state.engine.run(step))
        _prepare(state.engine, step)
        return Outcome(compiled)
    except LanguageError as error:
        return Outcome(None, error.diagnostics)
    except OmniGraphError as error:
        return Outcome(None, failure=error)


def _prepare(engine: Engine, step: Step) -> None:
    if step.verb == "fixture":
        engine.use_fixture(step.arguments)
    elif step.verb in ("schema", "accepted"):
        engine.use_schema(step.body)


@cache
def fixture(name: str) -> CompiledSchema:
    """Compile `fixtures/NAME.pg` once a process."""
    text = (CASES / "fixtures" / f"{name}.pg").read_text(encoding="utf-8")
    return compile_schema(Source(f"{name}.pg", text), domain=DOMAIN)


def _fixture(state: State, step: Step) -> object:
    state.schema = fixture(step.arguments)
    return state.schema


def _schema(state: State, step: Step) -> object:
    state.schema = None
    state.schema = compile_schema(Source("schema.pg", step.body), domain=DOMAIN)
    return state.schema


def _migrate(state: State, step: Step) -> object:
    allow = step.arguments == "allow-data-loss"
    if step.arguments and not allow:
        raise CaseFailure(f"`-- migrate` takes `allow-data-loss` or nothing, not `{step.arguments}`")
    from omnigraph.lang.migrate import plan_migration

    return plan_migration(state.accepted().ir, Source("new.pg", step.body), allow_data_loss=allow)


def _query(state: State, step: Step) -> object:
    from omnigraph.lang.query import compile_query, require_kind

    compiled = compile_query(Source("query.gq", step.body), state.accepted().catalog, name=step.option("name"))
    return require_kind(compiled, "read" if step.verb == "query" else "mutation")


def _lint(state: State, step: Step) -> object:
    from omnigraph.lang.query import lint_queries

    return lint_queries([Source("query.gq", step.body)], state.accepted().catalog)


def _values(state: State, step: Step) -> object:
    from tests.support.case_key import key_of

    name = step.option("type")
    node = state.accepted().catalog.nodes.get(name or "")
    if node is None:
        raise CaseFailure("`-- values {json} type=T` names no node type of the schema")
    return key_of(node, json.loads(step.arguments.removesuffix(f"type={name}").strip() or step.body))


_STEPS: Mapping[str, Callable[[State, Step], object]] = {
    "fixture": _fixture,
    "schema": _schema,
    "accepted": _schema,
    "migrate": _migrate,
    "query": _query,
    "mutate": _query,
    "lint": _lint,
    "values": _values,
}
