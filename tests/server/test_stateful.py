"""Sequences of requests, each made from answers to earlier ones, as a machine finds them in the description."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from omnigraph import graph as graphs
from tests.server.test_described_requests import SPECIFICATION
from tests.support.live_server import ADD, PEOPLE, TOKENS, serving_graph

pytestmark = pytest.mark.slow

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]
LISTING = """
version: 1
groups: {admins: [ada]}
rules:
  - {id: list, allow: {actors: {group: admins}, actions: [graph_list]}}
"""
LINE = '{"type": "Person", "data": {"name": "new"}}'
VALID: dict[str, dict[str, Any]] = {
    "query": {"query": PEOPLE},
    "read": {"query": PEOPLE},
    "mutate": {"query": ADD, "params": {"name": "other"}},
    "change": {"query": ADD, "params": {"name": "another"}},
    "load": {"data": LINE, "mode": "merge"},
    "ingest": {"data": LINE, "mode": "merge"},
}
SEQUENCES = settings(
    max_examples=15,
    stateful_step_count=8,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_server_asked_in_sequences_never_fails_and_stays_sound(
    graph_uri: str, policy: Path, queries: Path, tmp_path: Path
) -> None:
    # Sequences begin at the list of graphs, which has to be allowed.
    server_policy = tmp_path / "server.yaml"
    server_policy.write_text(LISTING, encoding="utf-8")
    done: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    machine: Any = SPECIFICATION.as_state_machine()
    guards: Any = {"tokens": TOKENS, "policy": policy, "server_policy": server_policy}
    with serving_graph(graph_uri, **guards, queries=queries) as live:

        class Sequence(machine):  # type: ignore[misc]
            def get_call_kwargs(self, case: Any) -> dict[str, Any]:
                headers = {"Authorization": f"Bearer {TOKENS['ada']}"}
                return {"base_url": f"http://{live.host}:{live.port}", "headers": headers}

            def before_call(self, case: Any) -> None:
                if "graph_id" in case.path_parameters:
                    case.path_parameters["graph_id"] = "g"
                valid = VALID.get(case.operation.path.rpartition("/")[2])
                asked[case.operation.path] += 1
                # Random texts are hardly ever queries or data; every other call brings some that are.
                if valid is not None and asked[case.operation.path] % 2:
                    case.body = dict(valid)

            def after_call(self, response: Any, case: Any) -> None:
                done[f"{case.method} {case.operation.path}"] += response.status_code == 200

            def validate_response(self, response: Any, case: Any, **more: Any) -> None:
                case.validate_response(response, checks=CHECKS)

        run_state_machine_as_test(Sequence, settings=SEQUENCES)
    assert sum(count > 0 for count in done.values()) >= 8, done
    with graphs.open(graph_uri) as graph:
        assert graph.maintenance.verify().is_sound
