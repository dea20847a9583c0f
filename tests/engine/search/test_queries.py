"""Query texts on their way to the embedder: one per opened graph, asked only when there is something to rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.query.embedders import Matrix, MockEmbedder, Purpose
from omnigraph.errors import DataError, UsageError
from omnigraph.store.objects.backend import Meter
from tests.support.embedding_provider import Provider, openai_answer, running

pytestmark = pytest.mark.slow

SCHEMA = 'node Note { name: String @key  text: String?  vec: Vector(2)? @embed(text, model="m1")  free: Vector(2)? }'
QUERY = """
query near($words: String, $name: String) {
  match { $n: Note $n.name != $name }
  return { $n, nearest($n.vec, $words) as d }
  order { d }
  limit 9
}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with og.init(tmp_path / "g.omni", SCHEMA) as graph:
        graph.ingest([{"type": "Note", "data": {"name": "a", "vec": [1.0, 0.0], "free": [0.0, 1.0]}}])
        yield graph


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with running(Provider(lambda number, body: openai_answer([1.0, 0.0]))) as made:
        monkeypatch.setenv("NO_PROXY", "*")
        monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "openai")
        monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", made.url)
        monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "m1")
        monkeypatch.setenv("OMNIGRAPH_EMBED_RETRY_BACKOFF_MS", "0")
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        yield made


def near(graph: og.Graph, *, words: str = "x", but: str = "", source: str = QUERY) -> list[dict[str, Any]]:
    return graph.query(source, params={"words": words, "name": but}).rows()


def test_queries_of_one_graph_share_embedder_and_connection(graph: og.Graph, provider: Provider) -> None:
    assert [near(graph, words=words) for words in ("x", "y")] == [[{"n": "a", "d": 0.0}]] * 2
    assert [body["input"] for _, _, body in provider.requests] == [["x"], ["y"]]
    assert provider.connections == 1


def test_settings_are_read_once_per_opened_graph(
    graph: og.Graph, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    near(graph)
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "m2")
    near(graph)
    with og.open(graph.uri) as again, pytest.raises(DataError, match="m2"):
        near(again)
    assert [body["model"] for _, _, body in provider.requests] == ["m1", "m1"]


def test_nothing_to_rank_embeds_nothing_but_checks_the_model(
    graph: og.Graph, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert near(graph, but="a") == []
    assert provider.requests == []
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "m2")
    with og.open(graph.uri) as again, pytest.raises(DataError) as caught:
        near(again, but="a")
    assert caught.value.context["rule"] == "E13"
    assert near(graph, but="a") == []


def test_model_is_checked_where_one_arm_of_rrf_has_nothing(graph: og.Graph, provider: Provider) -> None:
    source = QUERY.replace("nearest($n.vec, $words)", "rrf(nearest($n.free, $words), nearest($n.vec, $words))")
    assert [row["n"] for row in near(graph, source=source)] == ["a"]
    assert len(provider.requests) == 2


def test_bad_setting_is_told_only_by_queries_that_embed(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_TIMEOUT_MS", "soon")
    assert near(graph, source=QUERY.replace("$words)", "[1.0, 0.0])")) == [{"n": "a", "d": 0.0}]
    with pytest.raises(UsageError, match="OMNIGRAPH_EMBED_TIMEOUT_MS"):
        near(graph)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((500, b"on fire"), "on fire"),
        ((401, b"who are you"), "who are you"),
        ((200, b"garbage"), "without embeddings"),
        (openai_answer([1.0]), "2 numbers"),
        (openai_answer([float("nan"), 1.0]), "not finite"),
        (openai_answer([0.0, 0.0]), "all zero"),
    ],
)
def test_provider_that_misbehaves_is_a_coded_error(
    graph: og.Graph, provider: Provider, answer: tuple[int, bytes], said: str
) -> None:
    provider.answer = lambda number, body: answer
    with pytest.raises(DataError, match=said) as caught:
        near(graph)
    assert caught.value.context["rule"] == "E13"
    provider.answer = lambda number, body: openai_answer([1.0, 0.0])
    assert near(graph) == [{"n": "a", "d": 0.0}]


def test_silent_provider_ends_with_the_timeout(
    graph: og.Graph, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_TIMEOUT_MS", "30")
    monkeypatch.setenv("OMNIGRAPH_EMBED_RETRY_ATTEMPTS", "2")
    provider.holds = True
    with pytest.raises(DataError, match="2 times") as caught:
        near(graph)
    assert caught.value.context["rule"] == "E13"


def test_provider_that_is_down_is_a_coded_error(
    graph: og.Graph, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", "http://127.0.0.1:9")
    with pytest.raises(DataError, match="refused") as caught:
        near(graph)
    assert caught.value.context["rule"] == "E13"


def test_profile_leaves_out_what_other_threads_ask(graph: og.Graph) -> None:
    meter = Meter()
    with og.open(graph.uri, meter=meter) as opened:

        class Meanwhile(MockEmbedder):
            """Lets another thread read the same graph while the query runs."""

            def embed(self, texts: Sequence[str], dimension: int, purpose: Purpose) -> Matrix:
                other = Thread(target=lambda: opened.snapshot())
                other.start()
                other.join()
                return super().embed(texts, dimension, purpose)

        before = meter.snapshot()
        given = {"words": "x", "name": ""}
        explained = opened.explain(QUERY, params=given, profile=True, embedder=Meanwhile("m1"))
        asked = meter.since(before)
    storage = explained.totals["storage"]
    assert isinstance(storage, dict)
    # Capturing the snapshot asks once before the plan runs, and the other thread once while it does.
    assert asked["probe __manifest"] == 2
    assert storage.keys() & {"probe __manifest"} == set()
    assert storage["scan nodes"] >= 1
