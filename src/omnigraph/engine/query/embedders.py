"""Embedding providers: text to unit vectors over HTTP, with retries, rate limiting and response checks."""

from __future__ import annotations

import json
import logging
import ssl
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, urlsplit

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph import clock, settings
from omnigraph.errors import DataError, UsageError
from omnigraph.limits import EMBED_RESPONSE_BYTES_MAX, EMBED_RETRY_AFTER_SECONDS_MAX, EMBED_TEXTS_MAX

if TYPE_CHECKING:
    # Imported on the first request, because it takes as long as the rest of a command's start.
    import httpx

Matrix = NDArray[np.float32]
_MASK = (1 << 64) - 1


class Purpose(StrEnum):
    """Task type of an embedding; some models distinguish the two."""

    QUERY = "RETRIEVAL_QUERY"
    DOCUMENT = "RETRIEVAL_DOCUMENT"


class Embedder(Protocol):
    """Turns texts into vectors of one model of one provider."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    def embed(self, texts: Sequence[str], dimension: int, purpose: Purpose) -> Matrix:
        """Return one vector of length 1 per text; raises DataError with rule E13."""
        ...


def check_model(embedder: Embedder, model: str | None) -> None:
    """Raise E13 if the stored vectors were made by another model; None means not recorded."""
    if model is not None and model != embedder.model:
        raise embedding_error(
            f"the stored vectors come from the model `{model}`, but queries are embedded with `{embedder.model}`;"
            f" set OMNIGRAPH_EMBED_MODEL to `{model}`",
            expected=model,
            actual=embedder.model,
        )


def normalize_vectors(vectors: Sequence[object], dimension: int, model: str) -> Matrix:
    """Return vectors scaled to length 1; rejects a wrong dimension, non-finite values and zero vectors.

    >>> normalize_vectors([[3, 4]], 2, "m").tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    wide = _parse_matrix(vectors, dimension)
    if wide is None:
        raise embedding_error(f"the model `{model}` did not give {dimension} numbers per text", dimension=dimension)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not (lengths > 0).all():
        raise embedding_error(f"the model `{model}` gave a vector that is all zero or not finite")
    unit: Matrix = (wide / lengths).astype(np.float32)
    return unit


def _parse_matrix(vectors: Sequence[object], dimension: int) -> NDArray[np.float64] | None:
    """Return lists of numbers as a matrix, or None; stricter than numpy, which converts true, "1.5" and null."""
    try:
        rows: Any = pa.array(list[Any](vectors))
        item = rows.type.value_type if pa.types.is_list(rows.type) else pa.null()
        if not pa.types.is_integer(item) and not pa.types.is_floating(item):
            return None
        fixed = rows.cast(pa.list_(pa.float64(), dimension))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if fixed.null_count or fixed.values.null_count:
        return None
    matrix: NDArray[np.float64] = fixed.values.to_numpy().reshape(len(rows), dimension)
    return matrix


def embedding_error(message: str, **context: str | int) -> DataError:
    error = DataError(message, rule="E13")
    error.context.update(context)
    return error


@dataclass(frozen=True, slots=True)
class MockEmbedder:
    """Deterministic pseudo-random vectors for tests; they carry no meaning."""

    model: str = "mock"
    name: str = "mock"

    def embed(self, texts: Sequence[str], dimension: int, purpose: Purpose) -> Matrix:
        return normalize_vectors([_mock_vector(text, dimension) for text in texts], dimension, self.model)


def _mock_vector(text: str, dimension: int) -> list[float]:
    """Map 64-bit xorshift numbers, seeded by the FNV-1a hash of the text, to [-1, 1]."""
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = ((state ^ byte) * 0x100000001B3) & _MASK
    # Xorshift never leaves zero, so a text that hashes to zero starts elsewhere.
    state = state or 1
    numbers = []
    for _ in range(dimension):
        state ^= (state << 13) & _MASK
        state ^= state >> 7
        state ^= (state << 17) & _MASK
        numbers.append(state / _MASK * 2.0 - 1.0)
    return numbers


