"""How often a request asks the policy: once for each fact."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from omnigraph.engine.authorization import on_branch
from omnigraph.errors import PolicyDenied
from omnigraph.graph import session_of
from omnigraph.manifest.model import MAIN_NAMES
from omnigraph.server.auth import DecisionCache
from omnigraph.wire import NDJSON
from tests.support.live_server import ADD, PEOPLE, TOKENS, serving_graph
from tests.support.policy_recorder import Recorder

G = "/graphs/g"
LINE = b'{"type": "Person", "data": {"name": "p9"}}'
REQUESTS = {
    "query": ("POST", "/query", {"query": PEOPLE}, {"read"}),
    "mutate": ("POST", "/mutate", {"query": ADD, "params": {"name": "p8"}}, {"change", "read"}),
    "stored read": ("POST", "/queries/people", {}, {"read", "invoke_query"}),
    "stored mutation": ("POST", "/queries/add", {"params": {"name": "p7"}}, {"change", "read", "invoke_query"}),
    "load": ("POST", "/load/ndjson?branch=main", LINE, {"change", "read"}),
    "commits": ("GET", "/commits", None, {"read"}),
    "tag": ("POST", "/tags", {"name": "v1"}, {"tag_create", "read"}),
    "branch": ("POST", "/branches", {"name": "draft"}, {"branch_create", "read", "export"}),
}


@pytest.mark.parametrize("request_name", REQUESTS)
def test_request_asks_the_policy_each_question_once(request_name: str, graph_uri: str, queries: Path) -> None:
    method, path, body, actions = REQUESTS[request_name]
    recorder = Recorder()
    with serving_graph(graph_uri, tokens=TOKENS, queries=queries) as live:
        session_of(live.service.registry.served["g"].graph).policy = recorder
        headers = {"Content-Type": NDJSON} if isinstance(body, bytes) else {}
        reply = live.ask(method, G + path, body, headers=headers)
    assert reply.status == 200, reply.body
    asked: Counter[Any] = Counter(
        (action, scope, scope.branch_names, scope.target_names) for action, scope, _ in recorder.asked
    )
    assert {key: count for key, count in asked.items() if count > 1} == {}
    assert {key: count for key, count in Counter(recorder.asked_types).items() if count > 1} == {}
    assert {action for action, *_ in recorder.asked} | {action for action, *_ in recorder.asked_types} == actions


def test_remembered_denial_is_raised_again() -> None:
    recorder = Recorder(denies={"change"})
    decisions = DecisionCache(recorder)
    for _ in range(2):
        with pytest.raises(PolicyDenied):
            decisions.enforce("change", on_branch("main"), "ada")
    # Under other former names it is another question.
    decisions.enforce("read", on_branch("main"), "ada")
    decisions.enforce("read", on_branch(MAIN_NAMES), "ada")
    assert [action for action, *_ in recorder.asked] == ["change", "read", "read"]
