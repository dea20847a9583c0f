"""The page of questions is true: its answers are those of the engine and of the reference evaluator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.lang.diagnostic import LanguageError, Source
from omnigraph.lang.query import compile_query
from tests.support.question_page import FOLDER, PAGE, Question, network, plain, read_questions, reference

QUESTIONS = read_questions()
REFUSED = re.findall(
    r"\| `([^`|]*(?:\|[^`|]*)*)` \| ([A-Z]+[0-9]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with og.init(tmp_path_factory.mktemp("questions") / "g.omni", schema=FOLDER / "schema.pg") as graph:
        graph.ingest(FOLDER / "network.ndjson", mode="append")
        yield graph


@pytest.mark.parametrize("question", QUESTIONS, ids=[str(one.number) for one in QUESTIONS])
def test_answer_is_that_of_the_engine_and_of_the_reference(graph: Graph, question: Question) -> None:
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


def test_reference_orders_by_what_is_computed_from_columns(graph: Graph) -> None:
    pattern = "match { $p: Person  optional { $p knows $q } }"
    gq = f"{pattern} return {{ $p.number as a, count($q) as b }} order {{ a + 10 * b, a }}"
    right, wrong = graph.query(gq), graph.query(gq.replace("a + 10 * b, ", ""))
    assert reference(*network(), gq, right) is None
    assert reference(*network(), gq, wrong) is not None
