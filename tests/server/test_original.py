"""A client of the original against our server: its 28 calls, with nulls and empty lists, and its refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import orjson
import pytest

from omnigraph import graph as graphs
from omnigraph.server.handlers.admin import SERVER_ROUTES
from omnigraph.server.routes import ROUTES
from tests.server import original_schemas
from tests.server.conftest import POLICY, QUERIES
from tests.support.live_server import ADD, DATA, PEOPLE, SCHEMA, TOKENS, Live, Reply, serving_graph

pytestmark = pytest.mark.slow

G = "/graphs/g"
LINE = '{"type": "Person", "data": {"name": "new", "photo": "base64:AQID"}}\n'
SERVER_POLICY = """
version: 1
groups: {writers: [ada]}
rules: [{id: list, allow: {actors: {group: writers}, actions: [graph_list]}}]
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Live]:
    root = tmp_path
    files = {"policy.yaml": POLICY, "server.yaml": SERVER_POLICY, "all.gq": QUERIES}
    for name, text in files.items():
        (root / name).write_text(text, encoding="utf-8")
    with graphs.init(root / "g.omni", SCHEMA) as graph:
        graph.ingest(DATA)
    policy, server_policy = root / "policy.yaml", root / "server.yaml"
    with serving_graph(
        root / "g.omni", tokens=TOKENS, queries=root / "all.gq", policy=policy, server_policy=server_policy
    ) as live:
        yield live


@dataclass
class Client:
    """Sends what a typed client of the original sends, and reads answers as it does; remembers which calls it made."""

    live: Live
    made: set[str] = field(default_factory=set)

    def get(self, route: str, answer: str, path: str | None = None, **query: Any) -> Any:
        address = f"{G}{path or route}" + (f"?{urlencode(query, doseq=True)}" if query else "")
        return self._read(f"GET {route}", answer, self.live.get(address))

    def post(self, route: str, request: str, answer: str, body: dict[str, Any], **more: Any) -> Any:
        path = more.pop("path", route)
        assert original_schemas.problems("request", request, body) == [], "the original would not have sent this"
        return self._read(f"POST {route}", answer, self.live.post(f"{G}{path}", body, **more))

    def delete_branch(self, name: str) -> Any:
        reply = self.live.ask("DELETE", f"{G}/branches/{quote(name, safe='')}")
        return self._read("DELETE /branches/{branch}", "branch_deleted", reply)

    def lines(self, route: str, request: str, body: dict[str, Any]) -> list[Any]:
        assert original_schemas.problems("request", request, body) == []
        reply = self.live.post(f"{G}{route}", body)
        self.made.add(f"POST {route}")
        assert (reply.status, reply.headers["content-type"]) == (200, "application/x-ndjson")
        return [orjson.loads(line) for line in reply.body.splitlines()]

    def _read(self, call: str, answer: str, reply: Reply) -> Any:
        self.made.add(call)
        assert reply.status == 200, reply.body
        assert original_schemas.problems("answer", answer, reply.json()) == []
        return reply.json()


def server_calls(client: Client) -> None:
    for path, name, actor in (("/healthz", "health", None), ("/graphs", "graphs", "ada")):
        reply = client.live.get(path, actor=actor)
        assert original_schemas.problems("answer", name, reply.json()) == []
        client.made.add(f"GET {path}")


def reads(client: Client) -> None:
    nothing = {"name": None, "params": None, "branch": None, "snapshot": None}
    found = client.post("/query", "query", "query", {"query": PEOPLE, **nothing})
    assert (found["row_count"], found["graph_commit_id"] is not None) == (5, True)
    commit = found["graph_commit_id"]
    at = {**nothing, "snapshot": commit, "params": {}}
    assert client.post("/query", "query", "query", {"query": PEOPLE, **at})["target"] == {"snapshot": commit}
    old = {"query_source": PEOPLE, "query_name": None, "params": None, "branch": None, "snapshot": None}
    assert "graph_commit_id" not in client.post("/read", "read", "read", old)
    assert len(client.get("/snapshot", "snapshot", branch="main")["datasets"]) == 2
    assert client.get("/schema", "schema")["schema_source"] == SCHEMA
    assert [one["name"] for one in client.get("/queries", "queries")["queries"]] == ["add", "people"]
    called = {"params": None, "branch": None, "snapshot": None, "expect_mutation": None}
    path = {"path": "/queries/people"}
    assert client.post("/queries/{name}", "invoke", "query", called, **path)["row_count"] == 5
    assert client.get("/branches", "branches")["branches"] == ["main"]