def from_settings(sharers: int = 1) -> Embedder:
    """Return the embedder that the settings name; a missing key is reported when something is embedded.

    `sharers` processes run concurrently, each with its own embedder, and share the rate limit.
    """
    name = settings.read("OMNIGRAPH_EMBED_PROVIDER")
    model = settings.read("OMNIGRAPH_EMBED_MODEL")
    if settings.read("OMNIGRAPH_EMBEDDINGS_MOCK") in ("true", "1"):
        logging.getLogger("omnigraph").warning("OMNIGRAPH_EMBEDDINGS_MOCK is set: embeddings have no meaning")
        name = "mock"
    return make_embedder(name, settings.read("OMNIGRAPH_EMBED_BASE_URL"), model, sharers=sharers)


def make_embedder(name: str, base_url: str, model: str, key: str = "", *, sharers: int = 1) -> Embedder:
    """Return the embedder of a provider; empty texts select its defaults, and the key that the settings have."""
    if name == "mock":
        return MockEmbedder(model or "mock")
    retry_policy = RetryPolicy(
        deadline_seconds=_milliseconds("OMNIGRAPH_EMBED_DEADLINE_MS") or None,
        timeout_seconds=_milliseconds("OMNIGRAPH_EMBED_TIMEOUT_MS"),
        attempts_max=settings.read_integer("OMNIGRAPH_EMBED_RETRY_ATTEMPTS"),
        backoff_seconds=_milliseconds("OMNIGRAPH_EMBED_RETRY_BACKOFF_MS"),
    )
    rate_limiter = RateLimiter(_rate("OMNIGRAPH_EMBED_REQUESTS_PER_SECOND") / sharers)
    return HttpEmbedder.of(name, base_url, model, retry_policy, rate_limiter, key)


def _milliseconds(name: str) -> float:
    return settings.read_integer(name) / 1_000


def _rate(name: str) -> float:
    value = settings.read(name)
    try:
        rate = float(value)
    except ValueError:
        rate = -1.0
    if not 0 <= rate < float("inf"):
        raise UsageError(f"{name} is `{value}`; set it to a number such as 5 or 0.5", setting=name, value=value)
    return rate


class RateLimiter:
    """Spaces requests evenly; 0 requests per second means no limit."""

    def __init__(self, per_second: float) -> None:
        self._gap = 1 / per_second if per_second else 0.0
        self._free_at = 0.0
        self._lock = Lock()

    def wait(self) -> float:
        """Wait for the next slot and return the seconds waited."""
        if not self._gap:
            return 0.0
        with self._lock:
            now = clock.elapsed()
            turn = max(now, self._free_at)
            self._free_at = turn + self._gap
        if turn > now:
            clock.pause(turn - now)
        return turn - now


NO_RATE_LIMIT: Final = RateLimiter(0)

_RETRIED_STATUSES: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_SHOWN_CHARACTERS: Final = 200
_REDACTED_CHARACTERS_MIN: Final = 8


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Timeouts, attempts and backoff of provider requests; without a deadline only attempts bound it."""

    deadline_seconds: float | None = 60.0
    timeout_seconds: float = 30.0
    attempts_max: int = 4
    backoff_seconds: float = 0.2


@dataclass(frozen=True, slots=True)
class _ProviderProtocol:
    """One provider's address, model, keys and message format."""

    base_url: str
    model: str
    key_settings: tuple[str, ...]
    key_header: str
    key_prefix: str
    path: Callable[[str, int], str]
    texts_max: int
    request: Callable[[str, Sequence[str], int, Purpose], dict[str, object]]
    vectors: Callable[[Any], list[object]]


