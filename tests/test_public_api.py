"""The public package: its names, its error classes, and how its values look."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import client, errors
from omnigraph.engine.query.result import Result
from tests.support.live_server import serving_graph

SCHEMA = """
node Person {
  name: String @key
  age: I32?
}
edge Knows: Person -> Person {
  since: I32?
}
"""
PEOPLE = [
    {"type": "Person", "data": {"name": "Ada", "age": 36}},
    {"type": "Person", "data": {"name": "Bob", "age": None}},
    {"edge": "Knows", "from": "Ada", "to": "Bob", "data": {"since": 1843}},
]
ALL = "query people() { match { $p: Person } return { $p.name as name, $p.age as age } order { $p.name } }"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("public") / "g.omni"
    with og.init(path, schema=SCHEMA) as graph:
        graph.ingest(PEOPLE)
        graph.branches.create("review")
    return path


@pytest.fixture(scope="module")
def graph(root: Path) -> Iterator[og.Graph]:
    with og.open(root) as opened:
        yield opened


@pytest.fixture(scope="module")
def served(root: Path) -> Iterator[Any]:
    with serving_graph(root) as live, og.connect(f"http://{live.host}:{live.port}", graph="g") as connected:
        yield connected


def test_dir_lists_every_public_name_and_each_exists() -> None:
    assert {"open", "init", "connect", "Graph", "Result", "Budget", "BranchNotFound"} <= set(dir(og))
    assert [name for name in dir(og) if not hasattr(og, name)] == []


def test_dir_lists_every_error_class() -> None:
    classes = {name for name, item in vars(errors).items() if isinstance(item, type) and issubclass(item, Exception)}
    assert classes - set(og.__all__) == set()


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'omnigraph' has no attribute 'opne'"):
        og.opne  # noqa: B018


def test_import_loads_neither_engine_nor_arrow() -> None:
    code = "import sys, omnigraph; dir(omnigraph); print(sorted({'pyarrow', 'omnigraph.graph'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


MISSING: list[tuple[type[Exception], Callable[[Any], object]]] = [
    (og.BranchNotFound, lambda graph: graph.query(ALL, branch="nowhere")),
    (og.BranchExists, lambda graph: graph.branches.create("review")),
    (og.TagNotFound, lambda graph: graph.tags.delete("nothing")),
    (og.CommitNotFound, lambda graph: graph.commit("01ARZ3NDEKTSV4RRFFQ69G5FAV")),
]


@pytest.mark.parametrize(("kind", "call"), MISSING)
def test_missing_or_existing_name_has_its_class_here_and_served(
    kind: type[Exception], call: Callable[[Any], object], graph: og.Graph, served: Any
) -> None:
    with pytest.raises(kind) as local:
        call(graph)
    with pytest.raises(kind) as remote:
        call(served)
    assert isinstance(local.value, og.GraphError)
    assert str(local.value) == str(remote.value)


def test_missing_and_existing_graphs_have_their_classes(root: Path, tmp_path: Path) -> None:
    with pytest.raises(og.GraphNotFound):
        og.open(tmp_path / "none.omni")
    with pytest.raises(og.GraphExists):
        og.init(root, schema=SCHEMA)


@pytest.mark.parametrize("code", errors.ERRORS)
def test_graph_error_of_each_code_survives_pickling(code: str) -> None:
    error = og.GraphError("gone", code=code, effect=og.Effect.UNKNOWN, branch="b")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.code, copy.effect, copy.context) == (type(error), code, error.effect, {"branch": "b"})


NAMED = "query named($name: String) { match { $p: Person { name: $name } } return { $p.age as age } }"


def test_parameters_come_second_here_and_served(graph: og.Graph, served: Any) -> None:
    assert graph.query(NAMED, {"name": "Ada"}).rows() == [{"age": 36}]
    assert served.query(NAMED, {"name": "Ada"}).rows() == [{"age": 36}]
    assert graph.at(graph.commits()[0].commit_id).query(NAMED, {"name": "Ada"}).rows() == [{"age": 36}]


@pytest.mark.parametrize("convert", [str, Path])
def test_query_is_read_from_the_path_of_a_file(
    convert: Callable[[Path], Any], graph: og.Graph, served: Any, tmp_path: Path
) -> None:
    file = tmp_path / "people.gq"
    file.write_text(ALL + NAMED)
    assert graph.query(convert(file), {"name": "Ada"}, name="named").rows() == [{"age": 36}]
    assert served.query(convert(file), {"name": "Ada"}, name="named").rows() == [{"age": 36}]
    file.write_text("query q() {\n  match { $p: Persn }\n  return { $p }\n}")
    with pytest.raises(og.LanguageError, match=r"people\.gq:2:15; did you mean `Person`\?"):
        graph.query(convert(file))
    with pytest.raises(og.UsageError, match="cannot read"):
        graph.query(convert(tmp_path / "missing.gq"))


def test_server_never_takes_the_text_of_a_request_for_a_path(root: Path, tmp_path: Path) -> None:
    (tmp_path / "people.gq").write_text(ALL)
    body = {"query": str(tmp_path / "people.gq")}
    with serving_graph(root) as live:
        for route in ("query", "explain", "mutate"):
            reply = live.post(f"/graphs/g/{route}", body)
            assert (reply.status, reply.json()["omnigraph_code"]) == (400, "language.rejected")


def test_result_is_a_sequence_of_rows(graph: og.Graph) -> None:
    result = graph.query(ALL)
    assert (
        list(result) == result.rows() == result.to_list() == [{"name": "Ada", "age": 36}, {"name": "Bob", "age": None}]
    )
    assert (result[0], result[-1], result[1:].rows()) == (result.rows()[0], result.rows()[1], result.rows()[1:])
    assert result[::-1].rows() == result.rows()[::-1]
    assert (result[:0].rows(), result[5:].rows()) == ([], [])
    assert result.schema == result.to_arrow().schema
    with pytest.raises(IndexError):
        result[2]


def test_result_is_arrow_data_for_other_libraries(tmp_path: Path) -> None:
    at = datetime(2026, 11, 17, 8, 30, tzinfo=UTC)
    with og.init(tmp_path / "g.omni", schema="node Event {\n  name: String @key\n  at: DateTime\n}") as graph:
        graph.ingest([{"type": "Event", "data": {"name": "start", "at": at.isoformat()}}])
        result = graph.query("query q() { match { $e: Event } return { $e.at as at } }")
    assert pa.table(result).column("at").to_pylist() == [at]


def test_long_and_wide_results_show_their_beginning() -> None:
    table = pa.table({f"column{number}": ["x" * 100] * 30 for number in range(6)})
    lines = repr(Result(table, "q", "main", None)).splitlines()
    assert len(lines) == 24
    assert max(map(len, lines)) <= 122
    assert lines[-2:] == ["… and 4 more columns", "30 rows of `q` on main, the first 20 shown"]


def test_values_say_what_they_are(root: Path, graph: og.Graph) -> None:
    commit = graph.commits()[0].commit_id
    shown: list[tuple[object, str]] = [
        (graph, f"Graph('{root}')"),
        (graph.at(commit), f"<GraphAt: {root} at commit {commit}, branch main>"),
        (graph.diff(1, 2), "3 inserts, 0 updates, 0 deletes from version 1 to 2"),
        (graph.explain(ALL), "read people"),
        (graph.schema, "edge Knows: Person -> Person {\n  since: I32?\n}"),
        (graph.schema.plan(SCHEMA.replace("age: I32?", "age: I32?\n  born: Date?")), "+ add Person.born: Date?"),
        (graph.maintenance.optimize(), "<OptimizeReport: "),
    ]
    assert [(text, repr(value)) for value, text in shown if text not in repr(value)] == []


def test_receipts_say_what_was_written(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as graph:
        loaded = graph.ingest(PEOPLE)
        assert repr(loaded) == f"<LoadReport: merge on main, 2 Person, 1 Knows, commit {loaded.commit_id}>"
        graph.branches.create("review")
        written = graph.mutate('query add() { insert Person { name: "Cid" } }', branch="review")
        assert written.commit is not None
        text = f"<MutationReceipt: `add` on review, 1 node, 0 edges, commit {written.commit.commit_id}>"
        assert repr(written) == text
        assert repr(graph.branches.merge("review", dry_run=True)).startswith("<MergeReceipt: review into main: ")
        nothing = graph.mutate('query del() { delete Person where name = "nobody" }')
        assert repr(nothing) == "<MutationReceipt: `del` on main, 0 nodes, 0 edges, nothing written>"


def test_values_have_html_for_notebooks(graph: og.Graph) -> None:
    values: list[Any] = [graph, graph.schema, graph.query(ALL), graph.explain(ALL), graph.diff(1, 2)]
    assert "<td>Person</td><td>node</td><td>age, name</td><td>2</td>" in graph._repr_html_()
    assert [value for value in values if not value._repr_html_().startswith(("<table>", "<pre>", "<p>"))] == []
    assert "<ul><li><code>scan $p: Person</code> <small>about 2 rows</small></li>" in graph.explain(ALL)._repr_html_()


def test_schema_lists_its_types(graph: og.Graph) -> None:
    person, knows = graph.schema.types
    assert (person, knows) == (graph.schema.nodes["Person"], graph.schema.edges["Knows"])
    assert {name: str(item.type) for name, item in person.properties.items()} == {"age": "I32?", "name": "String"}
    assert (graph.schema.nodes["Person"].key, graph.schema.edges["Knows"].source) == (("name",), "Person")


def test_connect_opens_paths_and_servers(root: Path, served: Any) -> None:
    with og.connect(root) as opened:
        assert (type(opened), opened.query(ALL).rows()) == (og.Graph, served.query(ALL).rows())
    for arguments in ({"address": root, "token": "t"}, {"address": "http://localhost:1/graphs/g", "actor": "ann"}):
        with pytest.raises(og.UsageError, match="does not fit this address"):
            og.connect(**arguments)
    with pytest.raises(og.GraphNotFound):
        og.connect(root / "none")


def test_opened_and_served_graphs_satisfy_the_protocol(graph: og.Graph, served: client.Graph) -> None:
    graphs: list[og.GraphProtocol] = [graph, served]
    methods = [name for name in dir(og.GraphProtocol) if callable(getattr(og.GraphProtocol, name)) and name[0] != "_"]
    assert len(methods) > 15
    for name in methods:
        wanted = signature(getattr(og.GraphProtocol, name)).parameters
        for opened in graphs:
            actual = signature(getattr(opened, name)).parameters
            problems = [
                key for key in wanted if key != "self" and (key not in actual or actual[key].kind != wanted[key].kind)
            ]
            assert (opened, name, problems) == (opened, name, [])


@pytest.mark.parametrize("policy", ["policy.yaml", Path("policy.yaml"), None])
def test_open_refuses_a_policy_that_is_not_compiled(tmp_path: Path, policy: Any) -> None:
    og.init(tmp_path / "g.omni", schema="node P { k: String @key }").close()
    with pytest.raises(og.errors.UsageError, match="load_bundle"):
        og.open(tmp_path / "g.omni", policy=policy)
