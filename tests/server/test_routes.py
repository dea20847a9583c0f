"""Every route, asked well and asked badly, over a real connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

from omnigraph import graph as graphs
from omnigraph.errors import StorageError
from omnigraph.graph import session_of
from omnigraph.server.routes import ROUTES
from omnigraph.wire import ARROW, IF_COMMIT, NDJSON
from tests.support.live_server import ADD, FIND, PEOPLE, SCHEMA, Live, Reply

pytestmark = pytest.mark.slow

G = "/graphs/g"
LINE = b'{"type": "Person", "data": {"name": "new"}}\n'


def head_of(live: Live, branch: str = "main") -> str:
    return str(live.get(f"{G}/snapshot?branch={quote(branch)}").json()["graph_commit_id"])


def query(live: Live) -> Reply:
    reply = live.post(f"{G}/query", {"query": PEOPLE})
    body = reply.json()
    assert body["query_name"] == "people"
    assert body["target"] == {"branch": "main"}
    assert body["row_count"] == len(body["rows"]) == 5
    assert body["columns"] == ["name", "age"]
    assert body["rows"][1] == {"name": "p1", "age": 1}
    assert body["graph_commit_id"] == head_of(live)
    return reply


def read(live: Live) -> Reply:
    reply = live.post(f"{G}/read", {"query_source": FIND, "query_name": "find", "params": {"name": "p1"}})
    assert reply.json() == {
        "query_name": "find",
        "target": {"branch": "main"},
        "row_count": 1,
        "columns": ["age"],
        "rows": [{"age": 1}],
    }
    return reply


def explain(live: Live) -> Reply:
    reply = live.post(f"{G}/explain", {"query": FIND, "params": {"name": "p1"}, "profile": True})
    assert reply.json()["query"] == "find"
    assert reply.json()["text"].startswith("read find")
    return reply


def mutate(live: Live) -> Reply:
    reply = live.post(f"{G}/mutate", {"query": ADD, "params": {"name": "q", "age": 7}})
    body = reply.json()
    assert (body["affected_nodes"], body["affected_edges"], body["query_name"]) == (1, 0, "add")
    assert body["commit"] == live.get(f"{G}/commits/{head_of(live)}").json()
    return reply


def change(live: Live) -> Reply:
    return live.post(f"{G}/change", {"query_source": ADD, "query_name": "add", "params": {"name": "q"}})


def mutate_if(live: Live) -> Reply:
    held = {IF_COMMIT: head_of(live)}
    reply = live.post(f"{G}/mutate/if-graph-commit", {"query": ADD, "params": {"name": "q"}}, headers=held)
    lost = live.post(f"{G}/mutate/if-graph-commit", {"query": ADD, "params": {"name": "r"}}, headers=held)
    assert lost.status == 412
    assert "code" not in lost.json()
    assert lost.json()["precondition_failure"] == {"expected": held[IF_COMMIT], "actual": head_of(live)}
    return reply


def stored(live: Live) -> Reply:
    reply = live.get(f"{G}/queries")
    add, people = reply.json()["queries"]
    assert add["mutation"] is True
    assert add["params"] == [{"name": "name", "kind": "string", "nullable": False}]
    assert people["name"] == people["tool_name"] == "people"
    return reply


def invoke(live: Live) -> Reply:
    reply = live.post(f"{G}/queries/people", {"branch": "main", "expect_mutation": False})
    assert [row["name"] for row in reply.json()["rows"]] == ["p0", "p1", "p2", "p3", "p4"]
    assert live.post(f"{G}/queries/add", {"params": {"name": "z"}}).json()["affected_nodes"] == 1
    return reply


def invoke_if(live: Live) -> Reply:
    held = {IF_COMMIT: head_of(live)}
    reply = live.post(f"{G}/queries/add/if-graph-commit", {"params": {"name": "z"}}, headers=held)
    assert live.post(f"{G}/queries/add/if-graph-commit", {"params": {"name": "y"}}, headers=held).status == 412
    assert live.post(f"{G}/queries/people/if-graph-commit", {}, headers=held).status == 400
    return reply


def schema_apply(live: Live) -> Reply:
    wider = SCHEMA.replace("age: I32?", "age: I32?\n    mail: String?")
    plan = live.post(f"{G}/schema/plan", {"schema_source": wider})
    assert plan.json()["supported"] is True
    reply = live.post(f"{G}/schema/apply", {"schema_source": wider})
    assert reply.json()["applied"] is True
    assert reply.json()["step_count"] == len(plan.json()["steps"]) > 0
    assert "mail" in live.get(f"{G}/schema").json()["schema_source"]
    return reply


def load(live: Live) -> Reply:
    reply = live.post(f"{G}/load", {"data": LINE.decode(), "branch": "draft", "from": "main", "mode": "append"})
    body = reply.json()
    assert (body["branch"], body["base_branch"], body["branch_created"]) == ("draft", "main", True)
    assert body["nodes"] == [{"name": "Person", "entities_loaded": 1}]
    assert body["uri"].endswith("people.omni")
    return reply


def ingest(live: Live) -> Reply:
    reply = live.post(f"{G}/ingest", {"data": LINE.decode(), "branch": "draft", "from": "main"})
    assert (reply.json()["mode"], reply.json()["base_branch"]) == ("merge", "main")
    return reply


def load_lines(live: Live) -> Reply:
    path = f"{G}/load/ndjson?branch=main&mode=append"
    reply = live.ask("POST", path, LINE, headers={"Content-Type": NDJSON})
    assert reply.json()["total_entities"] == 1
    assert "uri" not in reply.json()
    again = live.ask("POST", path, LINE, headers={"Content-Type": NDJSON})
    assert again.status == 409
    assert again.json()["key_conflict"] == {"entity_kind": "node", "type_name": "Person", "entity_id": "new"}
    return reply


def export(live: Live) -> Reply:
    reply = live.post(f"{G}/export", {"type_names": ["Person"]})
    assert reply.headers["content-type"] == NDJSON
    with graphs.open(live.service.registry.served["g"].graph.uri, read_only=True) as graph:
        assert reply.body == b"".join(graph.export(types=["Person"]))
    return reply


def branches(live: Live) -> Reply:
    made = live.post(f"{G}/branches", {"name": "review/x", "from": "main"})
    assert made.json()["name"] == "review/x"
    reply = live.get(f"{G}/branches")
    assert reply.json() == {"branches": ["main", "review/x"]}
    assert live.post(f"{G}/branches", {"name": "review/x"}).json()["code"] == "conflict"
    renamed = live.post(f"{G}/branches/rename", {"name": "review/x", "new_name": "merge"})
    assert renamed.json()["name"] == "merge"
    gone = live.ask("DELETE", f"{G}/branches/merge")
    assert gone.json()["name"] == "merge"
    assert live.ask("DELETE", f"{G}/branches/review%2Fx").status == 404
    return reply


def merge(live: Live) -> Reply:
    live.post(f"{G}/branches", {"name": "draft"})
    live.post(f"{G}/mutate", {"query": ADD, "params": {"name": "p1", "age": 50}, "branch": "draft"})
    live.post(f"{G}/mutate", {"query": ADD, "params": {"name": "p1", "age": 60}})
    refused = live.post(f"{G}/branches/merge", {"source": "draft"})
    assert refused.status == 409
    [conflict] = refused.json()["merge_conflicts"]
    assert conflict["kind"] == "divergent_update"
    assert (conflict["entity_kind"], conflict["type_name"], conflict["entity_id"]) == ("node", "Person", "p1")
    live.post(f"{G}/branches", {"name": "other"})
    live.post(f"{G}/mutate", {"query": ADD, "params": {"name": "m"}, "branch": "other"})
    reply = live.post(f"{G}/branches/merge", {"source": "other", "delete_branch": True})
    assert reply.json()["outcome"] == "fast_forward"
    assert reply.json()["branch_deleted"] is True
    return reply


def commits(live: Live) -> Reply:
    reply = live.get(f"{G}/commits?branch=main")
    newest, *older = reply.json()["commits"]
    assert newest["graph_commit_id"] == head_of(live)
    assert live.get(f"{G}/commits?limit=1").json()["commits"] == [newest]
    page = live.get(f"{G}/commits?limit=2&before={newest['graph_commit_id']}")
    assert page.json()["commits"] == older[:2]
    one = live.get(f"{G}/commits/{newest['graph_commit_id']}")
    assert one.json() == newest
    return reply


def commit_changes(live: Live) -> Reply:
    reply = live.get(f"{G}/commits/{head_of(live)}/changes?limit=2&kind=node&op=insert&op=update&type=Person")
    assert [one["id"] for one in reply.json()["changes"]] == ["p0", "p1"]
    rest = live.get(
        f"{G}/commits/{head_of(live)}/changes?kind=node&op=insert&op=update&type=Person"
        f"&page_token={reply.json()['next_page_token']}"
    )
    assert [one["id"] for one in rest.json()["changes"]] == ["p2", "p3", "p4"]
    return reply


def changes(live: Live) -> Reply:
    reply = live.get(f"{G}/changes?branch=main&start=beginning")
    assert reply.json()["caught_up"] is True
    cursor = reply.json()["cursor"]
    mutate(live)
    assert len(live.get(f"{G}/changes?cursor={cursor}&max_commits=5").json()["blocks"]) == 1
    return reply


def baseline(live: Live) -> Reply:
    reply = live.post(f"{G}/changes/baseline", {"type": ["Person"]})
    *_, last = reply.body.splitlines()
    assert b"resume_cursor" in last
    assert len(reply.body.splitlines()) == 6
    return reply


def entity(live: Live) -> Reply:
    reply = live.post(f"{G}/entity", {"type": "Person", "key": "p1"})
    assert reply.json()["rows"] == [{"id": "p1", "age": 1, "name": "p1"}]
    assert live.post(f"{G}/entity", {"type": "Person", "key": "p1", "at": "HEAD~1"}).json()["rows"] == []
    assert live.post(f"{G}/entity", {"type": "Person", "key": 1.5}).status == 400
    return reply


def log(live: Live) -> Reply:
    reply = live.post(f"{G}/log", {"type": "Person", "key": "p1", "limit": 3})
    [change] = reply.json()["changes"]
    assert (change["op"], change["commit"]["graph_commit_id"]) == ("insert", head_of(live))
    assert live.post(f"{G}/log", {"type": "Person", "key": "p1", "limit": 0}).status == 400
    return reply


def blame(live: Live) -> Reply:
    reply = live.post(f"{G}/blame", {"type": "Person", "key": {"name": "p1"}, "branch": "main"})
    assert {item["name"]: item["value"] for item in reply.json()["properties"]} == {
        "age": 1,
        "name": "p1",
        "photo": None,
    }
    return reply


def diff(live: Live) -> Reply:
    before = head_of(live)
    mutate(live)
    reply = live.post(f"{G}/diff", {"from": before, "to": "main", "op": ["insert"]})
    assert reply.json()["stats"]["inserts"] == 1
    images = live.post(f"{G}/diff", {"from": before, "to": "main", "images": True})
    [image] = images.json()["images"]
    assert image["after"]["properties"].keys() >= {"age", "name"}
    return reply


def replay(live: Live) -> Reply:
    live.post(f"{G}/branches", {"name": "draft"})
    added = live.post(f"{G}/mutate", {"query": ADD, "params": {"name": "q"}, "branch": "draft"}).json()["commit"]
    reply = live.post(f"{G}/cherry-pick", {"commit": added["graph_commit_id"]})
    assert reply.json()["outcome"] == "merged"
    back = live.post(f"{G}/revert", {"commit": reply.json()["commit"]["graph_commit_id"]})
    assert back.json()["commit"]["graph_commit_id"] == head_of(live)
    return reply


def tags(live: Live) -> Reply:
    made = live.post(f"{G}/tags", {"name": "v1"})
    assert made.json()["graph_commit_id"] == head_of(live)
    reply = live.get(f"{G}/tags")
    assert [one["name"] for one in reply.json()["tags"]] == ["v1"]
    assert live.post(f"{G}/query", {"query": PEOPLE, "snapshot": "v1"}).json()["target"] == {"snapshot": "v1"}
    assert live.ask("DELETE", f"{G}/tags/v1").status == 200
    assert live.ask("DELETE", f"{G}/tags/v1").status == 404
    return reply


def operation(live: Live) -> Reply:
    newest = live.get(f"{G}/commits").json()["commits"][0]
    reply = live.get(f"{G}/operations/{newest['operation_id']}")
    assert reply.json() == {"operation_id": newest["operation_id"], "outcome": "applied", "commit": newest}
    old = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert live.get(f"{G}/operations/{old}").json() == {"operation_id": old, "outcome": "absent", "commit": None}
    assert live.get(f"{G}/operations/none").status == 400
    return reply


def blob(live: Live) -> Reply:
    line = b'{"type": "Person", "data": {"name": "pic", "photo": "base64:AQID"}}'
    live.ask("POST", f"{G}/load/ndjson", line, headers={"Content-Type": NDJSON})
    path = f"{G}/blob?entity=node&type=Person&id=pic&property=photo"
    assert live.get(path).body == b"\1\2\3"
    return live.ask("HEAD", path)


def plain(path: str, member: str) -> Callable[[Live], Reply]:
    def ask(live: Live) -> Reply:
        reply = live.get(f"{G}{path}")
        assert member in reply.json()
        return reply

    return ask


WALKS: dict[str, Callable[[Live], Reply]] = {
    "GET /snapshot": plain("/snapshot", "datasets"),
    "POST /query": query,
    "POST /read": read,
    "POST /explain": explain,
    "POST /mutate": mutate,
    "POST /change": change,
    "POST /mutate/if-graph-commit": mutate_if,
    "GET /queries": stored,
    "POST /queries/{name}": invoke,
    "POST /queries/{name}/if-graph-commit": invoke_if,
    "POST /entity": entity,
    "POST /log": log,
    "POST /blame": blame,
    "GET /schema": plain("/schema", "schema_source"),
    "POST /schema/plan": schema_apply,
    "POST /schema/apply": schema_apply,
    "POST /load": load,
    "POST /ingest": ingest,
    "POST /load/ndjson": load_lines,
    "POST /export": export,
    "HEAD /blob": blob,
    "GET /blob": blob,
    "GET /branches": branches,
    "POST /branches": branches,
    "POST /branches/merge": merge,
    "POST /branches/rename": branches,
    "DELETE /branches/{branch:path}": branches,
    "GET /commits": commits,
    "GET /commits/{commit_id:path}": commits,
    "GET /commits/{commit_id:path}/changes": commit_changes,
    "GET /changes": changes,
    "POST /changes/baseline": baseline,
    "POST /diff": diff,
    "POST /revert": replay,
    "POST /cherry-pick": replay,
    "GET /tags": tags,
    "POST /tags": tags,
    "DELETE /tags/{tag:path}": tags,
    "GET /operations/{operation_id}": operation,
}


def test_walks_cover_every_route_of_the_table() -> None:
    assert WALKS.keys() == {f"{one.method} {one.path.removeprefix('/graphs/{graph_id}')}" for one in ROUTES}


@pytest.mark.parametrize(
    "walk", sorted({walk.__qualname__: walk for walk in WALKS.values()}.items()), ids=lambda w: w[0]
)
def test_route_asked_well_answers(live: Live, walk: tuple[str, Callable[[Live], Reply]]) -> None:
    assert walk[1](live).status == 200


BAD: list[tuple[str, str, Any, int, str]] = [
    ("GET", "/snapshot?branch=nope", None, 404, "branch.not_found"),
    ("GET", "/snapshot?branch=main&branch=main", None, 400, "usage.invalid"),
    ("GET", "/snapshot?colour=red", None, 400, "usage.invalid"),
    ("GET", f"/commits?limit={2**63}", None, 400, "usage.invalid"),
    ("POST", "/query", {}, 400, "usage.invalid"),
    ("POST", "/query", {"query": 1}, 400, "usage.invalid"),
    ("POST", "/query", {"query": PEOPLE, "colour": "red"}, 400, "usage.invalid"),
    ("POST", "/query", {"query": "match"}, 400, "language.rejected"),
    ("POST", "/query", {"query": ADD}, 400, "language.rejected"),
    ("POST", "/query", {"query": PEOPLE, "branch": "main", "snapshot": "x"}, 400, "usage.invalid"),
    ("POST", "/query", {"query": PEOPLE, "snapshot": "x"}, 404, "commit.not_found"),
    ("POST", "/query", {"query": PEOPLE, "snapshot": 99}, 410, "graph.version_reclaimed"),
    ("POST", "/query", {"query": PEOPLE, "as_of": "yesterday"}, 400, "usage.invalid"),
    ("POST", "/query", {"query": FIND}, 400, "data.rejected"),
    ("POST", "/query", {"query": FIND, "params": {"name": 5}}, 400, "data.rejected"),
    ("POST", "/mutate", {"query": PEOPLE}, 400, "language.rejected"),
    ("POST", "/mutate", {"query": ADD, "params": {"name": "a"}, "branch": " "}, 404, "branch.not_found"),
    ("POST", "/mutate/if-graph-commit", {"query": ADD, "params": {"name": "a"}}, 400, "usage.invalid"),
    ("POST", "/queries/nope", {}, 404, "query.not_found"),
    ("POST", "/queries/add", {"params": {"name": "a"}, "expect_mutation": False}, 400, "usage.invalid"),
    ("POST", "/queries/add", {"params": {"name": "a"}, "snapshot": "v1"}, 400, "usage.invalid"),
    ("POST", "/schema/apply", {"schema_source": "node"}, 400, "language.rejected"),
    ("POST", "/schema/apply", {"schema_source": "/etc/passwd.pg"}, 400, "language.rejected"),
    ("POST", "/schema/plan", {"schema_source": "secret.pg"}, 400, "language.rejected"),
    ("POST", "/load", {"data": "{"}, 400, "data.rejected"),
    ("POST", "/load", {"data": "/etc/passwd", "mode": "merge"}, 400, "data.rejected"),
    ("POST", "/load", {"data": "", "mode": "sideways"}, 400, "usage.invalid"),
    ("POST", "/load", {"data": "", "branch": "nope"}, 404, "branch.not_found"),
    ("POST", "/export", {"type_names": ["Nobody"]}, 400, "usage.invalid"),
    ("POST", "/branches", {"name": "a b"}, 400, "branch.invalid_name"),
    ("POST", "/branches", {"name": "x", "from": "nope"}, 404, "commit.not_found"),
    ("DELETE", "/branches/nope", None, 404, "branch.not_found"),
    ("DELETE", "/branches/main", None, 400, "usage.invalid"),
    ("POST", "/branches/merge", {"source": "nope"}, 404, "branch.not_found"),
    ("POST", "/branches/merge", {"source": "main", "target": "main"}, 400, "usage.invalid"),
    ("GET", "/commits/nope", None, 404, "commit.not_found"),
    ("GET", "/commits/nope/changes", None, 404, "commit.not_found"),
    ("GET", "/changes?limit=0", None, 400, "usage.invalid"),
    ("GET", "/changes?limit=8193", None, 413, "limit.exceeded"),
    ("GET", "/changes?cursor=abc", None, 400, "changes.cursor_rejected"),
    ("GET", "/changes?start=now&cursor=abc", None, 400, "usage.invalid"),
    ("GET", "/changes?kind=planet", None, 400, "usage.invalid"),
    ("POST", "/diff", {"from": "main"}, 400, "usage.invalid"),
    ("POST", "/revert", {"commit": "nope"}, 404, "commit.not_found"),
    ("POST", "/tags", {"name": "main "}, 400, "branch.invalid_name"),
    ("GET", "/blob?entity=planet&type=Person&id=p0&property=photo", None, 400, "usage.invalid"),
    ("GET", "/blob?entity=node&type=Person&id=p0&property=photo", None, 404, "blob.not_found"),
    ("GET", "/blob?entity=node&type=Person&id=p0&property=age", None, 400, "usage.invalid"),
]


def test_route_asked_badly_says_so_with_a_code(live: Live) -> None:
    found = []
    for method, path, body, _, _ in BAD:
        reply = live.ask(method, f"{G}{path}", body)
        found.append((method, path, body, reply.status, reply.json().get("omnigraph_code", "")))
        assert reply.json()["request_id"] == reply.headers["x-request-id"]
        assert reply.json()["effect"] == "none"
    assert found == BAD


def test_query_accepting_arrow_streams_the_rows(live: Live) -> None:
    reply = live.post(f"{G}/query", {"query": PEOPLE}, headers={"Accept": ARROW})
    assert reply.headers["content-type"] == ARROW
    assert reply.headers["omnigraph-row-count"] == "5"
    assert reply.headers["omnigraph-graph-commit-id"] == head_of(live)
    table = pa.ipc.open_stream(reply.body).read_all()
    assert table.to_pylist() == live.post(f"{G}/query", {"query": PEOPLE}).json()["rows"]


def test_query_of_many_pieces_streams_all_of_them(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = live.post(f"{G}/query", {"query": PEOPLE})
    assert "content-length" in whole.headers
    monkeypatch.setattr("omnigraph.engine.query.result.ANSWER_PIECE_CELLS", 4)
    reply = live.post(f"{G}/query", {"query": PEOPLE}, headers={"Accept": ARROW})
    assert reply.headers["transfer-encoding"] == "chunked"
    assert [batch.num_rows for batch in pa.ipc.open_stream(reply.body)] == [2, 2, 1]
    reply = live.post(f"{G}/query", {"query": PEOPLE})
    assert reply.headers["transfer-encoding"] == "chunked"
    assert reply.body == whole.body


def test_condition_on_a_route_that_does_not_look_at_it_is_refused(live: Live) -> None:
    reply = live.post(f"{G}/mutate", {"query": ADD, "params": {"name": "a"}}, headers={IF_COMMIT: head_of(live)})
    assert reply.status == 400


def test_condition_that_is_not_one_commit_id_is_refused(live: Live) -> None:
    body = {"query": ADD, "params": {"name": "a"}}
    for value in ['"abc"', "*", "W/abc", "abc, def", ""]:
        assert live.post(f"{G}/mutate/if-graph-commit", body, headers={IF_COMMIT: value}).status == 400


def test_server_routes_answer_without_a_token(guarded: Live) -> None:
    assert guarded.get("/healthz", actor=None).json()["status"] == "ok"
    assert guarded.get("/readyz", actor=None).json() == {"status": "ready", "broken_query_count": 0}
    assert guarded.get("/openapi.json", actor=None).json()["openapi"] == "3.1.0"


def test_unknown_address_and_method_are_told_in_the_envelope(live: Live) -> None:
    missing = live.get("/graphs/g/nothing")
    assert (missing.status, missing.json()["code"]) == (404, "not_found")
    wrong = live.ask("PUT", f"{G}/branches")
    assert (wrong.status, wrong.json()["code"], wrong.headers["allow"]) == (405, "method_not_allowed", "GET, POST")


def test_readyz_graph_that_is_gone_answers_503(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> None:
        raise StorageError("s3://secret-bucket/secret-place is gone")

    assert live.get("/readyz").status == 200
    monkeypatch.setattr(session_of(live.service.registry.served["g"].graph).kernel, "snapshot", gone)
    reply = live.get("/readyz")
    assert (reply.status, reply.json()["status"]) == (503, "unready")
    assert live.get("/healthz").status == 200


def test_readyz_of_a_server_that_is_about_to_stop_answers_503(live: Live) -> None:
    live.service.is_stopping = True
    assert live.get("/readyz").status == 503


@pytest.mark.slow
def test_large_diff_is_streamed(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    start = live.get("/graphs/g/commits").json()["commits"][-1]["graph_commit_id"]
    whole = live.post("/graphs/g/diff", {"from": start, "to": "main"})
    assert "transfer-encoding" not in whole.headers
    for module in ("server.handlers.reads", "engine.changes.state_diff"):
        monkeypatch.setattr(f"omnigraph.{module}.CHANGE_WINDOW_ROWS", 2)
    parts = live.post("/graphs/g/diff", {"from": start, "to": "main"})
    assert parts.headers["transfer-encoding"] == "chunked"
    assert parts.json() == whole.json()
    assert len(parts.json()["changes"]) == 7


def test_encoded_slash_is_part_of_a_name(live: Live) -> None:
    """A proxy that guards `/graphs/g/` sees the path as it was sent, so it must mean the same here."""
    for path in ("/graphs%2Fg%2Fschema", "/graphs/g%2Fschema", "/graphs%2fg/schema"):
        assert live.get(path).json()["omnigraph_code"] == "request.no_route", path
    assert live.get("/graphs/g%2Fh/schema").json()["omnigraph_code"] != "request.no_route"
    assert live.get("/graphs/%67/schema").status == 200
    assert live.ask("POST", f"{G}/branches", {"name": "review/x"}).status < 300
    assert live.ask("DELETE", f"{G}/branches/review%252Fx").status == 404
    assert live.ask("DELETE", f"{G}/branches/review%2Fx").status == 200
