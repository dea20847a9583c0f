"""Stored queries and the schema under them: what breaks one is refused, and a broken one stops nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import graph as graphs
from omnigraph.errors import GraphError
from omnigraph.stored_queries import check_queries, read_queries
from tests.server.conftest import POLICY
from tests.support.live_server import SCHEMA, TOKENS, Live, serving_graph

pytestmark = pytest.mark.slow

G = "/graphs/g"
AGES = "query ages() { match { $p: Person } return { $p.age as age } }\n"
NAMES = "query names() { match { $p: Person } return { $p.name as name } }\n"
GROW = "query grow($name: String) { update Person set { age: 1 } where name = $name }\n"
# Their type is hidden from some.
LINKS = """
query links() { match { $p: Person $p knows $q } return { $q.name as name } }
query staged() { match { $p: Person } with { $p } match { $p knows $q } return { $q.name as name } }
query united() {
  match { $p: Person } return { $p.name as name } union match { $p knows $_ } return { $p.name as name }
}
query link($a: String) { insert Knows { from: $a, to: $a } }
"""
WITHOUT_AGE = SCHEMA.replace("    age: I32?\n", "")
WIDER = SCHEMA.replace("    age: I32?\n", "    age: I32?\n    mail: String?\n")
assert SCHEMA not in (WITHOUT_AGE, WIDER)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "stored"
    path.mkdir()
    (path / "ages.gq").write_text(AGES + GROW, encoding="utf-8")
    (path / "names.gq").write_text(NAMES, encoding="utf-8")
    return path


@pytest.fixture
def served(graph_uri: str, folder: Path) -> Iterator[Live]:
    with serving_graph(graph_uri, queries=folder) as live:
        yield live


def test_schema_that_breaks_stored_queries_is_refused_unpublished(served: Live) -> None:
    before = served.get(f"{G}/snapshot").json()
    for allow_data_loss in (False, True):
        body = {"schema_source": WITHOUT_AGE, "allow_data_loss": allow_data_loss}
        refused = served.post(f"{G}/schema/apply", body)
        told = refused.json()
        assert (refused.status, told["omnigraph_code"], told["code"]) == (409, "schema.breaks_queries", "conflict")
        assert [one["name"] for one in told["context"]["queries"]] == ["ages", "grow"]
        assert told["context"]["queries"][0]["file"] == "ages.gq"
        assert "`ages`" in told["error"]
        assert "Nothing was changed" in told["error"]
    assert served.get(f"{G}/snapshot").json() == before
    assert served.post(f"{G}/queries/ages").status == 200
    assert served.get("/readyz").json() == {"status": "ready", "broken_query_count": 0}


def test_schema_that_breaks_no_stored_query_is_applied(served: Live) -> None:
    assert served.post(f"{G}/schema/apply", {"schema_source": WIDER}).json()["applied"] is True
    assert served.post(f"{G}/queries/ages").status == 200


def test_server_starts_with_queries_that_do_not_compile_and_says_so(graph_uri: str, folder: Path) -> None:
    with graphs.open(graph_uri) as graph:
        graph.schema.apply(WITHOUT_AGE)
    (folder / "odd.gq").write_text("query {", encoding="utf-8")
    (folder / "twice.gq").write_text(NAMES, encoding="utf-8")
    with serving_graph(graph_uri, queries=folder) as live:
        listed = live.get(f"{G}/queries").json()
        assert [one["name"] for one in listed["queries"]] == ["names"]
        assert sorted((one["name"], one["file"]) for one in listed["broken"]) == [
            ("ages", "ages.gq"),
            ("grow", "ages.gq"),
            ("names", "twice.gq"),
            ("odd", "odd.gq"),
        ]
        assert all(one["diagnostics"][0]["code"] for one in listed["broken"])
        assert live.get("/readyz").json() == {"status": "ready", "broken_query_count": 4}
        assert live.post(f"{G}/queries/names").json()["row_count"] == 5
        for name in ("ages", "grow"):
            refused = live.post(f"{G}/queries/{name}", {"params": {"name": "p1"} if name == "grow" else None})
            assert (refused.status, refused.json()["omnigraph_code"]) == (409, "query.broken")
            assert refused.json()["effect"] == "none"
            assert str(folder.parent) not in refused.body.decode()
        assert live.post(f"{G}/queries/odd").status == 404


def test_schema_changed_by_another_process_affects_queries_at_once(served: Live, graph_uri: str) -> None:
    with graphs.open(graph_uri) as graph:
        graph.schema.apply(WITHOUT_AGE)
        assert served.post(f"{G}/queries/ages").json()["omnigraph_code"] == "query.broken"
        # What is broken already does not keep a schema from being changed.
        assert served.post(f"{G}/schema/apply", {"schema_source": WIDER}).json()["applied"] is True
    assert served.post(f"{G}/queries/ages").json()["row_count"] == 5
    assert served.get(f"{G}/queries").json()["broken"] == []


def test_broken_query_is_absent_for_an_actor_who_sees_not_all_types(
    graph_uri: str, folder: Path, tmp_path: Path
) -> None:
    with graphs.open(graph_uri) as graph:
        graph.schema.apply(WITHOUT_AGE)
    rules = """
  - id: readers-read
    allow: {actors: {group: readers}, actions: [read], branch_scope: any, types: [Person]}
  - id: readers-invoke
    allow: {actors: {group: readers}, actions: [invoke_query]}
