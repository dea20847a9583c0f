"""Embedders: text to vectors, and the checks that every vector passes.

The providers that talk over the network are in `provider`.
"""

from __future__ import annotations

import base64
import json
import logging
import ssl
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Lock
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph import clock, settings
from omnigraph.errors import DataError, UsageError
from omnigraph.limits import EMBED_RESPONSE_BYTES_MAX, EMBED_RETRY_AFTER_SECONDS_MAX, EMBED_TEXTS_MAX

Matrix = NDArray[np.float32]
_MASK = (1 << 64) - 1


class Purpose(StrEnum):
    """What a text is embedded for; some models tell the two apart."""

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
    """Refuse to compare with vectors of another model; `model` is what is recorded of theirs, if anything is (E13)."""
    if model is not None and model != embedder.model:
        raise DataError(
            f"the stored vectors come from the model `{model}`, but queries are embedded with `{embedder.model}`;"
            f" set OMNIGRAPH_EMBED_MODEL to `{model}`",
            rule="E13",
            expected=model,
            actual=embedder.model,
        )


def embed_query(embedder: Embedder, text: str, dimension: int) -> NDArray[np.float32]:
    """Return the vector of a query text."""
    vector: NDArray[np.float32] = embedder.embed([text], dimension, Purpose.QUERY)[0]
    return vector


def normalised(vectors: Sequence[object], dimension: int, model: str) -> Matrix:
    """Return vectors scaled to length 1; refuses a wrong dimension, what is not finite, and what has no length.

    >>> normalised([[3, 4]], 2, "m").tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    wide = _numbers_of(vectors, dimension)
    if wide is None:
        raise failure(f"the model `{model}` did not give {dimension} numbers per text", dimension=dimension)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not (lengths > 0).all():
        raise failure(f"the model `{model}` gave a vector that is all zero or not finite")
    unit: Matrix = (wide / lengths).astype(np.float32)
    return unit


def _numbers_of(vectors: Sequence[object], dimension: int) -> NDArray[np.float64] | None:
    """Return lists of numbers as a matrix, or None; stricter than numpy, which converts true, "1.5" and null."""
    try:
        rows: Any = pa.array(list[Any](vectors))
        if not pa.types.is_list(rows.type) or not _is_number(rows.type.value_type):
            return None
        fixed = rows.cast(pa.list_(pa.float64(), dimension))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if fixed.null_count or fixed.values.null_count:
        return None
    matrix: NDArray[np.float64] = fixed.values.to_numpy().reshape(len(rows), dimension)
    return matrix


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def failure(message: str, **context: str | int) -> DataError:
    """Return the error of an embedding that did not work."""
    error = DataError(message, rule="E13")
    error.context.update(context)
    return error


@dataclass(frozen=True, slots=True)
class MockEmbedder:
    """Vectors that depend on nothing but the text: the same on every machine, and without meaning."""

    model: str = "mock"
    name: str = "mock"

    def embed(self, texts: Sequence[str], dimension: int, purpose: Purpose) -> Matrix:
        return normalised([_mock_vector(text, dimension) for text in texts], dimension, self.model)


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

    So many `sharers` work at the same time, each with an embedder of its own, and share the allowed rate of requests.
    """

    name = settings.read("OMNIGRAPH_EMBED_PROVIDER")
    model = settings.read("OMNIGRAPH_EMBED_MODEL")
    if settings.read("OMNIGRAPH_EMBEDDINGS_MOCK") in ("true", "1"):
        logging.getLogger("omnigraph").warning("OMNIGRAPH_EMBEDDINGS_MOCK is set: embeddings have no meaning")
        name = "mock"
    if name == "mock":
        return MockEmbedder(model or "mock")
    patience = Patience(
        deadline_seconds=_milliseconds("OMNIGRAPH_EMBED_DEADLINE_MS") or None,
        timeout_seconds=_milliseconds("OMNIGRAPH_EMBED_TIMEOUT_MS"),
        attempts_max=settings.whole("OMNIGRAPH_EMBED_RETRY_ATTEMPTS"),
        backoff_seconds=_milliseconds("OMNIGRAPH_EMBED_RETRY_BACKOFF_MS"),
    )
    pace = Pace(_rate("OMNIGRAPH_EMBED_REQUESTS_PER_SECOND") / sharers)
    return HttpEmbedder.of(name, settings.read("OMNIGRAPH_EMBED_BASE_URL"), model, patience, pace)