class _TransientProviderError(Exception):
    """A retryable failure; `retry_after` is the wait in seconds that the provider requested."""

    def __init__(self, reason: str, retry_after: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


@dataclass(frozen=True)
class HttpEmbedder:
    """Embeds texts with an HTTP provider; keeps its connections and key."""

    name: str
    model: str
    base_url: str
    retry_policy: RetryPolicy
    rate_limiter: RateLimiter
    _protocol: _ProviderProtocol = field(repr=False)
    _key: str = field(repr=False)

    @classmethod
    def of(
        cls,
        name: str,
        base_url: str,
        model: str,
        retry_policy: RetryPolicy,
        rate_limiter: RateLimiter = NO_RATE_LIMIT,
        key: str = "",
    ) -> HttpEmbedder:
        """Return a provider's embedder; empty strings select its default URL and model, and the key in the settings."""
        protocol = _PROVIDERS[name]
        url = (base_url or protocol.base_url).rstrip("/")
        if not _is_http_url(url):
            raise UsageError(
                f"OMNIGRAPH_EMBED_BASE_URL is `{url}`; give an address such as https://host/v1",
                setting="OMNIGRAPH_EMBED_BASE_URL",
                value=url,
            )
        key = key or next((value for name in protocol.key_settings if (value := settings.read(name))), "")
        return cls(name, model or protocol.model, url, retry_policy, rate_limiter, protocol, key)

    @cached_property
    def _client(self) -> httpx.Client:
        """A thread-safe pool of keep-alive connections, which honours the proxy settings of the environment."""
        import httpx

        try:
            client = httpx.Client(verify=ssl.create_default_context() if self.base_url.startswith("https") else False)
        except (ValueError, ImportError) as error:
            raise embedding_error(f"the proxy settings of the environment are not usable: {error}") from error
        weakref.finalize(self, client.close)
        return client

    def embed(self, texts: Sequence[str], dimension: int, purpose: Purpose) -> Matrix:
        seconds = self.retry_policy.deadline_seconds
        deadline = None if seconds is None else clock.elapsed() + seconds
        parts = []
        for start in range(0, len(texts), self._protocol.texts_max):
            part = texts[start : start + self._protocol.texts_max]
            parts.append(self._embed_part(part, dimension, purpose, deadline))
        return np.concatenate(parts) if parts else np.empty((0, dimension), np.float32)

    def _embed_part(self, texts: Sequence[str], dimension: int, purpose: Purpose, deadline: float | None) -> Matrix:
        body = json.dumps(self._protocol.request(self.model, texts, dimension, purpose)).encode()
        path = self._protocol.path(self.model, len(texts))
        response = self._send_with_retries(path, body, self._request_headers(), deadline)
        try:
            vectors = self._protocol.vectors(json.loads(response))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            raise embedding_error(f"the provider `{self.name}` returned a response without embeddings") from error
        if len(vectors) != len(texts):
            raise embedding_error(f"the provider `{self.name}` gave {len(vectors)} vectors for {len(texts)} texts")
        return normalize_vectors(vectors, dimension, self.model)

    def _request_headers(self) -> dict[str, str]:
        names = " or ".join(self._protocol.key_settings)
        if not self._key:
            raise embedding_error(
                f"the provider `{self.name}` needs a key to embed text; set {names}", provider=self.name
            )
        if not self._key.isascii() or not self._key.isprintable():
            raise embedding_error(
                f"the key of the provider `{self.name}` holds characters that no key has; check {names}"
            )
        return {"Content-Type": "application/json", self._protocol.key_header: self._protocol.key_prefix + self._key}

    def _send_with_retries(self, path: str, body: bytes, headers: dict[str, str], deadline: float | None) -> bytes:
        pause = self.retry_policy.backoff_seconds
        for attempt in range(1, max(1, self.retry_policy.attempts_max) + 1):
            waited = self.rate_limiter.wait()
            # Waiting for the rate limiter does not count against the deadline.
            deadline = None if deadline is None else deadline + waited
            try:
                return self._send_once(path, body, headers, deadline)
            except _TransientProviderError as error:
                reason, cause = str(error), error
            wait = max(pause, cause.retry_after)
            left = EMBED_RETRY_AFTER_SECONDS_MAX if deadline is None else deadline - clock.elapsed()
            if attempt >= self.retry_policy.attempts_max or left <= wait:
                break
            clock.pause(wait)
            pause *= 2
        raise embedding_error(f"the provider `{self.name}` failed {attempt} times, last with: {reason}") from cause

    def _send_once(self, path: str, body: bytes, headers: dict[str, str], deadline: float | None) -> bytes:
        left = self.retry_policy.timeout_seconds
        if deadline is not None:
            left = min(left, deadline - clock.elapsed())
            if left <= 0:
                raise _TransientProviderError("the deadline has passed")
        import httpx

        try:
            with self._client.stream(
                "POST", self.base_url + path, content=body, headers=headers, timeout=left
            ) as response:
                answer = _read_body(response, until=clock.elapsed() + left)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _TransientProviderError(_redact(str(error), self._key) or type(error).__name__) from error
        if response.status_code == 200:
            return answer
        # Some providers echo the request's headers. Redact before the cut, which could leave half a key standing.
        detail = " ".join(_redact(answer.decode("utf-8", "replace"), self._key).split())[:_SHOWN_CHARACTERS]
        message = f"status {response.status_code}: {detail}"
        if response.status_code in _RETRIED_STATUSES:
            raise _TransientProviderError(message, _parse_retry_after(response.headers.get("Retry-After")))
        raise embedding_error(f"the provider `{self.name}` refused: {message}", status=response.status_code)


def _is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _redact(text: str, key: str) -> str:
    """Replace the key, and long prefixes and suffixes of it, in a text.

    >>> _redact("bad key Bearer sk-123456789, or sk-1234567...", "sk-123456789")
    'bad key Bearer [key], or [key]...'
    """
    for length in range(len(key), min(len(key), _REDACTED_CHARACTERS_MIN) - 1, -1):
        for part in (key[:length], key[-length:]):
            text = text.replace(part, "[key]") if part else text
    return text


def _parse_retry_after(value: str | None) -> float:
    if value is None:
        return 0.0
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - clock.now_us() / 1_000_000)
    except (ValueError, OverflowError):
        return 0.0


