"""Who may come in and what they may do: tokens, the states of a server, policy at the edge, admission."""

from __future__ import annotations

import http.client
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import orjson
import pytest

from omnigraph.errors import GraphError, OmniGraphError, UsageError
from omnigraph.server.admission import Admission
from omnigraph.server.auth import READ_ONLY_POLICY, AuthMode, Tokens, read_tokens
from omnigraph.server.registry import GraphConfig, open_registry
from omnigraph.wire import JSON, NDJSON
from tests.support.live_server import ADD, PEOPLE, SCHEMA, TOKENS, Live, serving_graph

G = "/graphs/g"


def test_actor_of_known_token_is_its_actor() -> None:
    assert Tokens.of(TOKENS).actor_of("Bearer token-of-bob") == "bob"
    assert Tokens.of(TOKENS).actor_of("bearer  token-of-bob ") == "bob"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (None, "missing bearer token"),
        ("", "missing bearer token"),
        ("Bearer", "missing bearer token"),
        ("Basic dG9rZW4=", "missing bearer token"),
        ("Bearer token-of-mallory", "invalid bearer token"),
        ("Bearer token-of-ada token-of-bob", "invalid bearer token"),
    ],
)
def test_actor_of_missing_or_unknown_token_is_refused(header: str | None, message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        Tokens.of(TOKENS).actor_of(header)
    assert caught.value.kind.http_status == 401


def test_actor_of_compares_with_every_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return one == other

    monkeypatch.setattr("omnigraph.server.auth.hmac.compare_digest", compare)
    assert Tokens.of(TOKENS).actor_of("Bearer token-of-ada") == "ada"
    assert len(compared) == len(TOKENS)


def test_tokens_keep_no_plaintext() -> None:
    assert "token-of" not in repr(Tokens.of(TOKENS))


@pytest.mark.parametrize("given", [{"ada": " "}, {" ": "x"}, {"ada": "x", "bob": "x"}, {"ada": "x", "ada ": "y"}])
def test_tokens_blank_or_shared_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        Tokens.of(given)


def test_read_tokens_takes_file_or_text_and_the_single_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert read_tokens() == Tokens()
    monkeypatch.setenv("OMNIGRAPH_SERVER_BEARER_TOKEN", "one")
    assert read_tokens().actor_of("Bearer one") == "default"
    monkeypatch.setenv("OMNIGRAPH_SERVER_BEARER_TOKENS_JSON", '{"ada": "two"}')
    assert read_tokens().actor_of("Bearer two") == "ada"
    assert read_tokens().actor_of("Bearer one") == "default"
    file = tmp_path / "tokens.json"
    file.touch(mode=0o600)
    file.write_text('{"bob": "three"}')
    monkeypatch.setenv("OMNIGRAPH_SERVER_BEARER_TOKENS_FILE", str(file))
    with pytest.raises(UsageError, match="both"):
        read_tokens()
    monkeypatch.delenv("OMNIGRAPH_SERVER_BEARER_TOKENS_JSON")
    assert read_tokens().actor_of("Bearer three") == "bob"
    monkeypatch.setenv("OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET", "arn")
    with pytest.raises(UsageError, match="AWS"):
        read_tokens()


def test_read_tokens_two_tokens_of_one_actor_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_SERVER_BEARER_TOKENS_JSON", '{"ada": "secret-1", "ada": "secret-2"}')
    with pytest.raises(UsageError, match="two tokens for the actor `ada`") as caught:
        read_tokens()
    assert "secret" not in str(caught.value.to_json())


@pytest.mark.parametrize("text", ['{"ada": "secret-1"', '["secret-1"]', '{"ada": 1}', "secret-1"])
def test_read_tokens_malformed_text_is_refused_and_not_told(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("OMNIGRAPH_SERVER_BEARER_TOKENS_JSON", text)
    with pytest.raises(UsageError) as caught:
        read_tokens()
    assert "secret-1" not in str(caught.value.to_json())


@pytest.mark.parametrize(
    ("has_tokens", "has_policy", "is_unauthenticated", "starts"),
    [
        (False, False, False, False),
        (False, False, True, True),
        (True, False, False, True),
        (True, True, False, True),
        (False, True, False, False),
        (False, True, True, False),
    ],
)
def test_doors_start_only_in_a_known_state(
    has_tokens: bool, has_policy: bool, is_unauthenticated: bool, starts: bool
) -> None:
    doors = AuthMode(has_tokens, has_policy, is_unauthenticated)
    if starts:
        doors.check()
    else:
        with pytest.raises(UsageError):
            doors.check()


@pytest.mark.parametrize("graph_id", ["", "a b", "graphs", "healthz", "x" * 65, "a/b", "ä"])
def test_open_house_graph_id_that_cannot_be_is_refused(graph_id: str, graph_uri: str) -> None:
    with pytest.raises(UsageError):
        open_registry([GraphConfig(graph_id, graph_uri)], Tokens(), is_unauthenticated=True)


def test_default_deny_lets_token_holders_read_only(graph_uri: str) -> None:
    with serving_graph(graph_uri, tokens=TOKENS) as live:
        assert live.post(f"{G}/query", {"query": PEOPLE}).status == 200
        assert live.get(f"{G}/branches").status == 200
        for method, path, body in [
            ("POST", "/mutate", {"query": ADD, "params": {"name": "x"}}),
            ("POST", "/export", {}),
            ("POST", "/branches", {"name": "x"}),
            ("DELETE", "/branches/x", None),
            ("POST", "/changes/baseline", {}),
            ("POST", "/schema/apply", {"schema_source": ""}),
            ("POST", "/tags", {"name": "x"}),
        ]:
            reply = live.ask(method, f"{G}{path}", body)
            assert (reply.status, reply.json()["code"]) == (403, "forbidden"), path
        assert live.post(f"{G}/query", {"query": PEOPLE}, actor=None).status == 401
        assert live.get("/graphs").status == 403


def test_readers_only_policy_holds_in_the_engine_too(graph_uri: str) -> None:
    house = open_registry([GraphConfig("g", graph_uri)], Tokens.of(TOKENS))
    graph = house.served["g"].graph.acting_as("ada")
    with pytest.raises(OmniGraphError) as caught:
        graph.mutate(ADD, params={"name": "x"})
    assert caught.value.code == "policy.denied"
    assert house.served["g"].checker is READ_ONLY_POLICY
    house.close()


def test_policy_allows_by_actor_and_branch(guarded: Live) -> None:
    add = {"query": ADD, "params": {"name": "x"}}
    assert guarded.post(f"{G}/mutate", add).json()["actor_id"] == "ada"
    denied = guarded.post(f"{G}/mutate", add, actor="bob")
    assert denied.status == 403
    assert "`change` on branch `main` is not allowed for `bob`" in denied.json()["error"]
    assert guarded.post(f"{G}/branches", {"name": "draft"}).status == 200
    assert guarded.post(f"{G}/mutate", {**add, "branch": "draft"}, actor="bob").json()["actor_id"] == "bob"
    assert guarded.post(f"{G}/mutate", {**add, "branch": " main "}, actor="bob").status == 403
    assert guarded.post(f"{G}/query", {"query": PEOPLE}, actor="eve").status == 404
    assert guarded.post(f"{G}/export", {}, actor="bob").status == 403
    assert guarded.get("/graphs").status == 403


def test_actor_comes_from_the_token_alone(guarded: Live) -> None:
    headers = {"X-Actor": "ada", "Omnigraph-Actor": "ada"}
    body = {"query": ADD, "params": {"name": "x"}, "actor_id": "ada"}
    assert guarded.post(f"{G}/mutate", body, actor="ada", headers=headers).status == 400
    del body["actor_id"]
    assert guarded.post(f"{G}/mutate", body, actor="bob", headers=headers).status == 403


WRITES: list[tuple[str, str, object]] = [
    ("POST", "/branches", {"name": "draft"}),
    ("POST", "/branches/rename", {"name": "draft", "new_name": "later"}),
    ("POST", "/load", {"data": '{"type": "Person", "data": {"name": "x"}}\n', "branch": "later"}),
    ("POST", "/tags", {"name": "v1"}),
    ("DELETE", "/tags/v1", None),
    ("DELETE", "/branches/later", None),
    ("POST", "/schema/apply", {"schema_source": SCHEMA}),
]


@pytest.mark.parametrize("is_admin", [False, True])
def test_answers_tell_where_a_graph_is_stored_to_administrators_alone(
    graph_uri: str, policy: Path, is_admin: bool
) -> None:
    if is_admin:
        rule = "  - {id: admin, allow: {actors: {group: writers}, actions: [admin]}}\n"
        policy.write_text(policy.read_text() + rule)
    with serving_graph(graph_uri, tokens=TOKENS, policy=policy) as live:
        for method, path, body in WRITES:
            reply = live.ask(method, f"{G}{path}", body)
            assert reply.status == 200, (path, reply.json())
            assert reply.json()["uri"] == (graph_uri if is_admin else "g"), path
            assert ("secret-place" in str(reply.json())) is is_admin


def test_graph_list_needs_a_policy_of_the_server(graph_uri: str, policy: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "server.yaml"
    bundle.write_text(
        "version: 1\ngroups: {admins: [ada]}\nrules:\n"
        "  - {id: list, allow: {actors: {group: admins}, actions: [graph_list]}}\n"
    )
    with serving_graph(graph_uri, tokens=TOKENS, policy=policy, server_policy=bundle) as live:
        assert live.get("/graphs").json() == {"graphs": [{"graph_id": "g", "uri": graph_uri}]}
        assert live.get("/graphs", actor="bob").status == 403
        assert live.get("/graphs", actor=None).status == 401


def test_metrics_need_a_rule_where_the_server_has_a_policy(graph_uri: str, policy: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "server.yaml"
    bundle.write_text(
        "version: 1\ngroups: {admins: [ada]}\nrules:\n"
        "  - {id: list, allow: {actors: {group: admins}, actions: [metrics_read]}}\n"
    )
    with serving_graph(graph_uri, tokens=TOKENS, policy=policy, server_policy=bundle) as live:
        assert live.get("/metrics").status == 200
        assert live.get("/metrics", actor="bob").status == 403
    with serving_graph(graph_uri, tokens=TOKENS, policy=policy) as live:
        assert live.get("/metrics", actor="bob").status == 200


def test_graph_without_any_rule_for_an_actor_is_not_there_for_it(graph_uri: str, tmp_path: Path) -> None:
    rules = tmp_path / "policy.yaml"
    rules.write_text(
        "version: 1\ngroups: {all: [ada]}\nrules:\n  - {id: r, allow: {actors: {group: all}, actions: [read]}}\n"
    )
    server = tmp_path / "server.yaml"
    server.write_text(
        "version: 1\ngroups: {all: [bob]}\nrules:\n  - {id: l, allow: {actors: {group: all}, actions: [graph_list]}}\n"
    )
    with serving_graph(graph_uri, tokens=TOKENS, policy=rules) as live:
        for path in ("/snapshot", "/branches", f"/commits/{NOWHERE}/changes"):
            told = [live.get(f"/graphs/{name}{path}", actor="bob") for name in ("g", "h")]
            assert [one.status for one in told] == [404, 404]
            bodies = [one.body.decode().replace("`h`", "`g`") for one in told]
            assert without_id(bodies[0]) == without_id(bodies[1])
        assert live.get("/graphs/g/branches").status == 200
    # Whoever may list the graphs knows that it is served.
    with serving_graph(graph_uri, tokens=TOKENS, policy=rules, server_policy=server) as live:
        assert live.get("/graphs/g/branches", actor="bob").status == 403


SCOPED = """
version: 1
groups: {all: [ada], some: [bob]}
protected_branches: [main, secret]
rules:
  - {id: a, allow: {actors: {group: all}, actions: [read, change, export]}}
  - {id: b, allow: {actors: {group: all}, actions: [branch_create, branch_delete]}}
  - {id: c, allow: {actors: {group: some}, actions: [read, export], branch_scope: unprotected}}
"""
NOWHERE = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def without_id(body: str) -> str:
    return re.sub(r'"request_id":"[^"]*"', "", body)


@pytest.mark.slow
def test_commit_of_a_branch_that_may_not_be_read_looks_absent(graph_uri: str, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(SCOPED)
    with serving_graph(graph_uri, tokens=TOKENS, policy=tmp_path / "policy.yaml") as live:
        for name in ("secret", "open"):
            assert live.post(f"{G}/branches", {"name": name}).status == 200
        made = live.post(f"{G}/mutate", {"query": ADD, "params": {"name": "top"}, "branch": "secret"})
        commit = live.get(f"{G}/commits?branch=secret").json()["commits"][0]["graph_commit_id"]
        assert made.status == 200
        for _ in ("live", "deleted"):
            for method, path, body in [
                ("GET", "/commits/{}", None),
                ("GET", "/commits/{}/changes", None),
                ("POST", "/query", {"query": PEOPLE, "snapshot": "{}"}),
                ("POST", "/export", {"snapshot": "{}"}),
                ("POST", "/diff", {"from": "{}", "to": "open", "branch": "open"}),
            ]:
                told = []
                for one in (commit, NOWHERE):
                    given = None if body is None else orjson.loads(orjson.dumps(body).replace(b"{}", one.encode()))
                    reply = live.ask(method, f"{G}{path.format(one)}", given, actor="bob")
                    told.append((reply.status, without_id(reply.body.decode()).replace(one, "ID")))
                assert told[0] == told[1], path
                assert told[0][0] in (403, 404), path
                assert "secret" not in told[0][1], path
            assert live.ask("DELETE", f"{G}/branches/secret").status in (200, 404)


def test_stored_query_that_is_denied_looks_like_one_that_is_not_there(guarded: Live) -> None:
    denied = guarded.post(f"{G}/queries/people", {}, actor="bob")
    unknown = guarded.post(f"{G}/queries/nothing", {}, actor="ada")
    assert denied.status == unknown.status == 404
    assert denied.json() | {"request_id": ""} == unknown.json() | {"request_id": ""}
    assert guarded.post(f"{G}/queries/people", {}, actor="ada").status == 200


def test_stored_queries_are_listed_only_to_who_may_call_them(guarded: Live, graph_uri: str, queries: Path) -> None:
    def listed(live: Live, actor: str) -> list[str]:
        return [one["name"] for one in live.get(f"{G}/queries", actor=actor).json()["queries"]]

    assert "people" in listed(guarded, "ada")
    assert listed(guarded, "bob") == []
    with serving_graph(graph_uri, tokens=TOKENS, queries=queries) as live:
        # Without a policy a token lets its actor read, and no more.
        assert listed(live, "ada") == []
        refused = live.post(f"{G}/queries/people", {}, actor="ada")
        assert (refused.status, "that takes `invoke_query`" in refused.json()["error"]) == (404, True)
    with serving_graph(graph_uri, queries=queries) as live:
        assert "people" in listed(live, "ada")
        assert live.post(f"{G}/queries/people", {}).status == 200


TYPED = """
version: 1
groups: {some: [ada], all: [bob]}
rules:
  - {id: some-read, allow: {actors: {group: some}, actions: [read, export], branch_scope: any, types: [Person]}}
  - {id: all-read, allow: {actors: {group: all}, actions: [read, export], branch_scope: any}}
  - {id: some-call, allow: {actors: {group: some}, actions: [invoke_query]}}
  - {id: all-call, allow: {actors: {group: all}, actions: [invoke_query]}}
"""
PAIRS = "query pairs() { match { $a: Person $a knows $b } return { $a.name as a, $b.name as b } }"


@pytest.mark.slow
def test_type_that_an_actor_may_not_read_is_in_no_answer(graph_uri: str, tmp_path: Path, queries: Path) -> None:
    (tmp_path / "typed.yaml").write_text(TYPED)
    (queries / "pairs.gq").write_text(PAIRS)
    with serving_graph(graph_uri, tokens=TOKENS, policy=tmp_path / "typed.yaml", queries=queries) as live:

        def everything(actor: str) -> bytes:
            head = live.get(f"{G}/commits", actor=actor).json()["commits"][0]["graph_commit_id"]
            asked = [
                *(live.get(f"{G}{path}", actor=actor) for path in ("/snapshot", "/schema", "/queries", "/commits")),
                live.get(f"{G}/changes?start=beginning", actor=actor),
                live.get(f"{G}/commits/{head}/changes", actor=actor),
                live.post(f"{G}/export", {}, actor=actor),
                live.post(f"{G}/changes/baseline", {}, actor=actor),
                live.post(f"{G}/explain", {"query": PEOPLE}, actor=actor),
            ]
            assert [one.status for one in asked] == [200] * len(asked)
            return b"".join(one.body for one in asked)

        assert b"Knows" in everything("bob")
        assert b"Knows" not in everything("ada")
        assert live.post(f"{G}/query", {"query": PAIRS}, actor="bob").json()["row_count"] == 2
        refused = live.post(f"{G}/query", {"query": PAIRS}, actor="ada")
        assert refused.status == 400
        assert live.post(f"{G}/queries/pairs", {}, actor="bob").status == 200
        assert (
            live.post(f"{G}/queries/pairs", {}, actor="ada")
            .json()["error"]
            .startswith("the stored query does not exist, or")
        )


def test_unknown_graph_is_told_only_to_who_has_a_token(guarded: Live) -> None:
    assert guarded.get("/graphs/none/schema", actor=None).status == 401
    assert guarded.get("/graphs/none/schema").status == 404
    assert guarded.get("/graphs/n%20ne/schema").status == 400


def status_without_body(live: Live, path: str, media: str, size: int, **headers: str) -> int:
    """Announce a body and never send it: an answer can only come from a server that does not wait for it."""
    connection = live.connect(timeout=20)
    connection.putrequest("POST", f"{G}{path}")
    for name, value in {"Content-Type": media, "Content-Length": str(size), **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    return status


def test_denied_request_reads_no_body_and_takes_no_slot(guarded: Live) -> None:
    bob = f"Bearer {TOKENS['bob']}"
    assert status_without_body(guarded, "/load/ndjson?branch=main", NDJSON, 1_000_000, Authorization=bob) == 403
    assert status_without_body(guarded, "/branches", JSON, 1_000, Authorization=bob) == 403
    assert guarded.service.admission.inflight == 0


def test_admission_refuses_what_is_over_the_cap_and_gives_places_back() -> None:
    admission = Admission(2, 100)
    with admission.admit("ada", 60):
        with pytest.raises(GraphError, match="100 bytes"), admission.admit("ada", 60):
            pass
        with admission.admit("bob", 60), admission.admit("ada", 40):
            with pytest.raises(GraphError, match="2 requests") as caught, admission.admit("ada", 0):
                pass
            assert caught.value.kind.http_status == 429
        with pytest.raises(ValueError), admission.admit(None, 100):
            raise ValueError
    assert admission.inflight == 0


def test_admission_race_never_exceeds_the_cap() -> None:
    admission = Admission(5, 1_000)
    start, leave = threading.Barrier(16), threading.Event()
    answered = threading.Semaphore(0)

    def enter(_: int) -> str:
        start.wait(60)
        try:
            with admission.admit("ada", 1):
                answered.release()
                assert leave.wait(60)
                return "admitted"
        except GraphError as error:
            answered.release()
            return error.code

    with ThreadPoolExecutor(16) as pool:
        waiting = [pool.submit(enter, number) for number in range(16)]
        # Whoever came in stays, so the cap is full when the last was answered.
        assert all(answered.acquire(timeout=60) for _ in waiting)
        inflight = admission.inflight
        leave.set()
        told = sorted(one.result() for one in waiting)
    assert inflight == 5
    assert told == ["admitted"] * 5 + ["request.too_many"] * 11
    assert admission.inflight == 0


@pytest.mark.parametrize(("path", "media"), [("/load", JSON), ("/load/ndjson", NDJSON), ("/branches", JSON)])
def test_write_without_room_is_refused_before_its_body_is_read(live: Live, path: str, media: str) -> None:
    with ExitStack() as full:
        for _ in range(live.service.admission.inflight_max):
            full.enter_context(live.service.admission.admit(None, 0))
        assert status_without_body(live, path, media, 1_000) == 429


def test_write_that_announces_too_many_bytes_is_refused(live: Live) -> None:
    free = live.service.admission.bytes_max
    with live.service.admission.admit(None, free - 1_000):
        reply = live.post(f"{G}/load", {"data": "\n" * 1_000})
    assert (reply.status, reply.json()["context"]["resource"]) == (429, "bytes")


def test_actor_with_too_many_writes_is_told_when_to_come_back(graph_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX", "1")
    started, finish = threading.Event(), threading.Event()
    with serving_graph(graph_uri) as live:
        graph = live.service.registry.served["g"].graph
        plain = type(graph).mutate

        def slow(*given: object, **more: object) -> object:
            started.set()
            assert finish.wait(30)
            return plain(*given, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(type(graph), "mutate", slow)
        add = {"query": ADD, "params": {"name": "x"}}
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(live.post, f"{G}/mutate", add)
            assert started.wait(30)
            second = live.post(f"{G}/mutate", add)
            assert (second.status, second.json()["code"]) == (429, "too_many_requests")
            assert second.headers["retry-after"] == "60"
            assert live.post(f"{G}/query", {"query": PEOPLE}).status == 200
            finish.set()
            assert first.result().status == 200
        assert live.post(f"{G}/mutate", add).status == 200


def test_metrics_need_a_token_and_name_no_graph(guarded: Live) -> None:
    guarded.post(f"{G}/mutate", {"query": ADD, "params": {"name": "x"}})
    guarded.post(f"{G}/mutate", {"query": ADD, "params": {"name": "x"}}, actor="bob")
    assert guarded.get("/metrics", actor=None).status == 401
    text = guarded.get("/metrics").body.decode()
    assert "omnigraph_commits_total 1\n" in text
    assert "omnigraph_policy_denials_total 1\n" in text
    route = "/graphs/{graph_id}/mutate"
    assert f'omnigraph_http_requests_total{{method="POST",route="{route}",status="403"}} 1\n' in text
    assert f'omnigraph_http_request_seconds_bucket{{route="{route}",le="+Inf"}} 2\n' in text
    assert 'operation="publish"' in text
    assert "people.omni" not in text
    assert "secret-place" not in text


def test_connection_is_kept_after_a_refusal(guarded: Live) -> None:
    connection = guarded.connect()
    for _ in range(3):
        connection.request("POST", f"{G}/mutate", orjson.dumps({"query": ADD}), {"Content-Type": "application/json"})
        answer: http.client.HTTPResponse = connection.getresponse()
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        answer.read()
    connection.close()
