"""Embedding providers over HTTP: requests, response checks and the retry policy.

The only module of the engine that talks to the network beside storage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import HTTPException, HTTPResponse
from typing import Any, Final
from urllib.parse import quote, urlsplit

import numpy as np

from omnigraph import clock, settings
from omnigraph.engine.read.search.connection import Connections
from omnigraph.engine.read.search.embed import Matrix, Purpose, failure, normalised
from omnigraph.engine.read.search.pace import NO_PACE, Pace
from omnigraph.errors import UsageError
from omnigraph.limits import EMBED_RESPONSE_BYTES_MAX, EMBED_RETRY_AFTER_SECONDS_MAX, EMBED_TEXTS_MAX

_RETRIED_STATUSES: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_CHUNK_BYTES: Final = 65_536
_SHOWN_CHARACTERS: Final = 200
_REDACTED_CHARACTERS_MIN: Final = 8


@dataclass(frozen=True, slots=True)
class Patience:
    """How long and how often a provider is asked; no deadline means as long as the tries take."""

    deadline_seconds: float | None = 60.0
    timeout_seconds: float = 30.0
    attempts_max: int = 4
    backoff_seconds: float = 0.2


@dataclass(frozen=True, slots=True)
class _Wire:
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


@dataclass(frozen=True, slots=True)
class _Response:
    status: int
    retry_after: str | None
    body: bytes


class _TransientFailure(Exception):
    """A failure that may be gone the next time; `retry_after` is the wait in seconds that the provider asked for."""

    def __init__(self, reason: str, retry_after: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


@dataclass(frozen=True)
class HttpEmbedder:
    """Embeds with a provider that is asked over HTTP; connections and the key are kept for as long as it lives."""

    name: str
    model: str
    base_url: str
    patience: Patience
    pace: Pace
    _wire: _Wire = field(repr=False)
    _key: str = field(repr=False)
    _connections: Connections = field(repr=False)

    @classmethod
    def of(cls, name: str, base_url: str, model: str, patience: Patience, pace: Pace = NO_PACE) -> HttpEmbedder:
        """Return a provider's embedder; empty strings stand for its usual address and model."""
        wire = _WIRES[name]
        url = (base_url or wire.base_url).rstrip("/")
        if not _is_address(url):
            raise UsageError(
                f"OMNIGRAPH_EMBED_BASE_URL is `{url}`; give an address such as https://host/v1",
                setting="OMNIGRAPH_EMBED_BASE_URL",
                value=url,
            )
        key = next((value for name in wire.key_settings if (value := settings.read(name))), "")
        return cls(name, model or wire.model, url, patience, pace, wire, key, Connections(url))

    def embed(self, texts: Sequence[str], dimension: int, purpose: Purpose) -> Matrix:
        seconds = self.patience.deadline_seconds
        deadline = None if seconds is None else clock.elapsed() + seconds
        parts = []
        for start in range(0, len(texts), self._wire.texts_max):
            part = texts[start : start + self._wire.texts_max]
            parts.append(self._embed_part(part, dimension, purpose, deadline))
        return np.concatenate(parts) if parts else np.empty((0, dimension), np.float32)

    def _embed_part(self, texts: Sequence[str], dimension: int, purpose: Purpose, deadline: float | None) -> Matrix:
        body = json.dumps(self._wire.request(self.model, texts, dimension, purpose)).encode()
        path = self._wire.path(self.model, len(texts))
        answer = self._ask(path, body, self._request_headers(), deadline)
        try:
            vectors = self._wire.vectors(json.loads(answer))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            raise failure(f"the provider `{self.name}` gave an answer that is no embedding") from error
        if len(vectors) != len(texts):
            raise failure(f"the provider `{self.name}` gave {len(vectors)} vectors for {len(texts)} texts")
        return normalised(vectors, dimension, self.model)

    def _request_headers(self) -> dict[str, str]:
        names = " or ".join(self._wire.key_settings)
        if not self._key:
            raise failure(f"the provider `{self.name}` needs a key to embed text; set {names}", provider=self.name)
        if not self._key.isascii() or not self._key.isprintable():
            raise failure(f"the key of the provider `{self.name}` holds characters that no key has; check {names}")
        return {"Content-Type": "application/json", self._wire.key_header: self._wire.key_prefix + self._key}

    def _ask(self, path: str, body: bytes, headers: dict[str, str], deadline: float | None) -> bytes:
        pause = self.patience.backoff_seconds
        for attempt in range(1, max(1, self.patience.attempts_max) + 1):
            waited = self.pace.wait()
            # To wait for one's turn is not the provider's delay.
            deadline = None if deadline is None else deadline + waited
            try:
                return self._ask_once(path, body, headers, deadline)
            except _TransientFailure as error:
                reason, cause = str(error), error
            wait = max(pause, cause.retry_after)
            left = EMBED_RETRY_AFTER_SECONDS_MAX if deadline is None else deadline - clock.elapsed()
            if attempt >= self.patience.attempts_max or left <= wait:
                break
            clock.pause(wait)
            pause *= 2
        raise failure(f"the provider `{self.name}` failed {attempt} times, last with: {reason}") from cause

    def _ask_once(self, path: str, body: bytes, headers: dict[str, str], deadline: float | None) -> bytes:
        left = self.patience.timeout_seconds
        if deadline is not None:
            left = min(left, deadline - clock.elapsed())
            if left <= 0:
                raise _TransientFailure("the deadline has passed")
        read = partial(_read_response, until=clock.elapsed() + left)
        try:
            response = self._connections.post(path, body, headers, left, read)
        except (OSError, HTTPException) as error:
            raise _TransientFailure(_redact(str(error), self._key) or type(error).__name__) from error
        if response.status == 200:
            return response.body
        # Some providers echo the request's headers. Redact before the cut, which could leave half a key standing.
        detail = " ".join(_redact(response.body.decode("utf-8", "replace"), self._key).split())[:_SHOWN_CHARACTERS]
        message = f"status {response.status}: {detail}"
        if response.status in _RETRIED_STATUSES:
            raise _TransientFailure(message, _parse_retry_after(response.retry_after))
        raise failure(f"the provider `{self.name}` refused: {message}", status=response.status)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _redact(text: str, key: str) -> str:
    """Return the text without the key, nor a beginning or an end of it that is long enough to matter.

    >>> _redact("bad key Bearer sk-123456789, or sk-1234567...", "sk-123456789")
    'bad key Bearer [key], or [key]...'
    """
    for length in range(len(key), min(len(key), _REDACTED_CHARACTERS_MIN) - 1, -1):
        for part in (key[:length], key[-length:]):
            text = text.replace(part, "[key]") if part else text
    return text


