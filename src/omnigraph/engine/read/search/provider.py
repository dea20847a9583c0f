"""Embedding providers over HTTP: what each is asked, what it answers, and how often it is asked again.

The only place of the engine that talks to the network beside storage.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPMessage
from typing import IO, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import numpy as np

from omnigraph import clock, settings
from omnigraph.engine.read.search.embed import Matrix, Purpose, failure, normalised
from omnigraph.errors import UsageError
from omnigraph.limits import EMBED_RESPONSE_BYTES_MAX, EMBED_TEXTS_MAX

_RETRIED_STATUSES: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_CHUNK_BYTES: Final = 65_536
_SHOWN_CHARACTERS: Final = 200


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
    path: Callable[[str], str]
    texts_max: int
    request: Callable[[str, Sequence[str], int, Purpose], dict[str, object]]
    vectors: Callable[[Any], list[object]]


class _Passing(Exception):
    """A failure that may be gone the next time."""


@dataclass(frozen=True)
class HttpEmbedder:
    """Embeds with a provider that is asked over HTTP."""

    name: str
    model: str
    base_url: str
    patience: Patience
    _wire: _Wire = field(repr=False)

    @classmethod
    def of(cls, name: str, base_url: str, model: str, patience: Patience) -> HttpEmbedder:
        """Return a provider's embedder; empty strings stand for its usual address and model."""
        wire = _WIRES[name]
        url = (base_url or wire.base_url).rstrip("/")
        if urlsplit(url).scheme not in ("http", "https"):
            raise UsageError(f"OMNIGRAPH_EMBED_BASE_URL is `{url}`; give an address that starts with https://")
        return cls(name, model or wire.model, url, patience, wire)

    def embed(self, texts: Sequence[str], dimension: int, purpose: Purpose) -> Matrix:
        seconds = self.patience.deadline_seconds
        deadline = None if seconds is None else clock.elapsed() + seconds
        parts = []
        for start in range(0, len(texts), self._wire.texts_max):
            part = texts[start : start + self._wire.texts_max]
            parts.append(self._embed_part(part, dimension, purpose, deadline))
        return np.concatenate(parts) if parts else np.empty((0, dimension), np.float32)

    def _embed_part(self, texts: Sequence[str], dimension: int, purpose: Purpose, deadline: float | None) -> Matrix:
        request = Request(
            self.base_url + self._wire.path(self.model),
            data=json.dumps(self._wire.request(self.model, texts, dimension, purpose)).encode(),
            headers={"Content-Type": "application/json", self._wire.key_header: self._wire.key_prefix + self._key()},
            method="POST",
        )
        answer = self._ask(request, deadline)
        try:
            vectors = self._wire.vectors(json.loads(answer))
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise failure(f"the provider `{self.name}` gave an answer that is no embedding") from error
        if len(vectors) != len(texts):
            raise failure(f"the provider `{self.name}` gave {len(vectors)} vectors for {len(texts)} texts")
        return normalised(vectors, dimension, self.model)

    def _key(self) -> str:
        key = next((value for name in self._wire.key_settings if (value := settings.read(name))), "")
        if not key:
            raise failure(
                f"the provider `{self.name}` needs a key to embed text; set {' or '.join(self._wire.key_settings)}",
                provider=self.name,
            )
        return key

    def _ask(self, request: Request, deadline: float | None) -> bytes:
        pause = self.patience.backoff_seconds
        for attempt in range(1, max(1, self.patience.attempts_max) + 1):
            try:
                return self._ask_once(request, deadline)
            except _Passing as error:
                reason, cause = str(error), error
            left = None if deadline is None else deadline - clock.elapsed()
            if attempt >= self.patience.attempts_max or (left is not None and left <= pause):
                break
            time.sleep(pause)
            pause *= 2
        raise failure(f"the provider `{self.name}` failed {attempt} times, last with: {reason}") from cause

    def _ask_once(self, request: Request, deadline: float | None) -> bytes:
        left = self.patience.timeout_seconds
        if deadline is not None:
            left = min(left, deadline - clock.elapsed())
            if left <= 0:
                raise _Passing("the deadline has passed")
        until = clock.elapsed() + left
        try:
            with _opener.open(request, timeout=left) as response:
                return _read(response, until)
        except HTTPError as error:
            with error:
                said = error.read(_CHUNK_BYTES).decode("utf-8", "replace")[:_SHOWN_CHARACTERS]
            message = f"status {error.code}: {' '.join(said.split())}"
            if error.code in _RETRIED_STATUSES:
                raise _Passing(message) from error
            raise failure(f"the provider `{self.name}` refused: {message}", status=error.code) from error
        except (URLError, OSError, HTTPException) as error:
            raise _Passing(str(error) or type(error).__name__) from error


def _read(response: IO[bytes], until: float) -> bytes:
    """Read an answer to its end; a provider that drips it is as late as one that is silent."""
    answer = bytearray()
    # One read of the socket at a time: waiting for a whole chunk would let a drip outlast the deadline.
    read: Callable[[int], bytes] = getattr(response, "read1", response.read)
    while chunk := read(_CHUNK_BYTES):
        answer += chunk
        if len(answer) > EMBED_RESPONSE_BYTES_MAX:
            raise failure(f"the provider's answer is larger than {EMBED_RESPONSE_BYTES_MAX} bytes")
        if clock.elapsed() > until:
            raise _Passing("the answer did not come in time")
    return bytes(answer)


class _NoRedirects(HTTPRedirectHandler):
    """Following a redirect would hand the key to whoever it names."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


_opener: Final = build_opener(_NoRedirects)


def _openai_request(model: str, texts: Sequence[str], dimension: int, purpose: Purpose) -> dict[str, object]:
    return {"model": model, "input": list(texts), "dimensions": dimension}


def _openai_vectors(answer: Any) -> list[object]:
    return [one["embedding"] for one in sorted(answer["data"], key=lambda one: one.get("index", 0))]


def _gemini_request(model: str, texts: Sequence[str], dimension: int, purpose: Purpose) -> dict[str, object]:
    [text] = texts
    return {
        "model": f"models/{model}",
        "content": {"parts": [{"text": text}]},
        "taskType": purpose.value,
        "outputDimensionality": dimension,
    }


def _gemini_vectors(answer: Any) -> list[object]:
    return [answer["embedding"]["values"]]


def _openai(base_url: str, model: str, *key_settings: str) -> _Wire:
    return _Wire(
        base_url, model, key_settings, "Authorization", "Bearer ", lambda _: "/embeddings", EMBED_TEXTS_MAX,
        _openai_request, _openai_vectors,
    )  # fmt: skip


_WIRES: Final[Mapping[str, _Wire]] = {
    "openai-compatible": _openai(
        "https://openrouter.ai/api/v1", "openai/text-embedding-3-large", "OPENROUTER_API_KEY", "OPENAI_API_KEY"
    ),
    "openai": _openai("https://api.openai.com/v1", "text-embedding-3-large", "OPENAI_API_KEY"),
    "gemini": _Wire(
        "https://generativelanguage.googleapis.com/v1beta", "gemini-embedding-2", ("GEMINI_API_KEY",), "x-goog-api-key",
        "", lambda model: f"/models/{quote(model, safe='')}:embedContent", 1, _gemini_request, _gemini_vectors,
    ),
}  # fmt: skip
