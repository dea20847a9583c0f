"""Embedding what is stored: which vectors are made, what a provider is asked, and what a failure leaves behind."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph.engine.embed import cache, embed_tasks
from omnigraph.engine.embed import cache as embedcache
from omnigraph.engine.query.embedders import MockEmbedder, Purpose
from omnigraph.errors import DataError, GraphError, PolicyDenied, UsageError
from omnigraph.graph import session_of
from omnigraph.policy import load_bundle
from tests.support.embedding_provider import Answer, Provider, openai_answer, running
from tests.support.forked_python import ForkedPython
from tests.support.orphan_sweep import sweep
from tests.support.s3_server import S3Server, s3_server

pytestmark = pytest.mark.slow

__all__ = ["s3_server"]

SCHEMA = """
node Doc {
  name: String @key
  text: String?
  title: String?
  pages: I32?
  vec: Vector(4)? @embed(text)
  near: Vector(3)? @embed(title)
  raw: Blob?
}
node Note { name: String @key  text: String  vec: Vector(4) @embed(text) }
node Plain { name: String @key }
"""


def answer(number: int, body: Any) -> Answer:
    """Answer as the mock embedder would."""
    vectors = MockEmbedder().embed(body["input"], body["dimensions"], Purpose.DOCUMENT)
    return openai_answer(*vectors.tolist())


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "openai")
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "m1")
    monkeypatch.setenv("OMNIGRAPH_EMBED_RETRY_BACKOFF_MS", "0")
    monkeypatch.setenv("OMNIGRAPH_EMBED_RETRY_ATTEMPTS", "2")
    with running(Provider(answer)) as made:
        monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", made.url)
        yield made


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "g.omni", SCHEMA)


def doc(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "Doc", "data": {"name": name, **data}}


def docs(graph: og.Graph, branch: str = "main") -> dict[str, dict[str, Any]]:
    lines = b"".join(graph.export(branch, types=["Doc"])).splitlines()
    return {record["data"]["name"]: record["data"] for record in map(json.loads, lines)}


def asked(provider: Provider) -> list[str]:
    """Return all texts that the provider was asked for, and forget the requests."""
    texts = sorted(text for _, _, body in provider.requests for text in body["input"])
    provider.requests.clear()
    return texts


def made(text: str, dimension: int = 4) -> list[float]:
    vectors: list[list[float]] = MockEmbedder().embed([text], dimension, Purpose.DOCUMENT).tolist()
    return vectors[0]


def set_text(graph: og.Graph, name: str, text: str | None, branch: str = "main") -> None:
    source = "query u($n: String, $t: String?) { update Doc set { text: $t } where name = $n }"
    graph.mutate(source, params={"n": name, "t": text}, branch=branch)


def test_embed_fills_what_is_missing_in_one_commit_and_leaves_the_rest(graph: og.Graph, provider: Provider) -> None:
    blob = "base64:aGVsbG8="
    own = [1.0, 0.0, 0.0, 0.0]
    graph.ingest(
        [
            doc("a", text="one", title="uno", pages=3, raw=blob),
            doc("b", text="one"),
            doc("c", text="two", vec=own),
            doc("d"),
            doc("e", text="  "),
            doc("f", title="uno"),
        ]
    )
    before, commits = docs(graph), len(graph.commits())
    receipt = graph.embed()
    assert [one.to_json() for one in receipt.properties if one.tally.filled] == [
        {"type": "Doc", "property": "near", "filled": 2, "cleared": 0, "texts_asked": 1, "texts_cached": 0},
        {"type": "Doc", "property": "vec", "filled": 2, "cleared": 0, "texts_asked": 1, "texts_cached": 0},
    ]
    assert asked(provider) == ["one", "uno"]
    expected = {name: dict(row) for name, row in before.items()}
    for name, text in (("a", "one"), ("b", "one")):
        expected[name]["vec"] = pytest.approx(made(text))
    for name in ("a", "f"):
        expected[name]["near"] = pytest.approx(made("uno", 3))
    assert docs(graph) == expected
    assert len(graph.commits()) == commits + 1
    assert receipt.commit is not None
    assert (receipt.commit.kind, receipt.commit.properties["model"]) == ("embed", "m1")
    assert graph.embed().commit is None
    assert asked(provider) == []
    assert graph.maintenance.verify().is_sound


def test_embed_source_that_changed_is_embedded_anew_and_nothing_else(graph: og.Graph, provider: Provider) -> None:
    graph.ingest([doc("a", text="one"), doc("b", text="two"), doc("c", text="tres", vec=[0, 1, 0, 0])])
    graph.embed()
    assert asked(provider) == ["one", "two"]
    for name, text in (("a", "uno"), ("c", "three")):
        set_text(graph, name, text)
    graph.embed()
    assert asked(provider) == ["uno"]
    found = docs(graph)
    assert found["a"]["vec"] == pytest.approx(made("uno"))
    assert found["c"]["vec"] == [0, 1, 0, 0]
    set_text(graph, "a", "one")
    receipt = graph.embed()
    assert asked(provider) == []
    assert receipt.properties[1].tally.cached == 1
    assert docs(graph)["a"]["vec"] == pytest.approx(made("one"))


def test_embed_source_that_is_gone_takes_its_vector_along(graph: og.Graph, provider: Provider) -> None:
    graph.ingest([doc("a", text="one"), doc("b", vec=[0, 1, 0, 0])])
    graph.embed()
    set_text(graph, "a", None)
    receipt = graph.embed()
    assert receipt.properties[1].tally.cleared == 1
    assert [row["vec"] for row in docs(graph).values()] == [None, [0, 1, 0, 0]]


def test_embed_on_a_branch_asks_for_no_text_twice(graph: og.Graph, provider: Provider) -> None:
    graph.ingest([doc("a", text="one"), doc("b", text="two")])
    graph.branches.create("review")
    graph.embed("review", types=["Doc"])
    assert asked(provider) == ["one", "two"]
    assert docs(graph)["a"]["vec"] is None
    graph.embed()
    assert asked(provider) == []
    assert docs(graph) == docs(graph, "review")


def test_embed_of_another_model_touches_old_vectors_only_when_asked_to(
    graph: og.Graph, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.ingest([doc("a", text="one"), doc("b", text="two"), doc("c", text="three", vec=[0, 1, 0, 0])])
    graph.embed()
    asked(provider)
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "m2")
    provider.answer = lambda number, body: openai_answer(*([1.0, 1.0, 1.0, 1.0] for _ in body["input"]))
    with og.open(graph.uri) as other:
        set_text(other, "a", "uno")
        other.embed(types=["Doc"])
        assert asked(provider) == ["uno"]
        assert docs(other)["b"]["vec"] == pytest.approx(made("two"))
        other.embed(mode="reembed_all", types=["Doc"])
        assert asked(provider) == ["three", "two"]
        assert {tuple(row["vec"]) for row in docs(other).values()} == {(0.5, 0.5, 0.5, 0.5)}
        assert other.embed(mode="reembed_all").commit is None


def test_embed_recorded_model_that_is_not_the_configured_one_is_refused(tmp_path: Path, provider: Provider) -> None:
    schema = 'node Doc { name: String @key  text: String?  vec: Vector(4)? @embed(text, model="m9") }'
    graph = og.init(tmp_path / "m.omni", schema)
    with pytest.raises(DataError, match="OMNIGRAPH_EMBED_MODEL to `m9`") as caught:
        graph.embed()
    assert caught.value.context["rule"] == "E13"


def test_embed_clean_takes_vectors_away_and_needs_no_provider(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "nobody")
    graph.ingest([doc("a", text="one", vec=[1, 0, 0, 0]), doc("b", vec=[0, 1, 0, 0], near=[1, 0, 0]), doc("c")])
    receipt = graph.embed(mode="clean", types=["Doc"])
    assert [one.tally.cleared for one in receipt.properties] == [1, 2]
    assert {(row["vec"], row["near"]) for row in docs(graph).values()} == {(None, None)}
    with pytest.raises(UsageError, match=r"Note\.vec` cannot be without"):
        graph.embed(mode="clean")


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (["name=a"], ["one"]),
        (["Doc:pages=7"], ["one", "two"]),
        (["pages=7", "name=b"], ["two"]),
        (["id=c"], ["three"]),
        (["name=nobody"], []),
    ],
)
def test_embed_select_narrows_what_is_embedded(
    graph: og.Graph, provider: Provider, select: list[str], expected: list[str]
) -> None:
    graph.ingest([doc("a", text="one", pages=7), doc("b", text="two", pages=7), doc("c", text="three")])
    graph.embed(types=["Doc"], select=select)
    assert asked(provider) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"types": ["Dok"]}, "did you mean `Doc`"),
        ({"types": ["Plain"]}, "not a type with an `@embed`"),
        ({"types": "Doc"}, "`types` must be a list of names"),
        ({"select": "name=c"}, "`select` must be a list of names"),
        ({"mode": "all"}, "unknown mode `all`"),
        ({"select": ["name"]}, "selects nothing"),
        ({"select": ["Plain:name=a"]}, "selects nothing"),
        ({"types": ["Doc"], "select": ["nam=a"]}, "did you mean `name`"),
        ({"types": ["Doc"], "select": ["vec=1"]}, "to select by"),
    ],
)
def test_embed_wrong_words_are_refused(graph: og.Graph, provider: Provider, given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        graph.embed(**given)
    assert provider.requests == []


def test_embed_select_value_of_another_type_is_refused(graph: og.Graph, provider: Provider) -> None:
    with pytest.raises(DataError, match="pages"):
        graph.embed(types=["Doc"], select=["pages=many"])


def test_embed_schema_without_embed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to embed"):
        og.init(tmp_path / "p.omni", "node Plain { name: String @key }").embed()


def test_embed_read_only_graph_is_refused_before_anything_is_asked(graph: og.Graph, provider: Provider) -> None:
    graph.ingest([doc("a", text="one")])
    with og.open(graph.uri, read_only=True) as opened, pytest.raises(GraphError, match="read-only"):
        opened.embed()
    assert provider.requests == []


# -- faults --------------------------------------------------------------------------------------------------------


def wrong(vector: object) -> Callable[[int, Any], Answer]:
    def fault(number: int, body: Any) -> Answer:
        status, payload = answer(number, body)
        if "t7" not in body["input"]:
            return status, payload
        vectors = json.loads(payload)
        vectors["data"][0]["embedding"] = vector
        return 200, json.dumps(vectors).encode()

    return fault


def refusing(status: int) -> Callable[[int, Any], Answer]:
    return lambda number, body: (status, b"no") if "t7" in body["input"] else answer(number, body)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(refusing(429), id="429"),
        pytest.param(refusing(500), id="500"),
        pytest.param(refusing(400), id="400"),
        pytest.param(wrong([1.0, 0.0]), id="short"),
        pytest.param(wrong([float("nan")] * 4), id="nan"),
        pytest.param(wrong([0.0] * 4), id="zero"),
    ],
)
def test_embed_provider_that_fails_publishes_nothing_and_loses_no_answer(
    graph: og.Graph, provider: Provider, fault: Callable[[int, Any], Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "EMBED_TEXTS_MAX", 2)
    monkeypatch.setattr(cache, "EMBED_REQUESTS_MAX", 1)
    graph.ingest([doc(f"d{number:02}", text=f"t{number}") for number in range(12)])
    before, provider.answer = docs(graph), fault
    with pytest.raises(DataError) as caught:
        graph.embed()
    assert caught.value.context["rule"] == "E13"
    assert "secret-key" not in str(caught.value)
    assert docs(graph) == before
    known = {text for _, _, body in provider.requests for text in body["input"] if "t7" not in body["input"]}
    assert known >= {f"t{number}" for number in range(6)}
    assert_left_alone(graph)
    provider.requests.clear()
    provider.answer = answer
    graph.embed()
    assert asked(provider) == sorted({f"t{number}" for number in range(12)} - known)
    assert docs(graph)["d07"]["vec"] == pytest.approx(made("t7"))


def assert_left_alone(graph: og.Graph) -> None:
    """Nothing that a failed run staged or claimed is left."""
    root = Path(graph.uri)
    assert list(root.glob("__recovery/*.json")) == []
    named = {path.name for path in root.glob("nodes/*/data/*")}
    assert not any("-" in name and len(name.partition("-")[0]) == 26 for name in named)


def test_embed_passing_failures_are_tried_again(graph: og.Graph, provider: Provider) -> None:
    graph.ingest([doc("a", text="one")])
    provider.answer = lambda number, body: (503, b"busy") if number == 0 else answer(number, body)
    assert graph.embed().properties[1].tally.filled == 1
    assert len(provider.requests) == 2


def test_embed_provider_that_is_silent_is_given_up(
    graph: og.Graph, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_TIMEOUT_MS", "30")
    graph.ingest([doc("a", text="one")])
    provider.holds = True
    with pytest.raises(DataError, match="failed 2 times"):
        graph.embed()
    assert docs(graph)["a"]["vec"] is None


def test_embed_writer_that_was_faster_is_kept_and_no_text_asked_again(graph: og.Graph, provider: Provider) -> None:
    graph.ingest([doc("a", text="one"), doc("b", text="two")])

    def meanwhile(number: int, body: Any) -> Answer:
        if number == 0:
            with og.open(graph.uri) as other:
                set_text(other, "b", "dos")
        return answer(number, body)

    provider.answer = meanwhile
    receipt = graph.embed()
    assert asked(provider) == ["dos", "one", "two"]
    found = docs(graph)
    assert (found["b"]["text"], found["b"]["vec"]) == ("dos", pytest.approx(made("dos")))
    assert found["a"]["vec"] == pytest.approx(made("one"))
    assert [one.kind for one in graph.commits()][:2] == ["embed", "mutation"]
    assert receipt.commit is not None
    tally = receipt.properties[1].tally
    assert (tally.filled, tally.asked) == (2, 3)
    assert graph.maintenance.verify().is_sound


def when_asked_for(text: str, act: Callable[[], object]) -> Callable[[int, Any], Answer]:
    """Act when the provider is asked for a text, before it answers."""

    def meanwhile(number: int, body: Any) -> Answer:
        if text in body["input"]:
            act()
        return answer(number, body)

    return meanwhile


def test_embed_type_that_is_dropped_meanwhile_is_left_out(graph: og.Graph, provider: Provider) -> None:
    graph.ingest([doc("a", text="one"), {"type": "Note", "data": {"name": "n", "text": "two", "vec": [1, 0, 0, 0]}}])
    without_doc = SCHEMA[SCHEMA.index("node Note") :]

    def drop() -> None:
        with og.open(graph.uri) as other:
            other.schema.apply(without_doc)

    provider.answer = when_asked_for("two", drop)
    receipt = graph.embed(mode="reembed_all")
    assert [(one.type_name, one.tally.filled) for one in receipt.properties] == [("Note", 1)]
    assert receipt.commit is not None
    assert graph.maintenance.verify().is_sound


def test_embed_type_that_appears_meanwhile_needs_the_right_to_change_it(graph: og.Graph, provider: Provider) -> None:
    rules = """