"""
    policy = tmp_path / "partial.yaml"
    assert "{group: all}" in POLICY
    policy.write_text(POLICY.replace("{group: all}", "{group: writers}") + rules, encoding="utf-8")
    with serving_graph(graph_uri, tokens=TOKENS, policy=policy, queries=folder) as live:
        assert live.post(f"{G}/queries/ages", actor="ada").json()["omnigraph_code"] == "query.broken"
        assert live.post(f"{G}/queries/ages", actor="bob").json()["omnigraph_code"] == "query.not_found"
        assert len(live.get(f"{G}/queries", actor="ada").json()["broken"]) == 2
        assert live.get(f"{G}/queries", actor="bob").json()["broken"] == []


@pytest.mark.parametrize("path", ["", "/if-graph-commit"])
@pytest.mark.parametrize("is_conditional", [False, True])
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"expect_mutation": True},
        {"branch": "nope"},
        {"snapshot": "nope"},
        {"snapshot": "nope", "as_of": "2026-01-01T00:00:00Z"},
        {"as_of": "yesterday"},
    ],
)
def test_query_of_hidden_types_is_one_that_is_not_there(
    partly_served: Live, path: str, is_conditional: bool, body: dict[str, object]
) -> None:
    headers = {"Omnigraph-If-Graph-Commit": "01ARZ3NDEKTSV4RRFFQ69G5FAV"} if is_conditional else {}
    told = []
    for name in ("links", "link", "nothing"):
        answer = partly_served.post(f"{G}/queries/{name}{path}", body, actor="bob", headers=headers)
        told.append((answer.status, answer.json()["omnigraph_code"], answer.json()["error"]))
    assert set(told) == {told[-1]}
    assert told[0][:2] == (404, "query.not_found")


@pytest.mark.parametrize("path", ["", "/if-graph-commit"])
@pytest.mark.parametrize("body", [{}, {"branch": "nope"}, {"snapshot": "nope"}, {"expect_mutation": True}])
def test_without_read_every_stored_query_is_one_that_is_not_there(
    graph_uri: str, folder: Path, tmp_path: Path, path: str, body: dict[str, object]
) -> None:
    (folder / "links.gq").write_text(LINKS, encoding="utf-8")
    with graphs.open(graph_uri) as graph:
        graph.schema.apply(WITHOUT_AGE)
    rules = "\n  - {id: invoke, allow: {actors: {group: readers}, actions: [invoke_query]}}\n"
    policy = tmp_path / "invoke.yaml"
    policy.write_text(POLICY.replace("{group: all}", "{group: writers}") + rules, encoding="utf-8")
    with serving_graph(graph_uri, tokens=TOKENS, policy=policy, queries=folder) as live:
        told = set()
        for name in ("names", "links", "staged", "united", "link", "ages", "nothing"):
            answer = live.post(f"{G}/queries/{name}{path}", body, actor="bob")
            told.add((answer.status, answer.json()["omnigraph_code"], answer.json()["error"]))
    [(status, code, _)] = told
    assert (status, code) == (404, "query.not_found")


def test_stages_and_unions_are_served_to_those_who_may_read_their_types(partly_served: Live) -> None:
    source = "query q() { match { $p knows $q } with { $q, count(*) as $n } return { $q.name as name, $n as n } }"
    answers = {actor: partly_served.post(f"{G}/query", {"query": source}, actor=actor) for actor in ("ada", "bob")}
    assert answers["ada"].json()["rows"], answers["ada"].json()
    assert answers["bob"].status == 400
    assert "knows" in answers["bob"].json()["error"], answers["bob"].json()
    for name, count in (("staged", 2), ("united", 5)):
        assert len(partly_served.post(f"{G}/queries/{name}", actor="ada").json()["rows"]) == count
        assert partly_served.post(f"{G}/queries/{name}", actor="bob").status == 404


@pytest.fixture
def partly_served(graph_uri: str, folder: Path, tmp_path: Path) -> Iterator[Live]:
    (folder / "links.gq").write_text(LINKS, encoding="utf-8")
    rules = """
  - id: readers-read
    allow: {actors: {group: readers}, actions: [read, change], branch_scope: any, types: [Person]}
  - id: readers-invoke
    allow: {actors: {group: readers}, actions: [invoke_query]}