def _milliseconds(name: str) -> float:
    return settings.whole(name) / 1_000


def _rate(name: str) -> float:
    value = settings.read(name)
    try:
        rate = float(value)
    except ValueError:
        rate = -1.0
    if not 0 <= rate < float("inf"):
        raise UsageError(f"{name} is `{value}`; set it to a number such as 5 or 0.5", setting=name, value=value)
    return rate


class Pace:
    """So many requests a second; 0 is no limit."""

    def __init__(self, per_second: float) -> None:
        self._gap = 1 / per_second if per_second else 0.0
        self._free_at = 0.0
        self._lock = Lock()

    def wait(self) -> float:
        """Wait for the next turn, and return how many seconds that took."""
        if not self._gap:
            return 0.0
        with self._lock:
            now = clock.elapsed()
            turn = max(now, self._free_at)
            self._free_at = turn + self._gap
        if turn > now:
            clock.pause(turn - now)
        return turn - now


NO_PACE: Final = Pace(0)

T = TypeVar("T")
Send = Callable[[HTTPConnection], None]


class Connections:
    """Connections to one address; threads may share them, and each request has one for itself."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)
        self._proxy = _proxy_of(self._address)
        self._headers = _credentials(self._proxy)
        is_forwarded = self._proxy is not None and self._address.scheme == "http"
        self._base = url if is_forwarded else self._address.path
        self._tls = ssl.create_default_context() if self._address.scheme == "https" else None
        self._idle: list[HTTPConnection] = []
        self._lock = Lock()
        weakref.finalize(self, _close_all, self._idle)

    def post(
        self, path: str, body: bytes, headers: dict[str, str], timeout: float, read: Callable[[HTTPResponse], T]
    ) -> T:
        """Send one request and return what `read` makes of the answer; no redirect is followed."""

        def send(connection: HTTPConnection) -> None:
            connection.timeout = timeout
            if connection.sock is not None:
                connection.sock.settimeout(timeout)
            own = self._headers if self._tls is None else {}
            connection.request("POST", self._base + path, body, headers | own)

        with self._lock:
            kept = self._idle.pop() if self._idle else None
        if kept is not None:
            try:
                return self._exchange(kept, send, read)
            except ConnectionError:
                # The other side ended it while it was idle, which says nothing about a new one.
                pass
        return self._exchange(self._connection(), send, read)

    def _exchange(self, connection: HTTPConnection, send: Send, read: Callable[[HTTPResponse], T]) -> T:
        is_kept = False
        try:
            send(connection)
            with connection.getresponse() as response:
                answer = read(response)
                # What was not read to its end would be taken for the start of the next answer.
                is_kept = not response.will_close and (response.isclosed() or response.length == 0)
            return answer
        finally:
            if is_kept:
                with self._lock:
                    self._idle.append(connection)
            else:
                connection.close()

    def _connection(self) -> HTTPConnection:
        near = self._proxy or self._address
        host, port = near.hostname or "", near.port
        if self._tls is None:
            return HTTPConnection(host, port)
        made = HTTPSConnection(host, port, context=self._tls)
        if self._proxy is not None:
            made.set_tunnel(self._address.hostname or "", self._address.port, self._headers)
        return made


def _proxy_of(address: SplitResult) -> SplitResult | None:
    found = getproxies().get(address.scheme)
    if not found or proxy_bypass(address.netloc):
        return None
    return urlsplit(found if "//" in found else f"//{found}")


def _credentials(proxy: SplitResult | None) -> dict[str, str]:
    if proxy is None or proxy.username is None:
        return {}
    plain = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(plain.encode()).decode()}"}


def _close_all(connections: list[HTTPConnection]) -> None:
    for connection in connections:
        connection.close()


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