def _read_body(response: httpx.Response, until: float) -> bytes:
    """Read a response to its end within the deadline, also when it arrives in small pieces."""
    body = bytearray()
    # A timeout of httpx bounds one read of the socket, so a server that drips bytes would never reach it.
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > EMBED_RESPONSE_BYTES_MAX:
            raise embedding_error(f"the provider's answer is larger than {EMBED_RESPONSE_BYTES_MAX} bytes")
        if clock.elapsed() > until:
            raise _TransientProviderError("the response timed out")
    return bytes(body)


def _openai_request(model: str, texts: Sequence[str], dimension: int, purpose: Purpose) -> dict[str, object]:
    return {"model": model, "input": list(texts), "dimensions": dimension}


def _openai_vectors(answer: Any) -> list[object]:
    items = answer["data"]
    if not any("index" in item for item in items):
        return [item["embedding"] for item in items]
    by_index = {item["index"]: item["embedding"] for item in items}
    # A repeated, missing or textual index would give a text the vector of another one.
    if not all(type(index) is int for index in by_index) or sorted(by_index) != list(range(len(items))):
        raise ValueError("the indexes of the embeddings are not 0 to n - 1")
    return [by_index[index] for index in range(len(items))]


def _gemini_path(model: str, count: int) -> str:
    return f"/models/{quote(model, safe='')}:{'embedContent' if count == 1 else 'batchEmbedContents'}"


def _gemini_request(model: str, texts: Sequence[str], dimension: int, purpose: Purpose) -> dict[str, object]:
    requests: list[dict[str, object]] = [
        {
            "model": f"models/{model}",
            "content": {"parts": [{"text": text}]},
            "taskType": purpose.value,
            "outputDimensionality": dimension,
        }
        for text in texts
    ]
    return requests[0] if len(requests) == 1 else {"requests": requests}


def _gemini_vectors(answer: Any) -> list[object]:
    embeddings = [answer["embedding"]] if "embedding" in answer else answer["embeddings"]
    return [embedding["values"] for embedding in embeddings]


def _openai_protocol(base_url: str, model: str, *key_settings: str) -> _ProviderProtocol:
    return _ProviderProtocol(
        base_url, model, key_settings, "Authorization", "Bearer ", lambda *_: "/embeddings", EMBED_TEXTS_MAX,
        _openai_request, _openai_vectors,
    )  # fmt: skip


_PROVIDERS: Final[Mapping[str, _ProviderProtocol]] = {
    "openai-compatible": _openai_protocol(
        "https://openrouter.ai/api/v1", "openai/text-embedding-3-large", "OPENROUTER_API_KEY", "OPENAI_API_KEY"
    ),
    "openai": _openai_protocol("https://api.openai.com/v1", "text-embedding-3-large", "OPENAI_API_KEY"),
    "gemini": _ProviderProtocol(
        "https://generativelanguage.googleapis.com/v1beta", "gemini-embedding-2", ("GEMINI_API_KEY",), "x-goog-api-key",
        "", _gemini_path, EMBED_TEXTS_MAX // 2, _gemini_request, _gemini_vectors,
    ),
}  # fmt: skip