def writes(client: Client) -> str:
    nothing = {"name": None, "branch": None}
    made = client.post("/mutate", "mutate", "mutate", {"query": ADD, "params": {"name": "m"}, **nothing})
    head = made["commit"]["graph_commit_id"]
    assert made["commit"]["graph_branch"] == "main"
    held = {"headers": {"Omnigraph-If-Graph-Commit": head}}
    body = {"query": ADD, "params": {"name": "n"}, **nothing}
    head = client.post("/mutate/if-graph-commit", "mutate", "mutate", body, **held)["commit"]["graph_commit_id"]
    old = {"query_source": ADD, "query_name": "add", "params": {"name": "o"}, "branch": "main"}
    head = client.post("/change", "change", "mutate", old)["commit"]["graph_commit_id"]
    called = {"params": {"name": "s"}, "branch": None, "snapshot": None, "expect_mutation": True}
    stored = client.post("/queries/{name}", "invoke", "mutate", called, path="/queries/add")
    held = {"headers": {"Omnigraph-If-Graph-Commit": stored["commit"]["graph_commit_id"]}}
    path = "/queries/add/if-graph-commit"
    route = "/queries/{name}/if-graph-commit"
    called["params"] = {"name": "t"}
    client.post(route, "invoke", "mutate", called, path=path, **held)
    none = 'query none() { delete Person where name = "nobody" }'
    assert client.post("/mutate", "mutate", "mutate", {"query": none, "params": None, **nothing})["commit"] is None
    load = {"data": LINE, "branch": None, "from": None, "mode": None}
    assert client.post("/load", "load", "load", load)["commit"]["parent_commit_id"] is not None
    branch = {"data": LINE, "branch": "draft", "from": "main", "mode": "merge"}
    assert client.post("/ingest", "load", "load", branch)["branch_created"] is True
    older, media = LINE.replace('"new"', '"new", "age": 9').encode(), {"Content-Type": "application/x-ndjson"}
    sent = client.live.ask("POST", f"{G}/load/ndjson?mode=merge", older, headers=media)
    loaded = client._read("POST /load/ndjson", "load_lines", sent)
    assert loaded["nodes"] == [{"name": "Person", "entities_loaded": 1}]
    return str(loaded["commit"]["graph_commit_id"])


def streams(client: Client) -> None:
    everything = client.lines("/export", "export", {"branch": None, "type_names": []})
    assert len(everything) == 13
    baseline = client.lines("/changes/baseline", "baseline", {"branch": None, "kind": [], "type": [], "op": []})
    assert baseline[:-1] == everything
    assert original_schemas.problems("answer", "baseline", baseline[-1]) == []
    polled = client.get("/changes", "changes", cursor=baseline[-1]["baseline"]["resume_cursor"])
    assert (polled["blocks"], polled["caught_up"]) == ([], True)
    assert client.get("/changes", "changes", branch="main", start="beginning", limit=3, kind=["node"])[
        "next_page_token"
    ]


def history(client: Client, commit: str) -> None:
    newest = client.get("/commits", "commits", branch="main")["commits"][0]
    assert newest["graph_commit_id"] == commit
    assert client.get("/commits/{commit_id}", "commit", f"/commits/{commit}") == newest
    path = f"/commits/{commit}/changes"
    wanted = {"type": ["Person"], "op": ["update"]}
    [change] = client.get("/commits/{commit_id}/changes", "commit_changes", path, **wanted)["changes"]
    assert (change["op"], change["after"]["properties"]["name"]) == ("update", "new")


def blobs(client: Client) -> None:
    path = f"{G}/blob?entity=node&type=Person&id=new&property=photo"
    whole = client.live.get(path, headers={"Range": "bytes=1-", "If-Match": "*"})
    assert (whole.status, whole.body) == (206, b"\2\3")
    assert whole.headers.keys() >= {"etag", "accept-ranges", "content-length", "content-range", "omnigraph-snapshot-id"}
    head = client.live.ask("HEAD", path)
    assert (head.status, head.headers["content-length"], head.headers["etag"]) == (200, "3", whole.headers["etag"])
    client.made |= {"GET /blob", "HEAD /blob"}


