"""The page of questions is true: its answers are those of the engine and of the reference evaluator."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import omnigraph as og
from omnigraph.engine.query.result import Result
from omnigraph.lang.catalog import Catalog, EdgeType, NodeType, PropertyType, Scalar
from omnigraph.lang.diagnostic import LanguageError, Source
from omnigraph.lang.query import compile_query
from omnigraph.lang.query.parser import parse_queries
from tests.oracle.compare import difference, rows_of
from tests.oracle.evaluate import evaluate
from tests.oracle.model import Edge, Graph, Node
from tests.support.query_fixtures import catalog_from

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "social"
PAGE = ROOT / "docs" / "appendix" / "questions.md"
_QUESTION = re.compile(r"\*\*(\d+)\. (.+?)\*\*\n\n<!-- schema: \S+ -->\n```gq\n(.*?)\n```\n\n→ `(.*?)`\n", re.DOTALL)


class Question(NamedTuple):
    number: int
    text: str
    gq: str
    answer: Any


def read_questions() -> list[Question]:
    """Return the questions of the page with their documented answers."""
    found = _QUESTION.findall(PAGE.read_text(encoding="utf-8"))
    return [Question(int(number), " ".join(text.split()), gq, json.loads(answer)) for number, text, gq, answer in found]


def plain(result: Result) -> list[list[Any]]:
    """Return rows as JSON has them."""
    return [list(row.values()) for row in result.to_json_rows()]


def reference(catalog: Catalog, graph: Graph, gq: str, result: Result) -> str | None:
    """Return how a result differs from what the reference evaluator says, or None."""
    [query] = parse_queries(Source("question.gq", gq))
    return difference(evaluate(graph, catalog, query, {}), rows_of(result.to_arrow()))


@cache
def network() -> tuple[Catalog, Graph]:
    """Return the example as plain values."""
    catalog = catalog_from((FOLDER / "schema.pg").read_text(encoding="utf-8"))
    nodes: dict[str, dict[str, Node]] = {name: {} for name in catalog.nodes}
    edges: dict[str, list[Edge]] = {name: [] for name in catalog.edges}
    for number, text in enumerate((FOLDER / "network.ndjson").read_text(encoding="utf-8").splitlines()):
        line = json.loads(text)
        if "type" in line:
            node = catalog.nodes[line["type"]]
            key = str(line["data"][node.key[0]])
            nodes[node.name][key] = Node(node.name, key, _values(node, line["data"]))
        else:
            edge = catalog.edges[line["edge"]]
            values = _values(edge, line["data"])
            edges[edge.name].append(Edge(edge.name, f"e{number:03}", line["from"], line["to"], values))
    return catalog, Graph(nodes, {name: tuple(found) for name, found in edges.items()})


def _values(owner: NodeType | EdgeType, data: dict[str, Any]) -> dict[str, object]:
    return {name: _value(data.get(name), item.type) for name, item in owner.properties.items()}


def _value(value: Any, type_: PropertyType) -> object:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, str) and type_.scalar is Scalar.DATE:
        return dt.date.fromisoformat(value)
    if isinstance(value, str) and type_.scalar is Scalar.DATETIME:
        return dt.datetime.fromisoformat(value)
    return value


QUESTIONS = read_questions()
REFUSED = re.findall(
    r"\| `([^`|]*(?:\|[^`|]*)*)` \| ([A-Z]+[0-9]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    with og.init(tmp_path_factory.mktemp("questions") / "g.omni", schema=FOLDER / "schema.pg") as graph:
        graph.ingest(FOLDER / "network.ndjson", mode="append")
        yield graph


@pytest.mark.parametrize("question", QUESTIONS, ids=[str(one.number) for one in QUESTIONS])
def test_answer_is_that_of_the_engine_and_of_the_reference(graph: og.Graph, question: Question) -> None:
    if "return" not in question.gq:
        receipt: Any = graph.mutate(question.gq, dry_run=True)
        assert [receipt.affected_nodes, receipt.affected_edges] == question.answer
        return
    result = graph.query(question.gq)
    assert plain(result) == question.answer
    assert reference(*network(), question.gq, result) is None


@pytest.mark.parametrize(("attempt", "code"), REFUSED)
def test_what_cannot_be_stated_is_refused(attempt: str, code: str) -> None:
    with pytest.raises(LanguageError) as caught:
        compile_query(Source("q.gq", attempt), network()[0])
    assert caught.value.diagnostics[0].code == code


def test_page_numbers_its_questions_and_says_how_many() -> None:
    reads = (FOLDER / "reads.gq").read_text(encoding="utf-8")
    interactive = {name.split("_")[0] for name in re.findall(r"^query (\w+)", reads, re.MULTILINE)}
    assert [one.number for one in QUESTIONS] == list(range(1, len(QUESTIONS) + 1))
    assert PAGE.read_text(encoding="utf-8").startswith(f"# {len(QUESTIONS) + len(interactive)} questions\n")
    assert len(REFUSED) >= 12


def test_reference_orders_by_what_is_computed_from_columns(graph: og.Graph) -> None:
    pattern = "match { $p: Person  optional { $p knows $q } }"
    gq = f"{pattern} return {{ $p.number as a, count($q) as b }} order {{ a + 10 * b, a }}"
    right, wrong = graph.query(gq), graph.query(gq.replace("a + 10 * b, ", ""))
    assert reference(*network(), gq, right) is None
    assert reference(*network(), gq, wrong) is not None
