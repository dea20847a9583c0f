"""Embedders: what providers are asked, what is refused of their answers, and how often they are asked again."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from omnigraph import clock
from omnigraph.engine.query.embedders import (
    NO_RATE_LIMIT,
    HttpEmbedder,
    MockEmbedder,
    Purpose,
    RetryPolicy,
    check_model,
    from_settings,
)
from omnigraph.errors import DataError, UsageError
from tests.support.embedding_provider import Answer, Provider, openai_answer, running

HURRIED = RetryPolicy(deadline_seconds=5, timeout_seconds=5, attempts_max=3, backoff_seconds=0)
KEYS = ("OPENROUTER_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")


def openai(provider: Provider, patience: RetryPolicy = HURRIED) -> HttpEmbedder:
    return HttpEmbedder.of("openai", provider.url, "m", patience)


def refusal(embedder: HttpEmbedder) -> DataError:
    with pytest.raises(DataError) as caught:
        embedder.embed(["x"], 2, Purpose.QUERY)
    assert caught.value.context["rule"] == "E13"
    assert "secret-key" not in str(caught.value)
    return caught.value


def test_openai_answer_is_put_in_order_and_scaled_to_length_one() -> None:
    with running(Provider(lambda number, body: openai_answer([3.0, 4.0], [0.0, -2.0]))) as provider:
        vectors = openai(provider).embed(["a", "b"], 2, Purpose.DOCUMENT)
    assert vectors.tolist() == [[np.float32(0.6), np.float32(0.8)], [0.0, -1.0]]
    [(path, headers, body)] = provider.requests
    assert path == "/embeddings"
    assert headers["authorization"] == "Bearer secret-key"
    assert body == {"model": "m", "input": ["a", "b"], "dimensions": 2}


def test_openai_compatible_prefers_its_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "router-key")
    with running(Provider(lambda number, body: openai_answer([1.0, 0.0]))) as provider:
        embedder = HttpEmbedder.of("openai-compatible", provider.url, "", HURRIED)
        embedder.embed(["a"], 2, Purpose.QUERY)
    assert provider.requests[0][1]["authorization"] == "Bearer router-key"
    assert embedder.model == "openai/text-embedding-3-large"


@pytest.mark.parametrize("purpose", list(Purpose))
def test_gemini_single_text_is_asked_with_its_purpose(purpose: Purpose, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "gem")
    answer = 200, json.dumps({"embedding": {"values": [0.0, 5.0]}}).encode()
    with running(Provider(lambda number, body: answer)) as provider:
        vectors = HttpEmbedder.of("gemini", provider.url, "", HURRIED).embed(["b"], 2, purpose)
    assert vectors.tolist() == [[0.0, 1.0]]
    [(path, headers, body)] = provider.requests
    assert path == "/models/gemini-embedding-2:embedContent"
    assert headers["x-goog-api-key"] == "gem"
    assert body == {
        "model": "models/gemini-embedding-2",
        "content": {"parts": [{"text": "b"}]},
        "taskType": purpose.value,
        "outputDimensionality": 2,
    }


def test_gemini_several_texts_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "gem")

    def answer(number: int, body: dict[str, list[object]]) -> Answer:
        return 200, json.dumps({"embeddings": [{"values": [5.0, 0.0]}] * len(body["requests"])}).encode()

    with running(Provider(answer)) as provider:
        vectors = HttpEmbedder.of("gemini", provider.url, "", HURRIED).embed(["a"] * 66, 2, Purpose.DOCUMENT)
    assert vectors.tolist() == [[1.0, 0.0]] * 66
    assert [path for path, _, _ in provider.requests] == ["/models/gemini-embedding-2:batchEmbedContents"] * 2
    assert [len(body["requests"]) for _, _, body in provider.requests] == [64, 2]
    assert provider.requests[0][2]["requests"][0]["taskType"] == "RETRIEVAL_DOCUMENT"


def test_pace_keeps_requests_apart_by_its_share_of_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(clock, "pause", pause)
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "openai")
    monkeypatch.setenv("OMNIGRAPH_EMBED_REQUESTS_PER_SECOND", "8")
    embedder = from_settings(sharers=2)
    assert isinstance(embedder, HttpEmbedder)
    with clock.replaced(elapsed=lambda: now[0]):
        waited = [embedder.rate_limiter.wait() for _ in range(3)]
    assert waited == [0.0, 0.25, 0.25]
    assert NO_RATE_LIMIT.wait() == 0.0


def test_embed_more_texts_than_a_request_holds_asks_several_times(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(number: int, body: dict[str, list[str]]) -> Answer:
        return openai_answer(*([float(text), 1.0] for text in body["input"]))

    with running(Provider(answer)) as provider:
        vectors = openai(provider).embed([str(number) for number in range(130)], 2, Purpose.DOCUMENT)
    assert [len(body["input"]) for _, _, body in provider.requests] == [128, 2]
    assert (vectors[:, 0] / vectors[:, 1]).tolist() == pytest.approx(range(130), rel=1e-5)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_embed_passing_failure_is_tried_again(status: int) -> None:
    def answer(number: int, body: object) -> Answer:
        return (status, b"busy") if number < 2 else openai_answer([1.0, 0.0])

    with running(Provider(answer)) as provider:
        assert openai(provider).embed(["x"], 2, Purpose.QUERY).tolist() == [[1.0, 0.0]]
    assert len(provider.requests) == 3


def test_embed_failure_that_does_not_pass_ends_after_the_last_try() -> None:
    with running(Provider(lambda number, body: (500, b"on fire"))) as provider:
        error = refusal(openai(provider))
    assert "3 times" in error.message
    assert "on fire" in error.message
    assert len(provider.requests) == 3


def test_embed_answer_cut_off_is_retried() -> None:
    answering = Provider(
        lambda number, body: openai_answer([1.0, 0.0]), missing_bytes=lambda number: 991 * (number == 0)
    )
    with running(answering) as provider:
        assert openai(provider).embed(["x"], 2, Purpose.QUERY).tolist() == [[1.0, 0.0]]
    assert len(provider.requests) == 2


@pytest.mark.parametrize("value", ["2", "Mon, 16 Nov 2026 12:00:02 GMT"])
def test_embed_retry_after_is_waited_for(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(clock, "pause", waits.append)
    noon_us = 1_794_830_400_000_000

    def answer(number: int, body: object) -> Answer:
        return (429, b"slow down") if number == 0 else openai_answer([1.0, 0.0])

    with running(Provider(answer, headers={"Retry-After": value})) as provider, clock.replaced(wall=lambda: noon_us):
        openai(provider).embed(["x"], 2, Purpose.QUERY)
    assert waits == [2.0]


def test_embed_retry_after_past_the_deadline_fails_at_once() -> None:
    with running(Provider(lambda number, body: (429, b""), headers={"Retry-After": "3600"})) as provider:
        assert "1 times" in refusal(openai(provider)).message
    assert len(provider.requests) == 1


@pytest.mark.parametrize("status", [401, 500])
def test_embed_key_echoed_by_the_provider_is_redacted(status: int) -> None:
    def echo(number: int, body: object) -> Answer:
        # The second one lies across the end of what an error shows.
        return status, b"bad key Bearer secret-key " + b"." * 160 + b" secret-key"

    with running(Provider(echo)) as provider:
        message = refusal(openai(provider)).message
    assert "[key]" in message
    assert "secret" not in message


def test_embed_repeated_index_is_refused() -> None:
    items = [{"index": 0, "embedding": [1.0, 0.0]}, {"index": 0, "embedding": [0.0, 1.0]}]
    answering = Provider(lambda number, body: (200, json.dumps({"data": items}).encode()))
    with running(answering) as provider, pytest.raises(DataError):
        openai(provider).embed(["x", "y"], 2, Purpose.QUERY)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 302])
def test_embed_refusal_is_not_tried_again(status: int) -> None:
    with running(Provider(lambda number, body: (status, b"no such model"))) as provider:
        error = refusal(openai(provider))
    assert error.context["status"] == status
    assert [path for path, _, _ in provider.requests] == ["/embeddings"]


@pytest.mark.parametrize(
    "payload",
    [
        b"garbage",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{}",
        b'{"data": [{}]}',
        b'{"data": []}',
        b'{"data": [{"embedding": "text"}]}',
        b'{"data": [{"embedding": [1.0]}]}',
        b'{"data": [{"embedding": [1.0, 2.0, 3.0]}]}',
        b'{"data": [{"embedding": [1.0, "x"]}]}',
        b'{"data": [{"embedding": [1.0, null]}]}',
        b'{"data": [{"embedding": null}]}',
        b'{"data": [{"embedding": [true, 1.0]}]}',
        b'{"data": [{"embedding": ["1.0", "2.0"]}]}',
        b'{"data": [{"index": "0", "embedding": [1.0, 2.0]}]}',
        b'{"data": [{"index": 1, "embedding": [1.0, 2.0]}]}',
        b'{"data": [{"embedding": [0.0, 0.0]}]}',
        b'{"data": [{"embedding": [NaN, 1.0]}]}',
        b'{"data": [{"embedding": [Infinity, 1.0]}]}',
        b'{"data": [{"embedding": [1.0, 0.0]}, {"embedding": [1.0, 0.0]}]}',
        b"[" * 100_000,
    ],
)
def test_embed_answer_that_is_no_embedding_is_refused(payload: bytes) -> None:
    with running(Provider(lambda number, body: (200, payload))) as provider:
        refusal(openai(provider))
    assert len(provider.requests) == 1


def test_embed_answer_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.engine.query.embedders.EMBED_RESPONSE_BYTES_MAX", 100)
    with running(Provider(lambda number, body: (200, b" " * 200))) as provider:
        assert "larger than" in refusal(openai(provider)).message


def test_embed_silent_provider_is_given_up_at_the_timeout() -> None:
    impatient = RetryPolicy(deadline_seconds=None, timeout_seconds=0.2, attempts_max=2, backoff_seconds=0)
    with running(Provider(lambda number, body: openai_answer([1.0, 0.0]), holds=True)) as provider:
        refusal(openai(provider, impatient))
    assert len(provider.requests) == 2


def test_embed_deadline_ends_the_tries() -> None:
    patience = RetryPolicy(deadline_seconds=0.05, timeout_seconds=30, attempts_max=1_000, backoff_seconds=0.01)
    with running(Provider(lambda number, body: (503, b"busy"))) as provider:
        refusal(openai(provider, patience))
    assert 1 <= len(provider.requests) < 10


def test_embed_nobody_listening_is_a_failure() -> None:
    with running(Provider(lambda number, body: (200, b""))) as provider:
        pass
    refusal(openai(provider))


def test_embed_without_a_key_says_which_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    error = refusal(HttpEmbedder.of("openai-compatible", "http://127.0.0.1:9", "", HURRIED))
    assert "OPENROUTER_API_KEY or OPENAI_API_KEY" in error.message


@pytest.mark.parametrize("url", ["file:///etc/passwd", "host/v1", "http://", "http://host:port", "http://host:99999"])
def test_http_embedder_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="OMNIGRAPH_EMBED_BASE_URL"):
        HttpEmbedder.of("openai", url, "", HURRIED)


def test_mock_vectors_are_the_same_everywhere() -> None:
    vectors = MockEmbedder().embed(["north star", "north star", ""], 4, Purpose.QUERY)
    assert vectors[0].tolist() == vectors[1].tolist() != vectors[2].tolist()
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1.0, 1.0, 1.0])
    assert vectors[2] == pytest.approx(MOCK_EMPTY, abs=1e-6)


# By hand: FNV-1a of no bytes is its offset basis; four xorshift steps of that; mapped to [-1, 1]; scaled.
def _mock_by_hand() -> list[float]:
    state, found = 14695981039346656037, []
    for _ in range(4):
        state = (state ^ (state << 13)) % 2**64
        state = state ^ (state >> 7)
        state = (state ^ (state << 17)) % 2**64
        found.append(state / (2**64 - 1) * 2 - 1)
    length = sum(number * number for number in found) ** 0.5
    return [number / length for number in found]


MOCK_EMPTY = _mock_by_hand()


def test_check_model_other_model_than_recorded_is_refused() -> None:
    with pytest.raises(DataError, match="OMNIGRAPH_EMBED_MODEL") as caught:
        check_model(MockEmbedder("m2"), "m1")
    assert caught.value.context == {"rule": "E13", "expected": "m1", "actual": "m2"}
    check_model(MockEmbedder("m1"), "m1")
    check_model(MockEmbedder("m1"), None)


@pytest.mark.parametrize("ends", [False, True])
def test_embed_again_uses_the_open_connection_or_a_new_one(ends: bool) -> None:
    with running(Provider(lambda number, body: openai_answer([1.0, 0.0]), ends_connections=ends)) as provider:
        embedder = openai(provider)
        for _ in range(3):
            embedder.embed(["x"], 2, Purpose.QUERY)
    assert len(provider.requests) == 3
    assert provider.connections == (3 if ends else 1)


def test_embed_after_an_unread_answer_starts_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.engine.query.embedders.EMBED_RESPONSE_BYTES_MAX", 100_000)
    answers = [(200, b" " * 500_000), openai_answer([1.0, 0.0])]
    with running(Provider(lambda number, body: answers[number])) as provider:
        embedder = openai(provider)
        refusal(embedder)
        assert embedder.embed(["x"], 2, Purpose.QUERY).tolist() == [[1.0, 0.0]]
    assert provider.connections == 2


def test_embed_by_several_threads_keeps_answers_apart() -> None:
    def answer(number: int, body: dict[str, list[str]]) -> Answer:
        return openai_answer(*([float(text), 1.0] for text in body["input"]))

    with running(Provider(answer)) as provider, ThreadPoolExecutor(4) as pool:
        embedder = openai(provider)
        found = list(pool.map(lambda number: embedder.embed([str(number)], 2, Purpose.QUERY)[0], range(40)))
    assert [vector[0] / vector[1] for vector in found] == pytest.approx(range(40), rel=1e-5)
    assert provider.connections <= 4


def test_embed_through_a_proxy_asks_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(Provider(lambda number, body: openai_answer([1.0, 0.0]))) as proxy:
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("http_proxy", proxy.url.replace("http://", "http://me:p%40ss@"))
        embedder = HttpEmbedder.of("openai", "http://provider.invalid/v1", "m", HURRIED)
        embedder.embed(["x"], 2, Purpose.QUERY)
    [(path, headers, _)] = proxy.requests
    assert path == "http://provider.invalid/v1/embeddings"
    assert headers["host"] == "provider.invalid"
    assert headers["proxy-authorization"] == "Basic bWU6cEBzcw=="


@pytest.mark.parametrize("key", ["secret-key\n", "sécret-key"])
def test_embed_with_a_key_that_no_header_takes_does_not_show_it(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    error = refusal(HttpEmbedder.of("openai", "http://127.0.0.1:9", "", HURRIED))
    assert "OPENAI_API_KEY" in error.message
    assert "cret-key" not in error.message


def test_from_settings_nothing_set_needs_no_key_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    embedder = from_settings()
    assert isinstance(embedder, HttpEmbedder)
    assert embedder.base_url == "https://openrouter.ai/api/v1"
    assert embedder.retry_policy == RetryPolicy(60.0, 30.0, 4, 0.2)


def test_from_settings_everything_set_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PROVIDER": "gemini",
        "BASE_URL": "http://localhost:1/",
        "MODEL": "g",
        "DEADLINE_MS": "0",
        "TIMEOUT_MS": "5",
        "RETRY_ATTEMPTS": "6",
        "RETRY_BACKOFF_MS": "7",
    }.items():
        monkeypatch.setenv(f"OMNIGRAPH_EMBED_{name}", value)
    embedder = from_settings()
    assert isinstance(embedder, HttpEmbedder)
    assert (embedder.name, embedder.base_url, embedder.model) == ("gemini", "http://localhost:1", "g")
    assert embedder.retry_policy == RetryPolicy(None, 0.005, 6, 0.007)


def test_from_settings_mock_wins_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "gemini")
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    with caplog.at_level(logging.WARNING):
        assert isinstance(from_settings(), MockEmbedder)
    assert "no meaning" in caplog.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PROVIDER", "nobody"),
        ("TIMEOUT_MS", "soon"),
        ("RETRY_ATTEMPTS", "-1"),
        ("BASE_URL", "ftp://x"),
        ("REQUESTS_PER_SECOND", "-1"),
    ],
)
def test_from_settings_bad_value_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"OMNIGRAPH_EMBED_{name}", value)
    with pytest.raises(UsageError):
        from_settings()