"""
    policy = tmp_path / "partial.yaml"
    policy.write_text(POLICY.replace("{group: all}", "{group: writers}") + rules, encoding="utf-8")
    with serving_graph(graph_uri, tokens=TOKENS, policy=policy, queries=folder) as live:
        yield live


def test_schema_apply_in_python_checks_the_queries_it_is_told(graph_uri: str, folder: Path) -> None:
    with graphs.open(graph_uri) as graph:
        head = graph.snapshot().head
        with pytest.raises(GraphError) as caught:
            graph.schema.apply(WITHOUT_AGE, queries=folder)
        assert caught.value.code == "schema.breaks_queries"
        assert graph.snapshot().head == head
        assert graph.schema.apply(WITHOUT_AGE, queries=folder / "names.gq").applied


def test_merge_that_would_break_stored_queries_is_refused(served: Live) -> None:
    served.post(f"{G}/branches", {"name": "drops"})
    body = {"schema_source": WITHOUT_AGE, "branch": "drops"}
    assert served.post(f"{G}/schema/plan", body).json()["supported"] is True
    # Stored queries are those of main, so a branch may leave them behind.
    assert served.post(f"{G}/schema/apply", body).status == 200
    assert "age" not in served.get(f"{G}/schema?branch=drops").json()["schema_source"]
    assert "age" in served.get(f"{G}/schema").json()["schema_source"]
    before = served.get(f"{G}/snapshot").json()
    refused = served.post(f"{G}/branches/merge", {"source": "drops", "target": "main"})
    assert (refused.status, refused.json()["omnigraph_code"]) == (409, "schema.breaks_queries")
    assert served.get(f"{G}/snapshot").json() == before


def test_query_without_a_name_cannot_be_stored(folder: Path, graph_uri: str) -> None:
    (folder / "bare.gq").write_text("match { $p: Person } return { $p.name }", encoding="utf-8")
    with graphs.open(graph_uri, read_only=True) as graph:
        stored = check_queries(read_queries(folder), graph.schema.catalog)
    assert [query.name for query in stored.queries] == ["ages", "grow", "names"]
    [broken] = stored.broken
    assert (broken.name, broken.diagnostics[0].message) == ("bare", "a stored query needs a name")