def _parse_retry_after(value: str | None) -> float:
    """Return the wait in seconds that a `Retry-After` header asks for; 0 where there is none that can be read."""
    if value is None:
        return 0.0
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - clock.now_us() / 1_000_000)
    except (ValueError, OverflowError):
        return 0.0


def _read_response(response: HTTPResponse, until: float) -> _Response:
    """Read a response to its end; a provider that drips it is as late as one that is silent."""
    body = bytearray()
    # One read of the socket at a time: waiting for a whole chunk would let a drip outlast the deadline.
    while chunk := response.read1(_CHUNK_BYTES):
        body += chunk
        if len(body) > EMBED_RESPONSE_BYTES_MAX:
            raise failure(f"the provider's answer is larger than {EMBED_RESPONSE_BYTES_MAX} bytes")
        if clock.elapsed() > until:
            raise _TransientFailure("the answer did not come in time")
    if response.length:
        raise _TransientFailure(f"the connection ended {response.length} bytes before the end of the answer")
    return _Response(response.status, response.getheader("Retry-After"), bytes(body))


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


def _openai(base_url: str, model: str, *key_settings: str) -> _Wire:
    return _Wire(
        base_url, model, key_settings, "Authorization", "Bearer ", lambda *_: "/embeddings", EMBED_TEXTS_MAX,
        _openai_request, _openai_vectors,
    )  # fmt: skip


_WIRES: Final[Mapping[str, _Wire]] = {
    "openai-compatible": _openai(
        "https://openrouter.ai/api/v1", "openai/text-embedding-3-large", "OPENROUTER_API_KEY", "OPENAI_API_KEY"
    ),
    "openai": _openai("https://api.openai.com/v1", "text-embedding-3-large", "OPENAI_API_KEY"),
    "gemini": _Wire(
        "https://generativelanguage.googleapis.com/v1beta", "gemini-embedding-2", ("GEMINI_API_KEY",), "x-goog-api-key",
        "", _gemini_path, EMBED_TEXTS_MAX // 2, _gemini_request, _gemini_vectors,
    ),
}  # fmt: skip