version: 1
groups: {team: [ann]}
rules:
  - {id: a, allow: {actors: {group: team}, actions: [read]}}
  - {id: b, allow: {actors: {group: team}, actions: [change], types: [Doc, Note]}}
"""
    graph.ingest([doc("a", text="one")])
    wider = SCHEMA + "node Wall { name: String @key  text: String  vec: Vector(4)? @embed(text) }"

    def widen() -> None:
        with og.open(graph.uri) as other:
            other.schema.apply(wider)
            other.ingest([{"type": "Wall", "data": {"name": "w", "text": "secret"}}])

    provider.answer = when_asked_for("one", widen)
    with og.open(graph.uri, actor="ann", policy=load_bundle(rules)) as ann, pytest.raises(PolicyDenied, match="`Wall`"):
        ann.embed()
    assert asked(provider) == ["one"]
    assert_left_alone(graph)


def test_embed_side_by_side_both_end_well(graph: og.Graph, provider: Provider) -> None:
    graph.ingest([doc(f"d{number}", text=f"t{number}") for number in range(20)])
    with og.open(graph.uri) as one, og.open(graph.uri) as other, ThreadPoolExecutor(2) as pool:
        receipts = [future.result() for future in [pool.submit(each.embed) for each in (one, other)]]
    assert any(receipt.commit is not None for receipt in receipts)
    assert {name: row["vec"] for name, row in docs(graph).items()} == {
        f"d{number}": pytest.approx(made(f"t{number}")) for number in range(20)
    }
    assert graph.maintenance.verify().is_sound


@pytest.mark.s3
def test_embed_on_s3_keeps_the_cache_there(s3_server: S3Server, provider: Provider) -> None:
    with og.init(s3_server.uri("embedded"), SCHEMA) as graph:
        graph.ingest([doc("a", text="one"), doc("b", text="two")])
        graph.embed()
        assert asked(provider) == ["one", "two"]
        assert docs(graph)["b"]["vec"] == pytest.approx(made("two"))
    with og.open(s3_server.uri("embedded")) as again:
        again.embed(mode="clean", types=["Doc"])
        again.embed()
        assert asked(provider) == []
        assert docs(again)["a"]["vec"] == pytest.approx(made("one"))


def test_embed_killed_midway_leaves_the_graph_and_keeps_its_answers(
    graph: og.Graph, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.ingest([doc(f"d{number}", text=f"t{number}") for number in range(6)])
    before = docs(graph)
    program = (
        "import sys, omnigraph as og\n"
        "from omnigraph.engine.embed import cache\n"
        "cache.EMBED_WINDOW_TEXTS = 2\n"
        "cache.EMBED_REQUESTS_MAX = 1\n"
        "og.open(sys.argv[1]).embed()\n"
    )
    child: list[ForkedPython] = []

    def kill(number: int, body: Any) -> Answer:
        if number == 2:
            os.kill(child[0].pid, signal.SIGKILL)
            child[0].wait()
        return answer(number, body)

    provider.answer = kill
    child.append(ForkedPython([sys.executable, "-c", program, graph.uri]))
    assert child[0].wait() == -signal.SIGKILL
    assert len(asked(provider)) == 6
    assert docs(graph) == before
    provider.answer = answer
    with og.open(graph.uri) as opened:
        opened.embed()
        assert asked(provider) == ["t4", "t5"]
        sweep(session_of(opened).kernel, 0)
        assert docs(opened)["d5"]["vec"] == pytest.approx(made("t5"))
    assert list(Path(graph.uri).glob("__recovery/*.json")) == []


# -- the cache -----------------------------------------------------------------------------------------------------


def cache_of(graph: og.Graph, dimension: int = 4) -> embedcache.VectorCache:
    return embedcache.VectorCache(session_of(graph).kernel.store, embedcache.VectorSpace("openai", "m1", dimension))


def test_cache_damaged_or_missing_files_are_asked_for_again(graph: og.Graph, provider: Provider) -> None:
    graph.ingest([doc("a", text="one"), doc("b", text="two")])
    graph.branches.create("review")
    folder = Path(graph.uri) / cache_of(graph).space.folder
    graph.embed(types=["Doc"])
    asked(provider)
    [vectors] = folder.glob("*.vectors.npy")
    vectors.write_bytes(vectors.read_bytes()[:-1] + b"\x7f")
    with og.open(graph.uri) as opened:
        opened.embed("review", types=["Doc"])
        assert asked(provider) == ["one", "two"]
        opened.branches.create("again", from_="review")
    for path in folder.glob("*.keys.npy"):
        path.write_bytes(b"")
    with og.open(graph.uri) as opened:
        opened.embed("again", mode="clean", types=["Doc"])
        opened.embed("again", types=["Doc"])
    assert asked(provider) == ["one", "two"]


def test_cache_small_files_are_folded_and_nothing_is_lost(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedcache, "EMBED_CACHE_FILES_MAX", 4)
    known = cache_of(graph)
    digests = np.random.default_rng(7).integers(0, 1 << 63, (10, 2)).astype(np.uint64)
    vectors = np.eye(10, 4, dtype=np.float32) + 1
    for row in range(10):
        known.add(digests[row : row + 1], vectors[row : row + 1])
    embedcache.compact_cache(known.store, known.space)
    assert len(list((Path(graph.uri) / known.space.folder).iterdir())) == 6
    fresh, found = cache_of(graph), np.zeros((10, 4), np.float32)
    fresh.refresh()
    assert fresh.read(digests, found).all()
    assert found.tolist() == vectors.tolist()
    # Whoever had learned of the small files is told that they are gone.
    assert not known.read(digests, found).any()


def test_cache_writers_side_by_side_lose_nothing(graph: og.Graph) -> None:
    digests = np.arange(400, dtype=np.uint64).reshape(200, 2)
    vectors = np.repeat(np.arange(1, 201, dtype=np.float32), 4).reshape(200, 4)
    caches = [cache_of(graph), cache_of(graph)]
    with ThreadPoolExecutor(4) as pool:
        for start in range(0, 200, 10):
            part = slice(start, start + 10)
            pool.submit(caches[start % 20 // 10].add, digests[part], vectors[part])
    for one in caches:
        one.refresh()
        found = np.zeros_like(vectors)
        assert one.read(digests, found).all()
        assert found.tolist() == vectors.tolist()


def test_cleanup_and_sweep_leave_the_cache_alone(graph: og.Graph, provider: Provider) -> None:
    graph.ingest([doc("a", text="one")])
    graph.embed()
    folder = Path(graph.uri) / embedcache.FOLDER
    before = sorted(folder.rglob("*"))
    assert len(before) == 3
    graph.maintenance.cleanup(keep=1, older_than=timedelta(0), confirm=True)
    sweep(session_of(graph).kernel, 0)
    assert sorted(folder.rglob("*")) == before


# -- a model of it all ---------------------------------------------------------------------------------------------


def walk(graph: og.Graph, steps: int) -> None:
    """Change texts and vectors at random and embed now and then; the outcome must be what was written down."""
    chance = random.Random(7)
    names, texts = ["a", "b", "c"], ["one", "two", "three", None]
    model: dict[str, tuple[str | None, list[float] | None, bool]] = {}
    for _ in range(steps):
        name, text = chance.choice(names), chance.choice(texts)
        action = chance.choice(["write", "own", "text", "text", "text", "embed", "embed"])
        if action == "write":
            graph.ingest([doc(name, text=text)])
            model[name] = (text, None, False)
        elif action == "own":
            vector = [chance.random() for _ in range(4)]
            graph.ingest([doc(name, text=text, vec=vector)])
            model[name] = (text, vector, False)
        elif action == "text" and name in model:
            set_text(graph, name, text)
            model[name] = (text, *model[name][1:])
        elif action == "embed":
            graph.embed(types=["Doc"])
            for one, (own, known, is_ours) in model.items():
                if known is None or is_ours:
                    model[one] = (own, None if own is None else made(own), own is not None)
            found = {one: row["vec"] for one, row in docs(graph).items()}
            assert found == {one: None if row[1] is None else pytest.approx(row[1]) for one, row in model.items()}


def test_embed_random_history_matches_the_model(graph: og.Graph, provider: Provider) -> None:
    walk(graph, 40)


@pytest.mark.parametrize("mutant", ["forgets texts", "takes all for its own"])
@pytest.mark.sampled(1)
def test_embed_model_catches_mutants(
    graph: og.Graph, provider: Provider, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mutant == "forgets texts":
        for module in (embed_tasks, embedcache):
            monkeypatch.setattr(module, "pair_fingerprints", lambda prints, digests: prints)
    else:
        monkeypatch.setattr(
            embed_tasks, "_check_provenance", lambda texts, vectors, has, *_: (has, np.zeros(len(has), bool))
        )
    with pytest.raises(AssertionError):
        walk(graph, 40)