def branches(client: Client) -> None:
    assert client.post("/branches", "branch", "branch", {"name": "review/x", "from": None})["from"] == "main"
    mutation = {"query": ADD, "params": {"name": "b"}, "name": None, "branch": "review/x"}
    client.post("/mutate", "mutate", "mutate", mutation)
    merge = {"source": "review/x", "target": None, "delete_branch": False}
    merged = client.post("/branches/merge", "merge", "merge", merge)
    assert (merged["outcome"], merged["branch_deleted"]) == ("fast_forward", None)
    gone = client.post("/branches/merge", "merge", "merge", {**merge, "source": "draft", "delete_branch": True})
    assert gone["branch_deleted"] is True
    assert client.delete_branch("review/x")["name"] == "review/x"


def schema(client: Client) -> None:
    wider = SCHEMA.replace("age: I32?", "age: I32?\n    mail: String?")
    body = {"schema_source": wider, "allow_data_loss": False}
    assert client.post("/schema/apply", "schema_apply", "schema_apply", body)["applied"] is True


def test_every_call_of_the_original_is_answered_in_its_shapes(server: Live) -> None:
    client = Client(server)
    server_calls(client)
    reads(client)
    commit = writes(client)
    history(client, commit)
    blobs(client)
    streams(client)
    branches(client)
    schema(client)
    assert len(client.made) == 28
    ours = {f"GET {one.path}" for one in SERVER_ROUTES}
    prefix = "/graphs/{graph_id}"
    ours |= {f"{one.method} {one.path.removeprefix(prefix).replace(':path', '')}" for one in ROUTES}
    assert client.made <= ours


REFUSALS: list[tuple[str, str, Any, dict[str, str], int, str | None, str]] = [
    ("POST", "/query", {"query": "match"}, {}, 400, "bad_request", "error"),
    ("GET", "/branches", None, {"Authorization": "Bearer x"}, 401, "unauthorized", "error"),
    ("POST", "/branches", {"name": "taken"}, {}, 409, "conflict", "error"),
    ("DELETE", "/branches/main", None, {}, 400, "bad_request", "error"),
    ("DELETE", "/branches/nope", None, {}, 404, "not_found", "error"),
    ("PUT", "/branches", None, {}, 405, "method_not_allowed", "error"),
    ("POST", "/queries/nope", {}, {}, 404, "not_found", "error"),
    ("POST", "/load", {"data": LINE, "mode": "append"}, {}, 409, "conflict", "key_conflict"),
    ("POST", "/load/ndjson", {}, {}, 415, None, "error"),
    ("POST", "/mutate/if-graph-commit", {"query": ADD, "params": {"name": "z"}},
     {"Omnigraph-If-Graph-Commit": "0" * 26}, 412, None, "precondition_failure"),
    ("GET", "/blob?entity=node&type=Person&id=new&property=photo", None, {"If-Match": '"x"'}, 412, "conflict", "error"),
    ("GET", "/blob?entity=node&type=Person&id=new&property=photo", None, {"Range": "bytes=9-"}, 416, "bad_request",
     "blob_range"),
    ("GET", "/changes?limit=9000", None, {}, 413, None, "resource_limit"),
    ("GET", "/changes?cursor=x", None, {}, 400, "bad_request", "error"),
]  # fmt: skip


def test_refusals_have_the_codes_and_members_of_the_original(server: Live) -> None:
    server.post(f"{G}/load", {"data": LINE})
    server.post(f"{G}/branches", {"name": "taken"})
    for method, path, body, headers, status, code, member in REFUSALS:
        reply = server.ask(method, f"{G}{path}", body, headers=headers)
        told = reply.json()
        assert (reply.status, told.get("code"), member in told) == (status, code, True), (path, told)
        table = "change" if path.startswith("/changes") else "error"
        assert original_schemas.problems("error", table, told) == [], path


def test_commit_that_is_a_text_is_not_in_the_shape_of_the_original() -> None:
    receipt = {"branch": "main", "query_name": "q", "affected_nodes": 1, "affected_edges": 0, "commit": "01ABC"}
    assert original_schemas.problems("answer", "mutate", receipt)
    assert original_schemas.problems("answer", "mutate", {**receipt, "commit": None}) == []
    assert original_schemas.problems("request", "branch", {"name": None})
